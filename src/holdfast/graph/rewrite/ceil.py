"""Ceil mode: pools that round their output size down round it up, and the other way round."""

from typing import Any

from holdfast.core.registry import stage
from holdfast.graph.inspect import STANDARD
from holdfast.graph.nodes import attributes_of, drop_attributes, set_attribute
from holdfast.graph.rewrite.follow.rules import RULES, was_now
from holdfast.graph.rewrite.follow.shapes import POOLS, PoolWindow, ceils, pooled, windows_of
from holdfast.graph.rewrite.follow.walk import GraphWalk, cannot, counted, proven, tidy, title, walk_graph
from holdfast.graph.rewrite.types import ModelProto, RewriteContext, RewriteResult

CEIL_SINCE = {"MaxPool": 10, "AveragePool": 10, "LpPool": 18}  # the opset that has the attribute


@stage(
    "rewrite",
    family="ceil",
    paper=True,
    systems="Caffe and ncnn's full padding round up, most others round down by default",
    targets=("ncnn",),
)
def ceil(model: ModelProto, context: RewriteContext) -> RewriteResult:
    """The graph with every max pool of stride over 1 rounding up instead of down, or down instead of up.

    O = ⌊(W − K + 2P)/S⌋ + 1 becomes ⌈(W − K + 2P)/S⌉ + 1 (eq. 8 of the paper); later nodes are adapted.
    If no pool changes its output size at the card's input size, the model is returned unchanged.
    """
    return _rounded(model, context, ("MaxPool",))


@stage(
    "rewrite",
    family="ceil",
    combines=True,
    systems="Caffe and ncnn's full padding round up, most others round down by default",
    targets=("ncnn",),
)
def ceil_average(model: ModelProto, context: RewriteContext) -> RewriteResult:
    """The graph with every average and Lp pool of stride over 1 rounding up instead of down, or reverse.

    The paper's ceil mode is that of max pools; average pools have the same attribute.
    """
    return _rounded(model, context, tuple(op for op in POOLS if op != "MaxPool"))


def _rounded(model: ModelProto, context: RewriteContext, kinds: tuple[str, ...]) -> RewriteResult:
    """The graph with the strided pools of these operators rounding the other way."""
    if not any(_strided(node) and node.op_type in kinds for node in model.graph.node):
        return RewriteResult(model, ())
    before = {w.name for w in model.graph.initializer}
    turned: set[int] = set()
    as_large: list[Any] = []

    def turn(walk: GraphWalk, node: Any) -> None:
        value = walk.value(node.input[0])
        differs = any(pooled(*s, ceil=True) != pooled(*s, ceil=False) for s in _pooled_axes(walk, node))
        windows = windows_of(node) or []
        global_windows = [PoolWindow(c, w.stride) for c, w in zip(value.old_shape[2:], windows, strict=False)]
        if global_windows and windows == global_windows:
            if value.changed:  # a global pool, written with its input's old size, gets the new one
                set_attribute(node, "kernel_shape", list(value.new_shape[2:]))
                set_attribute(node, "strides", [1] * (len(value.new_shape) - 2))
                walk.touch(node)
        elif _strided(node) and differs and node.op_type in kinds:
            _turn(walk, node)
            turned.add(walk.makers[node.output[0]])
        elif _strided(node) and node.op_type in kinds:
            as_large.append(node)

    walk = walk_graph(model, context.picture, {**RULES, **dict.fromkeys(POOLS, turn)})
    if not turned:
        return RewriteResult(model, ())
    for node in as_large:  # no effect here, but applying the rewrite twice must restore the graph
        if walk.opset >= CEIL_SINCE[node.op_type]:
            _set_mode(node, not ceils(node))
    if context.picture.task in ("classify", "single"):
        _check_classifier_outputs(walk)
    tidy(walk, before)
    proven(walk)
    others = [op for i, op in sorted(walk.touched.items()) if i not in turned]
    how = f"{counted(walk.nodes[i].op_type for i in sorted(turned))} changed"
    names = tuple(title(walk.nodes[i]) for i in sorted(walk.touched))
    return RewriteResult(model, names, f"{how}, {counted(others)} adapted" if others else how)


def _strided(node: Any) -> bool:
    """Whether this is a pool whose size may depend on the mode."""
    if node.op_type not in POOLS or node.domain not in STANDARD:
        return False
    windows = windows_of(node)
    return windows is not None and any(w.stride > 1 for w in windows)


def _pooled_axes(walk: GraphWalk, node: Any) -> list[tuple[int, PoolWindow]]:
    """Input cells and window of a pool along each axis; empty if its input shape is unknown."""
    windows, cells = windows_of(node), walk.value(node.input[0]).new_shape[2:]
    return list(zip(cells, windows, strict=True)) if windows and cells else []


def _turn(walk: GraphWalk, node: Any) -> None:
    """Turn the mode of a pool whose size depends on it; before opset 10, by padding at the end."""
    if walk.opset >= CEIL_SINCE[node.op_type]:
        _set_mode(node, not ceils(node))
        walk.touch(node)
        return
    if attributes_of(node).get("count_include_pad"):
        raise cannot(node, f"counts its padding, and opset {walk.opset} has no ceil_mode; use opset 10 or up")
    before, after = [], []
    for cells, window in _pooled_axes(walk, node):
        last = (pooled(cells, window, ceil=True) - 1) * window.stride + window.reach
        before.append(window.before)
        after.append(max(window.after, last - cells - window.before))
    set_attribute(node, "pads", [*before, *after])
    drop_attributes(node, "auto_pad")
    walk.touch(node)


def _set_mode(node: Any, up: bool) -> None:
    if attributes_of(node).get("auto_pad") == b"VALID":
        # of no effect in ONNX Runtime, but ONNX's shape inference rounds VALID down in both modes
        drop_attributes(node, "auto_pad", "pads")
    set_attribute(node, "ceil_mode", int(up))


def _check_classifier_outputs(walk: GraphWalk) -> None:
    """Raise CannotRewrite, naming the layer, if a classifier's number of outputs changed."""
    for out in walk.model.graph.output:
        if not walk.value(out.name).changed:
            continue
        ahead = [out.name]
        node = walk.nodes[walk.makers[out.name]]
        while ahead:
            maker = walk.makers.get(ahead.pop(0))
            if maker is None or not walk.value(walk.nodes[maker].output[0]).changed:
                continue
            node = walk.nodes[maker]
            source, result = walk.value(node.input[0]), walk.value(node.output[0])
            if node.op_type == "Conv" and set(result.old_shape[2:]) == {1} != set(source.old_shape[2:]):
                sizes = f"{was_now(source.axes)} gives {was_now(result.axes)}"
                why = f"{sizes}, and output {out.name!r} would no longer be one answer"
                raise cannot(node, f"reads a map of fixed size as one window: {why}")
            ahead.extend(node.input[:1])
        raise cannot(node, f"changes output {out.name!r}: {was_now(walk.value(out.name).axes)}")
