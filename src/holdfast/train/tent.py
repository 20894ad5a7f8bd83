"""TENT (Wang et al. 2020): a network adapts to what it is shown by lowering the entropy of its answers."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from holdfast.core.errors import InputError
from holdfast.train.onnx import Trainable


def tent(
    net: Trainable, batches: Iterable[Tensor], rate: float, steps: int = 1, skip: int = 0
) -> NDArray[np.int64]:
    """The predicted classes (n,) of all batches in their order, the network adapting from batch to batch.

    Batches are normalised by their own statistics; scale and bias of the normalising nodes take `steps` steps
    of Adam a batch; the answer is that of the last forward pass, before its step, as in the authors' code.
    The first `skip` outputs are no class: they are not answers, and classes are numbered behind them. The
    network stays adapted: reset it by opening it again, or give a copy.
    """
    names = check_adaptable(net)
    before = net.mode, {name: value.requires_grad for name, value in net.weights.items()}
    net.eval().statistics("batch")
    for name, value in net.weights.items():
        value.requires_grad_(name in names)
    optimiser = torch.optim.Adam([net.weights[name] for name in names], lr=rate, betas=(0.9, 0.999))
    try:
        found = [_adapt(net, optimiser, batch, steps)[:, skip:].argmax(1) for batch in batches]
    finally:
        net.statistics(before[0])
        for name, value in net.weights.items():
            value.requires_grad_(before[1][name])
    return np.concatenate(found) if found else np.zeros(0, np.int64)


def check_adaptable(net: Trainable, name: str = "the model") -> tuple[str, ...]:
    """The names of the weights that TENT changes; InputError if there are none."""
    names = adapted(net)
    if not names:
        raise InputError(
            f"TENT adapts the scale and bias of normalisation layers, and {name} has none "
            "(they may have been folded into its convolutions); export it with its normalisation layers"
        )
    return names


def adapted(net: Trainable) -> tuple[str, ...]:
    """The names of the weights that TENT changes: scale and bias of normalising nodes, each once."""
    pairs = [(one.scale, one.bias) for one in net.normalisations]
    return tuple(dict.fromkeys(name for pair in pairs for name in pair if name in net.weights))


def entropy(scores: Tensor) -> Tensor:
    """The entropy (n,) of the softmax of scores (n, k)."""
    return -(scores.softmax(1) * scores.log_softmax(1)).sum(1)


def _adapt(
    net: Trainable, optimiser: torch.optim.Optimizer, batch: Tensor, steps: int
) -> NDArray[np.float32]:
    scores = torch.zeros(0)
    for _ in range(steps):
        scores = net(batch)
        optimiser.zero_grad(set_to_none=True)
        entropy(scores).mean().backward()
        optimiser.step()
    said: NDArray[np.float32] = scores.detach().numpy()
    return said
