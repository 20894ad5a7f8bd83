import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.errors import InputError
from holdfast.metrics.curves import (
    average_precision,
    curve,
    eleven_points,
    hundred_one_points,
    trapezoid_area,
)
from holdfast.metrics.rules import RULES


def made(outcomes, positives, **more):
    return curve(np.linspace(1, 0.1, len(outcomes)), outcomes, positives, **more)


def test_running_precision_and_recall():
    c = made([1, 0, 1, 1], 5)
    assert c.tp.tolist() == [1, 1, 2, 3]
    assert c.fp.tolist() == [0, 1, 1, 1]
    np.testing.assert_allclose(c.precision, [1, 1 / 2, 2 / 3, 3 / 4])
    np.testing.assert_allclose(c.recall, [0.2, 0.2, 0.4, 0.6])


def test_ignored_detections_leave_no_trace():
    c = made([1, -1, 0, -1, 1], 3)
    assert c.tp.tolist() == [1, 1, 2]
    assert c.score.tolist() == [1.0, pytest.approx(0.55), pytest.approx(0.1)]


def test_eleven_points_by_hand():
    # precision 1 up to recall 1/3, 2/3 at recall 2/3
    assert eleven_points(made([1, 0, 1], 3)).tolist() == [1] * 4 + [2 / 3] * 3 + [0] * 4


def test_recall_nine_fifteenths_reaches_the_point_at_six_tenths():
    """linspace(0, 1, 11)[6] is 0.6000000000000001 and would lose this point."""
    points = eleven_points(made([1] * 9, 15))
    assert points.tolist() == [1] * 7 + [0] * 4
    assert np.linspace(0, 1, 11)[6] > 9 / 15


@pytest.mark.parametrize("positives", range(1, 41))
def test_every_point_is_reached_at_exactly_its_recall(positives):
    for k in range(11):
        needed = -(-k * positives // 10)
        if needed:
            assert eleven_points(made([1] * needed, positives))[k] == 1.0
        if needed > 1:
            assert eleven_points(made([1] * (needed - 1), positives))[k] == 0.0


def test_the_end_points_belong_to_the_curve():
    c = made([0, 1], 2, end_points=True)
    recall, precision = c.points()
    assert recall.tolist() == [0, 0, 0.5, 1]
    assert precision.tolist() == [1, 0, 0.5, 0]
    assert eleven_points(c)[0] == 1.0
    assert eleven_points(made([0, 1], 2))[0] == 0.5
    assert average_precision(c, "11-point") == pytest.approx((1 + 5 * 0.5) / 11)
    assert made([0, 1], 2).points()[0].tolist() == [0, 0.5]


def test_with_end_points_finding_nothing_still_scores_the_point_at_recall_zero():
    assert average_precision(made([], 3, end_points=True), "11-point") == pytest.approx(1 / 11)
    assert average_precision(made([], 3), "11-point") == 0.0


def test_all_point_area_by_hand():
    # steps of 1/4: precision 1, then max(2/3, 3/4), 3/4
    assert average_precision(made([1, 0, 1, 1], 4), "all-point") == pytest.approx((1 + 3 / 4 + 3 / 4) / 4)


def test_hundred_one_points_by_hand():
    values = hundred_one_points(made([1, 0, 1], 3))
    assert (values > 0.99).sum() == 34  # recalls 0 … 0.33
    assert np.isclose(values, 2 / 3).sum() == 33  # 0.34 … 0.66
    assert (values == 0).sum() == 34
    assert hundred_one_points(made([0, 1], 2, end_points=True))[0] == 1.0


def test_trapezoid_joins_the_points_by_straight_lines():
    assert trapezoid_area(made([1, 1, 0, 1, 0], 4, end_points=True)) == pytest.approx(0.5 + 17 / 96 + 0.075)


@pytest.mark.parametrize("name", list(RULES))
def test_perfect_nothing_and_no_truth(name):
    rule = RULES[name]
    assert average_precision(made([1] * 7, 7), rule.interpolation) == pytest.approx(1.0)
    assert average_precision(made([], 7), rule.interpolation) == 0.0
    assert average_precision(made([0, 0], 7), rule.interpolation) == 0.0
    assert np.isnan(average_precision(made([0], 0), rule.interpolation))


def test_interpolations_differ():
    c = made([1, 0, 1], 3)
    values = [average_precision(c, name) for name in ("11-point", "all-point", "101-point")]
    assert len(set(values)) == 3
    assert values[0] == eleven_points(c).mean()
    assert values[2] == hundred_one_points(c).mean()


@given(st.lists(st.sampled_from([0, 1]), max_size=40), st.integers(0, 10))
def test_points_are_the_largest_precision_to_the_right(outcomes, missed):
    positives = sum(outcomes) + missed
    c = made(outcomes, positives)
    if positives == 0:
        return
    for k, value in enumerate(eleven_points(c)):
        right = [p for p, tp in zip(c.precision, c.tp, strict=True) if 10 * tp >= k * positives]
        assert value == max(right, default=0.0)
    assert abs(average_precision(c, "all-point") - average_precision(c, "101-point")) <= 0.02
    assert average_precision(c, "all-point") <= 1.0


def test_scores_must_fall_and_fit():
    with pytest.raises(InputError, match="descending order"):
        curve([0.1, 0.2], [1, 1], 2)
    with pytest.raises(InputError, match="as many scores as outcomes"):
        curve([0.1], [1, 1], 2)
