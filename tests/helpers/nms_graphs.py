"""Detectors with NMS in the graph: the outputs of known exporters, made from a YOLOX file or from blobs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from holdfast.graph.card import BUILT_IN

COCO91_IDS = np.array([BUILT_IN["coco91"].index(name) for name in BUILT_IN["coco80"]])
NODE = helper.make_node


class Graph:
    """Nodes and constants of a graph that is being made."""

    def __init__(self, nodes: list | None = None, weights: list | None = None) -> None:
        self.nodes, self.weights = list(nodes or []), list(weights or [])

    def constant(self, value: object) -> str:
        """The name of a new constant."""
        name = f"const{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def add(self, kind: str, *inputs: object, out: str = "", **settings: object) -> str:
        """The name of the (first) output of a new node; inputs that are no names become constants."""
        out = out or f"{kind}{len(self.nodes)}_out"
        names = [i if isinstance(i, str) else self.constant(i) for i in inputs]
        self.nodes.append(NODE(kind, names, [out], **settings))
        return out


def yolox_boxes(graph: Graph, output: str, size: int = 416) -> tuple[str, str]:
    """Boxes (1, n, 4) x1 y1 x2 y2 in pixels and scores (1, k, n) from YOLOX's raw output (1, n, 5+k)."""
    cells = [(x, y, s) for s in (8, 16, 32) for y in range(size // s) for x in range(size // s)]
    grid = np.array(cells, np.float32)[None]
    part = [
        graph.add("Slice", output, np.array([a]), np.array([b]), np.array([2]))
        for a, b in ((0, 2), (2, 4), (4, 5), (5, 1000))
    ]
    centre = graph.add("Mul", graph.add("Add", part[0], grid[:, :, :2]), grid[:, :, 2:])
    half = graph.add("Mul", graph.add("Exp", part[1]), grid[:, :, 2:] / 2)
    boxes = graph.add("Concat", graph.add("Sub", centre, half), graph.add("Add", centre, half), axis=2)
    return boxes, graph.add("Transpose", graph.add("Mul", part[2], part[3]), perm=[0, 2, 1])


def add_nms(
    graph: Graph, boxes: str, scores: str, score: float = 0.01, iou: float = 0.65
) -> tuple[str, str, str]:
    """Boxes (m, 4), scores (m,) and classes (m,) that NonMaxSuppression keeps."""
    picked = graph.add(
        "NonMaxSuppression", boxes, scores, np.array([100]), np.float32([iou]), np.float32([score])
    )
    found = graph.add("GatherND", boxes, graph.add("Gather", picked, np.array([0, 2]), axis=1))
    return found, graph.add("GatherND", scores, picked), graph.add("Gather", picked, np.array(1), axis=1)


def finish_torchvision(graph: Graph, found: str, scores: str, classes: str, ids: np.ndarray) -> list:
    """Outputs boxes x1 y1 x2 y2 in pixels, labels (0 is the background), scores; as many as there are."""
    graph.add("Identity", found, out="boxes")
    graph.add("Gather", ids, classes, out="labels")
    graph.add("Identity", scores, out="scores")
    kinds = {"boxes": TensorProto.FLOAT, "labels": TensorProto.INT64, "scores": TensorProto.FLOAT}
    return [
        helper.make_tensor_value_info(n, kind, ["n", 4] if n == "boxes" else ["n"])
        for n, kind in kinds.items()
    ]


def finish_tensorflow(
    graph: Graph, found: str, scores: str, classes: str, ids: np.ndarray, size: int, rows: int = 100
) -> list:
    """Outputs detection_boxes y1 x1 y2 x2 in 0..1 and the others, the best `rows`, padded with zeros."""
    turned = graph.add("Gather", graph.add("Div", found, np.float32([size])), np.array([1, 0, 3, 2]), axis=1)
    labels = graph.add("Cast", graph.add("Gather", ids, classes), to=TensorProto.FLOAT)
    columns = [graph.add("Unsqueeze", value, np.array([1])) for value in (scores, labels)]
    table = graph.add("Concat", turned, *columns, axis=1)
    table = graph.add("Concat", table, np.zeros((rows, 6), np.float32), axis=0)
    by_score = graph.add("Gather", table, np.array(4), axis=1)
    graph.nodes.append(NODE("TopK", [by_score, graph.constant(np.array([rows]))], ["best", "order"]))
    table = graph.add("Unsqueeze", graph.add("Gather", table, "order", axis=0), np.array([0]))
    graph.add("Slice", table, np.array([0]), np.array([4]), np.array([2]), out="detection_boxes")
    graph.add("Gather", table, np.array(4), axis=2, out="detection_scores")
    graph.add("Gather", table, np.array(5), axis=2, out="detection_classes")
    over = graph.add("Cast", graph.add("Greater", "detection_scores", np.float32(0)), to=TensorProto.FLOAT)
    graph.add("ReduceSum", over, np.array([1]), keepdims=0, out="num_detections")
    shapes = {"detection_boxes": [1, rows, 4], "detection_classes": [1, rows]}
    shapes |= {"detection_scores": [1, rows], "num_detections": [1]}
    return [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items()]


def save(path: Path, graph: Graph, image: object, outputs: list, metadata: dict | None = None) -> Path:
    """The graph as an ONNX file."""
    whole = helper.make_graph(graph.nodes, "g", [image], outputs, graph.weights)
    model = helper.make_model(whole, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    helper.set_model_props(model, metadata or {})
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return path


def blobs_as(layout: str, path: Path, ids: tuple[int, ...] = (13,), score: float = 0.1) -> Path:
    """A detector of the squares of `making.blob_coco` with NMS inside, its one class called `ids[0]`."""
    graph = Graph()
    nhwc = layout == "tensorflow"
    shape = [1, 64, 64, 3] if nhwc else [1, 3, 64, 64] if layout == "batched" else [3, 64, 64]
    image = helper.make_tensor_value_info("image", TensorProto.UINT8 if nhwc else TensorProto.FLOAT, shape)
    if nhwc:
        pixels = graph.add("Transpose", graph.add("Cast", "image", to=TensorProto.FLOAT), perm=[0, 3, 1, 2])
        pixels = graph.add("Div", pixels, np.float32(255))
    else:
        pixels = graph.add("Sub", "image", np.zeros((3, 1, 1), np.float32))  # takes values in 0..1
        pixels = pixels if layout == "batched" else graph.add("Unsqueeze", pixels, np.array([0]))
    light = graph.add("AveragePool", pixels, kernel_shape=[8, 8], strides=[8, 8])
    logits = graph.add("Conv", light, np.full((1, 3, 1, 1), 8, np.float32), np.float32([-14]))
    scores = graph.add("Reshape", graph.add("Sigmoid", logits), np.array([1, 1, 64]))
    y, x = np.divmod(np.arange(64), 8)
    centre = np.stack([x, y], axis=1) * 8.0 + 4
    boxes = np.concatenate([centre - 8, centre + 8], axis=1).astype(np.float32)[None]
    found = add_nms(graph, graph.constant(boxes), scores, score, 0.1)
    if nhwc:
        outputs = finish_tensorflow(graph, *found, np.array(ids), 64, rows=10)
    else:
        outputs = finish_torchvision(graph, *found, np.array(ids))
    return save(path, graph, image, outputs)


def yolox_as(layout: str, source: Path, path: Path) -> Path:
    """YOLOX as others export it: "torchvision" (no batch axis, RGB 0..1) or "tensorflow" (uint8 NHWC).

    Both have NMS inside; "pair" gives boxes and scores before NMS and takes BGR 0..255, as YOLOX does.
    """
    model = onnx.version_converter.convert_version(onnx.load(source), 17)
    graph = Graph(model.graph.node, model.graph.initializer)
    image = model.graph.input[0].name
    front = Graph(weights=graph.weights)
    if layout == "torchvision":
        given = helper.make_tensor_value_info("image", TensorProto.FLOAT, [3, 416, 416])
        pixels = front.add("Mul", front.add("Unsqueeze", "image", np.array([0])), np.float32(255))
        front.add("Gather", pixels, np.array([2, 1, 0]), axis=1, out=image)
    else:
        given = helper.make_tensor_value_info("input_tensor", TensorProto.UINT8, [1, 416, 416, 3])
        pixels = front.add("Cast", "input_tensor", to=TensorProto.FLOAT)
        pixels = front.add("Gather", pixels, np.array([2, 1, 0]), axis=3)
        front.add("Transpose", pixels, perm=[0, 3, 1, 2], out=image)
    graph.nodes, graph.weights = front.nodes + graph.nodes, front.weights
    boxes, by_class = yolox_boxes(graph, model.graph.output[0].name)
    if layout == "pair":
        graph.add("Identity", boxes, out="boxes")
        graph.add("Transpose", by_class, perm=[0, 2, 1], out="scores")
        ends = {"boxes": [1, 3549, 4], "scores": [1, 3549, 80]}
        outputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in ends.items()]
        return save(
            path, Graph(graph.nodes[len(front.nodes) :], graph.weights), model.graph.input[0], outputs
        )
    found = add_nms(graph, boxes, by_class)
    if layout == "torchvision":
        outputs = finish_torchvision(graph, *found, COCO91_IDS)
    else:
        outputs = finish_tensorflow(graph, *found, COCO91_IDS, 416)
    return save(path, graph, given, outputs)
