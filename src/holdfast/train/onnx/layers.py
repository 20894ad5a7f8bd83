"""Convolutions, pools, matrix products, normalisations and Resize, with the semantics of ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, lru_cache
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from holdfast.graph.lower.conv import Window, counts_of, transposed_size, window_of
from holdfast.graph.lower.matrix import along, per_axis
from holdfast.graph.lower.values import Build, Lowering, Node, Value
from holdfast.graph.lower.values import run as run_in_onnxruntime
from holdfast.train.onnx.net import Normalisation, Run, name_of, recorded, tape_of


def padded(x: Tensor, before: tuple[int, ...], after: tuple[int, ...], value: float = 0.0) -> Tensor:
    """The tensor (n, c, …) with a border around its spatial axes."""
    if not any(before) and not any(after):
        return x
    pads = [size for low, high in zip(reversed(before), reversed(after), strict=True) for size in (low, high)]
    return functional.pad(x, pads, value=value)


def _sliding(node: Node) -> Callable[[tuple[int, ...], tuple[int, ...]], Window]:
    """The window of a node by spatial shape and kernel, worked out once for each."""
    return cache(lambda spatial, kernel: window_of(node, spatial, kernel))


def _of_rank(node: Node, name: str, axes: int) -> Callable[..., Tensor]:
    """The function of torch for this many spatial axes."""
    if not 1 <= axes <= 3:
        raise node.fail(f"expected one, two or three spatial axes, got {axes}")
    function: Callable[..., Tensor] = getattr(functional, f"{name}{axes}d")
    return function


def _conv(node: Node) -> Run:
    groups = int(node.attributes.get("group", 1))
    window_at = _sliding(node)

    def run(net: Any, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        window = window_at(tuple(x.shape[2:]), tuple(weight.shape[2:]))
        convolve = _of_rank(node, "conv", x.ndim - 2)
        even = window.before == window.after
        x = x if even else padded(x, window.before, window.after)
        padding = window.before if even else 0
        return convolve(x, weight, bias, window.stride, padding, window.dilation, groups)

    return run


def _transposed(node: Node) -> Run:
    groups = int(node.attributes.get("group", 1))

    def run(net: Any, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        axes = x.ndim - 2
        stride = node.ints("strides") or (1,) * axes
        dilation = node.ints("dilations") or (1,) * axes
        reach = tuple(d * (k - 1) + 1 for d, k in zip(dilation, weight.shape[2:], strict=True))
        before, out = transposed_size(node, tuple(x.shape[2:]), reach, stride)
        turn = _of_rank(node, "conv_transpose", axes)
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
    pool = _of_rank(node, "max_pool", len(kernel))

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
    pool = _of_rank(node, "avg_pool", len(kernel))
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


def _gemm(node: Node) -> Run:
    turn_a, turn_b = bool(node.attributes.get("transA")), bool(node.attributes.get("transB"))
    alpha, beta = node.number("alpha", 1.0), node.number("beta", 1.0)
    plain = not turn_a and turn_b and alpha == 1 and beta == 1

    def run(net: Any, a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
        if plain and (c is None or c.ndim == 1):
            return functional.linear(a, b, c)
        made = (a.t() if turn_a else a) @ (b.t() if turn_b else b)
        made = made if alpha == 1 else made * alpha
        return made if c is None else made + (c if beta == 1 else c * beta)

    return run


def _einsum(node: Node) -> Run:
    equation = str(node.attributes["equation"])
    return lambda net, *values: torch.einsum(equation, *values)


def _batch(node: Node) -> Run:
    if node.attributes.get("training_mode") or (node.outputs > 1 and node.opset >= 14):
        raise node.fail("it is in training mode; export the model for inference")
    if node.opset < 9 and not node.attributes.get("spatial", 1):
        raise node.fail("statistics for each pixel (spatial = 0) are not supported")
    epsilon, momentum = node.number("epsilon", 1e-5), 1 - node.number("momentum", 0.9)

    def run(net: Any, x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        if net.mode == "batch":
            return functional.batch_norm(x, None, None, scale, bias, True, momentum, epsilon)
        moving = net.mode == "moving" and net.training
        return functional.batch_norm(x, mean, variance, scale, bias, moving, momentum, epsilon)

    return run


def _noted(make: Callable[[Node], Run]) -> Lowering:
    """The lowering that puts one step on the tape and lists the node among the tape's normalisations."""

    def lowering(node: Node, build: Build) -> list[Value]:
        tape, run = tape_of(build), make(node)
        names = [name_of(node, at) for at in range(1, 5)]
        tape.normalisations.append(Normalisation(node.name, node.operator, *names))
        return tape.record(node, run)

    return lowering


def _instance(node: Node) -> Run:
    epsilon = node.number("epsilon", 1e-5)

    def run(net: Any, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
        return functional.instance_norm(x, None, None, scale, bias, True, 0.0, epsilon)

    return run


def _layer(node: Node) -> Run:
    if node.outputs > 1:
        raise node.fail("its outputs beyond the first are not supported")
    axis, epsilon = int(node.attributes.get("axis", -1)), node.number("epsilon", 1e-5)

    def run(net: Any, x: Tensor, scale: Tensor, bias: Tensor | None = None) -> Tensor:
        shape = x.shape[axis:]
        if scale.shape == shape and (bias is None or bias.shape == shape):
            return functional.layer_norm(x, shape, scale, bias, epsilon)
        made = functional.layer_norm(x, shape, None, None, epsilon) * scale
        return made if bias is None else made + bias

    return run


def _root_mean_square(node: Node) -> Run:
    axis, epsilon = int(node.attributes.get("axis", -1)), node.number("epsilon", 1e-5)

    def run(net: Any, x: Tensor, scale: Tensor) -> Tensor:
        axes = tuple(range(axis % x.ndim, x.ndim))
        return x * torch.rsqrt(x.square().mean(axes, keepdim=True) + epsilon) * scale

    return run


def _group(node: Node) -> Run:
    groups, epsilon = int(node.attributes["num_groups"]), node.number("epsilon", 1e-5)

    def run(net: Any, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
        channels = x.shape[1]
        if len(scale) != channels:  # opset 18: one for each group
            scale, bias = (v.repeat_interleave(channels // groups) for v in (scale, bias))
        return functional.group_norm(x, groups, scale, bias, epsilon)

    return run


def _across_channels(node: Node) -> Run:
    size = int(node.attributes["size"])
    alpha, beta, bias = node.number("alpha", 1e-4), node.number("beta", 0.75), node.number("bias", 1.0)
    before = (size - 1) // 2

    def run(net: Any, x: Tensor) -> Tensor:
        flat = x.square().flatten(2).movedim(1, 2)  # (n, pixels, c)
        near = functional.pad(flat, (before, size - 1 - before))
        mean = functional.avg_pool1d(near, size, 1).movedim(2, 1).reshape(x.shape)
        return x / (bias + alpha * mean) ** beta

    return run


def _length(node: Node) -> Run:
    axis, order = int(node.attributes.get("axis", -1)), int(node.attributes.get("p", 2))

    def run(net: Any, x: Tensor) -> Tensor:
        length = torch.linalg.vector_norm(x, ord=order, dim=axis, keepdim=True)
        return torch.where(length == 0, torch.zeros_like(x), x / length)

    return run


def _resize(node: Node) -> Run:
    if node.attributes.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        raise node.fail("tf_crop_and_resize is not supported")
    bare = replace(node, inputs=())

    @lru_cache(maxsize=8)
    def matrices(
        shape: tuple[int, ...], given: tuple[tuple[str, tuple[float, ...]] | None, ...]
    ) -> tuple[tuple[int, Tensor], ...]:
        """Each axis that changes with its matrix (n, m), or with the places (m,) it takes values from."""
        constants = tuple(None if g is None else np.array(g[1], g[0]) for g in given)
        known = replace(bare, inputs=(None, *constants))
        wanted = run_in_onnxruntime(known, (np.zeros(shape, np.float32), *constants))[0].shape
        scales = per_axis(known, shape, "scales", 1 if node.opset < 11 else 2)
        changed = [a for a, n in enumerate(shape) if wanted[a] != n or scales.get(a, 1.0) != 1.0]
        still = [a for a in range(len(shape)) if a not in changed]
        if changed and not still:
            raise node.fail("expected at least one axis that keeps its size")
        return tuple((axis, _plain(along(known, shape, axis, still))) for axis in changed)

    def run(net: Any, x: Tensor, *given: Tensor | None) -> Tensor:
        sizes = tuple(None if g is None else (_kind(g), tuple(g.tolist())) for g in given)
        # one image says it all: the batch keeps its size
        for axis, matrix in matrices((1, *x.shape[1:]), _for_one(sizes, node)):
            if matrix.ndim == 1:
                x = x.index_select(axis, matrix)
            else:
                x = (x.movedim(axis, -1) @ matrix).movedim(-1, axis)
        return x

    return run


def _kind(value: Tensor) -> str:
    return "int64" if value.dtype == torch.int64 else "float32"


def _for_one(sizes: tuple[Any, ...], node: Node) -> tuple[Any, ...]:
    """The inputs for a batch of one: a batch may stand among the sizes."""
    if len(sizes) < 3 or sizes[2] is None or not sizes[2][1] or node.ints("axes") is not None:
        return sizes
    return (*sizes[:2], (sizes[2][0], (1, *sizes[2][1][1:])))


def _plain(matrix: np.ndarray) -> Tensor:
    """The matrix, or the places it picks if every column holds a single 1."""
    picks = ((matrix == 0) | (matrix == 1)).all() and (matrix.sum(0) == 1).all()
    if picks:
        return torch.from_numpy(matrix.argmax(0))
    return torch.from_numpy(matrix).to(torch.float32)


OPERATORS: Mapping[str, Lowering] = {
    "BatchNormalization": _noted(_batch),
    "InstanceNormalization": _noted(_instance),
    "LayerNormalization": _noted(_layer),
    "RMSNormalization": _noted(_root_mean_square),
    "GroupNormalization": _noted(_group),
    **recorded(
        {
            "Conv": _conv,
            "ConvTranspose": _transposed,
            "MaxPool": _max_pool,
            "AveragePool": _average,
            "GlobalAveragePool": lambda node: lambda net, x: x.mean(tuple(range(2, x.ndim)), keepdim=True),
            "GlobalMaxPool": lambda node: lambda net, x: x.amax(tuple(range(2, x.ndim)), keepdim=True),
            "Gemm": _gemm,
            "MatMul": lambda node: lambda net, a, b: torch.matmul(a, b),
            "Einsum": _einsum,
            "LRN": _across_channels,
            "LpNormalization": _length,
            "Resize": _resize,
            "Upsample": _resize,
        }
    ),
}
