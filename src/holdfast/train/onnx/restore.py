"""Batch normalisation that an export removed, restored as nodes of their own, for test-time adaptation.

An exporter folds batch normalisation into the convolution before it, which then has a bias. The normalisation
is restored behind each such convolution with the mean μ and the variance σ² of its output on given images:

    y = (x − μ)/√(σ² + ε) · γ + β,  γ = √(σ² + ε),  β = μ

With these numbers y = x, so that the scores do not change; γ and β are what TENT adapts.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from holdfast.core.types import Floats
from holdfast.graph.session import runtime

EPSILON = 1e-5
NORMALISATIONS = ("BatchNormalization", "InstanceNormalization", "GroupNormalization", "LayerNormalization")


def restore_batch_norm(proto: Any, batches: Iterable[NDArray[Any]]) -> tuple[Any, tuple[str, ...]]:
    """A copy with batch normalisation behind folded convolutions, and the names of these convolutions.

    `batches` are inputs of the network, from which means and variances are taken.
    """
    folded, _ = folded_convolutions(proto)
    names = [node.output[0] for node in folded]
    statistics = output_statistics(proto, names, batches)
    restored = onnx.ModelProto()
    restored.CopyFrom(proto)
    graph = restored.graph
    nodes = []
    for node in list(graph.node):
        nodes.append(node)
        name = node.output[0] if node.output else ""
        if name not in statistics:
            continue
        mean, variance = statistics[name]
        node.output[0] = f"{name}:folded"
        nodes.append(_batch_norm(graph, name, mean, variance))
    del graph.node[:]
    graph.node.extend(nodes)
    return restored, tuple(node.name or node.output[0] for node in folded)


def _batch_norm(graph: Any, name: str, mean: Floats, variance: Floats) -> Any:
    scale = np.sqrt(variance + EPSILON)
    inputs = [f"{name}:folded"]
    for part, values in (("scale", scale), ("bias", mean), ("mean", mean), ("var", variance)):
        inputs.append(f"{name}:{part}")
        graph.initializer.append(numpy_helper.from_array(values.astype(np.float32), inputs[-1]))
    return helper.make_node("BatchNormalization", inputs, [name], name=f"{name}:restored", epsilon=EPSILON)


def folded_convolutions(proto: Any) -> tuple[list[Any], list[str]]:
    """Convolutions that may have had a batch normalisation folded into them; why the others have not.

    Those have a bias, are followed by no normalisation, and do not compute the scores.
    """
    readers: dict[str, list[Any]] = {}
    for node in proto.graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    outputs = {port.name for port in proto.graph.output}
    folded, others = [], []
    for node in proto.graph.node:
        if node.op_type != "Conv":
            continue
        following = readers.get(node.output[0], [])
        label = node.name or node.output[0]
        if len(node.input) < 3 or not node.input[2]:
            others.append(f"Conv {label!r} has no bias, so nothing was folded into it")
        elif any(reader.op_type in NORMALISATIONS for reader in following):
            others.append(f"Conv {label!r} has its normalisation")
        elif node.output[0] in outputs or _ends(following, readers, outputs):
            others.append(f"Conv {label!r} computes the scores")
        else:
            folded.append(node)
    return folded, others


def _ends(nodes: Sequence[Any], readers: dict[str, list[Any]], outputs: set[str]) -> bool:
    """Whether only operators without weights lie between these nodes and an output of the graph."""
    ahead, seen = list(nodes), set()
    while ahead:
        node = ahead.pop()
        if node.op_type in ("Conv", "Gemm", "MatMul", "ConvTranspose"):
            return False
        for name in node.output:
            if name not in seen:
                seen.add(name)
                ahead += readers.get(name, [])
    return bool(seen & outputs)


def output_statistics(
    proto: Any, names: Sequence[str], batches: Iterable[NDArray[Any]]
) -> dict[str, tuple[Floats, Floats]]:
    """Mean and variance of each channel (c,) of the named values (n, c, …) over all batches."""
    probe = onnx.ModelProto()
    probe.CopyFrom(proto)
    known = {port.name for port in probe.graph.output}
    probe.graph.output.extend(
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)
        for name in names
        if name not in known
    )
    session = runtime().InferenceSession(probe.SerializeToString(), providers=["CPUExecutionProvider"])
    weights = {w.name for w in proto.graph.initializer}
    source = next(port.name for port in session.get_inputs() if port.name not in weights)
    counts = dict.fromkeys(names, 0)
    totals: dict[str, Any] = dict.fromkeys(names, 0.0)
    squares: dict[str, Any] = dict.fromkeys(names, 0.0)
    for batch in batches:
        for name, value in zip(names, session.run(list(names), {source: batch}), strict=True):
            flat = np.moveaxis(value, 1, 0).reshape(value.shape[1], -1).astype(np.float64)
            counts[name] += flat.shape[1]
            totals[name] = totals[name] + flat.sum(axis=1)
            squares[name] = squares[name] + (flat**2).sum(axis=1)
    result = {}
    for name, count in counts.items():
        mean = totals[name] / max(count, 1)
        result[name] = (mean, np.maximum(squares[name] / max(count, 1) - mean**2, 1e-12))
    return result


def own_normalisation_weights(graph: Any) -> tuple[str, ...]:
    """Give every normalisation its own scale and bias where an exporter shared them through Identity nodes.

    The graph is changed in place; return the names of the Identity nodes that became initializers.
    """
    initializers = {w.name: w for w in graph.initializer}
    read = {name for node in graph.node if node.op_type in NORMALISATIONS for name in node.input[1:]}
    replaced = []
    for node in [n for n in graph.node if n.op_type == "Identity" and n.output[0] in read]:
        source = initializers.get(node.input[0])
        if source is None:
            continue
        copy = graph.initializer.add()
        copy.CopyFrom(source)
        copy.name = node.output[0]
        initializers[copy.name] = copy
        graph.node.remove(node)
        replaced.append(node.name or node.output[0])
    return tuple(replaced)
