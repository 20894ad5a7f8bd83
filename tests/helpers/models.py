"""Small things tests are made of: ONNX files, images, data sets."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

CLASS_CARD = """\
task = "classify"
classes = ["dark", "bright"]

[input]
size = [16, 16]
scale = 0.00392156862745098

[head]
name = "classifier"
"""

DETECT_CARD = """\
task = "detect"
classes = ["blob"]

[input]
size = [64, 64]
scale = 0.00392156862745098

[head]
name = "yolov3"
anchors = [[[16, 16]]]
strides = [8]

[thresholds]
score = 0.1
nms_iou = 0.5
"""


def save_graph(path: Path, nodes: list, inputs: list, outputs: list, weights: dict, opset: int = 17) -> Path:
    """An ONNX file of these nodes; `weights` name -> array."""
    stored = [numpy_helper.from_array(np.asarray(v), k) for k, v in weights.items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, str(path))
    return path


def classifier(folder: Path, name: str = "tiny", card: str = CLASS_CARD, scale: float = 1.0) -> Path:
    """An ONNX file that says bright (class 1) when the mean pixel is over one half, with its card."""
    weights = {
        "w": np.array([[-scale] * 3, [scale] * 3], np.float32).T,
        "b": np.array([1.5, -1.5], np.float32),
    }
    nodes = [
        helper.make_node("GlobalAveragePool", ["x"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "w", "b"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 16, 16])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 2])
    path = save_graph(folder / f"{name}.onnx", nodes, [x], [y], weights)
    path.with_suffix(".toml").write_text(card)
    return path


def detector(folder: Path, name: str = "blobs", card: str = DETECT_CARD) -> Path:
    """An ONNX file that finds 8×8 cells brighter than the rest: one 16×16 anchor a cell, raw YOLOv3 map."""
    nodes = [
        helper.make_node("AveragePool", ["x"], ["p"], kernel_shape=[8, 8], strides=[8, 8]),
        helper.make_node("Conv", ["p", "w", "b"], ["y"]),
    ]
    # tx, ty, tw, th = 0: a box of the anchor's size in the cell's middle; objectness grows with brightness
    w = np.zeros((6, 3, 1, 1), np.float32)
    w[4] = 8.0
    weights = {"w": w, "b": np.array([0, 0, 0, 0, -14.0, 9.0], np.float32)}
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 64, 64])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 6, 8, 8])
    path = save_graph(folder / f"{name}.onnx", nodes, [x], [y], weights)
    path.with_suffix(".toml").write_text(card)
    return path


def quantised_detector(folder: Path, name: str = "eight") -> Path:
    """The detector in 8 bits, in QDQ form, with its card."""
    from holdfast.graph.rewrite.int8 import int8_minmax
    from holdfast.graph.rewrite.types import RewriteContext

    path = detector(folder, name)
    images = [np.full((1, 3, 64, 64), level, np.float32) for level in (0.0, 0.5, 1.0)]
    done = int8_minmax(onnx.load(str(path)), RewriteContext(calibration=lambda: images))
    onnx.save(done.model, str(path))
    return path


def jpeg(pixels: np.ndarray, **options: object) -> bytes:
    """The pixels as a JPEG file."""
    from PIL import Image

    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "JPEG", **options)
    return stream.getvalue()


def image_folder(folder: Path, images: int, seed: int = 0, size: int = 24) -> Path:
    """An image folder of two classes, dark and bright, `images` in all; some are hard to tell."""
    rng = np.random.default_rng(seed)
    for i in range(images):
        label = i % 2
        level = rng.integers(20, 150) if label == 0 else rng.integers(105, 235)
        pixels = np.clip(rng.normal(level, 10, (size, size, 3)), 0, 255).astype(np.uint8)
        where = folder / ("bright" if label else "dark") / f"{i:04}.jpg"
        where.parent.mkdir(parents=True, exist_ok=True)
        where.write_bytes(jpeg(pixels, quality=95))
    return folder


def blob_coco(folder: Path, images: int, seed: int = 0, name: str = "blob") -> Path:
    """A COCO data set of 64×64 images with one bright 16×16 square each, centred on a cell."""
    import json

    rng = np.random.default_rng(seed)
    (folder / "images").mkdir(parents=True)
    records, annotations = [], []
    for i in range(images):
        pixels = rng.integers(20, 60, (64, 64, 3)).astype(np.uint8)
        column, row = rng.integers(1, 7, 2) * 8 + 4
        pixels[row - 8 : row + 8, column - 8 : column + 8] = 250
        (folder / "images" / f"{i:03}.jpg").write_bytes(jpeg(pixels, quality=95))
        records.append({"id": i, "file_name": f"{i:03}.jpg", "width": 64, "height": 64})
        box = [int(column) - 8, int(row) - 8, 16, 16]
        annotations.append({"id": i, "image_id": i, "category_id": 0, "bbox": box, "area": 256, "iscrowd": 0})
    content = {"images": records, "annotations": annotations, "categories": [{"id": 0, "name": name}]}
    (folder / "annotations.json").write_text(json.dumps(content))
    return folder


PLANTED = (
    "struct", "signal", "pickle", "socket", "multiprocessing", "select", "tempfile", "json", "random",
    "numpy", "threading", "subprocess", "queue", "onnx",
)  # fmt: skip


def planted(folder: Path) -> Callable[[], list[str]]:
    """Python files with the names of known modules in a folder; a function that says which were executed."""
    folder.mkdir(exist_ok=True)
    for name in PLANTED:
        marker = str(folder / f"{name}.executed")
        (folder / f"{name}.py").write_text(f"open({marker!r}, 'w').close()\nraise ImportError('planted')\n")
    return lambda: sorted(path.stem for path in folder.glob("*.executed"))


def endless_classifier(folder: Path, name: str = "endless") -> Path:
    """The classifier with a loop behind it that runs for years in one inference."""
    path = classifier(folder, name)
    model = onnx.load(str(path))
    rows = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", 2]) for n in ("row", "next")]
    goes = [helper.make_tensor_value_info(n, TensorProto.BOOL, []) for n in ("go", "on")]
    turn = helper.make_tensor_value_info("turn", TensorProto.INT64, [])
    body = [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Mul", ["row", "one"], ["next"])]
    loop = helper.make_graph(body, "loop", [turn, goes[0], rows[0]], [goes[1], rows[1]])
    model.graph.node[-1].output[0] = "scores"
    model.graph.node.append(helper.make_node("Loop", ["turns", "true", "scores"], ["y"], body=loop))
    constants = {"one": np.float32(1), "turns": np.int64(2**62), "true": np.array(True)}
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items())
    onnx.save(model, str(path))
    return path
