"""Small ONNX classifiers for tests of training, with and without normalisation layers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

CARD = """\
task = "classify"
classes = ["dark", "bright"]

[input]
size = [16, 16]
scale = "1/255"
mean = [0.5, 0.5, 0.5]
std = [0.25, 0.25, 0.25]

[head]
name = "classifier"
"""


def model_of(nodes, weights, shape=("n", 3, 8, 8), opset=17, outputs=("y",), name="x") -> onnx.ModelProto:
    """A model of these nodes with one float input; `weights` name -> array."""
    stored = [numpy_helper.from_array(np.asarray(v), k) for k, v in weights.items()]
    x = helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape))
    ends = [onnx.ValueInfoProto(name=o) for o in outputs]
    graph = helper.make_graph(nodes, "g", [x], ends, stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def node(operator, inputs, outputs, **attributes):
    """A node; inputs and outputs are words."""
    given = [w if w != "-" else "" for w in inputs.split()]
    return helper.make_node(operator, given, outputs.split(), name=f"{operator} of {outputs}", **attributes)


def normalised_classifier(folder: Path, name: str = "bn", seed: int = 0, softmax: bool = True) -> Path:
    """Two convolutions, each with BatchNormalization and Relu, a pool, Gemm, Softmax; two classes."""
    rng = np.random.default_rng(seed)

    def floats(*shape: int, scale: float = 0.3) -> np.ndarray:
        return (rng.normal(size=shape) * scale).astype(np.float32)

    weights = {"conv1.weight": floats(6, 3, 3, 3), "conv2.weight": floats(8, 6, 3, 3)}
    for at, size in (("bn1", 6), ("bn2", 8)):
        weights |= {
            f"{at}.scale": np.ones(size, np.float32),
            f"{at}.bias": np.zeros(size, np.float32),
            f"{at}.mean": np.zeros(size, np.float32),
            f"{at}.var": np.ones(size, np.float32),
        }
    weights |= {"fc.weight": floats(2, 8), "fc.bias": np.zeros(2, np.float32)}
    nodes = [
        node("Conv", "x conv1.weight", "a", pads=[1, 1, 1, 1]),
        node("BatchNormalization", "a bn1.scale bn1.bias bn1.mean bn1.var", "b"),
        node("Relu", "b", "c"),
        node("MaxPool", "c", "d", kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", "d conv2.weight", "e", pads=[1, 1, 1, 1]),
        node("BatchNormalization", "e bn2.scale bn2.bias bn2.mean bn2.var", "f"),
        node("Relu", "f", "g"),
        node("GlobalAveragePool", "g", "h"),
        node("Flatten", "h", "i"),
        node("Gemm", "i fc.weight fc.bias", "j" if softmax else "y", transB=1),
        *([node("Softmax", "j", "y", axis=1)] if softmax else []),
    ]
    made = model_of(nodes, weights, ("n", 3, 16, 16))
    del made.graph.output[:]
    made.graph.output.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 2]))
    for at, one in enumerate(made.graph.node):
        one.name = f"{one.op_type}{at}"
    made.metadata_props.add(key="author", value="somebody")
    path = folder / f"{name}.onnx"
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(made, str(path))
    path.with_suffix(".toml").write_text(CARD)
    return path
