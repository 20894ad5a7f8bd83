"""Mean square errors over what two signals have in common, and with time warped."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.errors import DataError
from holdfast.metrics.speech import aligned_mean_square, distances, mean_square, warp


def test_the_error_is_over_the_common_beginning():
    assert mean_square(np.array([1.0, 2.0, 3.0]), np.array([1.0, 4.0])) == 2.0
    a, b = np.zeros((4, 3)), np.full((4, 3), 0.5)
    assert mean_square(a, b) == 0.25


def test_what_cannot_be_compared_is_told():
    with pytest.raises(DataError, match="the same bands"):
        mean_square(np.zeros((4, 3)), np.zeros((4, 2)))
    with pytest.raises(DataError, match="at least one frame"):
        mean_square(np.zeros(0), np.zeros(3))


def every_path(rows, columns):
    """All monotone paths of a small grid."""
    if (rows, columns) == (1, 1):
        return [[(0, 0)]]
    found = []
    for r, c in ((rows - 1, columns), (rows, columns - 1), (rows - 1, columns - 1)):
        if r >= 1 and c >= 1:
            found += [[*path, (rows - 1, columns - 1)] for path in every_path(r, c)]
    return found


@settings(max_examples=40, deadline=None)
@given(rows=st.integers(1, 5), columns=st.integers(1, 5), seed=st.integers(0, 1000))
def test_the_warping_path_is_the_cheapest_of_all(rows, columns, seed):
    cost = np.random.default_rng(seed).uniform(size=(rows, columns))
    path = warp(cost)
    assert tuple(path[0]) == (0, 0)
    assert tuple(path[-1]) == (rows - 1, columns - 1)
    steps = {tuple(b - a) for a, b in itertools.pairwise(path)}
    assert steps <= {(0, 1), (1, 0), (1, 1)}
    best = min(sum(cost[cell] for cell in other) for other in every_path(rows, columns))
    assert sum(cost[tuple(cell)] for cell in path) == pytest.approx(best)


def test_a_slower_copy_is_no_error():
    rng = np.random.default_rng(0)
    mel = rng.normal(size=(20, 8))
    slow = np.repeat(mel, 3, axis=0)
    assert aligned_mean_square(mel, slow) == pytest.approx(0.0, abs=1e-12)
    assert mean_square(mel, slow) > 0.5
    assert aligned_mean_square(mel, mel + 0.5) <= 0.25 + 1e-12


def test_distances_are_mean_squares():
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(3, 5)), rng.normal(size=(4, 5))
    wanted = ((a[:, None] - b[None]) ** 2).mean(axis=2)
    assert distances(a, b) == pytest.approx(wanted)
