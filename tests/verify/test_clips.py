"""Boxes clipped where planes are positive: what is cut away is positive, rounding included."""

from fractions import Fraction

import numpy as np
import torch

from holdfast.verify.split.search import Boxes, clipped


def exact(base, slopes, point):
    return Fraction(base) + sum(Fraction(s) * Fraction(t) for s, t in zip(slopes, point, strict=True))


def test_an_input_that_hardly_counts_is_not_clipped_by_rounding():
    """The plane is 0 at the corner as computed sums have it; a tiny slope divides what they were rounded."""
    rng = np.random.default_rng(0)
    for _ in range(400):
        slopes = rng.normal(0, 1, 6)
        slopes[0] = 10.0 ** rng.uniform(-16, -6)
        base = float(np.abs(slopes).sum()) + 10.0 ** rng.uniform(-17, -9) * rng.normal()
        one = torch.ones(1, 6, dtype=torch.float64)
        boxes = Boxes(-one, one, torch.zeros(1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64))
        planes = torch.tensor([[base]], dtype=torch.float64), torch.tensor(slopes)[None, None]
        kept = clipped(boxes, torch.zeros(1, dtype=torch.int64), *planes)
        corner = -np.sign(slopes)  # where the plane is least, but for the input of the tiny slope
        if kept.upper[0, 0] < 1:
            corner[0] = np.nextafter(float(kept.upper[0, 0]), 2)
            assert exact(base, slopes.tolist(), corner.tolist()) > 0
