"""Detectors that look at one pixel: under a black square exactly the places over it are unsafe."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper
from PIL import Image

from helpers.models import save_graph
from holdfast.audit.squares import survey
from holdfast.core.types import Size
from holdfast.noise.suite import no_progress

SIZE = Size(64, 48)
BOX = (28, 12, 44, 28)  # what the detector says: the cell of column 4, row 2, one anchor of 16×16
WATCHED, POISON = (50, 9), (7, 40)  # column, row

CARD = """\
task = "detect"
classes = ["blob"]

[input]
size = [64, 48]
scale = 0.00392156862745098

[head]
name = "yolov3"
anchors = [[[16, 16]]]
strides = [8]

[thresholds]
score = 0.001
nms_iou = 0.65
"""


def _pixel(name: str, place: tuple[int, int]) -> tuple[list, dict]:
    """Nodes that give the mean (1, 1, 1, 1) of one pixel's channels under that name."""
    x, y = place
    ends = {
        f"{name}-from": np.array([y, x], np.int64),
        f"{name}-to": np.array([y + 1, x + 1], np.int64),
        f"{name}-axes": np.array([2, 3], np.int64),
    }
    nodes = [
        helper.make_node("Slice", ["x", *ends], [f"{name}-cut"]),
        helper.make_node("ReduceMean", [f"{name}-cut"], [name], axes=[1], keepdims=1),
    ]
    return nodes, ends


def pixel_detector(folder: Path, *, watched: bool = True, poison: bool = False, name: str = "pixel") -> Path:
    """An ONNX file that finds `BOX` if the watched pixel is bright (else always); NaN if the poison is black.

    It says 0.99 of a white pixel and about 0.01 of a black one.
    """
    nodes, weights = _pixel("p", WATCHED)
    slope = 10.0 if watched else 0.0
    w = np.zeros((6, 1, 1, 1), np.float32)
    w[4] = slope
    weights |= {"w": w, "b": np.array([0, 0, 0, 0, -5.0 if watched else 5.0, 9.0], np.float32)}
    nodes.append(helper.make_node("Conv", ["p", "w", "b"], ["cell"]))
    last = "cell"
    if poison:
        more, ends = _pixel("q", POISON)
        nodes += [*more, helper.make_node("Div", ["q", "q"], ["one"])]  # 0 / 0 where it is black
        nodes.append(helper.make_node("Mul", [last, "one"], ["poisoned"]))
        weights |= ends
        last = "poisoned"
    # Around the cell: zero before, so many after, in each of the four directions of the tensor.
    weights |= {"pads": np.array([0, 0, 2, 4, 0, 0, 3, 3], np.int64), "low": np.float32(-20.0)}
    nodes.append(helper.make_node("Pad", [last, "pads", "low"], ["y"]))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, SIZE.height, SIZE.width])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 6, 6, 8])
    path = save_graph(folder / f"{name}.onnx", nodes, [x], [y], weights)
    path.with_suffix(".toml").write_text(CARD)
    return path


def scenes(folder: Path, images: int = 1, *, bare: int = 0) -> Path:
    """A COCO data set of white scenes with one object each at `BOX`; in the last `bare` ones elsewhere."""
    (folder / "images").mkdir(parents=True)
    records, annotations = [], []
    for i in range(images):
        pixels = np.full((SIZE.height, SIZE.width, 3), 255, np.uint8)
        pixels[0, i % SIZE.width] = 254  # so that no two are the same
        Image.fromarray(pixels).save(folder / "images" / f"{i:03}.png")
        records.append({"id": i, "file_name": f"{i:03}.png", "width": SIZE.width, "height": SIZE.height})
        x1, y1, x2, y2 = BOX if i < images - bare else (0, 0, 8, 8)
        box = [x1, y1, x2 - x1, y2 - y1]
        area = box[2] * box[3]
        annotations.append(
            {"id": i, "image_id": i, "category_id": 0, "bbox": box, "area": area, "iscrowd": 0}
        )
    content = {"images": records, "annotations": annotations, "categories": [{"id": 0, "name": "blob"}]}
    (folder / "annotations.json").write_text(json.dumps(content))
    return folder


def squares(plan, watch=no_progress):
    """The map of every image in which something true is found."""
    return survey(plan, watch).maps
