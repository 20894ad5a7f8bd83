"""OpenCV's own network engine, cv2.dnn."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.core.model import Model
from holdfast.core.pipeline import Run
from holdfast.core.registry import stage
from holdfast.core.types import Tensor
from holdfast.stages.infer import batched
from holdfast.stages.runtime.probe import blank, cannot_load, guarded, probe

SECONDS = 300  # a first run takes a few at most
# Run a network once in a process of its own: what ends that process would end holdfast too.
TRIAL = """
import sys, cv2, numpy
net = cv2.dnn.readNetFromONNX(sys.argv[1], *map(int, sys.argv[4:]))
net.setInput(numpy.load(sys.argv[2]))
net.forward(sys.argv[3].split(chr(10)))
"""


@stage("runtime", "opencv-dnn", systems="OpenCV's dnn module")
def opencv_dnn(source: bytes | str, model: Model, threads: int) -> Run:
    """OpenCV's dnn module on the CPU, the engine it chooses itself."""
    import cv2

    if place := _misread(cv2, source):
        engine = f"the engine of OpenCV {cv2.__version__} reads beyond the image; choose opencv-dnn-classic"
        said = f"node {place!r} is a 1×1 convolution with padding, for which {engine}"
        raise cannot_load("OpenCV", model, said)
    return _opened(cv2, source, model, threads)


@stage("runtime", "opencv-dnn-classic", default=False, systems="OpenCV's dnn module, the engine of 4.x")
def opencv_dnn_classic(source: bytes | str, model: Model, threads: int) -> Run:
    """OpenCV's dnn module on the CPU, the engine it had until 4.x."""
    import cv2

    engine = getattr(cv2.dnn, "ENGINE_CLASSIC", None)
    return _opened(cv2, source, model, threads, *([] if engine is None else [engine]))


def _opened(cv2: Any, source: bytes | str, model: Model, threads: int, *engine: int) -> Run:
    about = probe(source, model)
    names, first = list(about.shapes), batched(blank(model), about.batch)
    if about.selects and (end := _ended(source, first, names, *engine)):
        said = f"ends the process ({end}) on a blank image, which has no detection"
        raise cannot_load("OpenCV", model, f"OpenCV {cv2.__version__} {said}")
    try:
        net = _read(cv2, source, *engine)
        _forward(cv2, net, first, names, threads)  # many faults show only when it first runs
    except Exception as problem:
        raise cannot_load("OpenCV", model, problem) from problem

    def run(tensor: Tensor) -> dict[str, Tensor]:
        return dict(zip(names, _forward(cv2, net, tensor, names, threads), strict=True))

    return guarded("OpenCV", run, about, model)


def _ended(source: bytes | str, tensor: Tensor, names: list[str], *engine: int) -> str:
    """How OpenCV ends a process in which it runs this tensor; empty if it gives outputs or an exception."""
    with tempfile.TemporaryDirectory(prefix="holdfast-") as folder:
        model, image = Path(folder) / "net.onnx", Path(folder) / "image.npy"
        if isinstance(source, bytes):
            model.write_bytes(source)
        np.save(image, tensor)
        given = [str(model) if isinstance(source, bytes) else source, str(image), "\n".join(names)]
        command = [sys.executable, "-c", TRIAL, *given, *map(str, engine)]
        known = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        try:
            done = subprocess.run(command, env=known, capture_output=True, timeout=SECONDS, check=False)
        except subprocess.TimeoutExpired:
            return f"it has no answer after {SECONDS} seconds"
    if done.returncode in (0, 1):  # 1: an exception, which the run in this process tells in full
        return ""
    return signal.Signals(-done.returncode).name if done.returncode < 0 else f"code {done.returncode}"


def _misread(cv2: Any, source: bytes | str) -> str:
    """The first 1×1 convolution with padding if this OpenCV gets those wrong (5.0.0 does), or nothing."""
    import onnx

    graph = (onnx.load_from_string(source) if isinstance(source, bytes) else onnx.load(source)).graph
    kernels = {w.name: set(w.dims[2:]) for w in graph.initializer}
    for node in graph.node:
        settings = {a.name: list(a.ints) for a in node.attribute}
        if node.op_type == "Conv" and any(settings.get("pads", ())) and kernels.get(node.input[1]) == {1}:
            return "" if _pads_rightly(cv2) else node.name or node.output[0]
    return ""


def _pads_rightly(cv2: Any) -> bool:
    """Whether a 1×1 convolution by one with a border of one gives the image with zeros around it."""
    from onnx import TensorProto, helper

    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8, 5, 5])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 8, 7, 7])
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
