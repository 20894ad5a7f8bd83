"""A lowered network in torch: differentiable, batched, in any floating-point type."""

from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from holdfast.graph.ir import Activation, Conv, Dense, Net, ScaleShift, Selection, Step, WeightedSum, forward


class TorchNet:
    """A net with its constants as tensors of one type; they are converted once."""

    def __init__(self, net: Net, dtype: torch.dtype = torch.float32) -> None:
        self.net = net
        self.dtype = dtype
        self.constants: tuple[tuple[Tensor, ...], ...] = tuple(_constants(s, dtype) for s in net.steps)

    def __call__(self, points: Tensor, leak: Tensor | None = None) -> Tensor:
        """The flat outputs (b, k) for free inputs (b, n).

        With `leak` (b, 1) the gradient passes a relu below zero too, times the point's leak: an attack
        then receives gradients from inactive neurons. The outputs are unchanged.
        """

        def apply(at: int, step: Step, inputs: list[Tensor]) -> Tensor:
            if leak is not None and isinstance(step, Activation) and step.curve == "relu":
                return _LeakyGradientReLU.apply(inputs[0], leak)
            return _applied(step, inputs, self.constants[at], self.net)

        return forward(self.net, points.reshape(len(points), -1), apply)


class _LeakyGradientReLU(torch.autograd.Function):  # type: ignore[misc]  # torch's types are not followed
    """A relu whose gradient below zero is `leak` instead of 0."""

    @staticmethod
    def forward(context: Any, values: Tensor, leak: Tensor) -> Tensor:
        """The relu of the values."""
        context.save_for_backward(values, leak)
        return values.clamp(min=0)

    @staticmethod
    def backward(context: Any, *slopes: Tensor) -> Any:
        """The gradient with slope `leak` below zero."""
        values, leak = context.saved_tensors
        return torch.where(values > 0, slopes[0], slopes[0] * leak), None


def _constants(step: Step, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """The step's arrays as tensors, in the order in which `_applied` uses them."""

    def floats(values: Any) -> Tensor:
        return torch.tensor(values, dtype=dtype)

    if isinstance(step, Dense | Conv):
        return floats(step.weight), floats(step.bias)
    if isinstance(step, ScaleShift):
        return floats(step.factor).reshape(-1), floats(step.offset).reshape(-1)
    if isinstance(step, Selection):
        index = torch.tensor(step.index.ravel())
        if step.fill is None:
            return (index,)
        return index.clamp(min=0), index < 0, floats(step.fill).reshape(-1)
    return ()


def _applied(step: Step, inputs: list[Tensor], constants: tuple[Tensor, ...], net: Net) -> Tensor:
    """A step's flat values (b, size) from its sources' ones."""
    first = inputs[0]
    if isinstance(step, Selection):
        return _select(inputs, constants)
    if isinstance(step, Dense):
        return functional.linear(first, *constants)
    if isinstance(step, Conv):
        return _convolve(step, first.reshape(-1, *net.steps[step.source].shape), constants)
    if isinstance(step, ScaleShift):
        return first * constants[0] + constants[1]
    if isinstance(step, WeightedSum):
        out = first * step.weights[0] if step.weights[0] != 1 else first
        for weight, value in zip(step.weights[1:], inputs[1:], strict=True):
            out = torch.add(out, value, alpha=weight)
        return out
    if isinstance(step, Activation):
        return curve_of(step, first)
    return first * inputs[1]


def curve_of(step: Activation, values: Tensor) -> Tensor:
    """The curve of every value; sign has the gradient of a clamp, for its own is 0 everywhere."""
    if step.curve == "relu":
        return functional.relu(values)
    if step.curve == "leaky":
        return functional.leaky_relu(values, step.slope)
    if step.curve == "elu":
        return functional.elu(values, step.slope)
    if step.curve == "sign":
        soft = values.clamp(-1, 1)
        return soft + (torch.sign(values) - soft).detach()
    if step.curve == "softplus":
        return functional.softplus(values)
    return getattr(torch, step.curve)(values)  # torch has the others under their names


def _select(inputs: list[Tensor], constants: tuple[Tensor, ...]) -> Tensor:
    joined = inputs[0] if len(inputs) == 1 else torch.cat(inputs, dim=1)
    if len(constants) == 1:
        return joined[:, constants[0]]
    index, constant, fill = constants
    if not joined.shape[1]:
        return fill.expand(len(joined), -1)
    return torch.where(constant, fill, joined[:, index])


def _convolve(step: Conv, source: Tensor, constants: tuple[Tensor, ...]) -> Tensor:
    top, left, bottom, right = step.pads
    padding: tuple[int, int] = (top, left)
    if (top, left) != (bottom, right):
        source, padding = functional.pad(source, (left, right, top, bottom)), (0, 0)
    windows = functional.conv2d(source, *constants, step.stride, padding, step.dilation, step.groups)
    # a window may still fit behind the last one required
    return windows[:, :, : step.shape[1], : step.shape[2]].reshape(len(source), prod(step.shape))
