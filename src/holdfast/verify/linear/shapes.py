"""The curves themselves in torch, their slopes, and their ranges over an interval."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import pi
from typing import Any

import torch

from holdfast.graph.ir import Activation
from holdfast.verify.linear.wave import sine_range

Tensor = Any
TINY = 1e-37
CONCAVE = ("sqrt", "log")
CONVEX = ("square", "exp", "reciprocal", "elu", "softplus")  # 1/x is concave below zero
SHAPED = ("sigmoid", "tanh", "erf")  # convex, then concave, turned about their middle


def _sigmoid_bend(z: Tensor) -> Tensor:
    s = torch.sigmoid(z)
    return s * (1 - s) * (1 - 2 * s)


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
    "sigmoid": _sigmoid_bend,
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
    if step.curve == "elu":  # at a kink the slope jumps; a little everywhere lets the point find it
        return step.slope * torch.exp(-z.abs()) + 0.01
    return _BENDS[step.curve](z)


def span(step: Activation, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    """The least and largest value of the curve over [lower, upper], rounded outward."""
    if step.curve == "sin":
        return sine_range(lower, upper)
    if step.curve == "leaky" and not 0.0 <= step.slope <= 1.0:
        ends = torch.stack([curve(step, lower), curve(step, upper), torch.zeros_like(lower)])
        inside = (lower < 0) & (upper > 0)
        low = torch.where(inside, ends.min(0).values, ends[:2].min(0).values)
        return wider(low, torch.where(inside, ends.max(0).values, ends[:2].max(0).values))
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
    if step.curve in ("sigmoid", "tanh", "erf"):
        return low - pad, high + pad
    # What is computed in several roundings, each of its own magnitude, keeps a few of them.
    low, high = low - pad * low.abs() - TINY, high + pad * high.abs() + TINY
    return (low.clamp(min=0.0) if step.curve in ("square", "exp", "sqrt") else low), high


def wider(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """Bounds moved outward by more than a rounded slope and a rounded product can be off."""
    eps = 2 * torch.finfo(low.dtype).eps
    return low - eps * low.abs(), high + eps * high.abs()
