"""Convolutions and averages: Conv, ConvTranspose, average pools, means over axes."""

from collections.abc import Mapping
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast.graph.ir import Array, Conv
from holdfast.graph.lower.matrix import scaled, summed
from holdfast.graph.lower.values import Lowering, Node, StepBuilder, Value, View


class Window(NamedTuple):
    """How a window slides over the spatial axes: one number per axis."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    before: tuple[int, ...]  # padding
    after: tuple[int, ...]
    out: tuple[int, ...]  # how many places it stops at

    def places(self, axis: int) -> NDArray[np.int64]:
        """(out, kernel) places that the window sees along an axis; those in the padding are outside."""
        starts = np.arange(self.out[axis]) * self.stride[axis] - self.before[axis]
        return starts[:, None] + np.arange(self.kernel[axis]) * self.dilation[axis]


def window_of(node: Node, spatial: tuple[int, ...], kernel: tuple[int, ...]) -> Window:
    """The window a Conv or Pool node slides over an input of this spatial shape.

    With ceil_mode the padding after grows until the last window fits; a window that would begin in that
    padding is dropped, as ONNX Runtime does.
    """
    axes = len(spatial)
    stride = node.ints("strides") or (1,) * axes
    dilation = node.ints("dilations") or (1,) * axes
    pads = node.ints("pads") or (0,) * (2 * axes)
    auto = node.attributes.get("auto_pad", "NOTSET")
    before, after, out = [], [], []
    for i in range(axes):
        reach = dilation[i] * (kernel[i] - 1) + 1
        low, high = (0, 0) if auto == "VALID" else (pads[i], pads[i + axes])
        if auto in ("SAME_UPPER", "SAME_LOWER"):
            lack = max((-(-spatial[i] // stride[i]) - 1) * stride[i] + reach - spatial[i], 0)
            low = (lack + 1) // 2 if auto == "SAME_LOWER" else lack // 2
            high = lack - low
        room = spatial[i] + low + high - reach
        if room < 0:
            raise node.fail(f"its window of {reach} does not fit into {spatial[i]} + {low} + {high} values")
        places = room // stride[i] + 1
        if node.attributes.get("ceil_mode") and auto in ("NOTSET", "VALID"):
            places = -(-room // stride[i]) + 1
            if (places - 1) * stride[i] >= spatial[i] + low:
                places -= 1
            high = max(high, (places - 1) * stride[i] + reach - spatial[i] - low)
        before.append(low)
        after.append(high)
        out.append(places)
    return Window(kernel, stride, dilation, tuple(before), tuple(after), tuple(out))


def convolved(
    build: StepBuilder, view: View, weight: Array, bias: Array, window: Window, groups: int
) -> View:
    """The convolution of a view (n, c, ...) with one, two or three spatial axes."""
    if view.index.shape[0] != 1:
        images = [view.moved(lambda a, i=i: a[i : i + 1]) for i in range(view.shape[0])]  # type: ignore[misc]
        parts = [convolved(build, image, weight, bias, window, groups) for image in images]
        return View(np.concatenate([p.index for p in parts]))
    if len(window.out) == 3:
        return _volume(build, view, weight, bias, window, groups)
    if len(window.out) == 1:  # a map of one row
        plane = Window(*((one, *each) for one, each in zip((1, 1, 1, 0, 0, 1), window, strict=True)))
        row = view.moved(lambda a: a[:, :, None])
        return convolved(build, row, weight[:, :, None], bias, plane, groups).moved(lambda a: a[:, :, 0])
    source, before, after = _without_border(view, window)
    step = build.step_holding(source, source.shape[1:])
    weight, bias = np.ascontiguousarray(weight, np.float64), np.asarray(bias, np.float64)
    pads, shape = (*_pair(before), *_pair(after)), (len(weight), *_pair(window.out))
    conv = Conv(step, weight, bias, _pair(window.stride), pads, _pair(window.dilation), groups, shape)
    return build.all_of(build.emit(conv), (1, *shape))


def _pair(values: tuple[int, ...]) -> tuple[int, int]:
    return values[0], values[1]


def _without_border(view: View, window: Window) -> tuple[View, tuple[int, ...], tuple[int, ...]]:
    """The view without a border of constant zeros (a Pad before the Conv), and the padding with it."""
    if view.fill is None:
        return view, window.before, window.after
    empty = (view.index < 0) & (view.fill == 0)
    before, after, cuts = [], [], [slice(None), slice(None)]
    for i in range(len(window.out)):
        others = tuple(a for a in range(view.index.ndim) if a != i + 2)
        nonzero = np.flatnonzero(~empty.all(axis=others))
        if not len(nonzero):
            return view, window.before, window.after
        before.append(window.before[i] + int(nonzero[0]))
        after.append(window.after[i] + view.shape[i + 2] - 1 - int(nonzero[-1]))
        cuts.append(slice(int(nonzero[0]), int(nonzero[-1]) + 1))
    index, fill = view.index[tuple(cuts)], view.fill[tuple(cuts)]
    return View(index, fill if (index < 0).any() else None), tuple(before), tuple(after)


def _volume(build: StepBuilder, view: View, weight: Array, bias: Array, window: Window, groups: int) -> View:
    """A 3-D convolution as one 2-D convolution per depth, over channels and depths of the kernel."""
    pads = [(0, 0), (0, 0), (window.before[0], window.after[0]), (0, 0), (0, 0)]
    index = np.pad(view.index, pads, constant_values=-1)
    fill = np.pad(view.filled(), pads)
    plane = Window(*(each[1:] for each in window))
    merged = weight.reshape(weight.shape[0], -1, *weight.shape[3:])
    slices = []
    for z in range(window.out[0]):
        depths = z * window.stride[0] + window.dilation[0] * np.arange(window.kernel[0])
        shape = (1, view.shape[1] * len(depths), *view.shape[3:])
        part = View(index[:, :, depths].reshape(shape), fill[:, :, depths].reshape(shape))
        slices.append(convolved(build, part, merged, bias, plane, groups).index)
    return View(np.stack(slices, axis=2))


def _conv(node: Node, build: StepBuilder) -> list[Value]:
    view = node.view()
    weight = node.constant(1, "weight")
    if weight is None or weight.ndim not in (3, 4, 5) or weight.ndim != len(view.shape):
        raise node.fail("expected one, two or three spatial axes and a weight of as many")
    bias = node.constant(2, "bias")
    groups = int(node.attributes.get("group", 1))
    window = window_of(node, view.shape[2:], weight.shape[2:])
    bias = np.zeros(len(weight)) if bias is None else bias
    return [convolved(build, view, weight.astype(np.float64), bias.astype(np.float64), window, groups)]


def _transposed(node: Node, build: StepBuilder) -> list[Value]:
    """A transposed convolution: one Conv with a channel per phase of the stride, its outputs interleaved."""
    view = node.view()
    weight = node.constant(1, "weight")
    if weight is None or weight.ndim not in (3, 4) or weight.ndim != len(view.shape):
        raise node.fail("expected one or two spatial axes and a weight of as many")
    axes = weight.ndim - 2
    groups = int(node.attributes.get("group", 1))
    stride = node.ints("strides") or (1,) * axes
    dilation = node.ints("dilations") or (1,) * axes
    extents = [d * (k - 1) + 1 for d, k in zip(dilation, weight.shape[2:], strict=True)]
    compact, weight = weight, np.zeros((*weight.shape[:2], *extents))
    weight[:, :, *(slice(None, None, d) for d in dilation)] = compact
    before, out = transposed_size(node, view.shape[2:], weight.shape[2:], stride)
    reach = tuple(-(-k // s) for k, s in zip(weight.shape[2:], stride, strict=True))
    kernel = _phases(weight, stride, reach, groups)
    # place q of phase p holds output q * stride + p - before; the last output says how many places are needed
    places = tuple((o - 1 + b) // s + 1 for o, b, s in zip(out, before, stride, strict=True))
    after = tuple(max(p - n, 0) for p, n in zip(places, view.shape[2:], strict=True))
    one = (1,) * axes
    window = Window(reach, one, one, before=tuple(r - 1 for r in reach), after=after, out=places)
    used = (slice(None), slice(None), *(slice(0, p) for p in places))  # the others reach no output
    view = view.moved(lambda a: a[used])
    channels = weight.shape[1] * groups
    own = node.constant(2, "bias")
    bias = np.zeros(channels) if own is None else own.astype(np.float64)
    phases = convolved(build, view, kernel, np.repeat(bias, prod(stride)), window, groups)
    index = phases.index.reshape(-1, channels, *stride, *places)
    picks = [np.divmod(np.arange(o) + b, s) for o, b, s in zip(out, before, stride, strict=True)]
    places_of, phases_of = (np.ix_(*each) for each in zip(*picks, strict=True))
    return [View(index[:, :, *phases_of, *places_of])]


def transposed_size(
    node: Node, spatial: tuple[int, ...], kernel: tuple[int, ...], stride: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The padding before and the output shape of a ConvTranspose."""
    axes = len(spatial)
    pads = node.ints("pads") or (0,) * (2 * axes)
    extra = node.ints("output_padding") or (0,) * axes
    output_shape = node.ints("output_shape")
    auto = node.attributes.get("auto_pad", "NOTSET")
    before, out = [], []
    for i in range(axes):
        full = stride[i] * (spatial[i] - 1) + extra[i] + kernel[i]
        if output_shape is None and auto in ("NOTSET", "VALID"):
            low = pads[i] if auto == "NOTSET" else 0
            size = full - (pads[i] + pads[i + axes] if auto == "NOTSET" else 0)
        else:
            size = spatial[i] * stride[i] if output_shape is None else output_shape[i - axes]
            if output_shape is None and full < size:
                raise node.fail(f"with a stride of {stride[i]} its auto_pad is read differently by runtimes")
            lack = max(full - size, 0)
            low = lack // 2 if auto == "SAME_UPPER" else lack - lack // 2
        before.append(low)
        out.append(size)
    return tuple(before), tuple(out)


def _phases(weight: Array, stride: tuple[int, ...], reach: tuple[int, ...], groups: int) -> Array:
    """The kernel (out * phases, in / groups, ...) of the Conv whose phases are interleaved."""
    inner, each = weight.shape[0] // groups, weight.shape[1]
    padded = np.zeros((*weight.shape[:2], *(r * s for r, s in zip(reach, stride, strict=True))))
    padded[(slice(None), slice(None), *(slice(0, k) for k in weight.shape[2:]))] = weight
    sizes = [n for pair in zip(reach, stride, strict=True) for n in pair]
    split = padded.reshape(groups, inner, each, *sizes)
    at_reach, at_stride = tuple(range(3, split.ndim, 2)), tuple(range(4, split.ndim, 2))
    split = np.flip(split, at_reach).transpose(0, 2, *at_stride, 1, *at_reach)
    return split.reshape(-1, inner, *reach)


def check_padding(node: Node) -> None:
    """Raise an error where ONNX Runtime pads a pool otherwise than ONNX says: it ignores the dilation."""
    dilated = any(step != 1 for step in node.ints("dilations") or ())
    if dilated and str(node.attributes.get("auto_pad", "NOTSET")).startswith("SAME"):
        raise node.fail("with dilations its auto_pad is read differently by ONNX and ONNX Runtime; use pads")


def _average(node: Node, build: StepBuilder) -> list[Value]:
    view = node.view()
    kernel = node.ints("kernel_shape")
    if kernel is None or len(kernel) not in (1, 2):
        raise node.fail("expected one or two spatial axes")
    check_padding(node)
    window = window_of(node, view.shape[2:], kernel)
    channels = view.shape[1]
    ones = np.ones((channels, 1, *kernel))
    summed = convolved(build, view, ones, np.zeros(channels), window, channels)
    counts = counts_of(node, view.shape[2:], window)
    if not counts.all():
        raise node.fail("one of its windows contains only padding")
    return [scaled(build, summed, 1.0 / counts, 0.0)]


def counts_of(node: Node, spatial: tuple[int, ...], window: Window) -> Array:
    """By how much each window's sum is divided; padding counts if the node says so, ceil's never does."""
    axes = len(spatial)
    pads = node.ints("pads") or (0,) * (2 * axes)
    auto = node.attributes.get("auto_pad", "NOTSET")
    if auto != "NOTSET":
        pads = (0,) * (2 * axes) if auto == "VALID" else (*window.before, *window.after)
    counts = np.ones((1,) * axes)
    for i in range(axes):
        at = window.places(i)
        low, high = (pads[i], pads[i + axes]) if node.attributes.get("count_include_pad") else (0, 0)
        count = ((at >= -low) & (at < spatial[i] + high)).sum(axis=1)
        counts = counts * count.reshape((-1,) + (1,) * (axes - 1 - i))
    return counts.astype(np.float64)


def _reduce_mean(node: Node, build: StepBuilder) -> list[Value]:
    rank = len(node.view().shape)
    maps = rank == 4 and {a % rank for a in node.ints("axes", 1) or ()} == {2, 3}
    if maps and node.attributes.get("keepdims", 1):
        return _global_average(node, build)
    return [summed(node, build, mean=True)]


def _global_average(node: Node, build: StepBuilder) -> list[Value]:
    view = node.view()
    spatial = view.shape[2:]
    if len(spatial) not in (1, 2):
        raise node.fail("expected one or two spatial axes")
    one, none = (1,) * len(spatial), (0,) * len(spatial)
    window = Window(kernel=spatial, stride=one, dilation=one, before=none, after=none, out=one)
    channels = view.shape[1]
    weight = np.full((channels, 1, *spatial), 1.0 / np.prod(spatial))
    return [convolved(build, view, weight, np.zeros(channels), window, channels)]


OPERATORS: Mapping[str, Lowering] = {
    "Conv": _conv,
    "ConvTranspose": _transposed,
    "AveragePool": _average,
    "GlobalAveragePool": _global_average,
    "ReduceMean": _reduce_mean,
}
