"""Comparison of lowered networks with ONNX Runtime, for the tests of graph/lower."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from holdfast.graph.ir import Net, evaluate, sources_of
from holdfast.graph.lower import lower_onnx


def model(
    nodes: Sequence[onnx.NodeProto],
    shapes: dict[str, Sequence[int | str]],
    outputs: Sequence[str] = ("y",),
    weights: dict[str, Any] | None = None,
    opset: int = 17,
) -> onnx.ModelProto:
    """A parsed ONNX file of these nodes with float32 inputs of these shapes."""
    graph = helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, list(s)) for n, s in shapes.items()],
        [onnx.ValueInfoProto(name=n) for n in outputs],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in (weights or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def one(operator: str, shape: Sequence[int], /, *constants: Any, opset: int = 17, **attributes: Any) -> Any:
    """A model of one node: input x of this shape, the constants as its other inputs (None: left out)."""
    names = [f"c{i}" if c is not None else "" for i, c in enumerate(constants)]
    node = helper.make_node(operator, ["x", *names], ["y"], **attributes)
    weights = {n: c for n, c in zip(names, constants, strict=True) if n}
    return model([node], {"x": shape}, weights=weights, opset=opset)


def by_runtime(proto: Any, points: np.ndarray, optimised: bool = True) -> np.ndarray:
    """The flat outputs (b, k) of ONNX Runtime for whole flat inputs (b, n), one by one."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    if not optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, ["CPUExecutionProvider"])
    rows = []
    for point in points.astype(np.float32):
        given, at = {}, 0
        for value in session.get_inputs():
            shape = [d if isinstance(d, int) else 1 for d in value.shape]
            size = int(np.prod(shape))
            given[value.name] = point[at : at + size].reshape(shape)
            at += size
        rows.append(np.concatenate([np.ravel(o) for o in session.run(None, given)]))
    return np.stack(rows).astype(np.float64)


def agree(
    proto: Any, seed: int = 0, low: float = -2.0, high: float = 2.0, points: int = 3, **how: Any
) -> Net:
    """The net with every input free, checked against the runtime, as is one with half of them fixed.

    Checked are numpy and torch, and that every step is read by a later one.
    """
    net = lower_onnx(proto, **how)
    size = net.inputs
    rng = np.random.default_rng(seed)
    whole = rng.uniform(low, high, (points, size)).astype(np.float32)
    compare(net, whole, by_runtime(proto, whole))
    fixed = rng.random(size) < 0.5
    whole[:, fixed] = whole[0, fixed]
    lower, upper = np.where(fixed, whole[0], low), np.where(fixed, whole[0], high)
    part = lower_onnx(proto, lower, upper, **how)
    np.testing.assert_array_equal(part.free, np.flatnonzero(~fixed))
    compare(part, whole, by_runtime(proto, whole))
    return net


def compare(net: Net, whole: np.ndarray, expected: np.ndarray, tolerance: float = 2e-5) -> None:
    """Fails unless numpy and torch give the expected outputs for whole inputs (b, n)."""
    import torch

    from holdfast.graph.torch import TorchNet

    for at, step in enumerate(net.steps[:-1]):
        assert at == 0 or any(at in sources_of(s) for s in net.steps), f"step {at} is dead: {step}"
    points = whole[:, net.free]
    full = np.repeat(net.template.reshape(1, -1), len(points), axis=0).astype(points.dtype)
    full[:, net.free] = points
    np.testing.assert_array_equal(full, whole)
    found = evaluate(net, points)
    scale = max(1.0, float(np.abs(expected).max(initial=0.0)))
    assert found.shape == expected.shape == (len(whole), net.outputs)
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * scale)
    by_torch = TorchNet(net, torch.float64)(torch.tensor(points, dtype=torch.float64))
    np.testing.assert_allclose(by_torch.numpy(), found, rtol=0, atol=1e-9 * scale)
