"""Candidates as tensors: what a detector says before thresholds and suppression, with a gradient."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


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
