"""Export a trained network to its original ONNX graph, checked against ONNX Runtime."""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from torch import Tensor

from holdfast.core.errors import ModelError
from holdfast.graph.session import condense, runtime
from holdfast.train.onnx.net import Trainable

TOLERANCE: Final = 1e-3  # relative to the largest score
_IMAGES: Final = 2


def check_alike(net: Trainable, proto: Any, seed: int = 0) -> float:
    """The largest difference of scores on random images; raise ModelError if torch and ORT disagree."""
    images = _random(net, seed)
    expected = scores_of(proto, images, net.plan.output, net.plan.fixed)
    training, mode = net.training, net.mode
    net.eval().mode = "file"
    with torch.no_grad():
        scores = net(torch.from_numpy(images))
        # Training drops the last Softmax, the file has it.
        last = {"Softmax": torch.softmax, "LogSoftmax": torch.log_softmax}.get(net.plan.dropped)
        actual = (scores if last is None else last(scores, -1)).numpy()
    net.train(training).mode = mode
    hint = "; export the model with a free batch" if net.plan.fixed else ""
    if actual.shape != expected.shape:
        raise ModelError(
            f"output {net.plan.output!r}: ONNX Runtime gives {expected.shape} for {len(images)} images, "
            f"torch {actual.shape}, so it cannot be trained{hint}"
        )
    if not np.isfinite(expected).all():
        raise ModelError(
            f"output {net.plan.output!r}: the model gives numbers that are not finite (NaN or infinite) "
            "on random images, so it cannot be trained; look at its weights"
        )
    gap = float(np.abs(actual - expected).max(initial=0.0))
    if not gap <= TOLERANCE * max(1.0, float(np.abs(expected).max(initial=0.0))):
        raise ModelError(
            f"output {net.plan.output!r}: torch and ONNX Runtime differ by {gap:.2g} on random images, so it "
            f"cannot be trained{hint}"
        )
    return gap


def scores_of(proto: Any, images: NDArray[Any], output: str, fixed: int) -> NDArray[Any]:
    """The scores (n, k) that ONNX Runtime gives for images (n, …), in batches of the size of the file."""
    ort = runtime()
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        session = ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
        name = session.get_inputs()[0].name
        step = fixed or len(images)
        batches = (images[start : start + step] for start in range(0, len(images), step))
        parts = [session.run([output], {name: batch})[0] for batch in batches]
    except Exception as problem:
        raise ModelError(f"ONNX Runtime cannot run it: {condense(problem)}") from problem
    scores: NDArray[Any] = np.concatenate(parts)
    return scores.reshape(len(scores), -1)


def _random(net: Trainable, seed: int) -> NDArray[Any]:
    rng = np.random.default_rng(seed)
    count = max(_IMAGES, 2 * net.plan.fixed)
    shape = (count, *net.plan.shape)
    if net.plan.proto.graph.input[0].type.tensor_type.elem_type != onnx.TensorProto.FLOAT:
        return rng.integers(0, 256, shape).astype(np.uint8)
    return rng.normal(size=shape).astype(np.float32)


def export_trained(net: Trainable) -> Any:
    """The ONNX model: the original graph with the trained weights and running statistics.

    Raise ModelError if a value is not finite, or if the outputs of ONNX Runtime and torch differ.
    """
    proto = onnx.ModelProto()
    proto.CopyFrom(net.plan.proto)
    trained: dict[str, Tensor] = {**net.weights, **dict(net.named_buffers())}
    for name, tensor in _tensors(proto.graph):
        if name not in trained:
            continue
        value = trained[name].detach()
        if not bool(value.isfinite().all()):
            raise ModelError(f"weight {name!r}: has values that are NaN or infinite; lower the rate")
        data = value.contiguous().numpy().astype("<f4").tobytes()
        if data != onnx.numpy_helper.to_array(tensor).astype("<f4").tobytes():
            tensor.ClearField("float_data")
            tensor.raw_data = data
    check_alike(net, proto)
    return proto


def _tensors(graph: Any) -> Iterator[tuple[str, Any]]:
    """Each tensor that may be a weight with its name: initializers, and values of Constant nodes."""
    for tensor in graph.initializer:
        yield tensor.name, tensor
    for node in graph.node:
        if node.op_type == "Constant":
            yield from ((node.output[0], a.t) for a in node.attribute if a.name == "value")
