"""A trained network as the file it came from, with new weights and nothing else changed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import onnx
from torch import Tensor

from holdfast.core.errors import ModelError
from holdfast.train.onnx.check import check_alike
from holdfast.train.onnx.net import Trainable


def written(net: Trainable) -> Any:
    """The ONNX model: the original graph with the trained weights and the running statistics put in.

    ModelError if a number is not finite, or if ONNX Runtime does not give what torch gives.
    """
    proto = onnx.ModelProto()
    proto.CopyFrom(net.plan.proto)
    own: dict[str, Tensor] = {**net.weights, **dict(net.named_buffers())}
    for name, tensor in _tensors(proto.graph):
        if name not in own:
            continue
        value = own[name].detach()
        if not bool(value.isfinite().all()):
            raise ModelError(f"weight {name!r}: has values that are NaN or infinite; lower the rate")
        data = value.contiguous().numpy().astype("<f4").tobytes()
        if data != _bytes_of(tensor):
            tensor.ClearField("float_data")
            tensor.raw_data = data
    check_alike(net, proto)
    return proto


def _tensors(graph: Any) -> Iterator[tuple[str, Any]]:
    """Each tensor that may be a weight with its name: initializers, and what Constant nodes hold."""
    for tensor in graph.initializer:
        yield tensor.name, tensor
    for node in graph.node:
        if node.op_type == "Constant":
            yield from ((node.output[0], a.t) for a in node.attribute if a.name == "value")


def _bytes_of(tensor: Any) -> bytes:
    from onnx import numpy_helper

    held: bytes = numpy_helper.to_array(tensor).astype("<f4").tobytes()
    return held
