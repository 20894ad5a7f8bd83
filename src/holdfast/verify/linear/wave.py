"""Lines of the sine: any slope between -1 and 1, with the offset that makes the line touch.

The sine minus k·z is least at an end of the interval or where its slope is k and it bends upward, at
-arccos k + 2·pi·n; of all such places the first and the last count, for between them values are linear in n.
"""

from __future__ import annotations

from math import pi
from typing import Any

import torch

from holdfast.graph.ir import Activation
from holdfast.verify.linear.lines import Lines

Tensor = Any


class Wave:
    """sin: theta (q, 2, n) are the slopes of the lower and the upper line."""

    def __init__(self, step: Activation, lower: Tensor, upper: Tensor) -> None:
        self.step, self.lower, self.upper = step, lower, upper
        self.index = torch.arange(lower.shape[1])
        self.base = torch.zeros_like(lower)
        self.whole = torch.stack([lower, upper], 1)

    def assumed(self, lower: Tensor, upper: Tensor) -> Tensor:
        """The ends (q, 2, n) between which z is assumed."""
        return torch.stack([lower, upper], 1)

    def start(self, queries: int) -> Tensor:
        """The chord's slope, which is flat where the interval is long."""
        low, high = self.lower.double(), self.upper.double()
        width = high - low
        narrow = width < 1e-6
        chord = (torch.sin(high) - torch.sin(low)) / torch.where(narrow, torch.ones_like(width), width)
        chord = torch.where(narrow, torch.cos(low), chord)
        flat = torch.where(width > 2 * pi, torch.zeros_like(chord), chord).to(self.lower.dtype)
        return self.keep(flat[:, None].expand(queries, 2, -1).clone())

    def lines(self, theta: Tensor, split: Tensor | None = None) -> Lines:
        """The lines of these slopes."""
        low, high = (self.whole if split is None else split).unbind(1)
        below, above = theta.unbind(1)
        first, _ = least(below, low, high)
        # sin(z) <= k·z + c is -sin(-z) seen from the other side.
        last, _ = least(above, -high, -low)
        eps = torch.finfo(low.dtype).eps
        size = low.abs() + high.abs()
        pads = [8 * eps * (1 + k.abs() * size) + 1e-12 * (1 + size) for k in (below, above)]
        dtype = self.lower.dtype
        return Lines(below, first.to(dtype) - pads[0], above, -last.to(dtype) + pads[1])

    def slope(self, theta: Tensor, rows: Tensor, z: Tensor, split: Tensor | None = None) -> Tensor:
        """How the bound changes with theta: the line turns about its touching point."""
        low, high = (self.whole if split is None else split).unbind(1)
        below = least(theta[:, 0], low, high)[1].to(z.dtype)
        above = -least(theta[:, 1], -high, -low)[1].to(z.dtype)
        return torch.stack([rows.clamp(min=0) * (z - below), rows.clamp(max=0) * (z - above)], 1)

    def keep(self, theta: Tensor, split: Tensor | None = None) -> Tensor:
        """Theta moved to slopes that a sine has."""
        return theta.clamp(-1.0, 1.0)


def least(slope: Tensor, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    """The least value of sin(z) - slope·z between the bounds, in float64, and where it is."""
    k, low, high = slope.double(), lower.double(), upper.double()
    phase = -torch.arccos(k)
    turns = [torch.ceil((low - phase) / (2 * pi)), torch.floor((high - phase) / (2 * pi))]
    places = [low.expand(k.shape), high.expand(k.shape)]
    places += [torch.minimum(torch.maximum(phase + 2 * pi * n, low), high) for n in turns]
    z = torch.stack(places)
    value, which = (torch.sin(z) - k * z).min(0)
    return value, z.gather(0, which[None])[0]


def sine_range(lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    """The least and the largest sine over [lower, upper], rounded outward."""
    flat = torch.zeros_like(lower)
    low, high = least(flat, lower, upper)[0], -least(flat, -upper, -lower)[0]
    # A place is off by a few roundings of where it is, and the sine there by half the square of that.
    doubt = (2.0**-50 * (lower.abs() + upper.abs())) ** 2
    pad = 8 * torch.finfo(lower.dtype).eps + doubt
    return (low.to(lower.dtype) - pad).clamp(min=-1.0), (high.to(lower.dtype) + pad).clamp(max=1.0)
