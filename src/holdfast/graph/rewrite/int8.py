"""8-bit integers: weights and activations on the grids of equations (9) and (10), calibrated on images.

The graph gets QuantizeLinear and DequantizeLinear pairs ("QDQ"), which runtimes turn into integer kernels.

`int8-dynamic` needs no calibration: each activation is quantised by its own range at run time.

    x ─DynamicQuantizeLinear─► 8 bits ─MatMulInteger─► 32 bits ─× scales─► y

It applies to fully connected layers (MatMul by a constant, and Gemm) with one scale per weight channel. All
other nodes stay in float32, including embeddings (rows gathered from a table) and convolutions.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from holdfast.core import fingerprint
from holdfast.core.registry import F, stage
from holdfast.graph.inspect import STANDARD
from holdfast.graph.nodes import add_constant, attributes_of, drop_unused, subgraphs
from holdfast.graph.rewrite import calibration
from holdfast.graph.rewrite.calibration import CalibrationStatistics, QuantGrid
from holdfast.graph.rewrite.quant_plan import (
    QuantLayer,
    QuantPlan,
    already_quantised,
    at_opset,
    plan_of,
    tidy,
    without,
)
from holdfast.graph.rewrite.streamed import StreamedWeights
from holdfast.graph.rewrite.types import CannotRewrite, ModelProto, RewriteContext, RewriteResult

UNEVEN = 0.05  # noise over signal, mean of the channels: 13 dB
ENDLESS = 1e30  # larger numbers represent infinity in masks; no grid covers both them and ordinary values


def _static(name: str, **facts: Any) -> Callable[[F], F]:
    return stage("rewrite", name, family="precision", calibrated=True, **facts)


@_static(
    "int8-minmax",
    aliases=("int8",),
    paper=True,
    systems="TensorFlow Lite's default, ONNX Runtime's quantize_static with per_channel=True",
    targets=("tflite", "onnxruntime"),
)
def int8_minmax(model: ModelProto, context: RewriteContext) -> RewriteResult:
    """Static 8 bits, min-max ranges, per-channel weights; every layer in 8 bits."""
    return quantised(model, context, "min-max")


@_static("int8-entropy", systems="TensorRT's entropy calibrator, ncnn", targets=("tensorrt", "ncnn"))
def int8_entropy(model: ModelProto, context: RewriteContext) -> RewriteResult:
    """Static 8 bits, symmetric ranges of least KL divergence, per-channel weights; every layer in 8 bits."""
    return quantised(model, context, "entropy")


@_static("int8-percentile", systems="ONNX Runtime's CalibrationMethod.Percentile, toolkits for TensorRT")
def int8_percentile(model: ModelProto, context: RewriteContext) -> RewriteResult:
    """Static 8 bits, ranges clipped to 99.999 % of |x|, per-channel weights; every layer in 8 bits."""
    return quantised(model, context, "percentile")


@_static("int8-mixed", hypothetical=True, systems="hand-tuned mixed-precision engines; no product's default")
def int8_mixed(model: ModelProto, context: RewriteContext) -> RewriteResult:
    """Static 8 bits, tuned: percentile ranges, corrected biases, last and uneven layers in float32."""
    return quantised(model, context, "two-sided percentile", careful=True)


@_static("int8-per-tensor", default=False, systems="ONNX Runtime's quantize_static with its defaults")
def int8_per_tensor(model: ModelProto, context: RewriteContext) -> RewriteResult:
    """Static 8 bits, min-max ranges, one scale for all weights of a layer; every layer in 8 bits."""
    return quantised(model, context, "min-max", per_channel=False)


def quantised(
    model: ModelProto, context: RewriteContext, method: str, per_channel: bool = True, careful: bool = False
) -> RewriteResult:
    """The graph with QDQ pairs, ranges of activations by one of METHODS; CannotRewrite without images.

    `careful` keeps the last layers and those of uneven input in float32 and corrects biases for the rounding
    of weights. The products modelled by the other options do neither.
    """
    if done := already_quantised(model):
        return done
    original, model = model, tidy(model)
    if not plan_of(model).layers:
        return RewriteResult(original, ())
    model = at_opset(model)
    plan = plan_of(model)
    observed = _observed(model, plan, context, histogram=method != "min-max")
    plan = without(plan, [n for n, statistics in observed.statistics.items() if statistics.limit > ENDLESS])
    grids = {name: calibration.METHODS[method](observed.statistics[name]) for name in plan.readers}
    checked = plan.readers if careful else ()
    uneven = tuple(n for n in checked if _drowned(observed.variances[n], grids[n]) > UNEVEN)
    last = plan.last if careful else frozenset()
    chosen = without(plan, uneven, last)
    if not chosen.layers:  # a network of last layers alone is quantised after all
        chosen, last = without(plan, uneven), frozenset()
    if not chosen.layers:
        return RewriteResult(original, ())
    names = [node.name for node in model.graph.node]
    drowned = [names[x.place] for x in plan.layers if x.source in uneven and x.place not in last]
    per = "channel" if per_channel else "tensor"
    statistics = f"{_many(observed.images, context.unit)}, {RANGES[method]}, per {per}"
    how = f"{statistics}, QDQ, {_how(chosen, len(last), drowned)}"
    means = observed.means if careful else {}
    insert(model, chosen, {name: grids[name] for name in chosen.readers}, means, per_channel)
    return RewriteResult(model, tuple(names[layer.place] for layer in chosen.layers), how)


def _observed(
    model: ModelProto, plan: QuantPlan, context: RewriteContext, *, histogram: bool
) -> CalibrationStatistics:
    """Calibration statistics of the graph, cached in `context.observed` across rewrites."""
    if context.calibration is None:
        needed = f"8-bit integers need calibration {context.unit}s"
        raise CannotRewrite(f"{needed}; give some with --calibration that are not tested on")
    key = fingerprint.of_bytes(model.SerializeToString())
    statistics: CalibrationStatistics | None = context.observed.get(key)
    if statistics is None or (histogram and not statistics.histogram):
        entering = [model.graph.node[layer.place].input[0] for layer in plan.layers]
        watched = list(dict.fromkeys([*plan.readers, *entering]))
        images, unit = context.calibration, context.unit
        statistics = calibration.observe(model, watched, images, unit, histogram=histogram)
        context.observed[key] = statistics
    return statistics


def _drowned(variance: NDArray[np.float64], grid: QuantGrid) -> float:
    """How much of its channels a grid drowns: noise s²/12 against each channel's variance, on average."""
    shares = np.minimum(grid.scale**2 / 12 / np.maximum(variance, 1e-300), 1.0)
    return float(np.where(variance > 0, shares, 0.0).mean())


RANGES = {
    "min-max": "min-max",
    "percentile": f"percentile {calibration.PERCENTILE} of |x|",
    "entropy": "entropy, symmetric",
    "two-sided percentile": f"percentile {calibration.EITHER_END} at each end",
}


def _how(plan: QuantPlan, last: int, uneven: list[str]) -> str:
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
    if plan.in_float32:
        counts = sorted(Counter(plan.in_float32).items())
        operators = ", ".join(f"{count} {operator}" for operator, count in counts)
        how += f", {_many(len(plan.in_float32), 'node')} behind them in float32: {operators}"
    return how


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'s' if count != 1 else ''}"


LARGEST_BIAS = 2.0**30  # of a 32-bit integer, with room for the sum that starts from it


def insert(
    model: ModelProto,
    plan: QuantPlan,
    grids: dict[str, QuantGrid],
    means: dict[str, NDArray[np.float64]],
    per_channel: bool = True,
) -> None:
    """Change the graph in place: activations on their grids, weights on one per channel or one per tensor.

    `means` (of the channels that enter a layer) move its bias by what rounding the weights adds on average.
    """
    after = {}
    for name, grid in grids.items():
        scale = add_constant(model.graph, f"{name}:scale", np.float32(grid.scale))
        zero = add_constant(model.graph, f"{name}:zero", np.int8(grid.zero))
        integers, back = f"{name}:quantised", f"{name}:dequantised"
        after[name] = [
            helper.make_node("QuantizeLinear", [name, scale, zero], [integers], name=f"{name}:quantise"),
            helper.make_node("DequantizeLinear", [integers, scale, zero], [back], name=f"{name}:dequantise"),
        ]
    before = {x.place: _constants(model, x, grids[x.source], means, per_channel) for x in plan.layers}
    for name, where in plan.readers.items():
        for place, index in where:
            model.graph.node[place].input[index] = f"{name}:dequantised"
    order = [n for entry in model.graph.input for n in after.get(entry.name, ())]
    for place, node in enumerate(model.graph.node):
        order += [*before.get(place, ()), node]
        order += [n for output in node.output for n in after.get(output, ())]
    del model.graph.node[:]
    model.graph.node.extend(order)
    drop_unused(model.graph)


def _constants(
    model: ModelProto,
    layer: QuantLayer,
    grid: QuantGrid,
    means: dict[str, NDArray[np.float64]],
    per_channel: bool,
) -> list[Any]:
    """The nodes that de-quantise the weight and the bias of a layer, with the integers as new constants."""
    node = model.graph.node[layer.place]
    weight = _array(model, layer.weight)
    axis = 0 if attributes_of(node).get("transB") else weight.ndim - 1  # the output channels
    if node.op_type in ("Conv", "ConvTranspose"):
        axis = int(node.op_type == "ConvTranspose")
    bias = None if layer.bias is None else _array(model, layer.bias).astype(np.float64)
    others = tuple(a for a in range(weight.ndim) if a != axis)
    scale = calibration.symmetric_scale(np.abs(weight).max(axis=others if per_channel else None))
    if bias is not None and bias.size == np.size(scale):
        # A channel of tiny weights must not have a bias that its integers cannot hold.
        least = (np.abs(bias) / (LARGEST_BIAS * grid.scale)).astype(np.float32)
        scale = np.maximum(scale, least.reshape(scale.shape))
    wide = np.expand_dims(scale, others) if scale.ndim else scale
    integers = calibration.quantise(weight, wide, low=-calibration.HIGH)
    if bias is not None and node.input[0] in means:
        bias = bias - _mean_shift(node, calibration.dequantise(integers, wide) - weight, means[node.input[0]])
    nodes = [_dequantised(model, node, 1, integers.astype(np.int8), scale, axis)]
    plain = all(a.f == 1.0 for a in node.attribute if a.name in ("alpha", "beta"))  # the factors of a Gemm
    if bias is not None and plain:
        step = (scale.astype(np.float64) * grid.scale).astype(np.float32)
        nodes.append(_dequantised(model, node, 2, np.rint(bias / step).astype(np.int32), step, 0))
    return nodes


def _mean_shift(node: Any, error: NDArray[Any], mean: NDArray[np.float64]) -> NDArray[np.float64] | float:
    """What an error of the weights adds to each output channel, for inputs of these channel means."""
    if node.op_type != "Conv" or error.shape[1] > mean.size or mean.size % error.shape[1]:
        return 0.0
    groups = mean.size // error.shape[1]
    per_input = error.reshape(error.shape[0], error.shape[1], -1).sum(axis=2)
    entering = np.repeat(mean.reshape(groups, -1), error.shape[0] // groups, axis=0)
    return np.asarray((per_input * entering).sum(axis=1))


def _dequantised(
    model: ModelProto, node: Any, index: int, integers: NDArray[Any], scale: NDArray[Any], axis: int
) -> Any:
    name = f"{node.name}:{node.input[index]}"
    arrays = {"integers": integers, "scale": scale, "zero": np.zeros(scale.shape, integers.dtype)}
    inputs = [add_constant(model.graph, f"{name}:{each}", value) for each, value in arrays.items()]
    node.input[index] = f"{name}:dequantised"
    own = {"name": f"{name}:dequantise", **({"axis": axis} if scale.ndim else {})}
    return helper.make_node("DequantizeLinear", inputs, [node.input[index]], **own)


def _array(model: ModelProto, name: str) -> NDArray[Any]:
    return np.asarray(numpy_helper.to_array(next(w for w in model.graph.initializer if w.name == name)))


# Weights as unsigned integers about 128: kernels for signed ones may saturate on CPUs without VNNI, where
# the sum of two products must fit 16 bits, and the number would depend on the machine.
MIDDLE = 128


@dataclass(frozen=True)
class _Dense:
    """A fully connected layer y = x · weight + bias; the weight is (inputs, outputs)."""

    place: int
    weight: Callable[[], NDArray[np.float32]]  # read when it is needed: a large one is in a file
    bias: str  # "" without one
    factor: float  # of the bias


@stage(
    "rewrite",
    "int8-dynamic",
    family="precision",
    default=False,
    systems="ONNX Runtime and PyTorch dynamic quantisation: language models on CPUs",
)
def int8_dynamic(model: ModelProto, context: RewriteContext) -> RewriteResult:
    """Dynamic 8 bits: fully connected layers, a scale a channel of weights, ranges from each input itself."""
    if done := already_quantised(model):
        return done
    streamed: StreamedWeights | None = context.streamed
    original, model = model, streamed.tidy(model) if streamed else at_opset(tidy(model))
    layers = _layers(model, streamed.array if streamed else numpy_helper.to_array)
    if not layers:
        return RewriteResult(original, ())
    changed = tuple(model.graph.node[layer.place].name for layer in layers)
    count, rest = _many(len(layers), "fully connected layer"), _describe_float32(model, layers)
    how = f"no calibration, per channel, {count} in 8 bits{rest}"
    chosen = {layer.place: layer for layer in layers}
    grids: dict[str, tuple[str, str, str]] = {}  # layers that read the same tensor share its grid
    order: list[Any] = []
    for place, node in enumerate(model.graph.node):
        if place not in chosen:
            order.append(node)
            continue
        source = node.input[0]
        if source not in grids:
            grids[source] = (f"{source}:8-bit", f"{source}:8-bit-scale", f"{source}:8-bit-zero")
            name = f"{source}:quantise"
            order.append(helper.make_node("DynamicQuantizeLinear", [source], list(grids[source]), name=name))
        order += _integer_layer(model, node, chosen[place], grids[source])
        if streamed:
            streamed.move(model.graph, f"{node.name}:weight")
    del model.graph.node[:]
    model.graph.node.extend(order)
    drop_unused(model.graph)
    if streamed:
        streamed.write(model)
    return RewriteResult(model, changed, how)


def _layers(model: ModelProto, read: Callable[[Any], NDArray[np.float32]]) -> list[_Dense]:
    constants = {w.name: w for w in model.graph.initializer if w.data_type == TensorProto.FLOAT}
    layers = []
    for place, node in enumerate(model.graph.node):
        if node.op_type not in ("MatMul", "Gemm") or node.domain not in STANDARD:
            continue
        stored = constants.get(node.input[1])
        if stored is None or len(stored.dims) != 2 or node.input[0] in constants:
            continue
        options = attributes_of(node)
        if options.get("transA"):
            continue
        turned, factor = bool(options.get("transB")), np.float32(options.get("alpha", 1.0))

        def weight(stored: Any = stored, turned: bool = turned, factor: Any = factor) -> NDArray[np.float32]:
            values = read(stored)
            return np.asarray((values.T if turned else values) * factor)

        bias = node.input[2] if len(node.input) > 2 else ""
        layers.append(_Dense(place, weight, bias, float(options.get("beta", 1.0))))
    return layers


def _integer_layer(model: ModelProto, node: Any, layer: _Dense, entering: tuple[str, str, str]) -> list[Any]:
    integers, step, zero = entering
    values = layer.weight()
    scale = calibration.symmetric_scale(np.abs(values).max(axis=0))
    weight = (calibration.quantise(values, scale, low=-calibration.HIGH) + MIDDLE).astype(np.uint8)
    own = node.name
    added = {"weight": weight, "middle": np.array([MIDDLE], np.uint8), "scale": scale}
    matrix, middle, scales = (add_constant(model.graph, f"{own}:{name}", v) for name, v in added.items())
    end = f"{own}:product" if layer.bias else node.output[0]
    sums, floats, steps = f"{own}:sums", f"{own}:floats", f"{own}:step"
    nodes = [
        helper.make_node("MatMulInteger", [integers, matrix, zero, middle], [sums], name=own),
        helper.make_node("Cast", [sums], [floats], name=f"{own}:cast", to=TensorProto.FLOAT),
        helper.make_node("Mul", [step, scales], [steps], name=f"{own}:scales"),
        helper.make_node("Mul", [floats, steps], [end], name=f"{own}:scaled"),
    ]
    if layer.bias:
        bias = layer.bias
        if layer.factor != 1.0:
            factor = add_constant(model.graph, f"{own}:beta", np.array([layer.factor], np.float32))
            bias = f"{own}:scaled-bias"
            nodes.append(helper.make_node("Mul", [layer.bias, factor], [bias], name=bias))
        nodes.append(helper.make_node("Add", [end, bias], [node.output[0]], name=f"{own}:bias"))
    return nodes


def _describe_float32(model: ModelProto, layers: list[_Dense]) -> str:
    """Text that lists the nodes with weights that stay in float32, including embeddings and subgraphs."""
    stored = [w for w in model.graph.initializer if w.data_type == TensorProto.FLOAT]
    tables = {w.name for w in stored if len(w.dims) == 2}
    done = {layer.place for layer in layers}
    kinds: Counter[str] = Counter()
    for place, node in enumerate(model.graph.node):
        if place in done:
            continue
        if node.op_type in ("Conv", "ConvTranspose"):
            kinds[node.op_type] += 1
        elif node.op_type in ("MatMul", "Gemm"):
            kinds[f"{node.op_type} without a weight"] += 1
        elif node.op_type == "Gather" and node.input[0] in tables:
            kinds["embedding table"] += 1
        elif subgraphs(node):
            kinds[f"graph inside {node.op_type}"] += 1
    listed = ", ".join(f"{count} × {kind}" for kind, count in sorted(kinds.items()))
    return f", in float32: {listed}" if listed else ""
