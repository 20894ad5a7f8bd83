import numpy as np

from holdfast.metrics.classification import classification_result


def test_top_one_and_top_two_by_hand():
    result = classification_result(np.array([0, 1, 1, 2]), [0, 2, 1, 0], 3, ks=(1, 2))
    assert result.top == {1: 0.25, 2: 0.75}
    np.testing.assert_allclose(result.per_class, [0.5, 0.0, 0.0])
    assert result.images.tolist() == [2, 1, 1]


def test_a_class_without_images_and_no_images():
    result = classification_result(np.array([0]), [0], 2)
    assert result.top[5] == 1.0
    assert np.isnan(result.per_class[1])
    assert np.isnan(classification_result(np.zeros(0, int), np.zeros(0, int), 3).top[1])
