"""The curves themselves in torch, their slopes and ranges over an interval; lines and planes around them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import pi
from typing import Any

import torch

from holdfast.graph.ir import Activation, Product

Tensor = Any
TINY = 1e-37
CONCAVE = ("sqrt", "log")
CONVEX = ("square", "exp", "reciprocal", "elu", "softplus")  # 1/x is concave below zero
SHAPED = ("sigmoid", "tanh", "erf")  # convex, then concave, turned about their middle

_PLAIN: Mapping[str, Callable[[Tensor], Tensor]] = {
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "sign": torch.sign,
    "erf": torch.erf,
    "square": lambda z: z * z,
    "exp": torch.exp,
    "log": torch.log,
    "sqrt": torch.sqrt,
    "reciprocal": lambda z: 1 / z,
    "softplus": lambda z: z.clamp(min=0) + torch.log1p(torch.exp(-z.abs())),
    "sin": torch.sin,
}
# Not s·(1 - s) or 1 - tanh²: far from zero those lose all digits, and the slope is multiplied by a width.
_SLOPES: Mapping[str, Callable[[Tensor], Tensor]] = {
    "sigmoid": lambda z: torch.sigmoid(z) * torch.sigmoid(-z),
    "tanh": lambda z: 4 * torch.sigmoid(2 * z) * torch.sigmoid(-2 * z),
    "erf": lambda z: 2 / pi**0.5 * torch.exp(-z * z),
    "square": lambda z: 2 * z,
    "exp": torch.exp,
    "log": lambda z: 1 / z,
    "sqrt": lambda z: 0.5 / torch.sqrt(z),
    "reciprocal": lambda z: -(1 / z) * (1 / z),  # z * z is infinite long before this is zero
    "softplus": torch.sigmoid,
}
_BENDS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "sigmoid": lambda z: (s := torch.sigmoid(z)) * (1 - s) * (1 - 2 * s),
    "tanh": lambda z: -2 * torch.tanh(z) * (1 - torch.tanh(z) ** 2),
    "erf": lambda z: -4 / pi**0.5 * z * torch.exp(-z * z),
    "square": lambda z: torch.full_like(z, 2.0),
    "exp": torch.exp,
    "log": lambda z: -1 / (z * z),
    "sqrt": lambda z: -0.25 / (z * torch.sqrt(z)),
    "reciprocal": lambda z: 2 / (z * z * z),
    "softplus": lambda z: torch.sigmoid(z) * torch.sigmoid(-z),
}


def curve(step: Activation, z: Tensor) -> Tensor:
    """The curve itself."""
    if step.curve == "relu":
        return z.clamp(min=0)
    if step.curve == "leaky":
        return torch.where(z > 0, z, z * step.slope)
    if step.curve == "elu":
        return torch.where(z > 0, z, step.slope * torch.expm1(z.clamp(max=0)))
    return _PLAIN[step.curve](z)


def derivative(step: Activation, z: Tensor) -> Tensor:
    """The curve's slope."""
    if step.curve == "elu":
        return torch.where(z > 0, torch.ones_like(z), step.slope * torch.exp(z.clamp(max=0)))
    return _SLOPES[step.curve](z)


def second(step: Activation, z: Tensor) -> Tensor:
    """How the curve's slope changes; for tuning, so rounding does not matter."""
    # An elu's slope jumps at the kink; a small value lets tuning move the point there.
    return step.slope * torch.exp(-z.abs()) + 0.01 if step.curve == "elu" else _BENDS[step.curve](z)


def least(slope: Tensor, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    """The least value of sin(z) - slope·z between the bounds, in float64, and where it is.

    It is at an end of the interval or where the sine's slope is k and it bends upward, -arccos k + 2·pi·n; of
    all such places the first and the last count, for between them values are linear in n.
    """
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
    # A position has a few roundings, and the sine there an error of half their square.
    doubt = (2.0**-50 * (lower.abs() + upper.abs())) ** 2
    pad = 8 * torch.finfo(lower.dtype).eps + doubt
    return (low.to(lower.dtype) - pad).clamp(min=-1.0), (high.to(lower.dtype) + pad).clamp(max=1.0)


def span(step: Activation, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    """The least and largest value of the curve over [lower, upper], rounded outward."""
    if step.curve == "sin":
        return sine_range(lower, upper)
    if step.curve == "leaky" and not 0.0 <= step.slope <= 1.0:
        ends = torch.stack([curve(step, lower), curve(step, upper), torch.zeros_like(lower)])
        inside = (lower < 0) & (upper > 0)
        low = torch.where(inside, ends.min(0).values, ends[:2].min(0).values)
        high = torch.where(inside, ends.max(0).values, ends[:2].max(0).values)
        eps = 2 * torch.finfo(low.dtype).eps  # more than the error of a rounded slope and a rounded product
        return low - eps * low.abs(), high + eps * high.abs()
    low, high = curve(step, lower), curve(step, upper)
    if step.curve in ("relu", "sign"):
        return low, high
    if step.curve in ("square", "reciprocal"):
        low, high = torch.minimum(low, high), torch.maximum(low, high)
        if step.curve == "square":
            low = torch.where((lower < 0) & (upper > 0), torch.zeros_like(low), low)
        else:  # about a pole there is no bound
            pole = (lower <= 0) & (upper >= 0)
            low, high = low.masked_fill(pole, -torch.inf), high.masked_fill(pole, torch.inf)
    pad = 8 * torch.finfo(lower.dtype).eps
    if step.curve in SHAPED:
        return low - pad, high + pad
    # Values with several roundings of different magnitudes get a margin of a few of them.
    low, high = low - pad * low.abs() - TINY, high + pad * high.abs() + TINY
    return (low.clamp(min=0.0) if step.curve in ("square", "exp", "sqrt") else low), high


@dataclass(frozen=True, eq=False)
class Lines:
    """ls·z + lo <= f(z) <= us·z + uo, each (1 or q, m); an offset of None is zero."""

    ls: Tensor
    lo: Tensor | None
    us: Tensor
    uo: Tensor | None

    def pick(self, index: Tensor) -> Lines:
        """Those of some of the queries."""
        parts = (self.ls, self.lo, self.us, self.uo)
        return Lines(*(part if part is None or len(part) == 1 else part[index] for part in parts))

    def at(self, rows: Tensor, z: Tensor) -> Tensor:
        """Values (q, m) at z (q, m) of the line each neuron uses: the lower one where its row is positive."""
        low = z * self.ls if self.lo is None else z * self.ls + self.lo
        high = z * self.us if self.uo is None else z * self.us + self.uo
        return torch.where(rows >= 0, low, high)


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
        return Planes(*(part if len(part) == 1 else part[index] for part in vars(self).values()))

    def at(self, rows: Tensor, a: Tensor, b: Tensor) -> Tensor:
        """The value (q, n) of the plane each product uses: the lower one where its row is positive."""
        low = self.la * a + self.lb * b + self.lo
        return torch.where(rows >= 0, low, self.ua * a + self.ub * b + self.uo)


class Relaxation:
    """The bounds (1, n) before a step, and lines around the step between them.

    `index` are the neurons whose lines have parameters, by default all; others have the slope `base` (1, n).
    """

    def __init__(self, step: Any, lower: Tensor, upper: Tensor) -> None:
        self.step, self.lower, self.upper = step, lower, upper
        self.index = torch.arange(lower.shape[1])
        self.base = torch.zeros_like(lower)

    def start(self, queries: int) -> Tensor:
        """The parameters at first: none."""
        return self.lower.new_zeros(queries, 0)

    def lines(self, theta: Tensor, split: Tensor | None = None) -> Any:
        """The lines or planes for parameters theta (q, ...); `split` are assumptions of each query."""
        raise NotImplementedError

    def slope(self, theta: Tensor, rows: Tensor, z: Tensor, split: Tensor | None = None) -> Tensor:
        """How the bound changes with theta: rows (q, m) of the output, z (q, m) of the relaxed point."""
        return theta

    def keep(self, theta: Tensor, split: Tensor | None = None) -> Tensor:
        """Theta projected to valid values."""
        return theta


class ProductRelaxation(Relaxation):
    """A product of two steps: theta (q, 2, n) mixes two planes below and two above (McCormick 1976).

    For la <= a <= ua and lb <= b <= ub the products (a - la)(b - lb), (ua - a)(ub - b), (ua - a)(b - lb) and
    (a - la)(ub - b) are not negative: two planes below a·b and two above it. Any mix of two is one again.
    """

    def __init__(self, step: Product, left: tuple[Tensor, Tensor], right: tuple[Tensor, Tensor]) -> None:
        super().__init__(step, *left)
        self.left, self.right = left, right
        size = [torch.maximum(low.abs(), high.abs()) for low, high in (left, right)]
        self.pad = 16 * torch.finfo(left[0].dtype).eps * size[0] * size[1]

    def start(self, queries: int) -> Tensor:
        """Equal weights of both planes."""
        return torch.full((queries, 2, len(self.index)), 0.5, dtype=self.lower.dtype)

    def lines(self, theta: Tensor, split: Tensor | None = None) -> Planes:
        """The planes mixed by theta (q, 2, n)."""
        (la, ua), (lb, ub) = self.left, self.right
        below, above = theta.unbind(1)
        low, high = 1 - below, 1 - above
        return Planes(
            la=low * lb + below * ub,
            lb=low * la + below * ua,
            lo=-(low * la * lb + below * ua * ub) - self.pad,
            ua=high * lb + above * ub,
            ub=high * ua + above * la,
            uo=-(high * ua * lb + above * la * ub) + self.pad,
        )

    def slope(self, theta: Tensor, rows: Tensor, z: Tensor, split: Tensor | None = None) -> Tensor:
        """How the bound changes with theta: by the difference of the two planes at z (q, 2, n)."""
        (la, ua), (lb, ub) = self.left, self.right
        a, b = z.unbind(1)
        below = (ub - lb) * a + (ua - la) * b - ua * ub + la * lb
        above = (ub - lb) * a + (la - ua) * b - la * ub + ua * lb
        return torch.stack([rows.clamp(min=0) * below, rows.clamp(max=0) * above], 1)

    def keep(self, theta: Tensor, split: Tensor | None = None) -> Tensor:
        """Theta projected to [0, 1]."""
        return theta.clamp(0.0, 1.0)


def product_range(left: tuple[Tensor, Tensor], right: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """The least and the largest product, rounded outward."""
    ends = torch.stack([a * b for a in left for b in right])
    low, high = ends.amin(0), ends.amax(0)
    eps = 2 * torch.finfo(low.dtype).eps
    return low - eps * low.abs(), high + eps * high.abs()
