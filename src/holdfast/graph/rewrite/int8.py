"""8-bit integers: weights and activations on the grids of equations (9) and (10), calibrated on images.

The graph gets QuantizeLinear and DequantizeLinear pairs ("QDQ"), which runtimes turn into integer kernels.
"""

from __future__ import annotations

from collections import Counter

from holdfast.core.registry import stage
from holdfast.graph.rewrite.quant_insert import insert
from holdfast.graph.rewrite.quant_observe import observe
from holdfast.graph.rewrite.quant_plan import Plan, plan_of
from holdfast.graph.rewrite.quant_ranges import METHODS, PERCENTILE
from holdfast.graph.rewrite.quant_tidy import at_opset, tidy
from holdfast.graph.rewrite.quantise import grid_over
from holdfast.graph.rewrite.types import CannotRewrite, Context, ModelProto, Rewritten


@stage(
    "rewrite", family="precision", calibrated=True, paper=True, systems="integer engines, properly calibrated"
)
def int8(model: ModelProto, context: Context) -> Rewritten:
    """Static 8 bits: one scale a channel of weights, activations clipped for the least squared error."""
    return quantised(model, context, "mse")


@stage(
    "rewrite",
    "int8-minmax",
    family="precision",
    calibrated=True,
    default=False,
    systems="ONNX Runtime's default, TensorFlow Lite",
)
def int8_minmax(model: ModelProto, context: Context) -> Rewritten:
    """Static 8 bits: one scale a channel of weights, activations over all that calibration saw."""
    return quantised(model, context, "min-max")


@stage(
    "rewrite",
    "int8-percentile",
    family="precision",
    calibrated=True,
    default=False,
    systems="TensorRT toolkits, ONNX Runtime",
)
def int8_percentile(model: ModelProto, context: Context) -> Rewritten:
    """Static 8 bits: one scale a channel of weights, activations without the outermost 0.01 %."""
    return quantised(model, context, "percentile")


@stage(
    "rewrite",
    "int8-entropy",
    family="precision",
    calibrated=True,
    default=False,
    systems="TensorRT, ONNX Runtime",
)
def int8_entropy(model: ModelProto, context: Context) -> Rewritten:
    """Static 8 bits: one scale a channel of weights, activations clipped for the least lost information."""
    return quantised(model, context, "entropy")


@stage(
    "rewrite",
    "int8-per-tensor",
    family="precision",
    calibrated=True,
    systems="engines with one scale a layer",
)
def int8_per_tensor(model: ModelProto, context: Context) -> Rewritten:
    """Static 8 bits: one scale for all weights of a layer, activations as in int8."""
    return quantised(model, context, "mse", per_channel=False)


def quantised(model: ModelProto, context: Context, method: str, per_channel: bool = True) -> Rewritten:
    """The graph with QDQ pairs, ranges of activations by one of METHODS; CannotRewrite without images."""
    original, model = model, tidy(model)
    plan = plan_of(model)
    if not plan.layers:
        return Rewritten(original, ())
    if context.calibration is None:
        raise CannotRewrite("8-bit integers need calibration images; give some that are not tested on")
    model = at_opset(model)
    plan = plan_of(model)
    entering = [model.graph.node[layer.place].input[0] for layer in plan.layers]
    watched = list(dict.fromkeys([*plan.readers, *entering]))
    bins = {} if method != "min-max" else {"bins": 0}
    observed = observe(model, watched, context.calibration, **bins)
    choose = METHODS[method]
    grids = {name: grid_over(*choose(observed.seen[name])) for name in plan.readers}
    changed = tuple(model.graph.node[layer.place].name for layer in plan.layers)
    insert(model, plan, grids, observed.means, per_channel)
    return Rewritten(model, changed, _how(plan, method, per_channel, observed.images))


def _how(plan: Plan, method: str, per_channel: bool, images: int) -> str:
    named = f"percentile {PERCENTILE}" if method == "percentile" else method
    kept = Counter(plan.kept)
    told = ", ".join(f"{count} {operator}" for operator, count in sorted(kept.items()))
    after = f", {sum(kept.values())} nodes after them kept in float32: {told}" if kept else ""
    return (
        f"{images} images, {named}, per {'channel' if per_channel else 'tensor'}, QDQ, "
        f"{len(plan.layers)} layers and {len(plan.readers)} activations in 8 bits{after}"
    )
