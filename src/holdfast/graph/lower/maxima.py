"""Maxima and minima as trees of relus: max(a, b) = a + relu(b - a), exactly."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial, reduce

import numpy as np

from holdfast.graph.ir import Activation, Total
from holdfast.graph.lower.conv import check_padding, window_of
from holdfast.graph.lower.curves import clamp, relu
from holdfast.graph.lower.linear import scaled, total
from holdfast.graph.lower.matrix import reduced
from holdfast.graph.lower.values import Build, Index, Lowering, Node, Value, View, as_view


def largest(build: Build, index: Index) -> Index:
    """The elements that hold the maximum over the last axis of element numbers; -1 never wins.

    Pairs that several windows share are computed once. A row of nothing but -1 gives -1.
    """
    while index.shape[-1] > 1:
        if index.shape[-1] % 2:
            index = np.concatenate([index, np.full((*index.shape[:-1], 1), -1, np.int64)], axis=-1)
        left, right = index[..., 0::2], index[..., 1::2]
        index = np.maximum(left, right)  # where one is missing: the other
        both = (left >= 0) & (right >= 0) & (left != right)
        if both.any():
            index[both] = _paired(build, left, right, both)
    return index[..., 0]


def _paired(build: Build, left: Index, right: Index, both: np.ndarray) -> Index:
    """The elements that hold the maxima of the pairs marked in `both`."""
    pairs = left[both] * (int(right.max()) + 1) + right[both]
    unique, first, which = np.unique(pairs, return_index=True, return_inverse=True)
    if both.all() and len(unique) == both.size:  # no pair twice: the order and shape stay
        one, other = (View(v[..., 0] if v.shape[-1] == 1 else v) for v in (left, right))
        which = np.arange(both.size)
    else:
        one, other = View(left[both][first]), View(right[both][first])
    base = build.held(one)
    shape = build.steps[base].shape
    above = build.emit(Total((build.held(other, shape), base), (1.0, -1.0), shape))
    more = build.emit(Activation(above, "relu", shape))
    made = build.emit(Total((base, more), (1.0, 1.0), shape))
    return build.offsets[made] + which.ravel()


def _numbered(build: Build, view: View) -> Index:
    """The view's elements, finite constants among them held by a step, -inf as -1."""
    if view.fill is None:
        return view.index
    kept = (view.index >= 0) | ~(view.fill == -np.inf)
    if not np.isfinite(view.fill[kept & (view.index < 0)]).all():
        raise ValueError("a constant among its values is infinite")
    if (view.index[kept] >= 0).all():
        return view.index
    step = build.held(View(view.index[kept], view.fill[kept]))
    index = np.full(view.shape, -1, np.int64)
    index[kept] = build.offsets[step] + np.arange(int(kept.sum()))
    return index


def _max_pool(node: Node, build: Build) -> list[Value]:
    """Axis by axis, the last first: windows that overlap share the maxima of their rows."""
    view = node.view()
    kernel = node.ints("kernel_shape")
    if kernel is None or len(kernel) != len(view.shape) - 2:
        raise node.fail("expected a kernel_shape of one number per spatial axis")
    if node.outputs > 1:
        raise node.fail("its second output (which value won) is not supported")
    check_padding(node)
    window = window_of(node, view.shape[2:], kernel)
    index = _numbered(build, view)
    for axis in reversed(range(len(kernel))):
        at = window.places(axis)
        at = np.where((at >= 0) & (at < view.shape[axis + 2]), at, -1)
        seen = np.moveaxis(np.take(index, np.maximum(at, 0), axis=axis + 2), axis + 3, -1)
        outside = (at < 0).reshape(len(at), *(1 for _ in range(len(kernel) - 1 - axis)), -1)
        index = largest(build, np.where(outside, -1, seen))
    if (index < 0).any():
        raise node.fail("one of its windows holds nothing but padding")
    return [View(index)]


def _global_max(node: Node, build: Build) -> list[Value]:
    view = node.view()
    index = _numbered(build, view).reshape(*view.shape[:2], -1)
    return [View(largest(build, index).reshape(*view.shape[:2], *(1 for _ in view.shape[2:])))]


def _reduce_min(node: Node, build: Build) -> list[Value]:
    def least(view: View) -> View:
        negative = as_view(scaled(build, view, -1.0, 0.0))
        return as_view(scaled(build, View(largest(build, _numbered(build, negative))), -1.0, 0.0))

    return [reduced(node, least)]


def _larger(build: Build, left: View, right: View) -> Value:
    shape = np.broadcast_shapes(left.shape, right.shape)
    pair = [np.broadcast_to(_numbered(build, v), shape) for v in (left, right)]
    return View(largest(build, np.stack(pair, axis=-1)))


def _smaller(build: Build, left: View, right: View) -> Value:
    above = as_view(total(build, left, right, (1.0, -1.0)))
    return total(build, left, relu(build, above), (1.0, -1.0))


def _of_all(of_arrays: np.ufunc, of_views: Callable[[Build, View, View], Value], sign: float) -> Lowering:
    """The lowering of Max, with sign -1 of Min."""

    def pair(build: Build, left: Value, right: Value) -> Value:
        if isinstance(left, View):
            if isinstance(right, View):
                return of_views(build, left, right)
            return clamp(build, left, right, sign)
        if isinstance(right, View):
            return clamp(build, right, left, sign)
        return np.asarray(of_arrays(left, right))

    return lambda node, build: [
        reduce(partial(pair, build), (node.value(i) for i in range(len(node.inputs))))
    ]


OPERATORS: Mapping[str, Lowering] = {
    "MaxPool": _max_pool,
    "GlobalMaxPool": _global_max,
    "ReduceMax": lambda node, build: [reduced(node, lambda v: View(largest(build, _numbered(build, v))))],
    "ReduceMin": _reduce_min,
    "Max": _of_all(np.maximum, _larger, 1.0),
    "Min": _of_all(np.minimum, _smaller, -1.0),
}
