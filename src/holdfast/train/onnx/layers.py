"""Convolutions, pools, matrix products, normalisations and Resize, with the semantics of ONNX Runtime."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from holdfast.graph.lower.conv import Window, counts_of, transposed_size, window_of
from holdfast.graph.lower.matrix import along, per_axis
from holdfast.graph.lower.values import Lowering, Node
from holdfast.graph.lower.values import run as run_in_onnxruntime
from holdfast.train.onnx.net import plain, record_operators

_window = lru_cache(maxsize=1024)(window_of)


def padded(x: Tensor, before: tuple[int, ...], after: tuple[int, ...], value: float = 0.0) -> Tensor:
    """The tensor (n, c, …) with a border around its spatial axes."""
    if not any(before) and not any(after):
        return x
    pads = [size for low, high in zip(reversed(before), reversed(after), strict=True) for size in (low, high)]
    return functional.pad(x, pads, value=value)


def _of_rank(node: Node, name: str, axes: int) -> Callable[..., Tensor]:
    """The torch function for this many spatial axes."""
    if not 1 <= axes <= 3:
        raise node.fail(f"expected one, two or three spatial axes, got {axes}")
    function: Callable[..., Tensor] = getattr(functional, f"{name}{axes}d")
    return function


def _conv(net: Any, node: Node, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    window = _window(node, tuple(x.shape[2:]), tuple(weight.shape[2:]))
    convolve = _of_rank(node, "conv", x.ndim - 2)
    even = window.before == window.after
    x = x if even else padded(x, window.before, window.after)
    padding = window.before if even else 0
    groups = int(node.attributes.get("group", 1))
    return convolve(x, weight, bias, window.stride, padding, window.dilation, groups)


def _transposed(net: Any, node: Node, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    axes = x.ndim - 2
    stride, dilation = (node.ints(name) or (1,) * axes for name in ("strides", "dilations"))
    extent = tuple(d * (k - 1) + 1 for d, k in zip(dilation, weight.shape[2:], strict=True))
    before, out = transposed_size(node, tuple(x.shape[2:]), extent, stride)
    convolve = _of_rank(node, "conv_transpose", axes)
    full = convolve(x, weight, None, stride, 0, 0, int(node.attributes.get("group", 1)), dilation)
    missing = tuple(max(b + o - n, 0) for b, o, n in zip(before, out, full.shape[2:], strict=True))
    full = padded(full, (0,) * axes, missing)
    result = full[(..., *(slice(b, b + o) for b, o in zip(before, out, strict=True)))]
    return result if bias is None else result + bias.reshape(-1, *(1,) * axes)


def _pool(node: Node, x: Tensor, name: str) -> tuple[Callable[..., Tensor], Window]:
    kernel = node.ints("kernel_shape")
    if kernel is None:
        raise node.fail("expected a kernel_shape")
    if node.outputs > 1:
        raise node.fail("its second output (which value won) is not supported")
    return _of_rank(node, name, len(kernel)), _window(node, tuple(x.shape[2:]), kernel)


def _max_pool(net: Any, node: Node, x: Tensor) -> Tensor:
    pool, window = _pool(node, x, "max_pool")
    fits = all(2 * b <= k for b, k in zip(window.before, window.kernel, strict=True))
    even = window.before == window.after and fits
    x = x if even else padded(x, window.before, window.after, -torch.inf)
    padding = window.before if even else 0
    return _cut(pool(x, window.kernel, window.stride, padding, window.dilation), window.out)


def _average(net: Any, node: Node, x: Tensor) -> Tensor:
    pool, window = _pool(node, x, "avg_pool")
    if any(d != 1 for d in node.ints("dilations") or ()):
        raise node.fail("dilations other than 1 are not supported")
    pooled = _cut(pool(padded(x, window.before, window.after), window.kernel, window.stride), window.out)
    # The mean over a full window is corrected where padding is not counted.
    factor = torch.from_numpy(prod(window.kernel) / counts_of(node, tuple(x.shape[2:]), window))
    return pooled if bool((factor == 1).all()) else pooled * factor.to(torch.float32)


def _cut(x: Tensor, out: tuple[int, ...]) -> Tensor:
    """The first `out` windows; torch may compute more."""
    if tuple(x.shape[2:]) == out:
        return x
    cut: Tensor = x[(..., *(slice(0, size) for size in out))]
    return cut


def _gemm(net: Any, node: Node, a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
    transpose_a, transpose_b = bool(node.attributes.get("transA")), bool(node.attributes.get("transB"))
    alpha, beta = node.number("alpha", 1.0), node.number("beta", 1.0)
    if transpose_b and not transpose_a and alpha == beta == 1 and (c is None or c.ndim == 1):
        return functional.linear(a, b, c)
    product = (a.t() if transpose_a else a) @ (b.t() if transpose_b else b)
    product = product if alpha == 1 else product * alpha
    return product if c is None else product + (c if beta == 1 else c * beta)


def _batch(
    net: Any, node: Node, x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor
) -> Tensor:
    if node.attributes.get("training_mode") or (node.outputs > 1 and node.opset >= 14):
        raise node.fail("it is in training mode; export the model for inference")
    if node.opset < 9 and not node.attributes.get("spatial", 1):
        raise node.fail("statistics for each pixel (spatial = 0) are not supported")
    use_batch = net.mode == "batch"
    training = use_batch or (net.mode == "moving" and net.training)
    running = (None, None) if use_batch else (mean, variance)
    momentum, epsilon = 1 - node.number("momentum", 0.9), node.number("epsilon", 1e-5)
    return functional.batch_norm(x, running[0], running[1], scale, bias, training, momentum, epsilon)


def _instance(net: Any, node: Node, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    epsilon = node.number("epsilon", 1e-5)
    return functional.instance_norm(x, None, None, scale, bias, True, 0.0, epsilon)


def _layer(net: Any, node: Node, x: Tensor, scale: Tensor, bias: Tensor | None = None) -> Tensor:
    if node.outputs > 1:
        raise node.fail("its outputs beyond the first are not supported")
    shape, epsilon = x.shape[int(node.attributes.get("axis", -1)) :], node.number("epsilon", 1e-5)
    if scale.shape == shape and (bias is None or bias.shape == shape):
        return functional.layer_norm(x, shape, scale, bias, epsilon)
    normalised = functional.layer_norm(x, shape, None, None, epsilon) * scale
    return normalised if bias is None else normalised + bias


def _root_mean_square(net: Any, node: Node, x: Tensor, scale: Tensor) -> Tensor:
    axes = tuple(range(int(node.attributes.get("axis", -1)) % x.ndim, x.ndim))
    return x * torch.rsqrt(x.square().mean(axes, keepdim=True) + node.number("epsilon", 1e-5)) * scale


def _group(net: Any, node: Node, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    groups, channels = int(node.attributes["num_groups"]), x.shape[1]
    if len(scale) != channels:  # opset 18: one per group
        scale, bias = (v.repeat_interleave(channels // groups) for v in (scale, bias))
    return functional.group_norm(x, groups, scale, bias, node.number("epsilon", 1e-5))


def _across_channels(net: Any, node: Node, x: Tensor) -> Tensor:
    size = int(node.attributes["size"])
    alpha, beta, bias = node.number("alpha", 1e-4), node.number("beta", 0.75), node.number("bias", 1.0)
    before = (size - 1) // 2
    flat = x.square().flatten(2).movedim(1, 2)  # (n, pixels, c)
    padded_channels = functional.pad(flat, (before, size - 1 - before))
    mean = functional.avg_pool1d(padded_channels, size, 1).movedim(2, 1).reshape(x.shape)
    return x / (bias + alpha * mean) ** beta


def _length(net: Any, node: Node, x: Tensor) -> Tensor:
    axis, order = int(node.attributes.get("axis", -1)), int(node.attributes.get("p", 2))
    length = torch.linalg.vector_norm(x, ord=order, dim=axis, keepdim=True)
    return torch.where(length == 0, torch.zeros_like(x), x / length)


def _resize(net: Any, node: Node, x: Tensor, *given: Tensor | None) -> Tensor:
    if node.attributes.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        raise node.fail("tf_crop_and_resize is not supported")
    kinds = {torch.int64: "int64"}
    sizes = [None if g is None else (kinds.get(g.dtype, "float32"), tuple(g.tolist())) for g in given]
    if len(sizes) > 2 and sizes[2] and sizes[2][1] and node.ints("axes") is None:
        sizes[2] = (sizes[2][0], (1, *sizes[2][1][1:]))  # the sizes may include a batch
    # One image is enough: the batch keeps its size.
    for axis, matrix in _matrices(node, (1, *x.shape[1:]), tuple(sizes)):
        if matrix.ndim == 1:
            x = x.index_select(axis, matrix)
        else:
            x = (x.movedim(axis, -1) @ matrix).movedim(-1, axis)
    return x


@lru_cache(maxsize=64)
def _matrices(
    node: Node, shape: tuple[int, ...], given: tuple[tuple[str, tuple[float, ...]] | None, ...]
) -> tuple[tuple[int, Tensor], ...]:
    """Each changed axis with its matrix (n, m), or with its source indices (m,)."""
    constants = tuple(None if g is None else np.array(g[1], g[0]) for g in given)
    known = replace(node, inputs=(None, *constants))
    out_shape = run_in_onnxruntime(known, (np.zeros(shape, np.float32), *constants))[0].shape
    scales = per_axis(known, shape, "scales", 1 if node.opset < 11 else 2)
    changed = [a for a, n in enumerate(shape) if out_shape[a] != n or scales.get(a, 1.0) != 1.0]
    unchanged = [a for a in range(len(shape)) if a not in changed]
    if changed and not unchanged:
        raise node.fail("expected at least one axis that keeps its size")
    return tuple((axis, _compact(along(known, shape, axis, unchanged))) for axis in changed)


def _compact(matrix: np.ndarray) -> Tensor:
    """The matrix, or the selected indices if every column has a single 1."""
    picks = ((matrix == 0) | (matrix == 1)).all() and (matrix.sum(0) == 1).all()
    return torch.from_numpy(matrix.argmax(0)) if picks else torch.from_numpy(matrix).to(torch.float32)


OPERATORS: Mapping[str, Lowering] = record_operators(
    {
        "BatchNormalization": _batch,
        "InstanceNormalization": _instance,
        "LayerNormalization": _layer,
        "RMSNormalization": _root_mean_square,
        "GroupNormalization": _group,
        "Conv": _conv,
        "ConvTranspose": _transposed,
        "MaxPool": _max_pool,
        "AveragePool": _average,
        "GlobalAveragePool": plain(lambda x: x.mean(tuple(range(2, x.ndim)), keepdim=True)),
        "GlobalMaxPool": plain(lambda x: x.amax(tuple(range(2, x.ndim)), keepdim=True)),
        "Gemm": _gemm,
        "MatMul": plain(torch.matmul),
        "Einsum": lambda net, node, *values: torch.einsum(str(node.attributes["equation"]), *values),
        "LRN": _across_channels,
        "LpNormalization": _length,
        "Resize": _resize,
        "Upsample": _resize,
    }
)
