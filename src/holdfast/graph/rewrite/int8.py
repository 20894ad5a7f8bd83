"""8-bit integers: weights and activations on the grids of equations (9) and (10), calibrated on images.

The graph gets QuantizeLinear and DequantizeLinear pairs ("QDQ"), which runtimes turn into integer kernels.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from holdfast.core import fingerprint
from holdfast.core.registry import stage
from holdfast.graph.rewrite.quant_insert import insert
from holdfast.graph.rewrite.quant_observe import Observed, observe
from holdfast.graph.rewrite.quant_plan import Plan, plan_of, without
from holdfast.graph.rewrite.quant_ranges import EITHER_END, METHODS, PERCENTILE
from holdfast.graph.rewrite.quant_tidy import at_opset, tidy
from holdfast.graph.rewrite.quantise import Grid
from holdfast.graph.rewrite.types import CannotRewrite, Context, ModelProto, Rewritten

UNEVEN = 0.05  # noise over signal, mean of the channels: 13 dB
ENDLESS = 1e30  # beyond it numbers stand for infinity, in masks: no grid holds both them and others


@stage(
    "rewrite",
    "int8-minmax",
    aliases=("int8",),
    family="precision",
    calibrated=True,
    paper=True,
    systems="TensorFlow Lite's default, ONNX Runtime's quantize_static with per_channel=True",
)
def int8_minmax(model: ModelProto, context: Context) -> Rewritten:
    """Static 8 bits, min-max ranges, per-channel weights; every layer in 8 bits."""
    return quantised(model, context, "min-max")


@stage(
    "rewrite",
    "int8-entropy",
    family="precision",
    calibrated=True,
    systems="TensorRT's entropy calibrator, ncnn",
)
def int8_entropy(model: ModelProto, context: Context) -> Rewritten:
    """Static 8 bits, symmetric ranges of least KL divergence, per-channel weights; every layer in 8 bits."""
    return quantised(model, context, "entropy")


@stage(
    "rewrite",
    "int8-percentile",
    family="precision",
    calibrated=True,
    systems="ONNX Runtime's CalibrationMethod.Percentile, toolkits for TensorRT",
)
def int8_percentile(model: ModelProto, context: Context) -> Rewritten:
    """Static 8 bits, ranges clipped to 99.999 % of |x|, per-channel weights; every layer in 8 bits."""
    return quantised(model, context, "percentile")


@stage(
    "rewrite",
    "int8-mixed",
    family="precision",
    calibrated=True,
    systems="hand-tuned mixed-precision engines; no product's default",
)
def int8_mixed(model: ModelProto, context: Context) -> Rewritten:
    """Static 8 bits, tuned: percentile ranges, corrected biases, last and uneven layers in float32."""
    return quantised(model, context, "two-sided percentile", careful=True)


@stage(
    "rewrite",
    "int8-per-tensor",
    family="precision",
    calibrated=True,
    default=False,
    systems="ONNX Runtime's quantize_static with its defaults",
)
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
    original = type(model)()
    original.CopyFrom(model)
    model = tidy(model)
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
    spared = [x.place for x in plan.layers if x.source in uneven and x.place not in last]
    told = _spared(len(last), [model.graph.node[place].name for place in spared])
    plan = chosen
    changed = tuple(model.graph.node[layer.place].name for layer in plan.layers)
    how = _how(plan, named(method, per_channel), _many(observed.images, context.unit), told)
    means = observed.means if careful else {}
    insert(model, plan, {name: grids[name] for name in plan.readers}, means, per_channel)
    return Rewritten(model, changed, how)


def _observed(model: ModelProto, plan: Plan, context: Context, *, histogram: bool) -> Observed:
    """What calibration sees of the graph: from `context.observed` if an earlier rewrite looked already."""
    if context.calibration is None:
        raise CannotRewrite(
            f"8-bit integers need calibration {context.unit}s; give some that are not tested on"
        )
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
    found = []
    for name in plan.readers:
        variance = observed.variances[name]
        noise = grids[name].scale ** 2 / 12
        share = np.where(variance > 0, np.minimum(noise / np.maximum(variance, 1e-300), 1.0), 0.0)
        if share.mean() > UNEVEN:
            found.append(name)
    return tuple(found)


def named(method: str, per_channel: bool) -> str:
    """The method in words."""
    ranges = {
        "percentile": f"percentile {PERCENTILE} of |x|",
        "entropy": "entropy, symmetric",
        "two-sided percentile": f"percentile {EITHER_END} at each end",
    }
    return f"{ranges.get(method, method)}, per {'channel' if per_channel else 'tensor'}"


def _spared(last: int, uneven: list[str]) -> str:
    """Which layers a careful plan leaves in float32."""
    ends = f", the {f'{last} last layers' if last > 1 else 'last layer'} in float32" if last else ""
    drowned = f", {len(uneven)} of uneven input in float32: {', '.join(uneven[:5])}" if uneven else ""
    return ends + drowned


def _how(plan: Plan, method: str, counted: str, spared: str) -> str:
    kept = Counter(plan.kept)
    told = ", ".join(f"{count} {operator}" for operator, count in sorted(kept.items()))
    layers = {layer.place for layer in plan.layers}
    with_them = {place for name in plan.readers for place in plan.served[name]} - layers
    between = "sums and products" if len(with_them) > 1 else "sum or product"
    others = f" with {len(with_them)} {between} between them" if with_them else ""
    after = f", {_many(sum(kept.values()), 'node')} behind them in float32: {told}" if kept else ""
    return f"{counted}, {method}, QDQ, {_many(len(plan.layers), 'layer')} in 8 bits{others}{spared}{after}"


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'s' if count != 1 else ''}"
