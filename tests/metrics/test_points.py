"""Percentage points, intervals and significance in words."""

import pytest

from holdfast.metrics.points import interval_text, points, significance


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


def test_an_interval_without_width_says_so():
    assert interval_text(0.0, 0.0) == "no difference"
    assert interval_text(-0.001, 0.0) == "[0.00, 0.00]"
    assert interval_text(-2.226, 0.5) == "[-2.23, 0.50]"
    assert interval_text(None, None) == ""


def test_a_zero_has_no_sign():
    assert str(points(-0.0)) == "0.0"
    assert points(0.0255) == 2.55
