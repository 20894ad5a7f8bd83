"""Sums and means over axes, and interpolation: all are matrix products with constants."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from holdfast.graph.lower.conv import Window, convolved
from holdfast.graph.lower.linear import product
from holdfast.graph.lower.matrix import matmul
from holdfast.graph.lower.maxima import reduced
from holdfast.graph.lower.values import Build, Lowering, Node, Value, View, as_view


def _summed(node: Node, build: Build, mean: bool) -> Value:
    def over_last(view: View) -> View:
        inner = view.shape[-1]
        weight = np.full((inner, 1), 1.0 / inner if mean else 1.0)
        found = as_view(matmul(build, node, view, weight))
        return View(found.index.reshape(view.shape[:-1]))

    return reduced(node, over_last)


def _reduce_mean(node: Node, build: Build) -> list[Value]:
    view = node.view()
    axes = {a % len(view.shape) for a in node.ints("axes", 1) or ()}
    if len(view.shape) == 4 and axes == {2, 3} and node.attributes.get("keepdims", 1):
        return _global_average(node, build)
    return [_summed(node, build, mean=True)]


def _global_average(node: Node, build: Build) -> list[Value]:
    view = node.view()
    spatial = view.shape[2:]
    if len(spatial) not in (1, 2):
        raise node.fail("expected one or two spatial axes")
    one, none = (1,) * len(spatial), (0,) * len(spatial)
    window = Window(spatial, one, one, none, none, one)
    channels = view.shape[1]
    weight = np.full((channels, 1, *spatial), 1.0 / np.prod(spatial))
    return [convolved(build, view, weight, np.zeros(channels), window, channels)]


def _sum_of_squares(node: Node, build: Build) -> list[Value]:
    squares = product(build, node.view(), node.view())
    squared = Node(node.operator, node.name, node.attributes, (squares, *node.inputs[1:]), 1, node.opset)
    return [_summed(squared, build, mean=False)]


OPERATORS: Mapping[str, Lowering] = {
    "ReduceSum": lambda node, build: [_summed(node, build, mean=False)],
    "ReduceMean": _reduce_mean,
    "ReduceSumSquare": _sum_of_squares,
    "GlobalAveragePool": _global_average,
}
