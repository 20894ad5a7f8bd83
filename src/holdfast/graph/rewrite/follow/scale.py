"""Nodes that scale a map: Resize, Upsample and ConvTranspose end at the size of the branch they meet."""

from __future__ import annotations

from typing import Any

import numpy as np

from holdfast.graph.rewrite.attributes import set_attribute
from holdfast.graph.rewrite.follow.infer import Array, Known, outputs_of
from holdfast.graph.rewrite.follow.walk import Value, Walk, cannot, reach

JOINS = ("Add", "Sub", "Mul", "Div", "Sum", "Max", "Min", "Mean", "Concat", "Where")


def follow_resize(walk: Walk, node: Any) -> None:
    """Gives a Resize the size of the branch it meets; without one a whole factor stays the factor it was."""
    source, out = walk.value(node.input[0]), walk.value(node.output[0])
    if source.axes is None or out.axes is None:
        return
    now = _resized(walk, node)
    if now is None:
        return
    across = _across(source.old_shape, out.old_shape)
    met = partner(walk, node, out.old_shape, across)
    if met is None:
        wanted = _alone(walk, node, source, out.old_shape, now)
    else:
        wanted = [met.new_shape[i] if i in across else n for i, n in enumerate(now)]
    if tuple(wanted) == now:
        return

    given = {a.name: a for a in node.attribute}
    if "keep_aspect_ratio_policy" in given and given["keep_aspect_ratio_policy"].s != b"stretch":
        raise cannot(node, "keeps an aspect ratio, which the branch it meets no longer has")
    axes = list(given["axes"].ints) if "axes" in given else list(range(len(wanted)))
    _set_size(walk, node, source, [wanted[a] for a in axes], axes)


def _resized(walk: Walk, node: Any) -> tuple[int, ...] | None:
    """The shape a node would now give."""
    inputs = {name: walk.value(name).side(new=True) for name in node.input if name}
    try:
        found: list[Known] = outputs_of(node, inputs, walk.dialect)
    except ValueError:
        return None
    return found[0].shape


def _across(source: tuple[int, ...], out: tuple[int, ...]) -> list[int]:
    """The axes of height and width: the last ones, or the middle ones if the first of those is scaled."""
    last = len(out) > 2 and source[1] != out[1] and source[-1] == out[-1]
    return list(range(1, len(out) - 1)) if last else list(range(2, len(out)))


def _alone(walk: Walk, node: Any, source: Value, old: tuple[int, ...], now: tuple[int, ...]) -> list[int]:
    """The size without a branch to meet: constant sizes of a whole factor keep the factor."""
    new = list(now)
    sizes = walk.value(node.input[3]) if len(node.input) > 3 and node.input[3] else None
    across = _across(source.old_shape, old)
    if sizes is None or not sizes.constant or tuple(old[i] for i in across) == walk.size:
        return new
    for i in across:
        big, small = max(old[i], source.old_shape[i]), min(old[i], source.old_shape[i])
        if small and big % small == 0:
            new[i] = round(source.new_shape[i] * old[i] / source.old_shape[i])
    return new


def _set_size(walk: Walk, node: Any, source: Value, wanted: list[int], axes: list[int]) -> None:
    """Writes the size in the form the node had: sizes, or the scales that give it for any batch."""
    sizes = walk.value(node.input[3]) if len(node.input) > 3 and node.input[3] else None
    if sizes is not None and sizes.constant and sizes.old is not None:
        old = walk.value(node.output[0]).old_shape
        # Kept where nothing changed: a first number other than the batch of one was so before.
        new = [w if w != old[a] else int(s) for s, w, a in zip(sizes.old, wanted, axes, strict=True)]
        walk.put(node, 3, np.array(new, np.int64))
        return
    scales = np.array([scale(source.new_shape[a], w) for w, a in zip(wanted, axes, strict=True)], np.float32)
    attribute = next((a for a in node.attribute if a.name == "scales"), None)
    if attribute is not None:
        attribute.floats[:] = scales.tolist()
        walk.touch(node)
        return
    del node.input[3:]
    walk.put(node, 2 if walk.dialect.opset >= 11 and node.op_type == "Resize" else 1, scales)


def scale(cells: int, wanted: int) -> Array:
    """The float32 that makes exactly `wanted` of `cells`, whether the product is cut off in 32 or 64 bits."""
    found = np.float32(wanted / cells)
    while int(cells * float(found)) < wanted:
        found = np.nextafter(found, np.float32(np.inf))
    return np.asarray(found)


def follow_transposed(walk: Walk, node: Any) -> None:
    """Ends a transposed convolution where the branch it meets does: cropped, or one cell more, at the end."""
    out = walk.value(node.output[0])
    across = list(range(2, len(out.axes or ())))
    met = partner(walk, node, out.old_shape, across) if out.axes is not None else None
    now = _resized(walk, node)
    if met is None or now is None or met.new_shape[2:] == now[2:]:
        return
    more = [n - w for n, w in zip(now[2:], met.new_shape[2:], strict=True)]
    from onnx import helper

    given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    rank = len(more)
    pads = list(given.get("pads", [0] * 2 * rank))
    ends = [p + m for p, m in zip(pads[rank:], more, strict=True)]
    extra = list(given.get("output_padding", [0] * rank))
    extra = [e - min(0, end) for e, end in zip(extra, ends, strict=True)]
    strides = given.get("strides", [1] * rank)
    fixed = "output_shape" in given or given.get("auto_pad", b"NOTSET") != b"NOTSET"
    if fixed or any(e >= s for e, s in zip(extra, strides, strict=True) if e):
        wanted = "×".join(map(str, met.new_shape[2:]))
        raise cannot(node, f"gives {'×'.join(map(str, now[2:]))} cells, the branch it meets has {wanted}")
    set_attribute(node, "pads", [*pads[:rank], *(max(0, end) for end in ends)])
    if any(extra):
        set_attribute(node, "output_padding", extra)
    walk.touch(node)


def partner(walk: Walk, node: Any, old: tuple[int, ...], across: list[int]) -> Value | None:
    """The nearest branch of the same old height and width that what this node gives is joined with."""
    ahead, seen = [node.output[0]], set[int]()
    while ahead:
        name = ahead.pop(0)
        for user in walk.users.get(name, ()):
            if user in seen:
                continue
            seen.add(user)
            taking = walk.nodes[user]
            for other in taking.input if taking.op_type in JOINS else ():
                if other != name and reach(walk, other) and _like(walk.value(other), old, across):
                    return walk.value(other)
            if taking.op_type in PASSING:
                ahead.append(taking.output[0])
    return None


def _like(value: Value, old: tuple[int, ...], across: list[int]) -> bool:
    if value.constant or value.axes is None or len(value.axes) != len(old):
        return False
    return all(value.old_shape[i] == old[i] for i in across)


# What keeps height and width, so that the search goes on behind it. A convolution may not: then the sizes
# of the branches differed before, too, and the search ends there.
PASSING = (
    *("Relu", "LeakyRelu", "PRelu", "Sigmoid", "Clip", "Elu", "HardSwish", "HardSigmoid", "Softplus", "Tanh"),
    *("Identity", "Cast", "Dropout", "BatchNormalization", "InstanceNormalization", "Mul", "Add", "Conv"),
    *("QuantizeLinear", "DequantizeLinear", "Mish", "Selu", "Gelu", "Erf"),
)
