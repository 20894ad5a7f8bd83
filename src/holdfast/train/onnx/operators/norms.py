"""Normalisations: by running statistics, by those of the batch, or by those of the image itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from holdfast.graph.lower.values import Build, Lowering, Node, Value
from holdfast.train.onnx.tape import Normalisation, Run, name_of, recorded, tape_of


def _batch(node: Node, build: Build) -> list[Value]:
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

    return _noted(node, build, run)


def _noted(node: Node, build: Build, run: Run) -> list[Value]:
    """The step's values; the node is among the tape's normalisations."""
    tape = tape_of(build)
    names = [name_of(node, at) for at in range(1, 5)]
    tape.normalisations.append(Normalisation(node.name, node.operator, *names))
    return tape.record(node, run)


def _instance(node: Node, build: Build) -> list[Value]:
    epsilon = node.number("epsilon", 1e-5)

    def run(net: Any, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
        return functional.instance_norm(x, None, None, scale, bias, True, 0.0, epsilon)

    return _noted(node, build, run)


def _layer(node: Node, build: Build) -> list[Value]:
    if node.outputs > 1:
        raise node.fail("its outputs beyond the first are not supported")
    axis, epsilon = int(node.attributes.get("axis", -1)), node.number("epsilon", 1e-5)

    def run(net: Any, x: Tensor, scale: Tensor, bias: Tensor | None = None) -> Tensor:
        shape = x.shape[axis:]
        if scale.shape == shape and (bias is None or bias.shape == shape):
            return functional.layer_norm(x, shape, scale, bias, epsilon)
        made = functional.layer_norm(x, shape, None, None, epsilon) * scale
        return made if bias is None else made + bias

    return _noted(node, build, run)


def _root_mean_square(node: Node, build: Build) -> list[Value]:
    axis, epsilon = int(node.attributes.get("axis", -1)), node.number("epsilon", 1e-5)

    def run(net: Any, x: Tensor, scale: Tensor) -> Tensor:
        axes = tuple(range(axis % x.ndim, x.ndim))
        return x * torch.rsqrt(x.square().mean(axes, keepdim=True) + epsilon) * scale

    return _noted(node, build, run)


def _group(node: Node, build: Build) -> list[Value]:
    groups, epsilon = int(node.attributes["num_groups"]), node.number("epsilon", 1e-5)

    def run(net: Any, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
        channels = x.shape[1]
        if len(scale) != channels:  # opset 18: one for each group
            scale, bias = (v.repeat_interleave(channels // groups) for v in (scale, bias))
        return functional.group_norm(x, groups, scale, bias, epsilon)

    return _noted(node, build, run)


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


OPERATORS: Mapping[str, Lowering] = {
    "BatchNormalization": _batch,
    "InstanceNormalization": _instance,
    "LayerNormalization": _layer,
    "RMSNormalization": _root_mean_square,
    "GroupNormalization": _group,
    **recorded({"LRN": _across_channels, "LpNormalization": _length}),
}
