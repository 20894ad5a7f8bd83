"""Windows that slide: convolutions and pools, with ONNX Runtime's padding, ceil mode and counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from math import prod
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional

from holdfast.graph.lower.conv import Window, counts_of, transposed_size, window_of
from holdfast.graph.lower.values import Lowering, Node
from holdfast.train.onnx.tape import Run, recorded

_CONV: Final[dict[int, Callable[..., Tensor]]] = {
    1: functional.conv1d,
    2: functional.conv2d,
    3: functional.conv3d,
}
_TRANSPOSED: Final[dict[int, Callable[..., Tensor]]] = {
    1: functional.conv_transpose1d,
    2: functional.conv_transpose2d,
    3: functional.conv_transpose3d,
}
_MAX: Final[dict[int, Callable[..., Tensor]]] = {
    1: functional.max_pool1d,
    2: functional.max_pool2d,
    3: functional.max_pool3d,
}
_AVERAGE: Final[dict[int, Callable[..., Tensor]]] = {
    1: functional.avg_pool1d,
    2: functional.avg_pool2d,
    3: functional.avg_pool3d,
}


def padded(x: Tensor, before: tuple[int, ...], after: tuple[int, ...], value: float = 0.0) -> Tensor:
    """The tensor (n, c, …) with a border around its spatial axes."""
    if not any(before) and not any(after):
        return x
    pads = [size for low, high in zip(reversed(before), reversed(after), strict=True) for size in (low, high)]
    return functional.pad(x, pads, value=value)


def _sliding(node: Node) -> Callable[[tuple[int, ...], tuple[int, ...]], Window]:
    """The window of a node by spatial shape and kernel, worked out once for each."""
    return cache(lambda spatial, kernel: window_of(node, spatial, kernel))


def _one_by_one(node: Node, axes: int, table: Mapping[int, Any]) -> Any:
    if axes not in table:
        raise node.fail(f"expected one, two or three spatial axes, got {axes}")
    return table[axes]


def _conv(node: Node) -> Run:
    groups = int(node.attributes.get("group", 1))
    window_at = _sliding(node)

    def run(net: Any, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        window = window_at(tuple(x.shape[2:]), tuple(weight.shape[2:]))
        convolve = _one_by_one(node, x.ndim - 2, _CONV)
        even = window.before == window.after
        x = x if even else padded(x, window.before, window.after)
        padding = window.before if even else 0
        made: Tensor = convolve(x, weight, bias, window.stride, padding, window.dilation, groups)
        return made

    return run


def _transposed(node: Node) -> Run:
    groups = int(node.attributes.get("group", 1))

    def run(net: Any, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        axes = x.ndim - 2
        stride = node.ints("strides") or (1,) * axes
        dilation = node.ints("dilations") or (1,) * axes
        reach = tuple(d * (k - 1) + 1 for d, k in zip(dilation, weight.shape[2:], strict=True))
        before, out = transposed_size(node, tuple(x.shape[2:]), reach, stride)
        turn = _one_by_one(node, axes, _TRANSPOSED)
        full = turn(x, weight, None, stride, 0, 0, groups, dilation)
        lack = tuple(max(b + o - n, 0) for b, o, n in zip(before, out, full.shape[2:], strict=True))
        full = padded(full, (0,) * axes, lack)
        made = full[(..., *(slice(b, b + o) for b, o in zip(before, out, strict=True)))]
        return made if bias is None else made + bias.reshape(-1, *(1,) * axes)

    return run


def _pool_kernel(node: Node) -> tuple[int, ...]:
    kernel = node.ints("kernel_shape")
    if kernel is None:
        raise node.fail("expected a kernel_shape")
    if node.outputs > 1:
        raise node.fail("its second output (which value won) is not supported")
    return kernel


def _max_pool(node: Node) -> Run:
    kernel = _pool_kernel(node)
    window_at = _sliding(node)
    pool = _one_by_one(node, len(kernel), _MAX)

    def run(net: Any, x: Tensor) -> Tensor:
        window = window_at(tuple(x.shape[2:]), kernel)
        even = window.before == window.after and all(
            2 * b <= k for b, k in zip(window.before, kernel, strict=True)
        )
        x = x if even else padded(x, window.before, window.after, -torch.inf)
        padding = window.before if even else 0
        return _cut(pool(x, kernel, window.stride, padding, window.dilation), window.out)

    return run


def _average(node: Node) -> Run:
    kernel = _pool_kernel(node)
    window_at = _sliding(node)
    pool = _one_by_one(node, len(kernel), _AVERAGE)
    if any(d != 1 for d in node.ints("dilations") or ()):
        raise node.fail("dilations other than 1 are not supported")

    @cache
    def share(spatial: tuple[int, ...]) -> Tensor | None:
        """What the mean over a whole window is multiplied with, where padding does not count."""
        counts = counts_of(node, spatial, window_at(spatial, kernel))
        factor = torch.from_numpy(prod(kernel) / counts).to(torch.float32)
        return None if bool((factor == 1).all()) else factor

    def run(net: Any, x: Tensor) -> Tensor:
        spatial = tuple(x.shape[2:])
        window = window_at(spatial, kernel)
        made = _cut(pool(padded(x, window.before, window.after), kernel, window.stride), window.out)
        factor = share(spatial)
        return made if factor is None else made * factor

    return run


def _cut(x: Tensor, out: tuple[int, ...]) -> Tensor:
    """The first windows: behind the last one that is wanted another may still fit."""
    if tuple(x.shape[2:]) == out:
        return x
    cut: Tensor = x[(..., *(slice(0, size) for size in out))]
    return cut


OPERATORS: Mapping[str, Lowering] = recorded(
    {
        "Conv": _conv,
        "ConvTranspose": _transposed,
        "MaxPool": _max_pool,
        "AveragePool": _average,
        "GlobalAveragePool": lambda node: lambda net, x: x.mean(tuple(range(2, x.ndim)), keepdim=True),
        "GlobalMaxPool": lambda node: lambda net, x: x.amax(tuple(range(2, x.ndim)), keepdim=True),
    }
)
