"""OpenCV's own network engine, cv2.dnn."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from holdfast.core.errors import ImageError
from holdfast.core.model import Model
from holdfast.core.pipeline import Run
from holdfast.core.registry import stage
from holdfast.core.types import Tensor
from holdfast.graph.inspect import condense
from holdfast.stages.infer import one_of
from holdfast.stages.runtime.probe import batch_in, blank, cannot_load, output_shapes, shaped


@stage("runtime", "opencv-dnn", systems="OpenCV's dnn module")
def opencv_dnn(source: bytes | str, model: Model, threads: int) -> Run:
    """OpenCV's dnn module on the CPU, the engine it chooses itself."""
    import cv2

    if place := _misread(cv2, source):
        raise cannot_load(
            "OpenCV",
            model,
            f"node {place!r} is a 1×1 convolution with padding, for which the engine of OpenCV "
            f"{cv2.__version__} reads beyond the image; choose opencv-dnn-classic",
        )
    return _opened(cv2, source, model, threads)


@stage("runtime", "opencv-dnn-classic", default=False, systems="OpenCV's dnn module, the engine of 4.x")
def opencv_dnn_classic(source: bytes | str, model: Model, threads: int) -> Run:
    """OpenCV's dnn module on the CPU, the engine it had until 4.x."""
    import cv2

    engine = getattr(cv2.dnn, "ENGINE_CLASSIC", None)
    return _opened(cv2, source, model, threads, *([] if engine is None else [engine]))


def _opened(cv2: Any, source: bytes | str, model: Model, threads: int, *engine: int) -> Run:
    shapes = output_shapes(source, model)
    names, batch = list(shapes), batch_in(source)
    try:
        net = _read(cv2, source, *engine)
        # Many faults show only when it first runs.
        _forward(cv2, net, blank(model).repeat(batch, axis=0), names, threads)
    except Exception as problem:
        raise cannot_load("OpenCV", model, problem) from problem

    lock = threading.Lock()  # one network, one image at a time

    def run(tensor: Tensor) -> dict[str, Tensor]:
        try:
            with lock:
                values = _forward(cv2, net, tensor, names, threads)
        except Exception as problem:
            raise ImageError(f"OpenCV cannot run the model on it: {condense(problem, 300)}") from problem
        return dict(zip(names, values, strict=True))

    return shaped("OpenCV", one_of(run, batch, model), shapes)


def _misread(cv2: Any, source: bytes | str) -> str:
    """The first 1×1 convolution with padding if this OpenCV gets those wrong (5.0.0 does), or nothing."""
    import onnx

    graph = (onnx.load_from_string(source) if isinstance(source, bytes) else onnx.load(source)).graph
    for node in graph.node:
        settings = {a.name: list(a.ints) for a in node.attribute}
        if node.op_type == "Conv" and any(settings.get("pads", ())) and set(_kernel(graph, node)) == {1}:
            return "" if _pads_rightly(cv2) else node.name or node.output[0]
    return ""


def _kernel(graph: Any, node: Any) -> list[int]:
    return next((list(w.dims[2:]) for w in graph.initializer if w.name == node.input[1]), [])


def _pads_rightly(cv2: Any) -> bool:
    """Whether a 1×1 convolution by one with a border of one gives the image with zeros around it."""
    from onnx import TensorProto, helper

    x, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 8, size, size])
        for name, size in (("x", 5), ("y", 7))
    )
    weight = helper.make_tensor("w", TensorProto.FLOAT, [8, 8, 1, 1], np.eye(8).ravel().tolist())
    node = helper.make_node("Conv", ["x", "w"], ["y"], kernel_shape=[1, 1], pads=[1, 1, 1, 1])
    graph = helper.make_graph([node], "g", [x], [y], [weight])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    image = np.arange(1, 201, dtype=np.float32).reshape(1, 8, 5, 5)
    found = _forward(cv2, _read(cv2, made.SerializeToString()), image, ["y"], 0)[0]
    return bool(np.array_equal(found, np.pad(image, ((0, 0), (0, 0), (1, 1), (1, 1)))))


def _read(cv2: Any, source: bytes | str, *engine: int) -> Any:
    given = source if isinstance(source, str) else np.frombuffer(source, np.uint8)
    return cv2.dnn.readNetFromONNX(given, *engine)


def _forward(cv2: Any, net: Any, tensor: Tensor, names: list[str], threads: int) -> list[Tensor]:
    """The outputs of that name, copied: the network writes the next image into the same memory."""
    before = cv2.getNumThreads()
    cv2.setNumThreads(threads if threads > 0 else before)
    try:
        net.setInput(np.ascontiguousarray(tensor))
        return [np.array(value) for value in net.forward(names)]
    finally:
        cv2.setNumThreads(before)
