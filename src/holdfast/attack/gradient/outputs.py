"""Candidates as tensors: what a detector says before thresholds and suppression, with a gradient."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from holdfast.core.errors import InputError
from holdfast.core.model import Card
from holdfast.core.registry import lookup, names, part
from holdfast.core.types import Ints
from holdfast.graph.candidates import single

LEAST = 1e-12  # probabilities below this are no different to an attack
CLOSEST = 1e-7  # a float32 cannot tell more of how far below 1 it is


@dataclass(frozen=True, eq=False)
class Candidates:
    """All candidates of a batch.

    `boxes` (b, n, 4) xyxy in pixels of the network's input; `scores` (b, n, k) in 0..1, exactly as the head
    makes them; `energy` (b, n, k) rises with the score and does not saturate, as a logit does: a loss on it
    still has a gradient where the score is 0.999.
    """

    boxes: Tensor
    scores: Tensor
    energy: Tensor


def places(raw: Mapping[str, Tensor]) -> dict[str, Ints]:
    """For every output the places (1, ...) of its numbers in the row that `joined` makes of an image."""
    found, start = {}, 0
    for name, value in raw.items():
        count = int(np.prod(value.shape[1:]))
        found[name] = np.arange(start, start + count).reshape(1, *value.shape[1:])
        start += count
    return found


def joined(raw: Mapping[str, Tensor]) -> Tensor:
    """All outputs of each image in one row (b, n)."""
    return torch.cat([value.flatten(1) for value in raw.values()], dim=1)


def taken(rows: Tensor, index: Ints) -> Tensor:
    """The numbers (b, ...) of the rows at these places (...)."""
    return rows[:, torch.from_numpy(np.ascontiguousarray(index, np.int64))]


def only(raw: Mapping[str, Tensor], names: Sequence[str], card: Card) -> tuple[str, Tensor]:
    """The one output that is named, or the only one there is, with the numpy heads' error otherwise."""
    name, _ = single(places(raw), names, card)
    return name, raw[name]


def constant(values: object, like: Tensor) -> Tensor:
    """An array as a tensor of the same type and device."""
    return torch.as_tensor(np.asarray(values), dtype=like.dtype, device=like.device)


def from_centres(centres: Tensor, sides: Tensor) -> Tensor:
    """Boxes (..., 4) xyxy from centres (..., 2) and sides (..., 2)."""
    return torch.cat([centres - 0.5 * sides, centres + 0.5 * sides], dim=-1)


def candidates_of(card: Card) -> Callable[..., Any]:
    """The function (raw outputs, card) -> Candidates of the card's head, or InputError that says why none."""
    if not differentiable(card.head.name):
        raise InputError(_why(card))
    return lookup("candidates", card.head.name)


def differentiable(head: str) -> bool:
    """Whether the candidates of that head can be had with a gradient."""
    return head in names("candidates")


def _why(card: Card) -> str:
    head = part("head", card.head.name)
    if head.facts.get("task") not in ("detect", "single", None):
        return f"head {head.name!r}: expected a detector to attack, got a model for task {card.task!r}"
    if not head.facts.get("nms", True):
        return (
            f"head {head.name!r}: the graph itself suppresses boxes, which no gradient passes; "
            "attack it from its predictions alone: --black-box"
        )
    return (
        f"head {head.name!r}: no candidates with a gradient are known for it; attack it with --black-box, "
        f'or register them: @stage("candidates", "{head.name}")'
    )


def odds_of_logs(log_p: Tensor) -> Tensor:
    """The log-odds log p - log(1 - p) from log p <= 0; near p = 1 it rises on with a finite slope."""
    log_p = _clamped(log_p, -math.inf, -CLOSEST)
    return log_p - torch.log(-torch.expm1(log_p))


def odds_of_probabilities(p: Tensor) -> Tensor:
    """The log-odds of values that the graph made probabilities already."""
    p = _clamped(p, LEAST, 1.0 - CLOSEST)
    return torch.log(p) - torch.log1p(-p)


def odds_of_product(first: Tensor, second: Tensor) -> Tensor:
    """The log-odds of the product of two probabilities."""
    return odds_of_logs(log_of(first) + log_of(second))


def log_of(p: Tensor) -> Tensor:
    """The logarithm of a probability, of one that is 0 too."""
    return torch.log(_clamped(p, LEAST, 1.0))


def odds_of_softmax(logits: Tensor) -> Tensor:
    """The log-odds (..., k) of each softmax probability over the last axis.

    That of the largest is taken against the others directly: 1 - p would be 0 in float32.
    """
    if logits.shape[-1] == 1:
        return logits
    top = functional.one_hot(logits.argmax(dim=-1), logits.shape[-1]).bool()
    rest = torch.logsumexp(logits.masked_fill(top, -math.inf), dim=-1, keepdim=True)
    return torch.where(top, logits - rest, odds_of_logs(torch.log_softmax(logits, dim=-1)))


def _clamped(values: Tensor, least: float, most: float) -> Tensor:
    # The gradient passes the clamp, or an attack would be blind where the network is surest.
    return values + (values.clamp(least, most) - values).detach()


def odds_of_two_logits(first: Tensor, second: Tensor) -> Tensor:
    """The log-odds of the product of two sigmoids, exact: 1/p = (1 + e^-a)(1 + e^-b)."""
    low, high = torch.minimum(first, second), torch.maximum(first, second)
    # log-odds = -log(e^-a + e^-b + e^-(a+b)); each sum is one that overflows in neither direction
    return low - torch.logaddexp(functional.softplus(low - high), -high)
