"""Anchors of the detector's heads by k-means on the signs of the training pool."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def find_anchors(sides: NDArray[Any], count: int, rounds: int = 60) -> NDArray[np.float64]:
    """`count` pairs (w, h) from sides (n, 2), by k-means on logarithms, smallest first, to 0.1 pixel."""
    points = np.log(np.asarray(sides, np.float64))
    order = points.sum(1).argsort()
    # Start from the quantiles of size: no random start, so the same pool gives the same anchors.
    means = points[order[((np.arange(count) + 0.5) * len(points) / count).astype(int)]]
    for _ in range(rounds):
        nearest = np.square(points[:, None] - means[None]).sum(2).argmin(1)
        means = np.stack(
            [points[nearest == k].mean(0) if (nearest == k).any() else means[k] for k in range(count)]
        )
    found: NDArray[np.float64] = np.exp(means)
    ordered: NDArray[np.float64] = found[found.prod(1).argsort()].round(1)
    return ordered
