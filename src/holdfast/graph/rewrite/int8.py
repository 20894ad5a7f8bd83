"""8-bit integers: weights and activations on the grids of equations (9) and (10), calibrated on images.

The graph gets QuantizeLinear and DequantizeLinear pairs ("QDQ"), which runtimes turn into integer kernels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from holdfast.core import fingerprint
from holdfast.core.registry import F, stage
from holdfast.graph.nodes import add_constant, drop_unused
from holdfast.graph.rewrite.calibration import (
    EITHER_END,
    HIGH,
    METHODS,
    PERCENTILE,
    Grid,
    Observed,
    dequantise,
    observe,
    quantise,
    symmetric_scale,
)
from holdfast.graph.rewrite.quant_plan import Layer, Plan, at_opset, plan_of, tidy, without
from holdfast.graph.rewrite.types import CannotRewrite, Context, ModelProto, Rewritten

UNEVEN = 0.05  # noise over signal, mean of the channels: 13 dB
ENDLESS = 1e30  # beyond it numbers stand for infinity, in masks: no grid holds both them and others


def _static(name: str, **facts: Any) -> Callable[[F], F]:
    return stage("rewrite", name, family="precision", calibrated=True, **facts)


@_static(
    "int8-minmax",
    aliases=("int8",),
    paper=True,
    systems="TensorFlow Lite's default, ONNX Runtime's quantize_static with per_channel=True",
)
def int8_minmax(model: ModelProto, context: Context) -> Rewritten:
    """Static 8 bits, min-max ranges, per-channel weights; every layer in 8 bits."""
    return quantised(model, context, "min-max")


@_static("int8-entropy", systems="TensorRT's entropy calibrator, ncnn")
def int8_entropy(model: ModelProto, context: Context) -> Rewritten:
    """Static 8 bits, symmetric ranges of least KL divergence, per-channel weights; every layer in 8 bits."""
    return quantised(model, context, "entropy")


@_static("int8-percentile", systems="ONNX Runtime's CalibrationMethod.Percentile, toolkits for TensorRT")
def int8_percentile(model: ModelProto, context: Context) -> Rewritten:
    """Static 8 bits, ranges clipped to 99.999 % of |x|, per-channel weights; every layer in 8 bits."""
    return quantised(model, context, "percentile")


@_static("int8-mixed", systems="hand-tuned mixed-precision engines; no product's default")
def int8_mixed(model: ModelProto, context: Context) -> Rewritten:
    """Static 8 bits, tuned: percentile ranges, corrected biases, last and uneven layers in float32."""
    return quantised(model, context, "two-sided percentile", careful=True)


@_static("int8-per-tensor", default=False, systems="ONNX Runtime's quantize_static with its defaults")
def int8_per_tensor(model: ModelProto, context: Context) -> Rewritten:
    """Static 8 bits, min-max ranges, one scale for all weights of a layer; every layer in 8 bits."""
    return quantised(model, context, "min-max", per_channel=False)


def quantised(
    model: ModelProto, context: Context, method: str, per_channel: bool = True, careful: bool = False
) -> Rewritten:
    """The graph with QDQ pairs, ranges of activations by one of METHODS; CannotRewrite without images.

    `careful` keeps the last layers and those of uneven input in float32 and corrects biases for the rounding
    of weights. The products that the other options stand for do neither.
    """
    original, model = model, tidy(model)
    if not plan_of(model).layers:
        return Rewritten(original, ())
    model = at_opset(model)
    plan = plan_of(model)
    observed = _observed(model, plan, context, histogram=method != "min-max")
    plan = without(plan, [n for n, seen in observed.seen.items() if seen.limit > ENDLESS])
    grids = {name: METHODS[method](observed.seen[name]) for name in plan.readers}
    uneven = _uneven(plan, grids, observed) if careful else ()
    last = plan.last if careful else frozenset()
    chosen = without(plan, uneven, last)
    if not chosen.layers:  # a network of last layers alone is quantised after all
        chosen, last = without(plan, uneven), frozenset()
    if not chosen.layers:
        return Rewritten(original, ())
    names = [node.name for node in model.graph.node]
    drowned = [names[x.place] for x in plan.layers if x.source in uneven and x.place not in last]
    per = "channel" if per_channel else "tensor"
    seen = f"{_many(observed.images, context.unit)}, {RANGES[method]}, per {per}"
    how = f"{seen}, QDQ, {_how(chosen, len(last), drowned)}"
    means = observed.means if careful else {}
    insert(model, chosen, {name: grids[name] for name in chosen.readers}, means, per_channel)
    return Rewritten(model, tuple(names[layer.place] for layer in chosen.layers), how)


def _observed(model: ModelProto, plan: Plan, context: Context, *, histogram: bool) -> Observed:
    """What calibration sees of the graph: from `context.observed` if an earlier rewrite looked already."""
    if context.calibration is None:
        needed = f"8-bit integers need calibration {context.unit}s"
        raise CannotRewrite(f"{needed}; give some that are not tested on")
    key = fingerprint.of_bytes(model.SerializeToString())
    kept: Observed | None = context.observed.get(key)
    if kept is None or (histogram and not kept.histogram):
        entering = [model.graph.node[layer.place].input[0] for layer in plan.layers]
        watched = list(dict.fromkeys([*plan.readers, *entering]))
        kept = observe(model, watched, context.calibration, context.unit, histogram=histogram)
        context.observed[key] = kept
    return kept


def _uneven(plan: Plan, grids: dict[str, Grid], observed: Observed) -> tuple[str, ...]:
    """The tensors whose one grid drowns many channels: noise s²/12 against each channel's variance."""

    def share(name: str) -> float:
        variance, noise = observed.variances[name], grids[name].scale ** 2 / 12
        shares = np.where(variance > 0, np.minimum(noise / np.maximum(variance, 1e-300), 1.0), 0.0)
        return float(shares.mean())

    return tuple(name for name in plan.readers if share(name) > UNEVEN)


RANGES = {
    "min-max": "min-max",
    "percentile": f"percentile {PERCENTILE} of |x|",
    "entropy": "entropy, symmetric",
    "two-sided percentile": f"percentile {EITHER_END} at each end",
}


def _how(plan: Plan, last: int, uneven: list[str]) -> str:
    """Which layers are in 8 bits, and what stays in float32: last layers, those of uneven input, the rest."""
    layers = {layer.place for layer in plan.layers}
    how = f"{_many(len(plan.layers), 'layer')} in 8 bits"
    with_them = {place for name in plan.readers for place in plan.served[name]} - layers
    if with_them:
        between = "sums and products" if len(with_them) > 1 else "sum or product"
        how += f" with {len(with_them)} {between} between them"
    if last:
        how += f", the {f'{last} last layers' if last > 1 else 'last layer'} in float32"
    if uneven:
        how += f", {len(uneven)} of uneven input in float32: {', '.join(uneven[:5])}"
    if plan.kept:
        kept = ", ".join(f"{count} {operator}" for operator, count in sorted(Counter(plan.kept).items()))
        how += f", {_many(len(plan.kept), 'node')} behind them in float32: {kept}"
    return how


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'s' if count != 1 else ''}"


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
    before = {x.place: _constants(model, x, grids[x.source], means, per_channel) for x in plan.layers}
    for name, where in plan.readers.items():
        for place, index in where:
            model.graph.node[place].input[index] = f"{name}:dequantised"
    order = [n for entry in model.graph.input for n in after.get(entry.name, ())]
    for place, node in enumerate(model.graph.node):
        order += [*before.get(place, ()), node]
        order += [n for made in node.output for n in after.get(made, ())]
    del model.graph.node[:]
    model.graph.node.extend(order)
    drop_unused(model.graph)


def _activation(model: ModelProto, name: str, grid: Grid) -> list[Any]:
    scale = add_constant(model.graph, f"{name}:scale", np.float32(grid.scale))
    zero = add_constant(model.graph, f"{name}:zero", np.int8(grid.zero))
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
    others = tuple(a for a in range(weight.ndim) if a != axis)
    scale = symmetric_scale(np.abs(weight).max(axis=others if per_channel else None))
    if bias is not None and bias.size == np.size(scale):
        # A channel of tiny weights must not have a bias that its integers cannot hold.
        least = (np.abs(bias) / (LARGEST_BIAS * grid.scale)).astype(np.float32)
        scale = np.maximum(scale, least.reshape(scale.shape))
    wide = np.expand_dims(scale, others) if scale.ndim else scale
    integers = quantise(weight, wide, low=-HIGH)
    if bias is not None and node.input[0] in means:
        bias = bias - _mean_shift(node, dequantise(integers, wide) - weight, means[node.input[0]])
    made = [_dequantised(model, node, 1, integers.astype(np.int8), scale, axis)]
    plain = all(a.f == 1.0 for a in node.attribute if a.name in ("alpha", "beta"))  # the factors of a Gemm
    if bias is not None and plain:
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


def _channel_axis(node: Any, weight: NDArray[Any]) -> int:
    """The axis of a weight along which its output channels lie."""
    if node.op_type in ("Conv", "ConvTranspose"):
        return int(node.op_type == "ConvTranspose")
    return 0 if any(a.name == "transB" and a.i for a in node.attribute) else weight.ndim - 1


def _dequantised(
    model: ModelProto, node: Any, index: int, integers: NDArray[Any], scale: NDArray[Any], axis: int
) -> Any:
    name = f"{node.name}:{node.input[index]}"
    given = {"integers": integers, "scale": scale, "zero": np.zeros(scale.shape, integers.dtype)}
    inputs = [add_constant(model.graph, f"{name}:{each}", value) for each, value in given.items()]
    node.input[index] = f"{name}:dequantised"
    own = {"name": f"{name}:dequantise", **({"axis": axis} if scale.ndim else {})}
    return helper.make_node("DequantizeLinear", inputs, [node.input[index]], **own)


def _array(model: ModelProto, name: str) -> NDArray[Any]:
    return np.asarray(numpy_helper.to_array(next(w for w in model.graph.initializer if w.name == name)))
