import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.errors import InputError
from holdfast.metrics.classification import classification_result, classify, place_of_truth


def test_top_one_and_top_two_by_hand():
    scores = [[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.5, 0.4, 0.1], [0.2, 0.3, 0.5]]
    result = classify(scores, [0, 2, 1, 0], ks=(1, 2))
    assert result.top == {1: 0.25, 2: 0.75}
    assert result.place.tolist() == [0, 1, 1, 2]
    np.testing.assert_allclose(result.per_class, [0.5, 0.0, 0.0])
    assert result.images.tolist() == [2, 1, 1]
    assert result.hits(2).tolist() == [True, True, True, False]


def test_equal_scores_keep_the_order_of_classes():
    assert place_of_truth([[0.5, 0.5, 0.5]] * 3, [0, 1, 2]).tolist() == [0, 1, 2]


@given(
    st.lists(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=5, max_size=5), min_size=1, max_size=20),
    st.data(),
)
def test_place_is_that_of_a_stable_sort(scores, data):
    labels = data.draw(st.lists(st.integers(0, 4), min_size=len(scores), max_size=len(scores)))
    order = np.argsort(-np.array(scores), axis=1, kind="stable")
    assert place_of_truth(scores, labels).tolist() == [
        list(o).index(t) for o, t in zip(order, labels, strict=True)
    ]


def test_a_class_without_images_and_no_images():
    result = classify([[1.0, 0.0]], [0])
    assert result.top[5] == 1.0
    assert np.isnan(result.per_class[1])
    assert np.isnan(classification_result(np.zeros(0, int), np.zeros(0, int), 3).top[1])


@pytest.mark.parametrize(
    ("scores", "labels", "message"),
    [
        ([[0.1, np.nan]], [0], "scores of image 0: expected numbers, got NaN"),
        ([[0.1, 0.2]], [2], "label of image 0: expected 0 to 1, got 2"),
        ([[0.1, 0.2]], [-1], "label of image 0: expected 0 to 1, got -1"),
        ([[0.1, 0.2]], [0, 1], "expected scores"),
    ],
)
def test_what_cannot_be_scored_is_refused(scores, labels, message):
    with pytest.raises(InputError, match=message):
        classify(scores, labels)
