"""QuantizeLinear and DequantizeLinear put into a graph: 8-bit activations, 8-bit weights, 32-bit biases."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.graph.rewrite.quant_plan import Layer, Plan
from holdfast.graph.rewrite.quantise import HIGH, Grid, dequantise, quantise, symmetric_scale
from holdfast.graph.rewrite.types import ModelProto

LARGEST_BIAS = 2.0**30  # of a 32-bit integer, with room for the sum that starts from it


def insert(
    model: ModelProto,
    plan: Plan,
    grids: dict[str, Grid],
    means: dict[str, NDArray[np.float64]],
    per_channel: bool = True,
) -> None:
    """Change the graph in place: activations on their grids, weights on one a channel or one a tensor.

    `means` (of the channels that enter a layer) move its bias by what rounding the weights adds on average.
    """
    after = {name: _activation(model, name, grid) for name, grid in grids.items()}
    before = {
        layer.place: _constants(model, layer, grids[layer.source], means, per_channel)
        for layer in plan.layers
    }
    for name, where in plan.readers.items():
        for place, index in where:
            model.graph.node[place].input[index] = f"{name}:dequantised"
    nodes = list(model.graph.node)
    order = [n for entry in model.graph.input for n in after.get(entry.name, ())]
    for place, node in enumerate(nodes):
        order += [*before.get(place, ()), node]
        order += [n for made in node.output for n in after.get(made, ())]
    del model.graph.node[:]
    model.graph.node.extend(order)
    drop_unused(model)


def _activation(model: ModelProto, name: str, grid: Grid) -> list[Any]:
    from onnx import helper

    scale = _constant(model, f"{name}:scale", np.float32(grid.scale))
    zero = _constant(model, f"{name}:zero", np.int8(grid.zero))
    integers, back = f"{name}:quantised", f"{name}:dequantised"
    return [
        helper.make_node("QuantizeLinear", [name, scale, zero], [integers], name=f"{name}:quantise"),
        helper.make_node("DequantizeLinear", [integers, scale, zero], [back], name=f"{name}:dequantise"),
    ]


def _constants(
    model: ModelProto, layer: Layer, grid: Grid, means: dict[str, NDArray[np.float64]], per_channel: bool
) -> list[Any]:
    """The nodes that de-quantise the weight and the bias of a layer, with the integers as new constants."""
    node = model.graph.node[layer.place]
    weight = _array(model, layer.weight)
    axis = _channel_axis(node, weight)
    bias = None if layer.bias is None else _array(model, layer.bias).astype(np.float64)
    scale = _weight_scale(weight, axis, per_channel)
    if bias is not None and bias.size == np.size(scale):
        # A channel of tiny weights must not have a bias that its integers cannot hold.
        scale = np.maximum(
            scale, (np.abs(bias) / (LARGEST_BIAS * grid.scale)).astype(np.float32).reshape(scale.shape)
        )
    wide = _along(scale, axis, weight.ndim)
    integers = quantise(weight, wide, low=-HIGH)
    if bias is not None and node.input[0] in means:
        bias = bias - _mean_shift(node, dequantise(integers, wide) - weight, means[node.input[0]])
    made = [_dequantised(model, node, 1, integers.astype(np.int8), scale, axis)]
    if bias is not None and _is_plain(node):
        step = (scale.astype(np.float64) * grid.scale).astype(np.float32)
        made.append(_dequantised(model, node, 2, np.rint(bias / step).astype(np.int32), step, 0))
    return made


def _mean_shift(node: Any, error: NDArray[Any], mean: NDArray[np.float64]) -> NDArray[np.float64] | float:
    """What an error of the weights adds to each output channel, for inputs of these channel means."""
    if node.op_type != "Conv" or error.shape[1] > mean.size or mean.size % error.shape[1]:
        return 0.0
    groups = mean.size // error.shape[1]
    per_input = error.reshape(error.shape[0], error.shape[1], -1).sum(axis=2)
    entering = np.repeat(mean.reshape(groups, -1), error.shape[0] // groups, axis=0)
    return np.asarray((per_input * entering).sum(axis=1))


def _is_plain(node: Any) -> bool:
    """Whether the bias is added as it is: Gemm has a factor for it."""
    factors = {a.name: a.f for a in node.attribute if a.name in ("alpha", "beta")}
    return all(value == 1.0 for value in factors.values())


def _channel_axis(node: Any, weight: NDArray[Any]) -> int:
    """The axis of a weight along which its output channels lie."""
    flags = {a.name: a.i for a in node.attribute if a.name in ("transB", "group")}
    if node.op_type == "Conv":
        return 0
    if node.op_type == "ConvTranspose":
        return 1
    return 0 if flags.get("transB", 0) else weight.ndim - 1


def _weight_scale(weight: NDArray[Any], axis: int, per_channel: bool) -> NDArray[np.float32]:
    others = tuple(a for a in range(weight.ndim) if a != axis)
    return symmetric_scale(np.abs(weight).max(axis=others if per_channel else None))


def _along(values: NDArray[Any], axis: int, dimensions: int) -> NDArray[Any]:
    """One value a channel in a shape that broadcasts over the weight."""
    return values if values.ndim == 0 else values.reshape([-1 if a == axis else 1 for a in range(dimensions)])


def _dequantised(
    model: ModelProto, node: Any, index: int, integers: NDArray[Any], scale: NDArray[Any], axis: int
) -> Any:
    from onnx import helper

    name = f"{node.name}:{node.input[index]}"
    kind = integers.dtype
    made = helper.make_node(
        "DequantizeLinear",
        [
            _constant(model, f"{name}:integers", integers),
            _constant(model, f"{name}:scale", scale),
            _constant(model, f"{name}:zero", np.zeros(scale.shape, kind)),
        ],
        [f"{name}:dequantised"],
        name=f"{name}:dequantise",
        **({"axis": axis} if scale.ndim else {}),
    )
    node.input[index] = f"{name}:dequantised"
    return made


def _array(model: ModelProto, name: str) -> NDArray[Any]:
    from onnx import numpy_helper

    return np.asarray(numpy_helper.to_array(next(w for w in model.graph.initializer if w.name == name)))


def _constant(model: ModelProto, name: str, value: Any) -> str:
    from onnx import numpy_helper

    model.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
    return name


def drop_unused(model: ModelProto) -> None:
    """Nothing; constants that no node reads, not even inside another's graph, are gone."""
    read = _read(model.graph) | {o.name for o in model.graph.output}
    kept = [w for w in model.graph.initializer if w.name in read]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)


def _read(graph: Any) -> set[str]:
    inner = [a.g for node in graph.node for a in node.attribute if a.HasField("g")]
    own = {name for node in graph.node for name in node.input}
    return own.union(*(_read(one) | {o.name for o in one.output} for one in inner))
