"""Smooth curves, and what is made of them: exp, roots, gates, softmax, normalisation over a layer."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import pi

import numpy as np

from holdfast.core.errors import ModelError
from holdfast.graph.ir import Curve
from holdfast.graph.lower.curves import relu
from holdfast.graph.lower.linear import product, scaled, total
from holdfast.graph.lower.matrix import matmul, reshaped
from holdfast.graph.lower.values import Build, Lowering, Node, Value, View, as_view

WIDEST = 256  # values of one softmax in the middle of a network: it takes their number squared of exps


class SeveralSoftmaxes(ModelError):
    """The last softmax cannot be taken off: it is not one over all outputs."""


def _curve(curve: Curve, node: Node, build: Build) -> list[Value]:
    return [build.curve(node.view(), curve)]


def elu(build: Build, view: View, factor: float) -> Value:
    """The view where positive, factor (exp(x) - 1) where negative."""
    if 0 <= factor <= 1:  # convex: one curve
        return build.curve(view, "elu", factor)
    below = as_view(scaled(build, as_view(relu(build, as_view(scaled(build, view, -1.0, 0.0)))), -1.0, 0.0))
    rest = scaled(build, as_view(build.curve(below, "exp")), factor, -factor)
    return total(build, relu(build, view), rest)


def _selu(node: Node, build: Build) -> list[Value]:
    alpha = node.number("alpha", 1.6732632423543772)
    gamma = node.number("gamma", 1.0507009873554805)
    return [scaled(build, as_view(elu(build, node.view(), alpha)), gamma, 0.0)]


def _celu(node: Node, build: Build) -> list[Value]:
    alpha = node.number("alpha", 1.0)
    if alpha <= 0:
        raise node.fail(f"expected an alpha above 0, got {alpha}")
    inner = as_view(scaled(build, node.view(), 1.0 / alpha, 0.0))
    return [scaled(build, as_view(elu(build, inner, 1.0)), alpha, 0.0)]


def _gelu(node: Node, build: Build) -> list[Value]:
    """The value x / 2 (1 + erf(x / sqrt 2)), or the usual approximation by tanh."""
    view = node.view()
    if node.attributes.get("approximate", "none") == "tanh":
        cube = product(build, product(build, view, view), view)
        inner = total(build, view, cube, ((2 / pi) ** 0.5, 0.044715 * (2 / pi) ** 0.5))
        gate = build.curve(as_view(inner), "tanh")
    else:
        gate = build.curve(as_view(scaled(build, view, 0.5**0.5, 0.0)), "erf")
    return [product(build, view, scaled(build, as_view(gate), 0.5, 0.5))]


def _softmax(node: Node, build: Build) -> list[Value]:
    """As the last layer the value before it, if the caller said that only the order of the outputs counts.

    Elsewhere 1 / sum over j of exp(x_j - x_i): the sum is at least 1, so that dividing by it is safe.
    """
    shape = node.value().shape
    axis = int(node.attributes.get("axis", 1 if node.opset < 13 else -1)) % len(shape)
    size = shape[axis] if node.opset >= 13 else int(np.prod(shape[axis:]))
    if build.drop_softmax and node.last:
        if size != np.prod(shape):  # what is said of one softmax over all outputs is not true of several
            raise SeveralSoftmaxes(str(node.fail("it is one for each of several groups of outputs")))
        return [node.value()]
    view = node.view()
    if node.last and view.index.size == size and node.operator == "Softmax":
        raise node.fail("as the last layer it is supported only where outputs are only compared")
    if node.operator != "Softmax" or size > WIDEST:
        raise node.fail(f"in the middle of a network only a Softmax of at most {WIDEST} values is supported")

    def last(values: np.ndarray) -> np.ndarray:
        return (
            np.moveaxis(values, axis, -1) if node.opset >= 13 else values.reshape(*values.shape[:axis], size)
        )

    turned = View(last(view.index), None if view.fill is None else last(view.fill))
    found = _shares(node, build, turned)
    if node.opset < 13:
        return [reshaped(found, view.shape)]
    fill = None if found.fill is None else np.moveaxis(found.fill, -1, axis)
    return [View(np.moveaxis(found.index, -1, axis), fill)]


def _shares(node: Node, build: Build, view: View) -> View:
    """The softmax over the last axis (..., n)."""
    size = view.shape[-1]
    own, other = np.nonzero(~np.eye(size, dtype=bool))

    def picked(at: np.ndarray) -> View:
        return View(view.index[..., at], None if view.fill is None else view.fill[..., at])

    if size == 1:
        return as_view(np.ones(view.shape))
    # A runtime subtracts the largest value from both: the difference of two exponents has `size` roundings.
    apart = as_view(total(build, picked(other), picked(own), (1.0, -1.0), roundings=size))
    grown = as_view(reshaped(build.curve(apart, "exp"), (*view.shape, size - 1)))
    summed = as_view(matmul(build, node, grown, np.ones((size - 1, 1))))
    whole = scaled(build, as_view(reshaped(summed, view.shape)), 1.0, 1.0)
    return as_view(build.curve(as_view(whole), "reciprocal"))


def _layer_norm(node: Node, build: Build) -> list[Value]:
    """The values minus their mean, over the root of the mean of their squares."""
    view = node.view()
    axis = int(node.attributes.get("axis", -1)) % len(view.shape)
    if node.outputs > 1:
        raise node.fail("its outputs beyond the first are not supported")
    if build.as_evaluated:  # runtimes compute the variance in ways that cancel differently
        raise node.fail("the rounding of its variance is not bounded")
    size = int(np.prod(view.shape[axis:]))
    flat = as_view(reshaped(view, (*view.shape[:axis], size)))
    # Minus the mean is one matrix, which bounds follow more closely than a difference.
    centred = as_view(matmul(build, node, flat, np.eye(size) - 1.0 / size))
    mean = as_view(
        matmul(build, node, as_view(product(build, centred, centred)), np.full((size, 1), 1.0 / size))
    )
    safe = as_view(scaled(build, mean, 1.0, node.number("epsilon", 1e-5)))
    share = build.curve(as_view(build.curve(safe, "sqrt")), "reciprocal")
    normal = as_view(reshaped(product(build, centred, share), view.shape))
    shift = node.constant(2, "bias")
    scale = np.asarray(node.known(1, "scale"), np.float64)
    return [scaled(build, normal, scale, 0.0 if shift is None else np.asarray(shift, np.float64))]


OPERATORS: Mapping[str, Lowering] = {
    "Sigmoid": partial(_curve, "sigmoid"),
    "Tanh": partial(_curve, "tanh"),
    "Sign": partial(_curve, "sign"),
    "Erf": partial(_curve, "erf"),
    "Exp": partial(_curve, "exp"),
    "Log": partial(_curve, "log"),
    "Sqrt": partial(_curve, "sqrt"),
    "Reciprocal": partial(_curve, "reciprocal"),
    "Softplus": partial(_curve, "softplus"),
    "Sin": partial(_curve, "sin"),
    "Cos": lambda node, build: [build.curve(as_view(scaled(build, node.view(), 1.0, pi / 2)), "sin")],
    "Elu": lambda node, build: [elu(build, node.view(), node.number("alpha", 1.0))],
    "Selu": _selu,
    "Celu": _celu,
    "Gelu": _gelu,
    "Softmax": _softmax,
    "LogSoftmax": _softmax,
    "LayerNormalization": _layer_norm,
}
