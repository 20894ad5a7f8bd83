"""AugMix's second half: versions of a picture shall be answered alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.core.errors import InputError


def consistency(logits_list: Sequence[Any]) -> Any:
    """The Jensen-Shannon divergence in nats (a tensor of one number) of answers to versions of a batch.

    logits_list: two or more tensors (n, classes), of the pictures themselves and of augmented versions. The
    mean over the batch of Σᵢ KL(pᵢ ‖ mean p) / k; AugMix adds 12 times this to the loss.
    """
    if len(logits_list) < 2:
        raise InputError(f"consistency: expected the logits of 2 or more versions, got {len(logits_list)}")
    import torch

    logs = torch.stack([logits.log_softmax(1) for logits in logits_list])
    chances = logs.exp()
    middle = chances.mean(0).clamp(min=1e-7).log()
    return (chances * (logs - middle)).sum(2).mean()
