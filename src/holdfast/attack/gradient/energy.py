"""Energies: log-odds of scores, stable where the scores themselves are 0 or 1 to the last bit."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

LEAST = 1e-12  # probabilities below this are no different to an attack
CLOSEST = 1e-7  # a float32 cannot tell more of how far below 1 it is


def of_logs(log_p: Tensor) -> Tensor:
    """The log-odds log p - log(1 - p) from log p <= 0; near p = 1 it rises on with a finite slope."""
    log_p = _held(log_p, -math.inf, -CLOSEST)
    return log_p - torch.log(-torch.expm1(log_p))


def of_probabilities(p: Tensor) -> Tensor:
    """The log-odds of values that the graph made probabilities already."""
    p = _held(p, LEAST, 1.0 - CLOSEST)
    return torch.log(p) - torch.log1p(-p)


def of_product(first: Tensor, second: Tensor) -> Tensor:
    """The log-odds of the product of two probabilities."""
    return of_logs(log_of(first) + log_of(second))


def log_of(p: Tensor) -> Tensor:
    """The logarithm of a probability, of one that is 0 too."""
    return torch.log(_held(p, LEAST, 1.0))


def of_softmax(logits: Tensor) -> Tensor:
    """The log-odds (..., k) of each softmax probability over the last axis.

    That of the largest is taken against the others directly: 1 - p would be 0 in float32.
    """
    if logits.shape[-1] == 1:
        return logits
    top = functional.one_hot(logits.argmax(dim=-1), logits.shape[-1]).bool()
    rest = torch.logsumexp(logits.masked_fill(top, -math.inf), dim=-1, keepdim=True)
    return torch.where(top, logits - rest, of_logs(torch.log_softmax(logits, dim=-1)))


def _held(values: Tensor, least: float, most: float) -> Tensor:
    # The gradient passes the clamp, or an attack would be blind where the network is surest.
    return values + (values.clamp(least, most) - values).detach()


def of_two_logits(first: Tensor, second: Tensor) -> Tensor:
    """The log-odds of the product of two sigmoids, exact: 1/p = (1 + e^-a)(1 + e^-b)."""
    low, high = torch.minimum(first, second), torch.maximum(first, second)
    # log-odds = -log(e^-a + e^-b + e^-(a+b)); each sum is one that overflows in neither direction
    return low - torch.logaddexp(functional.softplus(low - high), -high)
