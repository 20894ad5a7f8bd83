"""OpenCV's own network engine, cv2.dnn."""

from __future__ import annotations

from typing import Any

import numpy as np

from holdfast.core.errors import ImageError
from holdfast.core.model import Model
from holdfast.core.pipeline import Run
from holdfast.core.registry import stage
from holdfast.core.types import Tensor
from holdfast.graph.inspect import condense
from holdfast.stages.runtime.probe import blank, cannot_load, in_shape, output_shapes


@stage("runtime", "opencv-dnn", systems="OpenCV's dnn module")
def opencv_dnn(source: bytes | str, model: Model, threads: int) -> Run:
    """OpenCV's dnn module on the CPU."""
    import cv2

    shapes = output_shapes(source, model)
    names = list(shapes)
    try:
        net = _read(cv2, source)
        _forward(cv2, net, blank(model), names, threads)  # many faults show only when it first runs
    except Exception as problem:
        raise cannot_load("OpenCV", model, problem) from problem

    def run(tensor: Tensor) -> dict[str, Tensor]:
        try:
            values = _forward(cv2, net, tensor, names, threads)
        except Exception as problem:
            raise ImageError(f"OpenCV cannot run the model on it: {condense(problem, 300)}") from problem
        found = dict(zip(names, values, strict=True))
        return {name: in_shape("OpenCV", name, value, shapes[name]) for name, value in found.items()}

    return run


def _read(cv2: Any, source: bytes | str) -> Any:
    if isinstance(source, str):
        return cv2.dnn.readNetFromONNX(source)
    return cv2.dnn.readNetFromONNX(np.frombuffer(source, np.uint8))


def _forward(cv2: Any, net: Any, tensor: Tensor, names: list[str], threads: int) -> list[Tensor]:
    """The outputs of that name, copied: the network writes the next image into the same memory."""
    before = cv2.getNumThreads()
    cv2.setNumThreads(threads if threads > 0 else before)
    try:
        net.setInput(np.ascontiguousarray(tensor))
        return [np.array(value) for value in net.forward(names)]
    finally:
        cv2.setNumThreads(before)
