"""One node run in ONNX Runtime: constants are folded by it, and element numbers ride through it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.graph.determinism import RANDOM
from holdfast.graph.inspect import condense, runtime
from holdfast.graph.lower.values import Node

# Plain enough that numpy and ONNX agree; saves a session for each of the many nodes that compute shapes.
_PLAIN: Mapping[str, Callable[..., NDArray[Any]]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Equal": np.equal,
    "Where": np.where,
    "Relu": lambda x: np.maximum(x, 0),
}


def folded(node: Node) -> list[NDArray[Any]]:
    """The outputs of a node all of whose inputs are constant."""
    plain = _PLAIN.get(node.operator)
    if plain is not None:
        return [np.asarray(plain(*node.inputs))]
    return run(node, node.inputs)


def run(node: Node, inputs: tuple[Any, ...]) -> list[NDArray[Any]]:
    """The outputs ONNX Runtime gives for this node on these arrays; None is an input left out."""
    from onnx import GraphProto, ValueInfoProto, helper

    nested = [v.SerializeToString() for v in node.attributes.values() if isinstance(v, GraphProto)]
    if any(name.encode() in inside for inside in nested for name in (*RANDOM, "Dropout")):
        raise node.fail("it may draw random numbers inside")
    ort = runtime()
    names = [f"i{i}" if value is not None else "" for i, value in enumerate(inputs)]
    outputs = [f"o{i}" for i in range(node.outputs)]
    made = helper.make_node(node.operator, names, outputs, **_attributes(node))
    given = {n: np.asarray(v) for n, v in zip(names, inputs, strict=True) if v is not None}
    graph = helper.make_graph(
        [made],
        "one",
        [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
            for n, v in given.items()
        ],
        [ValueInfoProto(name=n) for n in outputs],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", node.opset)], ir_version=8)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return [np.asarray(v) for v in session.run(None, given)]
    except Exception as problem:  # noqa: BLE001 - onnxruntime's errors have no common class
        raise node.fail(f"onnxruntime could not run it by itself ({condense(problem)})") from None


def _attributes(node: Node) -> dict[str, Any]:
    from onnx import numpy_helper

    return {
        name: numpy_helper.from_array(value) if isinstance(value, np.ndarray) else value
        for name, value in node.attributes.items()
    }
