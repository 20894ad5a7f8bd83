"""Percentage points, intervals and significance in words."""

import pytest

from holdfast.metrics.points import (
    basis_text,
    chance_text,
    facing,
    interval_text,
    lost_text,
    points,
    significance,
)


@pytest.mark.parametrize(
    ("low", "high", "images", "words"),
    [
        (0.5, 2.0, 40, "significant"),
        (-0.5, 2.0, 40, "not significant (the 95% interval contains 0)"),
        (0.5, 2.0, 8, "significant; an indication: n = 8"),
        (None, None, 8, ""),
    ],
)
def test_significance_in_words(low, high, images, words):
    assert significance(low, high, images) == words


def test_a_number_says_its_n_and_whether_it_is_an_indication():
    assert [basis_text(n) for n in (None, 1, 19, 20)] == [
        "", "n = 1, indication", "n = 19, indication", "n = 20",
    ]  # fmt: skip


def test_an_interval_without_width_says_so():
    assert interval_text(0.0, 0.0) == "no difference"
    assert interval_text(-0.001, 0.0) == "[0.00, 0.00]"
    assert interval_text(-2.226, 0.5) == "[-2.23, 0.50]"
    assert interval_text(None, None) == ""


def test_a_zero_has_no_sign():
    assert str(points(-0.0)) == "0.0"
    assert points(0.0255) == 2.55


@pytest.mark.parametrize(
    ("lost", "text"),
    [
        (0.524, "0.52 points lost"),
        (0.0, "0.00 points lost"),
        (-0.004, "0.00 points lost"),
        (-0.01, "0.01 points gained"),
    ],
)
def test_a_negative_loss_is_a_gain(lost, text):
    assert lost_text(lost) == text


def test_the_interval_faces_the_way_of_the_number():
    assert facing(0.5, -1.0, 2.0) == (-1.0, 2.0)
    assert facing(-0.5, -2.0, 1.0) == (-1.0, 2.0)
    assert facing(-0.5, None, None) == (None, None)


def test_the_intervals_that_exclude_0_are_counted_beside_those_that_chance_would_give():
    ends = [(-1.0, 2.0), (0.5, 2.0), (-3.0, -1.0), (100.0, 100.0), (0.0, 0.0), (None, None)]
    assert chance_text(ends) == "Of 4 intervals, about 0.2 would exclude 0 by chance alone (5%); 3 do"
    assert chance_text(ends[:2]) == "Of 2 intervals, about 0.1 would exclude 0 by chance alone (5%); 1 does"
    assert (
        chance_text(ends[:1] * 40)
        == "Of 40 intervals, about 2.0 would exclude 0 by chance alone (5%); none does"
    )
    assert chance_text([*ends[:1], *ends[4:]]) == ""
