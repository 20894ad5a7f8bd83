"""How much a network computes: multiply-adds of its convolutions and matrix products."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

Shape = tuple[int, ...]


def multiply_adds(proto: Any) -> int | None:
    """Multiply-adds for one image, or None if the shape of a tensor they depend on is not known."""
    shapes = known_shapes(proto)
    total = 0
    for node in proto.graph.node:
        count = _COUNTS.get(node.op_type)
        if count is None:
            continue
        needed = [*node.input[:2], node.output[0]]
        if any(name not in shapes for name in needed):
            return None
        total += count(node, *(shapes[name] for name in needed))
    return total


def known_shapes(proto: Any) -> Mapping[str, Shape]:
    """The shapes of all tensors that ONNX can infer, by name; a free batch counts as 1."""
    import onnx

    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    for value in [*copy.graph.input, *copy.graph.output]:
        dims = value.type.tensor_type.shape.dim
        if len(dims) > 1 and not dims[0].HasField("dim_value"):
            dims[0].dim_value = 1
    try:
        copy = onnx.shape_inference.infer_shapes(copy, data_prop=True)
    except Exception:  # noqa: BLE001 - inference is a convenience: a graph it cannot follow has unknown shapes
        return {}
    found: dict[str, Shape] = {w.name: tuple(w.dims) for w in copy.graph.initializer}
    for value in [*copy.graph.input, *copy.graph.value_info, *copy.graph.output]:
        dims = value.type.tensor_type.shape.dim
        if value.type.tensor_type.HasField("shape") and all(d.HasField("dim_value") for d in dims):
            found[value.name] = tuple(d.dim_value for d in dims)
    return found


def _conv(node: Any, _x: Shape, weight: Shape, out: Shape) -> int:
    return math.prod(out) * math.prod(weight[1:])  # weight (out, in/groups, kernel...)


def _conv_transpose(node: Any, x: Shape, weight: Shape, _out: Shape) -> int:
    return math.prod(x) * math.prod(weight[1:])  # every input value meets the weights of its channel


def _gemm(node: Any, a: Shape, _b: Shape, out: Shape) -> int:
    transposed = any(attribute.name == "transA" and attribute.i for attribute in node.attribute)
    return math.prod(out) * (a[0] if transposed else a[-1])


def _matmul(node: Any, a: Shape, _b: Shape, out: Shape) -> int:
    return math.prod(out) * a[-1] if a else 0


_COUNTS: dict[str, Callable[[Any, Shape, Shape, Shape], int]] = {
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "Gemm": _gemm,
    "MatMul": _matmul,
}
