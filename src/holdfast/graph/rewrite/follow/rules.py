"""Rules that adapt each kind of node to its changed inputs, or raise CannotRewrite with the reason."""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from holdfast.graph.nodes import attributes_of, set_attribute
from holdfast.graph.rewrite.follow.shapes import (
    Array,
    Axis,
    changed,
    extended,
    new_size,
    offset,
    old_size,
    outputs_of,
    regrouped,
)
from holdfast.graph.rewrite.follow.walk import GraphWalk, Rule, TensorValue, cannot, reach

ELEMENTWISE = (
    *("Add", "Sub", "Mul", "Div", "Pow", "Mod", "Max", "Min", "Sum", "Mean", "Where", "PRelu", "And", "Or"),
    *("Xor", "Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual", "BitShift"),
)


def was_now(axes: Sequence[Axis] | None) -> str:
    """An old and a new shape, for messages."""
    old, new = ("×".join(str(size(a)) for a in axes or ()) for size in (old_size, new_size))
    return f"{old} (now {new})" if old != new else old


def follow_reshape(walk: GraphWalk, node: Any) -> None:
    """Recompute a constant target, tracking changed axes also through a flattened H·W."""
    source, target = walk.value(node.input[0]), walk.value(node.input[1])
    old_target = walk.value(node.output[0]).old_shape
    if source.axes is None or not source.changed or 0 in source.old_shape or target.old is None:
        return
    axes = regrouped(source.axes, old_target)
    if target.changed and target.new is not None and _fits(target.new, source):
        return  # the graph computes its target from the data
    if not isinstance(axes, tuple):
        shapes = f"from {was_now(source.axes)} to {'×'.join(map(str, old_target))}"
        raise cannot(node, f"cuts the {axes.old} cells that are now {axes.new}: {shapes}")
    new = np.array([new_size(a) for a in axes], np.int64)
    if target.constant:
        same = [source.new_shape[i : i + 1] == (n,) for i, n in enumerate(new)]
        # 0 (as in the input) and −1 (the rest) stay where they still mean the new size
        new = np.where((target.old == -1) | ((target.old == 0) & same), target.old, new)
        if np.array_equal(new, target.old):
            return
    elif len(new) and source.new_shape[:1] == (new[0],):
        new[0] = 0  # the batch stays free
    walk.replace_input(node, 1, new)


def _fits(target: Array, source: TensorValue) -> bool:
    sizes, count = dict(enumerate(source.new_shape)), prod(source.new_shape)
    shape = [sizes.get(i, 0) if t == 0 else int(t) for i, t in enumerate(target)]
    fixed = prod(t for t in shape if t != -1)
    return count == fixed if -1 not in shape else fixed > 0 and count % fixed == 0


def follow_expand(walk: GraphWalk, node: Any) -> None:
    """Recompute a constant target along the axes of the input that changed."""
    source, target = walk.value(node.input[0]), walk.value(node.input[1])
    if source.axes is None or not source.changed or not target.constant or target.old is None:
        return
    new = target.old.copy()
    for place in range(-min(len(new), len(source.axes)), 0):
        own = source.axes[place]
        if changed(own) and new[place] == old_size(own) != 1:
            new[place] = new_size(own)
    if not np.array_equal(new, target.old):
        walk.replace_input(node, 1, new)


def follow_elementwise(walk: GraphWalk, node: Any) -> None:
    """Extend constants of the old size; two data branches must have equal sizes."""
    values = [walk.value(name) for name in node.input]
    leading = [v.axes for v in values if v.axes is not None and v.old is None]
    for i, value in enumerate(values):
        for axes in leading:
            if value.old is not None and _short(value, axes):
                new = extended(value.old, axes)
                if new is None:
                    meets = f"meets {was_now(axes)} with a constant {was_now(value.axes)}"
                    raise cannot(node, f"{meets} that is no grid of equal steps and cannot be continued")
                walk.replace_input(node, i, new)
                break
    _meet(node, leading)


def _short(value: TensorValue, axes: Sequence[Axis]) -> bool:
    """Whether a known value was as long as an axis that changed, and is not as long as it is now.

    A value computed from the shapes of the data may be half right: exporters write some shapes down.
    """
    old, new = value.old_shape, value.new_shape
    places = range(-min(len(old), len(axes)), 0)
    return any(old[p] == old_size(axes[p]) != 1 and new[p] != new_size(axes[p]) for p in places)


def _meet(node: Any, all_axes: Sequence[Sequence[Axis]], skip: int | None = None) -> None:
    """Raise CannotRewrite if tensors of equal size now differ in size."""
    for axes in all_axes[1:]:
        first = all_axes[0]
        for place in range(-min(len(axes), len(first)), 0):
            if skip is not None and place % len(axes) == skip:
                continue
            a, b = first[place], axes[place]
            if old_size(a) == old_size(b) and new_size(a) != new_size(b):
                sizes = f"{was_now(first)} and {was_now(axes)}"
                raise cannot(node, f"joins branches that no longer have one size: {sizes}")


def follow_concat(walk: GraphWalk, node: Any) -> None:
    """Extend constants across the concatenation axis; data branches must have equal sizes there."""
    values = [walk.value(name) for name in node.input]
    if any(v.axes is None for v in values):
        return
    at = attributes_of(node)["axis"] % len(values[0].axes or (0,))
    leading = [v.axes for v in values if v.axes is not None and v.old is None]
    if not leading:
        return
    across = tuple(a if j != at else a[:0] for j, a in enumerate(leading[0]))
    for i, value in enumerate(values):
        if value.old is not None and _short(value, across):
            new = extended(value.old, across)
            if new is None:
                raise cannot(node, f"joins {was_now(leading[0])} with a constant that is no regular grid")
            walk.replace_input(node, i, new)
    _meet(node, leading, at)


def follow_product(walk: GraphWalk, node: Any) -> None:
    """Refuse a weight matrix whose rows belong to cells that changed: a Flatten before a fixed layer."""
    first, second = (walk.value(name) for name in node.input[:2])
    if not first.axes or not second.axes or first.constant == second.constant:
        return
    attributes = attributes_of(node)
    inner = first.axes[0 if attributes.get("transA") else -1]
    other = second.axes[-1 if attributes.get("transB") or len(second.axes) == 1 else -2]
    if new_size(inner) != new_size(other):
        data, weight = (inner, other) if second.constant else (other, inner)
        has = f"has weights for {new_size(weight)} features, but its input now has {new_size(data)}"
        reads = "it reads a flattened map of fixed size, which cannot follow"
        raise cannot(node, f"{has} (it had {old_size(data)}): {reads}")


def arguments(walk: GraphWalk, node: Any, names: Sequence[str]) -> dict[str, Array | None]:
    """Integer arguments that are inputs 1, 2, … or, in older opsets, attributes; None if not known."""
    values: dict[str, Array | None] = dict.fromkeys(names)
    values |= {a.name: np.array(a.ints, np.int64) for a in node.attribute if a.name in names}
    for i, name in enumerate(names, 1):
        if i < len(node.input) and node.input[i]:
            values[name] = walk.value(node.input[i]).new
    return values


def set_argument(walk: GraphWalk, node: Any, names: Sequence[str], name: str, new: Array) -> None:
    """Change such an argument where it is."""
    for attribute in node.attribute:
        if attribute.name == name:
            attribute.ints[:] = new.tolist()
            walk.touch(node)
            return
    walk.replace_input(node, list(names).index(name) + 1, new)


def follow_slice(walk: GraphWalk, node: Any) -> None:
    """Move starts and ends that were at the old end, or at the border of a part that changed."""
    names = ("starts", "ends", "axes", "steps")
    source, values = walk.value(node.input[0]), arguments(walk, node, names)
    starts, ends = values["starts"], values["ends"]
    if source.axes is None or not source.changed or starts is None or ends is None:
        return
    places = values["axes"] if values["axes"] is not None else np.arange(len(starts))
    before = {"starts": starts, "ends": ends}
    moved = {name: points.copy() for name, points in before.items()}
    for i, place in enumerate(places):
        runs = source.axes[int(place)]
        for points in moved.values():
            at = int(points[i])
            if not changed(runs) or at <= 0 or at > old_size(runs):
                continue  # from either end: as it was
            new = offset(runs, at)
            if new is None and any(run.parts for run in runs):
                raise cannot(node, f"cuts {was_now([runs])} at {at}, inside of a part that changed")
            points[i] = at if new is None else new
    for name, points in moved.items():
        if not np.array_equal(points, before[name]):
            set_argument(walk, node, names, name, points)


def follow_split(walk: GraphWalk, node: Any) -> None:
    """Cut an axis that changed at the borders of its parts."""
    source, sizes = walk.value(node.input[0]), arguments(walk, node, ("split",))["split"]
    place = attributes_of(node).get("axis", 0)
    if source.axes is None or not changed(source.axes[place]):
        return
    runs = source.axes[place]
    old = sizes if sizes is not None else np.full(len(node.output), old_size(runs) // len(node.output))
    points = [offset(runs, int(at)) for at in np.cumsum(old)]
    borders = [p for p in points if p is not None]
    if len(borders) < len(points):
        parts = "+".join(map(str, old))
        raise cannot(node, f"cuts {was_now([runs])} cells into {parts}, not at their borders")
    new = np.diff([0, *borders]).astype(np.int64)
    if sizes is None and len(set(new.tolist())) > 1:
        raise cannot(node, f"cuts {was_now([runs])} cells into {len(node.output)} equal parts")
    if sizes is not None and not np.array_equal(new, sizes):
        set_argument(walk, node, ("split",), "split", new)


def follow_gather(walk: GraphWalk, node: Any) -> None:
    """Refuse a constant list of all cells of an axis that changed."""
    source, picked = walk.value(node.input[0]), walk.value(node.input[1])
    place = attributes_of(node).get("axis", 0)
    if source.axes is None or source.old is not None or not changed(source.axes[place]) or picked.old is None:
        return
    runs = source.axes[place]
    refused = picked.old.size >= old_size(runs) > 1 or int(picked.old.max(initial=0)) >= new_size(runs)
    if picked.constant and refused:
        raise cannot(node, f"picks {picked.old.size} of {was_now([runs])} cells by a constant list")


def refuse_unpool(walk: GraphWalk, node: Any) -> None:
    """Refuse an unpooling whose indices refer to a map of another size."""
    if any(walk.value(name).changed for name in node.input):
        raise cannot(node, "puts values back by indices into a map of the old size")


JOINS = ("Add", "Sub", "Mul", "Div", "Sum", "Max", "Min", "Mean", "Concat", "Where")


def follow_resize(walk: GraphWalk, node: Any) -> None:
    """Resize to the size of the branch it is joined with; without one, keep an integer factor."""
    source, out = walk.value(node.input[0]), walk.value(node.output[0])
    if source.axes is None or out.axes is None:
        return
    now = _resized(walk, node)
    if now is None:
        return
    across = _across(source.old_shape, out.old_shape)
    branch = partner(walk, node, out.old_shape, across)
    if branch is None:
        target = _alone(walk, node, source, out.old_shape, now)
    else:
        target = [branch.new_shape[i] if i in across else n for i, n in enumerate(now)]
    if tuple(target) == now:
        return
    attributes = attributes_of(node)
    if attributes.get("keep_aspect_ratio_policy", b"stretch") != b"stretch":
        raise cannot(node, "keeps an aspect ratio, which the branch it meets no longer has")
    axes = attributes.get("axes", list(range(len(target))))
    _set_size(walk, node, source, [target[a] for a in axes], axes)


def _resized(walk: GraphWalk, node: Any) -> tuple[int, ...] | None:
    """The shape a node would now give."""
    try:
        return outputs_of(node, walk.side(node, new=True), walk.model)[0].shape
    except ValueError:
        return None


def _across(source: tuple[int, ...], out: tuple[int, ...]) -> list[int]:
    """The axes of height and width: the last ones, or the middle ones if the first of those is scaled."""
    last = len(out) > 2 and source[1] != out[1] and source[-1] == out[-1]
    return list(range(1, len(out) - 1)) if last else list(range(2, len(out)))


def _alone(
    walk: GraphWalk, node: Any, source: TensorValue, old: tuple[int, ...], now: tuple[int, ...]
) -> list[int]:
    """The size without a branch to join: constant sizes of an integer factor keep the factor."""
    new, across = list(now), _across(source.old_shape, old)
    sizes = walk.value(node.input[3] if len(node.input) > 3 else "")
    if not sizes.constant or tuple(old[i] for i in across) == walk.size:
        return new
    for i in across:
        big, small = max(old[i], source.old_shape[i]), min(old[i], source.old_shape[i])
        if small and big % small == 0:
            new[i] = round(source.new_shape[i] * old[i] / source.old_shape[i])
    return new


def _set_size(walk: GraphWalk, node: Any, source: TensorValue, target: list[int], axes: list[int]) -> None:
    """Write the size in the form the node had: sizes, or the scales that give it for any batch."""
    sizes = walk.value(node.input[3] if len(node.input) > 3 else "")
    if sizes.constant and sizes.old is not None:
        old = walk.value(node.output[0]).old_shape
        # Unchanged axes keep their number: the first one may differ from the batch of one.
        new = [w if w != old[a] else int(s) for s, w, a in zip(sizes.old, target, axes, strict=True)]
        walk.replace_input(node, 3, np.array(new, np.int64))
        return
    scales = np.array([scale(source.new_shape[a], w) for w, a in zip(target, axes, strict=True)], np.float32)
    attribute = next((a for a in node.attribute if a.name == "scales"), None)
    if attribute is not None:
        attribute.floats[:] = scales.tolist()
        walk.touch(node)
        return
    del node.input[3:]
    walk.replace_input(node, 2 if walk.opset >= 11 and node.op_type == "Resize" else 1, scales)


def scale(cells: int, target: int) -> Array:
    """The float32 factor from `cells` to exactly `target`, truncated in 32 or 64 bits."""
    factor = np.float32(target / cells)
    while int(cells * float(factor)) < target:
        factor = np.nextafter(factor, np.float32(np.inf))
    return np.asarray(factor)


def follow_transposed(walk: GraphWalk, node: Any) -> None:
    """Crop or extend a transposed convolution at the end to the size of the branch it is joined with."""
    out = walk.value(node.output[0])
    across = list(range(2, len(out.axes or ())))
    branch = partner(walk, node, out.old_shape, across) if out.axes is not None else None
    now = _resized(walk, node)
    if branch is None or now is None or branch.new_shape[2:] == now[2:]:
        return
    more = [n - w for n, w in zip(now[2:], branch.new_shape[2:], strict=True)]
    attributes, rank = attributes_of(node), len(more)
    pads = list(attributes.get("pads", [0] * 2 * rank))
    ends = [p + m for p, m in zip(pads[rank:], more, strict=True)]
    extra = list(attributes.get("output_padding", [0] * rank))
    extra = [e - min(0, end) for e, end in zip(extra, ends, strict=True)]
    strides = attributes.get("strides", [1] * rank)
    fixed = "output_shape" in attributes or attributes.get("auto_pad", b"NOTSET") != b"NOTSET"
    if fixed or any(e >= s for e, s in zip(extra, strides, strict=True) if e):
        expected = "×".join(map(str, branch.new_shape[2:]))
        raise cannot(node, f"gives {'×'.join(map(str, now[2:]))} cells, the branch it meets has {expected}")
    set_attribute(node, "pads", [*pads[:rank], *(max(0, end) for end in ends)])
    if any(extra):
        set_attribute(node, "output_padding", extra)
    walk.touch(node)


def partner(walk: GraphWalk, node: Any, old: tuple[int, ...], across: list[int]) -> TensorValue | None:
    """The nearest branch of the same old height and width that this node's output is joined with."""
    ahead, visited = [node.output[0]], set[int]()
    while ahead:
        name = ahead.pop(0)
        for user in walk.users.get(name, ()):
            if user in visited:
                continue
            visited.add(user)
            taking = walk.nodes[user]
            for other in taking.input if taking.op_type in JOINS else ():
                if other != name and reach(walk, other):
                    value = walk.value(other)
                    alike = not value.constant and value.axes is not None and len(value.axes) == len(old)
                    if alike and all(value.old_shape[i] == old[i] for i in across):
                        return value
            if taking.op_type in PASSING:
                ahead.append(taking.output[0])
    return None


# What keeps height and width, so that the search continues after it. A convolution may not: then the sizes
# of the branches differed before, too, and the search ends there.
PASSING = (
    *("Relu", "LeakyRelu", "PRelu", "Sigmoid", "Clip", "Elu", "HardSwish", "HardSigmoid", "Softplus", "Tanh"),
    *("Identity", "Cast", "Dropout", "BatchNormalization", "InstanceNormalization", "Mul", "Add", "Conv"),
    *("QuantizeLinear", "DequantizeLinear", "Mish", "Selu", "Gelu", "Erf"),
)
# The rule of each operator that needs one; all others follow by themselves.
RULES: dict[str, Rule] = {
    **dict.fromkeys(ELEMENTWISE, follow_elementwise),
    **dict.fromkeys(("Resize", "Upsample"), follow_resize),
    **dict.fromkeys(("Gemm", "MatMul"), follow_product),
    "ConvTranspose": follow_transposed,
    "Concat": follow_concat,
    "Reshape": follow_reshape,
    "Expand": follow_expand,
    "Slice": follow_slice,
    "Split": follow_split,
    "Gather": follow_gather,
    "MaxUnpool": refuse_unpool,
}
