"""Errors between spectrograms and between waves, also of different lengths.

    MSE(a, b) = 1 / (T · B) Σ_t Σ_b (a[t, b] − b[t, b])²,     T the frames that both have

Spectrograms of different speakers, or of different tempo, are aligned first by dynamic time
warping: the path of steps (1, 0), (0, 1), (1, 1) of the least sum of squared distances; the error is the
mean over the cells of that path.
"""

import numpy as np

from holdfast.core.errors import DataError
from holdfast.core.types import Floats, Ints


def mean_square(first: Floats, second: Floats) -> float:
    """The error over the common beginning of two waves (samples,) or spectrograms (frames, bands)."""
    if first.shape[1:] != second.shape[1:]:
        raise DataError(f"expected the same bands of both, got {first.shape[1:]} and {second.shape[1:]}")
    common = min(len(first), len(second))
    if not common:
        raise DataError("expected at least one frame or sample of both, got none")
    difference = first[:common] - second[:common]
    return float(np.mean(difference * difference))


def aligned_mean_square(first: Floats, second: Floats) -> float:
    """The mean over the warping path of the squared distances between frames (frames, bands)."""
    cost = distances(first, second)
    return float(np.mean(cost[tuple(warp(cost).T)]))


def distances(first: Floats, second: Floats) -> Floats:
    """The mean square error between every frame of the first and every one of the second."""
    squares = (first * first).sum(axis=1)[:, None] + (second * second).sum(axis=1)[None, :]
    return np.asarray(np.maximum(squares - 2.0 * (first @ second.T), 0.0) / first.shape[1])


def warp(cost: Floats) -> Ints:
    """The path (steps, 2) from the first to the last cell with the least sum of costs."""
    rows, columns = cost.shape
    total = np.full((rows + 1, columns + 1), np.inf)
    total[0, 0] = 0.0
    for diagonal in range(rows + columns - 1):  # cells of a diagonal do not depend on one another
        i = np.arange(max(0, diagonal - columns + 1), min(rows, diagonal + 1))
        j = diagonal - i
        before = np.minimum(np.minimum(total[i, j], total[i, j + 1]), total[i + 1, j])
        total[i + 1, j + 1] = cost[i, j] + before
    path = [(rows, columns)]
    while path[-1] != (1, 1):  # trace back through the sums; prefer the diagonal step
        i, j = path[-1]
        path.append(min(((i - 1, j - 1), (i - 1, j), (i, j - 1)), key=lambda cell: total[cell]))
    return np.array(path[::-1], np.int64) - 1
