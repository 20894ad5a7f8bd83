"""The curves themselves in torch, their slopes, and their ranges over an interval."""

from __future__ import annotations

from typing import Any

import torch

from holdfast.graph.ir import Activation

Tensor = Any


def curve(step: Activation, z: Tensor) -> Tensor:
    """The curve itself."""
    if step.curve == "relu":
        return z.clamp(min=0)
    if step.curve == "leaky":
        return torch.where(z > 0, z, z * step.slope)
    if step.curve == "sigmoid":
        return torch.sigmoid(z)
    return torch.tanh(z) if step.curve == "tanh" else torch.sign(z)


def derivative(step: Activation, z: Tensor) -> Tensor:
    """The curve's slope."""
    # Not s·(1 - s) or 1 - tanh²: far from zero those lose all digits, and the slope is multiplied by a width.
    if step.curve == "sigmoid":
        return torch.sigmoid(z) * torch.sigmoid(-z)
    return 4 * torch.sigmoid(2 * z) * torch.sigmoid(-2 * z)


def second(step: Activation, z: Tensor) -> Tensor:
    """How the curve's slope changes; for tuning, so rounding does not matter."""
    if step.curve == "sigmoid":
        s = torch.sigmoid(z)
        return s * (1 - s) * (1 - 2 * s)
    t = torch.tanh(z)
    return -2 * t * (1 - t * t)


def span(step: Activation, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    """The least and largest value of the curve over [lower, upper], rounded outward (all curves rise)."""
    if step.curve == "leaky" and not 0.0 <= step.slope <= 1.0:
        ends = torch.stack([curve(step, lower), curve(step, upper), torch.zeros_like(lower)])
        inside = (lower < 0) & (upper > 0)
        low = torch.where(inside, ends.min(0).values, ends[:2].min(0).values)
        return wider(low, torch.where(inside, ends.max(0).values, ends[:2].max(0).values))
    low, high = curve(step, lower), curve(step, upper)
    if step.curve in ("sigmoid", "tanh"):
        pad = 8 * torch.finfo(lower.dtype).eps
        return low - pad, high + pad
    return wider(low, high) if step.curve == "leaky" else (low, high)


def wider(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """Bounds moved outward by more than a rounded slope and a rounded product can be off."""
    eps = 2 * torch.finfo(low.dtype).eps
    return low - eps * low.abs(), high + eps * high.abs()
