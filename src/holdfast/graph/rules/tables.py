"""Rules for one table of all boxes: YOLOv5 to YOLOv8, YOLOX, RT-DETR of Ultralytics."""

from typing import Any

import numpy as np

from holdfast.core.types import Tensor
from holdfast.graph.candidates import levels
from holdfast.graph.evidence import ULTRALYTICS, YOLO_STRIDES, GraphFacts, Proposal, Shape

SLACK = 1e-3  # by which probabilities of float16 leave 0..1


def one_tensor(facts: GraphFacts) -> Proposal | None:
    """YOLOX, YOLOv5, YOLOv6 or YOLOv8: all boxes of all strides in one tensor of three axes.

    Outputs of four or five axes beside it are raw maps of the same boxes, or prototypes of masks.
    """
    tables = {n: s for n, s in facts.outputs.items() if len(s) == 3 and facts.kinds[n] == "f"}
    maps = {n: s for n, s in facts.outputs.items() if n not in tables}
    if len(tables) != 1 or any(len(s) not in (4, 5) for s in maps.values()):
        return None
    name, shape = next(iter(tables.items()))
    if shape[0] != 1:
        return None
    return next(filter(None, (_all_boxes(facts, name, shape, axis, maps) for axis in (1, 2))), None)


def _all_boxes(
    facts: GraphFacts, name: str, shape: Shape, axis: int, maps: dict[str, Shape]
) -> Proposal | None:
    """The head if the boxes are counted along `axis` and fill the cells of three strides."""
    size, rows, width = facts.size, shape[axis], shape[3 - axis]
    cells, options = f"cells of strides 8, 16, 32 of {size.width}×{size.height}", _output(name, maps)
    start = f"{'output' if maps else 'one output'} {name!r} {shape} = "
    if width < 6 and not (width == 5 and axis == 2):
        return None
    if rows % 3 == 0 and levels(size, YOLO_STRIDES, rows // 3, 0) and axis == 1:
        more, words, warnings = _trailing(facts, name, axis, 5, maps)
        because = f"{start}3 anchors × {cells} times 5+{width - 5 - more}{words}"
        classes = width - 5 - more
        return Proposal(
            "yolov5",
            because,
            classes,
            "Ultralytics",
            options | _more(more),
            input=ULTRALYTICS,
            warnings=warnings,
        )
    if not levels(size, YOLO_STRIDES, rows, 0):
        return None
    if axis == 2 or width == 84:
        more, words, warnings = _trailing(facts, name, axis, 4, maps)
        because = f"{start}{cells} times 4+{width - 4 - more}{words}"
        classes = width - 4 - more
        options |= _more(more) | ({"angle": True} if more == 1 else {})
        return Proposal(
            "yolov8", because, classes, "Ultralytics", options, input=ULTRALYTICS, warnings=warnings
        )
    because = f"{start}{cells} times 5+{width - 5}"
    if _sampled(facts, name, axis)[:, 4:5].min() == 1.0:
        because = f"{because}, and the objectness of every cell is 1"
        return Proposal("yolov5", because, width - 5, "YOLOv6", options, input=ULTRALYTICS)
    return None if maps else _yolox(facts, because, width - 5)


def _output(name: str, maps: dict[str, Shape]) -> dict[str, Any]:
    return {"outputs": (name,)} if maps else {}


def _more(trailing: int) -> dict[str, Any]:
    return {"trailing": trailing} if trailing else {}


def _sampled(facts: GraphFacts, name: str, axis: int) -> Tensor:
    """The table (boxes, columns) for an image of random pixels."""
    table: Tensor = facts.sample[name][0]
    return table if axis == 1 else table.T


def _trailing(
    facts: GraphFacts, name: str, axis: int, first: int, maps: dict[str, Shape]
) -> tuple[int, str, tuple[str, ...]]:
    """How many columns follow the classes, in words, and what to warn of.

    Mask coefficients, keypoints and angles leave 0..1, which no probability does.
    """
    width = facts.outputs[name][3 - axis]
    masks = [s[1] for s in maps.values() if len(s) == 4 and len(maps) == 1 and s[1] < width - first]
    table = _sampled(facts, name, axis)
    low, high = table[:, first:].min(axis=0), table[:, first:].max(axis=0)
    outside = np.flatnonzero((low < -SLACK) | (high > 1 + SLACK))
    count = masks[0] if masks else width - first - int(outside[0]) if len(outside) and outside[0] else 0
    if not count:
        return 0, "", ()
    why = "as many as the other output has masks" if masks else "which are not in 0..1 on an image of noise"
    what = " (an angle)" if count == 1 and first == 4 else ""
    warning = f"trailing: {count}{what}, assumed: the last columns, {why}, are no classes"
    if what:
        warning += "; the upright box around each rotated box is used"
    return count, f"+{count}", (warning,)


def _yolox(facts: GraphFacts, because: str, classes: int) -> Proposal:
    ends = next(iter(facts.ends.values()))
    decoded = bool(ends & {"Mul", "Exp", "Add", "Div"})
    options: dict[str, Any] = {"decoded": decoded} if decoded else {"strides": YOLO_STRIDES}
    if "Sigmoid" not in ends and not decoded:
        options["activation"] = "sigmoid"
    # YOLOX rounds the sides of the resized image down: `int(side * ratio)`.
    image = {"colour": "bgr", "scale": 1.0, "policy": "letterbox-truncate", "place": "corner"}
    return Proposal("yolox", because, classes, "YOLOX", options, input=image, resize="opencv-bilinear")


def queries(facts: GraphFacts) -> Proposal | None:
    """RT-DETR of Ultralytics without metadata: centre, sides and probabilities of a few hundred queries."""
    name, shape = facts.only
    hundreds = len(shape) == 3 and shape[0] == 1 and shape[1] <= 1000 and shape[1] % 100 == 0
    if not hundreds or facts.kinds[name] != "f" or not 5 <= shape[2] < 1000:
        return None
    table = facts.sample[name][0]
    if table.min() < -SLACK or table.max() > 1 + SLACK or not table[:, 2:4].max() > 0:
        return None
    because = f"one output {name!r} {shape} = queries times 4+{shape[2] - 4}, all values in 0..1"
    image = {"policy": "stretch", "scale": 1 / 255}
    return Proposal("rtdetr", because, shape[2] - 4, "Ultralytics", input=image)
