"""The linear steps of a net in torch: forward with bias, backward without, and how large rounding can be.

Values are (q, n): q queries, n flat elements of the step's output. `LinearSteps` is one net in one precision.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import prod
from typing import Any

import numpy as np
import torch

from holdfast.core.errors import ModelError
from holdfast.graph.ir import Conv, Dense, Net, ScaleShift, Selection, Step, WeightedSum, sources_of

Tensor = Any


class LinearSteps:
    """The linear steps of a net in torch; `alive` is called before each and may raise to end a pass."""

    def __init__(self, net: Net, dtype: torch.dtype, alive: Callable[[], None] = lambda: None) -> None:
        self.net, self.dtype, self.alive = net, dtype, alive
        self.unit = torch.finfo(dtype).eps / 2
        self.sizes = [prod(step.shape) for step in net.steps]
        self.readers = list(range(len(net.steps)))  # the last step that reads each
        for at, step in enumerate(net.steps):
            for source in sources_of(step):
                self.readers[source] = at
        # For each step the maximum number of sums of rows at one of its sources in a backward pass.
        count = Counter(source for step in net.steps for source in sources_of(step))
        self.joins = [max((count[s] - 1 for s in sources_of(step)), default=0) for step in net.steps]
        self._constants = [self._constant(step) for step in net.steps]
        self._phases = {at: self._phase_kernel(s) for at, s in enumerate(net.steps) if isinstance(s, Conv)}

    def tensor(self, array: Any) -> Tensor:
        """A numpy array in this precision."""
        return torch.as_tensor(np.ascontiguousarray(array), dtype=self.dtype)

    def _constant(self, step: Step) -> tuple[Tensor, ...]:
        if isinstance(step, Dense | Conv):
            return self.tensor(step.weight), self.tensor(step.bias)
        if isinstance(step, ScaleShift):
            return self.tensor(step.factor).reshape(-1), self.tensor(step.offset).reshape(-1)
        if isinstance(step, WeightedSum):
            return step.weights
        if isinstance(step, Selection):
            fill = None if step.fill is None else np.where(step.index < 0, step.fill, 0.0).reshape(-1)
            return torch.as_tensor(step.index.reshape(-1)), None if fill is None else self.tensor(fill)
        return ()

    def forward(self, at: int, values: list[Tensor], bias: bool = True) -> Tensor:
        """The output (q, n) of linear step `at` on its sources' values."""
        self.alive()
        return self._apply(at, self._constants[at], values, bias)

    def mass(self, at: int, largest: list[Tensor], bias: bool = True) -> Tensor:
        """The sum |w| |v| + |b| per output (q, n), for sources at most `largest` (q, n) in magnitude."""
        first, *others = self._constants[at]
        first = first if isinstance(self.net.steps[at], Selection) else abs(first)  # an index stays
        const = (first, *(None if value is None else abs(value) for value in others))
        return self._apply(at, const, largest, bias)

    def _apply(self, at: int, const: tuple[Tensor, ...], values: list[Tensor], bias: bool) -> Tensor:
        step = self.net.steps[at]
        if isinstance(step, Dense):
            out = values[0] @ const[0].T
            return out + const[1] if bias else out
        if isinstance(step, Conv):
            return self._convolve(step, const[0], const[1] if bias else None, values[0], at)
        if isinstance(step, ScaleShift):
            return values[0] * const[0] + const[1] if bias else values[0] * const[0]
        if isinstance(step, WeightedSum):
            return sum((v * w for v, w in zip(values[1:], const[1:], strict=True)), values[0] * const[0])
        index, fill = const
        joined = values[0] if len(values) == 1 else torch.cat(values, 1)
        if fill is None:
            return joined[:, index]
        out = joined[:, index.clamp(min=0)]
        out[:, index < 0] = 0.0
        return out + fill if bias else out

    def _convolve(self, step: Conv, weight: Tensor, bias: Tensor | None, value: Tensor, at: int) -> Tensor:
        source = self.net.steps[step.source]
        image = value.reshape(len(value), weight.shape[1] * step.groups, *_plane(source))
        top, left, bottom, right = step.pads
        pads = (top, left)
        if pads != (bottom, right):
            image, pads = torch.nn.functional.pad(image, (left, right, top, bottom)), (0, 0)
        out = torch.nn.functional.conv2d(image, weight, bias, step.stride, pads, step.dilation, step.groups)
        return out.reshape(len(value), self.sizes[at])

    def backward(self, at: int, rows: Tensor) -> list[Tensor]:
        """Coefficients (q, n) of the output of linear step `at` as coefficients of each of its sources."""
        self.alive()
        step, const = self.net.steps[at], self._constants[at]
        if isinstance(step, Dense):
            return [rows @ const[0]]
        if isinstance(step, Conv):
            return [self._deconvolve(step, const[0], self._phases[at], rows)]
        if isinstance(step, ScaleShift):
            return [rows * const[0]]
        if isinstance(step, WeightedSum):
            return [rows * w for w in step.weights]
        index, fill = const
        if fill is not None:
            rows, index = rows[:, index >= 0], index[index >= 0]
        sizes = [self.sizes[s] for s in sources_of(step)]
        out = rows.new_zeros(len(rows), sum(sizes))
        out.index_add_(1, index, rows)
        return list(out.split(sizes, 1))

    def _phase_kernel(self, step: Conv) -> Tensor | None:
        """The kernel of the transposed convolution as one of stride 1 with a channel for each phase.

        out[s·m + r - p] = sum over t of rows[m - t] · w[s·t + r]: for each phase r an ordinary convolution,
        several times faster here than the transposed one. Zeros in front make the padding p a multiple of s.
        """
        stride = step.stride[0]
        if step.groups != 1 or step.dilation != (1, 1) or step.stride != (stride, stride):
            return None
        out, inner, height, width = step.weight.shape
        top, left = (-step.pads[0] % stride, -step.pads[1] % stride)
        reach = -(-(height + top) // stride), -(-(width + left) // stride)
        padded = np.zeros((out, inner, reach[0] * stride, reach[1] * stride))
        padded[:, :, top : top + height, left : left + width] = step.weight
        split = padded.reshape(out, inner, reach[0], stride, reach[1], stride)[:, :, ::-1, :, ::-1]
        return self.tensor(split.transpose(1, 3, 5, 0, 2, 4).reshape(inner * stride * stride, out, *reach))

    def _deconvolve(self, step: Conv, weight: Tensor, phases: Tensor | None, rows: Tensor) -> Tensor:
        height, width = _plane(self.net.steps[step.source])
        top, left = step.pads[:2]
        image = rows.reshape(len(rows), *step.shape)
        if phases is None:
            options = (step.stride, 0, 0, step.groups, step.dilation)
            out = torch.nn.functional.conv_transpose2d(image, weight, None, *options)
            return _cut(out, top, left, height, width).reshape(len(rows), -1)
        out = torch.nn.functional.conv2d(image, phases, None, 1, (phases.shape[2] - 1, phases.shape[3] - 1))
        stride = step.stride[0]
        down, across = -(-height // stride), -(-width // stride)
        out = _cut(out, -(-top // stride), -(-left // stride), down, across)
        if stride > 1:  # interleave the phases
            woven = out.unflatten(1, (-1, stride, stride)).permute(0, 1, 4, 2, 5, 3)
            out = woven.reshape(len(rows), -1, down * stride, across * stride)[:, :, :height, :width]
        return out.reshape(len(rows), -1)

    def bias(self, at: int) -> Tensor | None:
        """The flat bias (n,) of step `at`, or None."""
        step, const = self.net.steps[at], self._constants[at]
        if isinstance(step, Dense | ScaleShift):
            return const[1]
        if isinstance(step, Conv):
            return const[1].repeat_interleave(step.shape[1] * step.shape[2])
        return const[1] if isinstance(step, Selection) else None

    def terms(self, at: int) -> int:
        """How many products one element of a forward or backward pass through step `at` sums at most."""
        step = self.net.steps[at]
        if isinstance(step, Dense):
            return int(max(step.weight.shape))
        if isinstance(step, Conv):
            out, inner, *kernel = step.weight.shape
            return int(max(out // step.groups, inner) * prod(kernel))
        if isinstance(step, Selection):
            return int(np.bincount(step.index[step.index >= 0].reshape(-1)).max(initial=1))
        return len(sources_of(step)) + 1


def _cut(image: Tensor, top: int, left: int, height: int, width: int) -> Tensor:
    """A window of an image (q, c, h, w), zero-padded at the end."""
    short = (top + height - image.shape[2], left + width - image.shape[3])
    if max(short) > 0:
        image = torch.nn.functional.pad(image, (0, max(short[1], 0), 0, max(short[0], 0)))
    return image[:, :, top : top + height, left : left + width]


def _plane(source: Step) -> tuple[int, int]:
    if len(source.shape) < 2:
        raise ModelError(f"bounds: expected a convolution of (c, h, w), got a source of shape {source.shape}")
    return source.shape[-2], source.shape[-1]


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Set torch to this many threads, at least one; restored afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(max(1, count))
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def full_precision() -> Iterator[None]:
    """Compute float32 products in full precision, without autocast, bfloat16 or TF32; restored afterwards."""
    parts = [part for name in ("matmul", "conv") if (part := getattr(torch.backends.mkldnn, name, None))]
    before = [part.fp32_precision for part in parts]
    legacy = None if parts else torch.get_float32_matmul_precision()  # torch before 2.9
    try:
        for part in parts:
            part.fp32_precision = "ieee"
        if legacy is not None:
            torch.set_float32_matmul_precision("highest")
        with torch.autocast("cpu", enabled=False):
            yield
    finally:
        for part, value in zip(parts, before, strict=True):
            part.fp32_precision = value
        if legacy is not None:
            torch.set_float32_matmul_precision(legacy)
