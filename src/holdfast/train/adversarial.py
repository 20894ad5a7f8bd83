"""Adversarial training's inner step: the worst picture near each one (Madry et al. 2018)."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

from holdfast.core.errors import InputError

Bound: TypeAlias = Tensor | float  # one number, or a tensor that spreads over the batch, e.g. (1, 3, 1, 1)


def pgd_examples(
    net: nn.Module,
    x: Tensor,
    labels: Tensor,
    epsilon: Bound,
    steps: int,
    size: Bound,
    low: Bound,
    high: Bound,
    seed: int | None = None,
) -> Tensor:
    """The batch with each picture moved to where its loss is high: PGD in an L∞ ball, from a random start.

    x: (n, …) in the units of the net's input; epsilon, the step size and the least and greatest value are
    in the same units, so on normalised pictures they are tensors with a value for each channel. labels: (n,).
    The start is drawn from `seed`, or without one from torch's own generator. What comes back is detached;
    the net's weights get no gradient of it, its running statistics and its mode stay as they were.
    """
    if steps < 1:
        raise InputError(f"adversarial training: expected 1 step or more, got {steps}")
    if len(x) != len(labels):
        raise InputError(f"adversarial training: expected {len(x)} labels, got {len(labels)}")
    for name, value in (("epsilon", epsilon), ("step size", size)):
        if not bool((torch.as_tensor(value) >= 0).all()):
            raise InputError(f"adversarial training: expected {name} to be 0 or more, got {value}")
    epsilon, size, low, high = (
        torch.as_tensor(value, dtype=x.dtype, device=x.device) for value in (epsilon, size, low, high)
    )
    # a value that is out of bounds to begin with (a rounding, a pad) may stay, but not go further
    least = torch.maximum(x - epsilon, torch.minimum(low, x))
    most = torch.minimum(x + epsilon, torch.maximum(high, x))
    source = None if seed is None else torch.Generator(x.device).manual_seed(seed)
    noise = torch.rand(x.shape, generator=source, dtype=x.dtype, device=x.device)
    moved = (x + (2 * noise - 1) * epsilon).clamp(least, most).detach()
    with _evaluation_mode(net):
        for _ in range(steps):
            moved.requires_grad_(True)
            with torch.enable_grad():
                loss = functional.cross_entropy(net(moved), labels, reduction="sum")
                (slope,) = torch.autograd.grad(loss, moved)
            moved = (moved.detach() + size * slope.sign()).clamp(least, most)
    return moved.detach()


@contextmanager
def _evaluation_mode(net: nn.Module) -> Iterator[None]:
    """The net in evaluation mode, where running statistics are read and not written; then as it was."""
    modes = [(module, module.training) for module in net.modules()]
    try:
        net.eval()
        yield
    finally:
        for module, mode in modes:
            module.training = mode
