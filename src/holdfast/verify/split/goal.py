"""The cases of a problem as tensors, and what rows bounded by planes say of a case together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from holdfast.verify.problem import Case
from holdfast.verify.split.back import Plane
from holdfast.verify.sweep.chords import UNIT

Tensor = Any
TURNS = 24  # of the weights of a conjunction


@dataclass(frozen=True, eq=False)
class Goals:
    """All cases: rows (c, m, k), of inputs (c, m, d), bounds (c, m); short cases repeat their first row."""

    rows: Tensor
    over: Tensor
    bound: Tensor


def goals_of(cases: Sequence[Case]) -> Goals:
    """The cases side by side; one without rows is met by any output."""
    most = max(1, *(len(case.bound) for case in cases))
    rows = np.zeros((len(cases), most, cases[0].rows.shape[1]))
    over, bound = np.zeros((len(cases), most, len(cases[0].lower))), np.ones((len(cases), most))
    for at, case in enumerate(cases):
        if count := len(case.bound):
            again = np.minimum(np.arange(most), count) % count
            rows[at], bound[at] = case.rows[again], case.bound[again]
            if case.inputs is not None:
                over[at] = case.inputs[again]
    return Goals(*(torch.as_tensor(value) for value in (rows, over, bound)))


def excess(goals: Goals, case: Tensor, points: Tensor, outputs: Tensor) -> Tensor:
    """The largest row of each case (p,) beyond its bound at a point (p, d): at most 0 where it is met."""
    left = (goals.rows[case] * outputs[:, None]).sum(2) + (goals.over[case] * points[:, None]).sum(2)
    return (left - goals.bound[case]).amax(1)


@dataclass(frozen=True, eq=False)
class Mix:
    """The best bounds of p cases (p,), the weights of the planes that gave them (p, m), and slopes (p, d)."""

    lower: Tensor
    weight: Tensor
    slopes: Tensor

    def pick(self, which: Tensor) -> Mix:
        """Those of some of the cases."""
        return Mix(self.lower[which], self.weight[which], self.slopes[which])


def mixed(base: Tensor, slopes: Tensor) -> Mix:
    """The best mix of planes, bases (p, m) already beyond the bounds, slopes (p, m, d).

    The least value of a mix is concave in the weights: they climb by its gradient, the planes' values at the
    corner where the mix is least. Any weights are valid.
    """
    reach = slopes.abs().sum(2)
    alone = base - reach - 8 * slopes.shape[2] * UNIT * (base.abs() + reach)
    best, at = alone.max(1)
    weight = torch.nn.functional.one_hot(at, base.shape[1]).to(base.dtype)
    if base.shape[1] == 1:
        return Mix(best, weight, slopes[:, 0])
    tried = torch.full_like(base, 1.0 / base.shape[1])
    for turn in range(TURNS):
        blend = (tried[:, :, None] * slopes).sum(1)
        size = (tried[:, :, None] * slopes.abs()).sum((1, 2)) + (tried * base.abs()).sum(1)
        lower = (tried * base).sum(1) - blend.abs().sum(1) - 8 * sum(slopes.shape[1:]) * UNIT * size
        better = lower > best
        best, weight = torch.where(better, lower, best), torch.where(better[:, None], tried, weight)
        value = base - (slopes * blend.sign()[:, None]).sum(2)
        value = value / value.abs().amax(1, keepdim=True).clamp(min=1e-30)
        tried = torch.softmax(tried.clamp(min=1e-9).log() + value * 3.0 / (1 + 0.3 * turn), 1)
    return Mix(best, weight, (weight[:, :, None] * slopes).sum(1))


def blended(
    goals: Goals, case: Tensor, weight: Tensor, size: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Rows (p, k), input rows (p, d) and bounds (p,) mixed by weights (p, m), and what that can be off (p,).

    `size` (p, k + d) are the magnitudes of outputs and inputs. Weights below zero do not occur.
    """
    rows = (weight[:, :, None] * goals.rows[case]).sum(1)
    over = (weight[:, :, None] * goals.over[case]).sum(1)
    bound = (weight * goals.bound[case]).sum(1)
    both = torch.cat([goals.rows[case], goals.over[case]], 2).abs()
    mass = (weight[:, :, None] * both * size[:, None]).sum((1, 2)) + (weight * goals.bound[case].abs()).sum(1)
    return rows, over, bound, 4 * (weight.shape[1] + both.shape[2] + 4) * UNIT * mass


def stacked(planes: Sequence[Plane], bound: Tensor) -> tuple[Tensor, Tensor]:
    """Bases (p, m) beyond bounds (p, r) and slopes (p, m, d) of several kinds of planes of the same rows."""
    pairs, rows = bound.shape
    base = torch.cat([plane.base.reshape(pairs, rows) - bound for plane in planes], 1)
    pad = 4 * UNIT * (torch.cat([bound.abs()] * len(planes), 1) + base.abs())
    return base - pad, torch.cat([plane.slopes.reshape(pairs, rows, -1) for plane in planes], 1)
