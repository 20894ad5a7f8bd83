"""Elementwise curves and operators built from them: clipping, gates, softmax, normalisation, maxima.

Maxima and minima are trees of relus: max(a, b) = a + relu(b - a), exactly.
"""

from collections.abc import Mapping
from functools import partial, reduce
from math import pi

import numpy as np

from holdfast.core.errors import ModelError
from holdfast.graph.ir import Activation, Array, Curve, WeightedSum
from holdfast.graph.lower.conv import check_padding, window_of
from holdfast.graph.lower.matrix import matmul, product, reduced, reshaped, scaled, total
from holdfast.graph.lower.values import Index, Lowering, Node, StepBuilder, Value, View, as_view

LARGEST = float(np.finfo(np.float32).max)  # exporters write "no limit" so
WIDEST_SOFTMAX = 256  # values of one in the middle of a network: it takes their number squared of exps
WIDEST = 1e15  # of a bound: x - bound must keep digits of x


def relu(build: StepBuilder, value: Value) -> Value:
    """max(value, 0)."""
    return build.curve(value, "relu") if isinstance(value, View) else np.maximum(value, 0)


def clamp(build: StepBuilder, view: View, limit: Array | float, sign: float) -> Value:
    """Bound + relu(view - bound), with sign -1 from above; limits outside the range of float32 are none."""
    shape = np.broadcast_shapes(view.shape, np.shape(limit))
    bound = np.broadcast_to(np.asarray(limit, np.float64), shape)
    view = as_view(scaled(build, view, np.ones(shape), 0.0))
    live = sign * bound > -LARGEST
    if not live.all():
        part = view.moved(lambda a: a[live])
        clamped = as_view(clamp(build, part, bound[live], sign)) if live.any() else part
        index, fill = view.index.copy(), view.filled().copy()
        index[live], fill[live] = clamped.index, clamped.filled()
        return View(index, fill)
    if sign > 0 and not bound.any():
        return relu(build, view)
    if not (np.abs(bound) <= WIDEST).all():
        raise ValueError(f"expected bounds up to {WIDEST:g}, or beyond float32 for none")
    excess = relu(build, scaled(build, view, sign, -sign * bound))
    return scaled(build, excess, sign, bound)


def clipped(build: StepBuilder, view: View, low: float, high: float) -> Value:
    """min(max(view, low), high); the relus in a row keep the bounds inside [low, high]."""
    return clamp(build, as_view(clamp(build, view, low, 1.0)), high, -1.0)


def leaky(build: StepBuilder, view: View, slope: float) -> Value:
    """The view where positive, slope times it where negative."""
    if slope == 0:
        return relu(build, view)
    if not 0 < slope < 1:  # the step's relaxations expect a slope between
        above = scaled(build, relu(build, view), 1.0 - slope, 0.0)
        return total(build, scaled(build, view, slope, 0.0), above)
    return build.curve(view, "leaky", slope)


def _prelu(node: Node, build: StepBuilder) -> list[Value]:
    """The sum slope * x + (1 - slope) * relu(x), or leaky relu where all slopes are one."""
    slope = node.constant(1, "slope")
    view = node.view()
    if slope is None:
        raise node.fail("expected a slope")
    slope = slope.astype(np.float64)
    if slope.size and (slope == slope.flat[0]).all():
        return [leaky(build, view, float(slope.flat[0]))]
    above = scaled(build, relu(build, view), 1.0 - slope, 0.0)
    return [total(build, scaled(build, view, slope, 0.0), above)]


def _hard_sigmoid(build: StepBuilder, view: View, alpha: float, beta: float) -> Value:
    return clipped(build, as_view(scaled(build, view, alpha, beta)), 0.0, 1.0)


def _clip(node: Node, build: StepBuilder) -> list[Value]:
    below, above = node.constant(1, "minimum"), node.constant(2, "maximum")
    low = node.attributes.get("min", -np.inf) if below is None else below.item()
    high = node.attributes.get("max", np.inf) if above is None else above.item()
    if low > high:
        raise node.fail(f"its minimum {low} is above its maximum {high}")
    return [clipped(build, node.view(), float(low), float(high))]


class SeveralSoftmaxes(ModelError):
    """The last softmax cannot be dropped because it does not span all outputs."""


# ONNX has an operator of this name for each
PLAIN: tuple[Curve, ...] = (
    *("sigmoid", "tanh", "sign", "erf", "exp", "log", "sqrt", "reciprocal", "softplus", "sin"),
)


def _curve(curve: Curve) -> Lowering:
    return lambda node, build: [build.curve(node.view(), curve)]


def elu(build: StepBuilder, view: View, factor: float) -> Value:
    """The view where positive, factor (exp(x) - 1) where negative."""
    if 0 <= factor <= 1:  # convex: one curve
        return build.curve(view, "elu", factor)
    below = as_view(scaled(build, relu(build, as_view(scaled(build, view, -1.0, 0.0))), -1.0, 0.0))
    rest = scaled(build, build.curve(below, "exp"), factor, -factor)
    return total(build, relu(build, view), rest)


def _selu(node: Node, build: StepBuilder) -> list[Value]:
    alpha, gamma = node.number("alpha", 1.6732632423543772), node.number("gamma", 1.0507009873554805)
    return [scaled(build, elu(build, node.view(), alpha), gamma, 0.0)]


def _celu(node: Node, build: StepBuilder) -> list[Value]:
    alpha = node.number("alpha", 1.0)
    if alpha <= 0:
        raise node.fail(f"expected an alpha above 0, got {alpha}")
    inner = as_view(scaled(build, node.view(), 1.0 / alpha, 0.0))
    return [scaled(build, elu(build, inner, 1.0), alpha, 0.0)]


def _gelu(node: Node, build: StepBuilder) -> list[Value]:
    """The value x / 2 (1 + erf(x / sqrt 2)), or the usual approximation by tanh."""
    view = node.view()
    if node.attributes.get("approximate", "none") == "tanh":
        cube = product(build, product(build, view, view), view)
        inner = total(build, view, cube, ((2 / pi) ** 0.5, 0.044715 * (2 / pi) ** 0.5))
        gate = build.curve(inner, "tanh")
    else:
        gate = build.curve(scaled(build, view, 0.5**0.5, 0.0), "erf")
    return [product(build, view, scaled(build, gate, 0.5, 0.5))]


def _softmax(node: Node, build: StepBuilder) -> list[Value]:
    """As the last layer the value before it, if only the order of the outputs matters to the caller.

    Elsewhere 1 / sum over j of exp(x_j - x_i): the sum is at least 1, so that dividing by it is safe.
    """
    shape = node.value().shape
    axis = int(node.attributes.get("axis", 1 if node.opset < 13 else -1)) % len(shape)
    size = shape[axis] if node.opset >= 13 else int(np.prod(shape[axis:]))
    if build.drop_softmax and node.last:
        if size != np.prod(shape):  # dropping it preserves the order only for one softmax over all outputs
            raise SeveralSoftmaxes(str(node.fail("it is one for each of several groups of outputs")))
        return [node.value()]
    view = node.view()
    if node.last and view.index.size == size and node.operator == "Softmax":
        raise node.fail("as the last layer it is supported only where outputs are only compared")
    if node.operator != "Softmax" or size > WIDEST_SOFTMAX:
        most = f"a Softmax of at most {WIDEST_SOFTMAX} values"
        raise node.fail(f"in the middle of a network only {most} is supported")
    if node.opset < 13:
        flat = view.moved(lambda a: a.reshape(*view.shape[:axis], size))
        return [reshaped(_shares(node, build, flat), view.shape)]
    shares = _shares(node, build, view.moved(lambda a: np.moveaxis(a, axis, -1)))
    return [shares.moved(lambda a: np.moveaxis(a, -1, axis))]


def _shares(node: Node, build: StepBuilder, view: View) -> View:
    """The softmax over the last axis (..., n)."""
    size = view.shape[-1]
    own, other = np.nonzero(~np.eye(size, dtype=bool))
    if size == 1:
        return as_view(np.ones(view.shape))
    # A runtime subtracts the largest value from both: the difference of two exponents has `size` roundings.
    left, right = view.moved(lambda a: a[..., other]), view.moved(lambda a: a[..., own])
    differences = total(build, left, right, (1.0, -1.0), roundings=size)
    exponentials = as_view(reshaped(build.curve(differences, "exp"), (*view.shape, size - 1)))
    summed = matmul(build, node, exponentials, np.ones((size - 1, 1)))
    denominator = scaled(build, reshaped(summed, view.shape), 1.0, 1.0)
    return as_view(build.curve(denominator, "reciprocal"))


def _layer_norm(node: Node, build: StepBuilder) -> list[Value]:
    """The values minus their mean, over the root of the mean of their squares."""
    view = node.view()
    axis = int(node.attributes.get("axis", -1)) % len(view.shape)
    if node.outputs > 1:
        raise node.fail("its outputs beyond the first are not supported")
    if build.as_evaluated:  # runtimes compute the variance in ways that cancel differently
        raise node.fail("the rounding of its variance is not bounded")
    size = int(np.prod(view.shape[axis:]))
    flat = view.moved(lambda a: a.reshape(*view.shape[:axis], size))
    # Minus the mean is one matrix, which bounds follow more closely than a difference.
    centred = as_view(matmul(build, node, flat, np.eye(size) - 1.0 / size))
    squares = as_view(product(build, centred, centred))
    mean = matmul(build, node, squares, np.full((size, 1), 1.0 / size))
    safe = scaled(build, mean, 1.0, node.number("epsilon", 1e-5))
    share = build.curve(build.curve(safe, "sqrt"), "reciprocal")
    normal = reshaped(product(build, centred, share), view.shape)
    shift = node.constant(2, "bias")
    scale = np.asarray(node.required_constant(1, "scale"), np.float64)
    return [scaled(build, normal, scale, 0.0 if shift is None else np.asarray(shift, np.float64))]


def largest(build: StepBuilder, index: Index) -> Index:
    """Elements that hold the maximum over the last axis of element numbers; -1 only where all are -1."""
    while index.shape[-1] > 1:
        if index.shape[-1] % 2:
            index = np.concatenate([index, np.full((*index.shape[:-1], 1), -1, np.int64)], axis=-1)
        left, right = index[..., 0::2], index[..., 1::2]
        index = np.maximum(left, right)  # where one is missing: the other
        both = (left >= 0) & (right >= 0) & (left != right)
        if both.any():
            index[both] = _paired(build, left, right, both)
    return index[..., 0]


def _paired(build: StepBuilder, left: Index, right: Index, both: np.ndarray) -> Index:
    """The elements that hold the maxima of the pairs marked in `both`."""
    pairs = left[both] * (int(right.max()) + 1) + right[both]
    # pairs that several windows share are computed once
    unique, first, which = np.unique(pairs, return_index=True, return_inverse=True)
    if both.all() and len(unique) == both.size:  # no pair twice: the order and shape stay
        one, other = (View(v[..., 0] if v.shape[-1] == 1 else v) for v in (left, right))
        which = np.arange(both.size)
    else:
        one, other = View(left[both][first]), View(right[both][first])
    base = build.step_holding(one)
    shape = build.steps[base].shape
    above = build.emit(WeightedSum((build.step_holding(other, shape), base), (1.0, -1.0), shape))
    more = build.emit(Activation(above, "relu", shape))
    maxima = build.emit(WeightedSum((base, more), (1.0, 1.0), shape))
    return build.offsets[maxima] + which.ravel()


def _numbered(build: StepBuilder, view: View) -> Index:
    """Element numbers of the view; finite constants become elements of a step, -inf becomes -1."""
    if view.fill is None:
        return view.index
    competing = (view.index >= 0) | ~(view.fill == -np.inf)
    if not np.isfinite(view.fill[competing & (view.index < 0)]).all():
        raise ValueError("a constant among its values is infinite")
    if (view.index[competing] >= 0).all():
        return view.index
    step = build.step_holding(View(view.index[competing], view.fill[competing]))
    index = np.full(view.shape, -1, np.int64)
    index[competing] = build.offsets[step] + np.arange(int(competing.sum()))
    return index


def _max_pool(node: Node, build: StepBuilder) -> list[Value]:
    """Axis by axis, the last first: windows that overlap share the maxima of their rows."""
    view = node.view()
    kernel = node.ints("kernel_shape")
    if kernel is None or len(kernel) != len(view.shape) - 2:
        raise node.fail("expected a kernel_shape of one number per spatial axis")
    if node.outputs > 1:
        raise node.fail("its second output (Indices) is not supported")
    check_padding(node)
    window = window_of(node, view.shape[2:], kernel)
    index = _numbered(build, view)
    for axis in reversed(range(len(kernel))):
        at = window.places(axis)
        at = np.where((at >= 0) & (at < view.shape[axis + 2]), at, -1)
        windows = np.moveaxis(np.take(index, np.maximum(at, 0), axis=axis + 2), axis + 3, -1)
        outside = (at < 0).reshape(len(at), *(1 for _ in range(len(kernel) - 1 - axis)), -1)
        index = largest(build, np.where(outside, -1, windows))
    if (index < 0).any():
        raise node.fail("one of its windows contains only padding")
    return [View(index)]


def _global_max(node: Node, build: StepBuilder) -> list[Value]:
    view = node.view()
    index = _numbered(build, view).reshape(*view.shape[:2], -1)
    return [View(largest(build, index).reshape(*view.shape[:2], *(1 for _ in view.shape[2:])))]


def _reduce_min(node: Node, build: StepBuilder) -> list[Value]:
    def least(view: View) -> View:
        negative = as_view(scaled(build, view, -1.0, 0.0))
        return as_view(scaled(build, View(largest(build, _numbered(build, negative))), -1.0, 0.0))

    return [reduced(node, least)]


def _of_all(sign: float) -> Lowering:
    """The lowering of Max, with sign -1 of Min."""

    def pair(build: StepBuilder, left: Value, right: Value) -> Value:
        if not isinstance(left, View) and not isinstance(right, View):
            return np.asarray(np.maximum(left, right) if sign > 0 else np.minimum(left, right))
        if not isinstance(right, View):
            return clamp(build, as_view(left), right, sign)
        if not isinstance(left, View):
            return clamp(build, right, left, sign)
        if sign < 0:
            above = as_view(total(build, left, right, (1.0, -1.0)))
            return total(build, left, relu(build, above), (1.0, -1.0))
        shape = np.broadcast_shapes(left.shape, right.shape)
        both = [np.broadcast_to(_numbered(build, v), shape) for v in (left, right)]
        return View(largest(build, np.stack(both, axis=-1)))

    return lambda node, build: [reduce(partial(pair, build), node.values())]


OPERATORS: Mapping[str, Lowering] = {
    "Relu": lambda node, build: [relu(build, node.view())],
    "LeakyRelu": lambda node, build: [leaky(build, node.view(), node.number("alpha", 0.01))],
    "PRelu": _prelu,
    "HardSigmoid": lambda node, build: [
        _hard_sigmoid(build, node.view(), node.number("alpha", 0.2), node.number("beta", 0.5))
    ],
    "HardSwish": lambda node, build: [
        product(build, node.view(), _hard_sigmoid(build, node.view(), 1 / 6, 0.5))
    ],
    "Clip": _clip,
    "Abs": lambda node, build: [total(build, relu(build, node.view()), node.view(), (2.0, -1.0))],
    **{curve.capitalize(): _curve(curve) for curve in PLAIN},
    "Cos": lambda node, build: [build.curve(scaled(build, node.view(), 1.0, pi / 2), "sin")],
    "Elu": lambda node, build: [elu(build, node.view(), node.number("alpha", 1.0))],
    "Selu": _selu,
    "Celu": _celu,
    "Gelu": _gelu,
    "Softmax": _softmax,
    "LogSoftmax": _softmax,
    "LayerNormalization": _layer_norm,
    "MaxPool": _max_pool,
    "GlobalMaxPool": _global_max,
    "ReduceMax": lambda node, build: [reduced(node, lambda v: View(largest(build, _numbered(build, v))))],
    "ReduceMin": _reduce_min,
    "Max": _of_all(1.0),
    "Min": _of_all(-1.0),
}
