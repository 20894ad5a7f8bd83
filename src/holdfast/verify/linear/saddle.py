"""Planes below and above a product of two values (McCormick 1976), mixed by a parameter each.

For la <= a <= ua and lb <= b <= ub the products (a - la)(b - lb), (ua - a)(ub - b), (ua - a)(b - lb) and
(a - la)(ub - b) are not negative: two planes below a·b and two above it. Any mix of two is one again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from holdfast.graph.ir import Product

Tensor = Any


@dataclass(frozen=True, eq=False)
class Planes:
    """la·a + lb·b + lo <= a·b <= ua·a + ub·b + uo, each (1 or q, n)."""

    la: Tensor
    lb: Tensor
    lo: Tensor
    ua: Tensor
    ub: Tensor
    uo: Tensor

    def pick(self, index: Tensor) -> Planes:
        """Those of some of the queries."""
        parts = (self.la, self.lb, self.lo, self.ua, self.ub, self.uo)
        return Planes(*(part if len(part) == 1 else part[index] for part in parts))


class Saddle:
    """A product of two steps: theta (q, 2, n) says how the lower and the upper plane are mixed."""

    def __init__(self, step: Product, left: tuple[Tensor, Tensor], right: tuple[Tensor, Tensor]) -> None:
        self.step, self.left, self.right = step, left, right
        self.lower, self.upper = left  # as other bends have them; `double` is what needs both
        self.index = torch.arange(left[0].shape[1])
        self.base = torch.zeros_like(left[0])
        size = [torch.maximum(low.abs(), high.abs()) for low, high in (left, right)]
        self.pad = 16 * torch.finfo(left[0].dtype).eps * size[0] * size[1]

    def double(self) -> Saddle:
        """The same in float64."""
        left, right = ((low.double(), high.double()) for low, high in (self.left, self.right))
        return Saddle(self.step, left, right)

    def start(self, queries: int) -> Tensor:
        """Both planes in equal parts."""
        return torch.full((queries, 2, len(self.index)), 0.5, dtype=self.lower.dtype)

    def lines(self, theta: Tensor, split: Tensor | None = None) -> Planes:
        """The planes mixed by theta (q, 2, n)."""
        (la, ua), (lb, ub) = self.left, self.right
        below, above = theta.unbind(1)
        low, high = 1 - below, 1 - above
        return Planes(
            low * lb + below * ub,
            low * la + below * ua,
            -(low * la * lb + below * ua * ub) - self.pad,
            high * lb + above * ub,
            high * ua + above * la,
            -(high * ua * lb + above * la * ub) + self.pad,
        )

    def slope(self, theta: Tensor, rows: Tensor, z: Tensor, split: Tensor | None = None) -> Tensor:
        """How the bound changes with theta: by the difference of the two planes at z (q, 2, n)."""
        (la, ua), (lb, ub) = self.left, self.right
        a, b = z.unbind(1)
        below = (ub - lb) * a + (ua - la) * b - ua * ub + la * lb
        above = (ub - lb) * a + (la - ua) * b - la * ub + ua * lb
        return torch.stack([rows.clamp(min=0) * below, rows.clamp(max=0) * above], 1)

    def keep(self, theta: Tensor, split: Tensor | None = None) -> Tensor:
        """Theta moved to between the planes."""
        return theta.clamp(0.0, 1.0)


def pull_product(planes: Planes, rows: Tensor, const: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The constant (q,) with what it gained, and rows (q, n) of the product as rows of its two factors."""
    positive = rows.clamp(min=0)
    negative = rows - positive
    const = (
        const + (positive.to(const.dtype) * planes.lo).sum(1) + (negative.to(const.dtype) * planes.uo).sum(1)
    )
    return const, positive * planes.la + negative * planes.ua, positive * planes.lb + negative * planes.ub


def push_product(planes: Planes, rows: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """The value (q, n) of the plane each product uses: the lower one where its row is positive."""
    low = planes.la * a + planes.lb * b + planes.lo
    return torch.where(rows >= 0, low, planes.ua * a + planes.ub * b + planes.uo)


def product_range(left: tuple[Tensor, Tensor], right: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """The least and the largest product, rounded outward."""
    ends = torch.stack([a * b for a in left for b in right])
    low, high = ends.amin(0), ends.amax(0)
    eps = 2 * torch.finfo(low.dtype).eps
    return low - eps * low.abs(), high + eps * high.abs()
