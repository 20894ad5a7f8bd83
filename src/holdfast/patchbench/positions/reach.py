"""What a changed pixel can reach: the single tensors a graph goes through, and how far each one's cells see.

A cell o of a tensor sees the source's cells from stride·o − before to stride·o + after, along rows and
columns alike. Where an operator is met that may look farther, nothing is known behind it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from holdfast.graph.wire import WireGraph, WireNode

Shapes = Mapping[str, tuple[int, ...]]

_CELL_BY_CELL = frozenset(
    (
        *(
            "Relu",
            "LeakyRelu",
            "Sigmoid",
            "HardSigmoid",
            "HardSwish",
            "Tanh",
            "Clip",
            "Identity",
            "Neg",
            "Abs",
        ),
        *("Exp", "Sqrt", "Softplus", "Elu", "Erf", "BatchNormalization", "Add", "Sub", "Mul", "Div", "Min"),
        *("Max", "PRelu", "Sum", "Cast"),
    )
)
_WINDOWS = ("Conv", "MaxPool", "AveragePool")


@dataclass(frozen=True)
class Reach:
    """Which cells of the source a cell sees: stride·o − before … stride·o + after."""

    stride: int = 1
    before: int = 0
    after: int = 0


def passages(graph: WireGraph, source: str, outputs: Sequence[str]) -> list[str]:
    """The tensors, from the source on, through which every path from it to the outputs leads, in order."""
    nodes = graph.needed(outputs, [source])
    touched, last = {source}, dict[str, int]()
    for i, node in enumerate(nodes):
        if touched.intersection(node.inputs):
            touched.update(node.outputs)
            last.update(dict.fromkeys(touched.intersection(node.inputs), i))
    last.update(dict.fromkeys(touched.intersection(outputs), len(nodes)))
    alive, found = {source}, [source]
    for i, node in enumerate(nodes):
        if touched.intersection(node.outputs):
            alive.update(name for name in node.outputs if name in last)
        alive = {name for name in alive if last[name] > i}
        if len(alive) == 1 and (only := next(iter(alive))) != found[-1]:
            found.append(only)
    return found


def reaches(graph: WireGraph, source: str, outputs: Sequence[str], shapes: Shapes) -> dict[str, Reach]:
    """How far the cells of each tensor see, as far as that is known."""
    known = {source: Reach()}
    fixed: dict[str, Any] = {
        w.name: w.value() for w in graph.weights.values() if sum(w.dims) <= 8 and not w.outside
    }
    for node in graph.needed(outputs, [source]):
        if node.operator == "Constant":
            fixed[node.outputs[0]] = node.attributes.get("value")
        made = _reach(node, known, fixed, shapes)
        if made is not None:
            known.update(dict.fromkeys(node.outputs, made))
    return known


def _reach(
    node: WireNode, known: Mapping[str, Reach], fixed: Mapping[str, Any], shapes: Shapes
) -> Reach | None:
    seen = [known[name] for name in node.inputs if name in known]
    if not seen or node.domain not in ("", "ai.onnx") or len({r.stride for r in seen}) > 1:
        return None
    if any(len(shapes.get(name, ())) != 4 for name in (*node.inputs, *node.outputs) if name in known):
        return None
    rest = [name for name in node.inputs if name and name not in known]
    if node.operator in _WINDOWS:
        return _window(node, seen[0])
    if node.operator in _CELL_BY_CELL:
        # A constant with rows and columns of its own belongs to a place of the whole map, not of a crop.
        if node.operator != "BatchNormalization" and any(not _plain(shapes.get(name)) for name in rest):
            return None
    elif node.operator in ("Concat", "Split"):
        if node.attributes.get("axis", 0) not in (1, -3) or (rest and node.operator == "Concat"):
            return None
    elif node.operator == "Slice":
        axes = fixed.get(node.inputs[3]) if len(node.inputs) > 3 else None
        if axes is None or not np.isin(axes, (1, -3)).all():
            return None
    else:
        return None
    return Reach(seen[0].stride, max(r.before for r in seen), max(r.after for r in seen))


def _plain(shape: tuple[int, ...] | None) -> bool:
    """Whether a constant is the same for all rows and columns."""
    return shape is not None and all(size == 1 for size in shape[-2:])


def _window(node: WireNode, source: Reach) -> Reach | None:
    """The reach behind a filter or pool whose rows and columns are alike and whose padding is written out."""
    told = node.attributes
    kernel = told.get("kernel_shape")
    if kernel is None or len(kernel) != 2 or told.get("auto_pad", "NOTSET") not in ("NOTSET", ""):
        return None
    strides, pads, dilations = (
        told.get(name) or default
        for name, default in (("strides", [1, 1]), ("pads", [0] * 4), ("dilations", [1, 1]))
    )
    alike = len(set(kernel)) == len(set(strides)) == len(set(dilations)) == 1 and pads[0] == pads[1]
    if not alike or told.get("ceil_mode"):
        return None
    wide = (kernel[0] - 1) * dilations[0]
    step = source.stride
    return Reach(step * strides[0], source.before + step * pads[0], source.after + step * (wide - pads[0]))
