"""16-bit floating point: weights and activations rounded to float16 or bfloat16.

ONNX Runtime has no 16-bit kernels on most CPUs. It runs a float16 graph in float32 and takes the casts out,
so that only the weights are ever rounded: that is `fp16-weights`. For `fp16` every tensor between two layers
is rounded by a pair of casts that it keeps; sums are in float32, as on the matrix units of GPUs.
"""

from collections import defaultdict

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from holdfast.core.registry import stage
from holdfast.graph.nodes import subgraphs
from holdfast.graph.rewrite.quant_plan import MOVING, already_quantised, at_opset, float_tensors, tidy
from holdfast.graph.rewrite.streamed import StreamedWeights
from holdfast.graph.rewrite.types import ModelProto, RewriteContext, RewriteResult

LARGEST = 65504.0  # of float16
LARGESTS = {"float16": LARGEST, "bfloat16": float.fromhex("0x1.fep127")}
ENDLESS = 1e38  # float32's own extremes, which stand for infinity in masks
# Their values come out as they went in, or are the greater of two: nothing to round
CLIPPING = ("Relu", "Clip")
EXACT = (*MOVING, *CLIPPING, "Concat", "Max", "Min", "Neg", "Abs", "GlobalMaxPool", "Dropout", "Where")
# Inputs that are sizes and factors of the layout, not numbers of the network, by operator
SETTINGS = {"Resize": (1, 2, 3), "Upsample": (1,), "NonMaxSuppression": (2, 3, 4), "Range": (0, 1, 2)}


@stage("rewrite", family="precision", paper=True, systems="GPUs and phone accelerators in half precision")
def fp16(model: ModelProto, context: RewriteContext) -> RewriteResult:
    """Weights and every activation rounded to float16 (11 significant bits), sums in float32."""
    return rounded(model, "float16", streamed=context.streamed)


@stage(
    "rewrite",
    "fp16-weights",
    family="precision",
    default=False,
    systems="ONNX Runtime (CPU) given a float16 model",
)
def fp16_weights(model: ModelProto, context: RewriteContext) -> RewriteResult:
    """Weights rounded to float16, all arithmetic in float32."""
    return rounded(model, "float16", activations=False, streamed=context.streamed)


@stage("rewrite", family="precision", systems="TPUs, Intel AMX, recent GPUs in bfloat16")
def bf16(model: ModelProto, context: RewriteContext) -> RewriteResult:
    """Weights and every activation rounded to bfloat16 (8 significant bits), sums in float32."""
    return rounded(model, "bfloat16", streamed=context.streamed)


@stage("rewrite", "bf16-weights", family="precision", default=False, systems="weights stored in bfloat16")
def bf16_weights(model: ModelProto, context: RewriteContext) -> RewriteResult:
    """Weights rounded to bfloat16, all arithmetic in float32."""
    return rounded(model, "bfloat16", activations=False, streamed=context.streamed)


def rounded(
    model: ModelProto, kind: str, activations: bool = True, streamed: StreamedWeights | None = None
) -> RewriteResult:
    """The tidy graph with weights, and optionally activations, rounded to `float16` or `bfloat16`."""
    if done := already_quantised(model):
        return done
    original, model = model, streamed.tidy(model) if streamed else tidy(model)
    if kind == "bfloat16" and activations:
        model = at_opset(model)
    masks = _end_masks(model, kind)
    weights, infinite = _round_weights(model, kind)
    casts = _round_activations(model, kind) if activations else ()
    if not weights and not casts:
        return RewriteResult(original, ())
    if streamed:
        infinite += streamed.write(model, lambda values: to_kind(_ended(values, kind)[0], kind))
    how = f"{len(weights)} weights" + (f" and {len(casts)} activations" if activations else "")
    how += f" rounded to {kind}, sums in float32"
    how += f", beyond ±{LARGEST:.0f} and so infinite: {', '.join(infinite[:3])}" if infinite else ""
    how += f", masks cut to ±{LARGESTS[kind]:.5g}" if masks else ""
    inner = sorted({n.op_type for n in model.graph.node if subgraphs(n)})
    how += f", inside {', '.join(inner)} in float32" if inner else ""
    return RewriteResult(model, (*weights, *casts), how)


def _end_masks(model: ModelProto, kind: str) -> int:
    """Replace float32's extremes in constants by those of the kind, as converters do; return the count.

    They represent infinity in masks; a true infinity would give NaN times 0, or in a fully masked row. As a
    bound of a Clip they represent no bound: a finite one would hide overflows.
    """
    filled = [a.t for n in model.graph.node if n.op_type == "ConstantOfShape" for a in n.attribute]
    ends = {name for node in model.graph.node if node.op_type == "Clip" for name in node.input[1:] if name}
    count = 0
    for tensor in (*model.graph.initializer, *filled):
        if tensor.data_type != onnx.TensorProto.FLOAT or tensor.name in ends or tensor.external_data:
            continue
        ended, has_ends = _ended(numpy_helper.to_array(tensor), kind)
        if has_ends:
            tensor.CopyFrom(numpy_helper.from_array(ended, tensor.name))
            count += 1
    return count


def _ended(values: NDArray[np.float32], kind: str) -> tuple[NDArray[np.float32], bool]:
    """The values with float32's extremes replaced by those of the kind, and whether there are any."""
    endless = np.isfinite(values) & (np.abs(values) >= ENDLESS)
    if not endless.any():
        return values, False
    ends = np.where(endless, np.copysign(np.float32(LARGESTS[kind]), values), values)
    return ends.astype(np.float32), True


def _round_weights(model: ModelProto, kind: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Round the constants; return their names, and the names of those that became infinite."""
    places = ((node, at) for node in model.graph.node for at in SETTINGS.get(node.op_type, ()))
    settings = {node.input[at] for node, at in places if at < len(node.input)}
    done, infinite = [], []
    for weight in model.graph.initializer:
        if weight.data_type != onnx.TensorProto.FLOAT or weight.name in settings:
            continue
        done.append(weight.name)
        if weight.external_data:
            continue  # rounded while it is written
        before = numpy_helper.to_array(weight)
        after = to_kind(before, kind)
        if np.isinf(after).any() and not np.isinf(before).any():
            infinite.append(weight.name)
        weight.CopyFrom(numpy_helper.from_array(after, weight.name))
    return tuple(done), tuple(infinite)


def to_kind(values: NDArray[np.float32], kind: str) -> NDArray[np.float32]:
    """The values rounded to the nearest number of that kind (halves to even), as float32."""
    if kind == "float16":
        with np.errstate(over="ignore"):  # what becomes infinite is named by the caller
            return values.astype(np.float16).astype(np.float32)
    bits = np.ascontiguousarray(values).view(np.uint32).astype(np.uint64)
    nearest = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    result = np.where(np.isnan(values), bits & 0xFFFFFFFF, nearest)
    return result.astype(np.uint32).view(np.float32).reshape(values.shape)


def _round_activations(model: ModelProto, kind: str) -> tuple[str, ...]:
    """Insert a pair of casts behind each tensor to round; return the names of these tensors."""
    to = {"float16": onnx.TensorProto.FLOAT16, "bfloat16": onnx.TensorProto.BFLOAT16}[kind]
    chosen = _to_round(model)
    after = {}
    for name in chosen:
        down = helper.make_node("Cast", [name], [f"{name}:{kind}"], name=f"{name}:to-{kind}", to=to)
        back = helper.make_node("Cast", [f"{name}:{kind}"], [f"{name}:rounded"], name=f"{name}:back", to=1)
        after[name] = (down, back)
    order = [cast for entry in model.graph.input for cast in after.get(entry.name, ())]
    for node in model.graph.node:
        node.input[:] = [f"{name}:rounded" if name in after else name for name in node.input]
        order += [node, *(cast for name in node.output for cast in after.get(name, ()))]
    outputs = sorted({o.name for o in model.graph.output} & set(after))
    for node in order:  # the rounded outputs take the names of the outputs
        for names in (node.input, node.output):
            names[:] = [f"{name}:exact" if name in outputs else name for name in names]
    order += [helper.make_node("Identity", [f"{n}:rounded"], [n], name=f"{n}:out") for n in outputs]
    del model.graph.node[:]
    model.graph.node.extend(order)
    return tuple(chosen)


def _to_round(model: ModelProto) -> list[str]:
    """The float32 tensors that enter the graph or hold newly computed numbers, in order.

    A tensor read only by clippings (ReLU) is rounded behind them; the result is the same.
    """
    floats = float_tensors(model)
    readers: dict[str, set[str]] = defaultdict(set)
    for node in model.graph.node:
        for name in node.input:
            readers[name].add(node.op_type)
    ends = {o.name for o in model.graph.output}
    waiting: set[str] = set()
    names = [i.name for i in model.graph.input if i.name in floats]
    for node in model.graph.node:
        if node.op_type in EXACT and not waiting & set(node.input):
            continue
        for name in (n for n in node.output if n in floats):
            later = name not in ends and readers[name] and readers[name] <= set(CLIPPING)
            waiting.add(name) if later else names.append(name)
    return names
