"""What `holdfast verify --check` says of each node."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from helpers.lower import model, one
from holdfast.graph.support import report, support


def n(operator: str, inputs: str, outputs: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(operator, inputs.split(), outputs.split(), **attributes)


def test_each_node_says_what_is_done_with_it() -> None:
    weights = {"w": np.ones((4, 4), np.float32), "s": np.array([1, 4])}
    nodes = [
        n("Constant", "", "k", value_float=2.0),
        n("Mul", "w k", "v"),
        n("Reshape", "x s", "a"),
        n("MatMul", "a v", "b"),
        n("Relu", "b", "c"),
        n("Sigmoid", "c", "d"),
        n("Mul", "c d", "e"),
        n("Exp", "x", "never read"),
        n("Softmax", "e", "y"),
    ]
    found = support(model(nodes, {"x": (1, 2, 2)}, weights=weights))
    assert found.supported
    assert [node.how.split(":")[0] for node in found.nodes] == [
        "constant", "constant", "reshaped", "linear", "relu", "sigmoid", "product of two values", "unused",
        "last layer",
    ]  # fmt: skip
    assert found.inputs == 4
    assert found.neurons == {"relu": 4, "sigmoid": 4}
    assert found.summary() == "supported: all 9 nodes; 4 inputs, 4 relu, 4 sigmoid neurons"


def test_every_node_in_the_way_is_named_at_once() -> None:
    nodes = [n("Asin", "x", "a"), n("Relu", "a", "b"), n("LogSoftmax", "b", "c"), n("Neg", "c", "y")]
    found = support(model(nodes, {"x": (1, 3)}))
    assert not found.supported
    assert [(node.name, node.supported) for node in found.nodes] == [
        ("a", False), ("b", True), ("c", False), ("y", True),
    ]  # fmt: skip
    assert found.nodes[0].how == "it is not linear, piecewise linear or one of the known curves"
    assert found.summary().startswith("not supported: 2 of 4 nodes")


def test_after_a_node_of_unknown_shape_the_rest_is_not_judged() -> None:
    nodes = [n("NonZero", "x", "a"), n("Cast", "a", "b", to=TensorProto.FLOAT), n("Relu", "x", "c")]
    found = support(model(nodes, {"x": (1, 3)}, outputs=("b", "c")))
    assert [node.supported for node in found.nodes] == [False, False, True]
    assert "not reached: node 'a'" in found.nodes[1].how


@pytest.mark.parametrize("rounding", ["Floor", "Cast"])
def test_rounded_inputs_are_enumerated(rounding: str) -> None:
    attributes = {"to": TensorProto.INT64} if rounding == "Cast" else {}
    weights = {"h": np.float32(0.5), "i": np.array([1, 2])}
    nodes = [
        n("Mul", "x h", "a"),
        n(rounding, "a", "b", **attributes),
        n("Gather", "b i", "c", axis=1),
        n("Range", "c c c", "d"),
        n("Exp", "d", "y"),
    ]
    found = support(model(nodes, {"x": (1, 3)}, weights=weights))
    assert found.supported
    assert found.enumerated
    assert [node.how.split(":")[0] for node in found.nodes] == ["linear", *["enumerated"] * 4]
    assert "if the property fixes every input that is not rounded" in found.summary()


def test_a_rounding_of_mixed_inputs_cannot_be_enumerated() -> None:
    nodes = [n("MatMul", "x w", "a"), n("Floor", "a", "y")]
    found = support(model(nodes, {"x": (1, 3)}, weights={"w": np.ones((3, 2), np.float32)}))
    assert [node.supported for node in found.nodes] == [True, False]


def test_the_report_is_a_table(tmp_path: Path) -> None:
    onnx.save(one("Relu", (1, 3)), str(tmp_path / "good.onnx"))
    onnx.save(one("Asin", (1, 3)), str(tmp_path / "bad.onnx"))
    text, found = report(tmp_path / "good.onnx")
    assert found.supported
    summary, x, y, *operators = text.splitlines()
    assert summary == "supported: all 1 nodes; 3 inputs, 3 relu neurons"
    assert (x.split()[:2], y.split()[:2]) == (["input", "x"], ["output", "y"])
    assert operators == ["yes  Relu  1 ×  relu"]
    text, found = report(tmp_path / "bad.onnx")
    assert not found.supported
    assert text.splitlines()[3].startswith("NO   Asin  1 ×  y: it is not linear")


def test_nodes_that_are_treated_alike_share_a_line() -> None:
    nodes = [n("Relu", "x", "a"), n("Asin", "a", "b"), n("Asin", "b", "c"), n("Relu", "c", "y")]
    found = support(model(nodes, {"x": (1, 3)}))
    why = "it is not linear, piecewise linear or one of the known curves"
    assert found.lines() == [f"NO   Asin  2 ×  b and 1 more: {why}", "yes  Relu  2 ×  relu"]
    assert [node["name"] for node in found.to_dict()["nodes"]] == ["a", "b", "c", "y"]


@pytest.mark.shared
def test_the_patch_benchmark_is_enumerated(shared_data: Path) -> None:
    found = support(shared_data / "vnncomp" / "cctsdb_yolo" / "onnx" / "patch-1.onnx.gz")
    assert found.supported
    assert found.enumerated
