"""The inner step of adversarial training: the worst image near each training image (Madry et al. 2018)."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

from holdfast.core.errors import InputError

Bound: TypeAlias = Tensor | float  # one number, or a tensor that broadcasts over the batch, e.g. (1, 3, 1, 1)


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
    """Adversarial examples of a batch: PGD in an L∞ ball from a random start.

    x: (n, …) in the units of the net's input; epsilon, the step size and the value range have the same units,
    so for normalised images they are tensors with one value per channel. labels: (n,). The start is drawn
    from `seed`, or by default from torch's global generator. The result is detached; the net's gradients,
    running statistics and mode are unchanged.
    """
    if steps < 1:
        raise InputError(f"adversarial training: expected 1 step or more, got {steps}")
    if len(x) != len(labels):
        raise InputError(f"adversarial training: expected {len(x)} labels, got {len(labels)}")
    for name, value in (("epsilon", epsilon), ("step size", size)):
        if not bool((torch.as_tensor(value) >= 0).all()):
            raise InputError(f"adversarial training: expected {name} to be 0 or more, got {value}")
    values = (epsilon, size, low, high)
    epsilon, size, low, high = (torch.as_tensor(v, dtype=x.dtype, device=x.device) for v in values)
    # A value that is out of range at first (rounding, padding) may stay, but not move further.
    lower = torch.maximum(x - epsilon, torch.minimum(low, x))
    upper = torch.minimum(x + epsilon, torch.maximum(high, x))
    rng = None if seed is None else torch.Generator(x.device).manual_seed(seed)
    noise = torch.rand(x.shape, generator=rng, dtype=x.dtype, device=x.device)
    adversarial = (x + (2 * noise - 1) * epsilon).clamp(lower, upper).detach()
    with _evaluation_mode(net):
        for _ in range(steps):
            adversarial.requires_grad_(True)
            with torch.enable_grad():
                loss = functional.cross_entropy(net(adversarial), labels, reduction="sum")
                (gradient,) = torch.autograd.grad(loss, adversarial)
            adversarial = (adversarial.detach() + size * gradient.sign()).clamp(lower, upper)
    return adversarial.detach()


@contextmanager
def _evaluation_mode(net: nn.Module) -> Iterator[None]:
    """Switch the net to evaluation mode, where running statistics are not updated, and restore its mode."""
    modes = [(module, module.training) for module in net.modules()]
    try:
        net.eval()
        yield
    finally:
        for module, mode in modes:
            module.training = mode
