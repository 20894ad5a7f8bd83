"""Detectors of every known layout of outputs, made so that each gives the same two boxes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SIDE, CLASSES = 64, 5
BOXES = np.array([[8.0, 12, 40, 36], [20, 30, 60, 50]])  # xyxy in a 64 × 64 input
LABELS, SCORES = np.array([2, 0]), np.array([0.9, 0.6])
CELLS = 8 * 8 + 4 * 4 + 2 * 2
NAMES = str([f"name {i}" for i in range(CLASSES)])


@dataclass(frozen=True)
class Layout:
    """Outputs with the boxes in them, and how they must be read."""

    outputs: Mapping[str, np.ndarray]
    head: str
    classes: int = CLASSES
    options: Mapping[str, object] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    input: Sequence[int | str] = (1, 3, SIDE, SIDE)
    input_type: int = TensorProto.FLOAT
    more: Mapping[str, tuple[int, list[int | str]]] = field(default_factory=dict)  # other inputs
    scaled: str = ""  # an output of parts of the image is multiplied by this other input
    unused: Sequence[str] = ()  # operators that the graph has, without effect
    labels: Sequence[int] = (2, 0)


def save(layout: Layout, path: Path) -> Path:
    """The ONNX file of a layout: its outputs are constants."""
    nodes, weights, ends = [], [], []
    for i, (name, value) in enumerate(layout.outputs.items()):
        weights.append(numpy_helper.from_array(np.ascontiguousarray(value), f"value{i}"))
        if layout.scaled and name == "boxes":
            weights.append(numpy_helper.from_array(np.array([1, 1, 2]), "twice"))
            nodes.append(helper.make_node("Cast", [layout.scaled], ["sides"], to=TensorProto.FLOAT))
            nodes.append(helper.make_node("Unsqueeze", ["sides", "axis"], ["row"]))
            nodes.append(helper.make_node("Tile", ["row", "twice"], ["four"]))
            nodes.append(helper.make_node("Mul", [f"value{i}", "four"], [name]))
            weights.append(numpy_helper.from_array(np.array([1]), "axis"))
        else:
            nodes.append(helper.make_node("Identity", [f"value{i}"], [name]))
        kind = helper.np_dtype_to_tensor_dtype(value.dtype)
        ends.append(helper.make_tensor_value_info(name, kind, list(value.shape)))
    for i, operator in enumerate(layout.unused):
        inputs, outputs = ["value0"] * (2 if operator == "Mul" else 1), [f"unused{i}"]
        if operator == "TopK":
            weights.append(numpy_helper.from_array(np.array([1]), f"one{i}"))
            inputs, outputs = ["value0", f"one{i}"], [f"unused{i}", f"order{i}"]
        elif operator == "GridSample":
            for name, shape in (("picture", (1, 1, 2, 2)), ("places", (1, 2, 2, 2))):
                weights.append(numpy_helper.from_array(np.zeros(shape, np.float32), f"{name}{i}"))
            inputs = [f"picture{i}", f"places{i}"]
        nodes.append(helper.make_node(operator, inputs, outputs))
    image = helper.make_tensor_value_info("image", layout.input_type, list(layout.input))
    others = [helper.make_tensor_value_info(n, kind, shape) for n, (kind, shape) in layout.more.items()]
    graph = helper.make_graph(nodes, "g", [image, *others], ends, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    helper.set_model_props(model, dict(layout.metadata))
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return path


def centres(boxes: np.ndarray = BOXES) -> np.ndarray:
    """The boxes as centre and sides."""
    return np.concatenate([(boxes[:, :2] + boxes[:, 2:]) / 2, boxes[:, 2:] - boxes[:, :2]], axis=1)


def logits(p: np.ndarray) -> np.ndarray:
    """Their sigmoid is p."""
    return np.log(p / (1 - p))


def scores(count: int = 2, width: int = CLASSES, first: int = 0, quiet: float = 0.01) -> np.ndarray:
    """Scores (count, width) of which the first two rows are those of the boxes."""
    rows = np.full((count, width), quiet)
    rows[[0, 1], LABELS + first] = SCORES
    return rows


def filled(rows: np.ndarray, count: int) -> np.ndarray:
    """The rows, and small boxes after them up to `count`."""
    more = np.tile(centres(np.array([[1.0, 1, 3, 3]])) if rows.shape[1] == 4 else 0.0, (count - len(rows), 1))
    return np.concatenate([rows, np.broadcast_to(more, (count - len(rows), rows.shape[1]))])


def f32(*parts: np.ndarray) -> np.ndarray:
    """The parts side by side as float32, with a batch axis."""
    return np.concatenate(parts, axis=1)[None].astype(np.float32)


def with_background(rows: np.ndarray, first: bool) -> np.ndarray:
    """Probabilities that sum to one, with a class for no object."""
    rest = 1 - rows.sum(axis=1, keepdims=True)
    return np.concatenate([rest, rows] if first else [rows, rest], axis=1)


def grid_maps(strides: Sequence[int], anchors: Sequence[Sequence[tuple[float, float]]], kind: str) -> list:
    """Raw maps (1, A, h, w, 5+k) whose best cells are the boxes: "exp" as YOLOv3, "square" as YOLOv5."""
    maps = [np.full((1, 3, SIDE // s, SIDE // s, 5 + CLASSES), -12.0, np.float32) for s in strides]
    for (cx, cy, w, h), label, score in zip(centres(), LABELS, SCORES, strict=True):
        level, anchor = 0, 2
        stride, (pw, ph) = strides[level], anchors[level][anchor]
        x, y = int(cx // stride), int(cy // stride)
        at = np.array([cx / stride - x, cy / stride - y])
        if kind == "exp":
            place, sides = logits(np.clip(at, 1e-4, 1 - 1e-4)), np.log([w / pw, h / ph])
        else:
            place, sides = logits((at + 0.5) / 2), logits(np.sqrt([w / pw, h / ph]) / 2)
        row = np.full(5 + CLASSES, -12.0)
        row[:5], row[5 + label] = [*place, *sides, logits(np.array(score))], 12.0
        maps[level][0, anchor, y, x] = row
    return maps
