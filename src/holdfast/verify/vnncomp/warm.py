"""Small networks made on the spot and verified, so that kernels are compiled before time is measured."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.core.seeds import generator
from holdfast.verify.vnncomp.attempt import Attempt, begin, verify_command, wait
from holdfast.verify.vnncomp.instances import Instance

SECONDS = 180.0  # for each: an engine does not begin to compile with less than a minute left
Layer = tuple[NDArray[np.float32], NDArray[np.float32]]  # weight (n, m), bias (m,)

# Name, sizes of the layers, and the part of the largest output of random points that is asked for. Somewhat
# above 1 the property may hold, but not by much, so that the engines must split; below 1 it is violated.
_MADE = (
    ("one input", (1, 16, 16, 1), 1.1),
    ("five inputs", (5, 20, 20, 5), 1.2),
    ("five inputs, violated", (5, 20, 20, 5), 0.7),
    ("64 inputs", (64, 32, 32, 10), 12.0),
)


def warm_up(command: Sequence[str] | None = None) -> Iterator[tuple[str, Attempt]]:
    """The name of each small problem and what came of it, as they are done."""
    with tempfile.TemporaryDirectory(prefix="holdfast-warm-") as name:
        for number, (what, sizes, share) in enumerate(_MADE):
            layers = _layers(sizes, number)
            network, spec = Path(name) / f"{number}.onnx", Path(name) / f"{number}.vnnlib"
            network.write_bytes(_onnx(layers))
            spec.write_text(_vnnlib(sizes, share * _largest(layers, number)))
            problem = Instance("warm", network.name, spec.name, SECONDS, network, spec, Path(name))
            ((_, attempt),) = wait([begin(command or verify_command(), problem)])
            yield what, attempt


def _layers(sizes: Sequence[int], number: int) -> list[Layer]:
    """Layers of random weights, the last bias such that the outputs are 0 in the middle of the box."""
    rng = generator(0, "vnncomp", "warm", number)
    layers = [
        (rng.normal(0, (2 / n) ** 0.5, (n, m)).astype(np.float32), rng.normal(0, 0.1, m).astype(np.float32))
        for n, m in pairwise(sizes)
    ]
    weight, bias = layers[-1]
    return [*layers[:-1], (weight, bias - _outputs(layers, np.zeros((1, sizes[0]), np.float32))[0])]


def _outputs(layers: Sequence[Layer], values: NDArray[np.float32]) -> NDArray[np.float32]:
    for weight, bias in layers[:-1]:
        values = np.maximum(values @ weight + bias, 0)
    return values @ layers[-1][0] + layers[-1][1]


def _largest(layers: Sequence[Layer], number: int) -> float:
    """The largest first output of many points of the box."""
    rng = generator(1, "vnncomp", "warm", number)
    points = rng.uniform(-1, 1, (20_000, len(layers[0][0]))).astype(np.float32)
    return float(_outputs(layers, points)[:, 0].max())


def _onnx(layers: Sequence[Layer]) -> bytes:
    """The layers with ReLU between them as an ONNX file."""
    from onnx import TensorProto, helper, numpy_helper

    nodes: list[Any] = []
    weights: list[Any] = []
    last = "x"
    for i, (weight, bias) in enumerate(layers):
        if i:
            nodes.append(helper.make_node("Relu", [last], [f"r{i}"]))
            last = f"r{i}"
        weights += [numpy_helper.from_array(weight, f"w{i}"), numpy_helper.from_array(bias, f"b{i}")]
        nodes.append(helper.make_node("Gemm", [last, f"w{i}", f"b{i}"], [f"z{i}"]))
        last = f"z{i}"
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, size])
        for name, size in (("x", len(layers[0][0])), (last, len(layers[-1][1])))
    ]
    graph = helper.make_graph(nodes, "warm", ends[:1], ends[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    return bytes(model.SerializeToString())


def _vnnlib(sizes: Sequence[int], bound: float) -> str:
    """Unsafe: inputs from -1 to 1 whose first output is at least the bound."""
    lines = [f"(declare-const X_{i} Real)" for i in range(sizes[0])]
    lines += [f"(declare-const Y_{i} Real)" for i in range(sizes[-1])]
    for i in range(sizes[0]):
        lines += [f"(assert (>= X_{i} -1.0))", f"(assert (<= X_{i} 1.0))"]
    return "\n".join([*lines, f"(assert (>= Y_0 {bound:.9f}))"]) + "\n"
