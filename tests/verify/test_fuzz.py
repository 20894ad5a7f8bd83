"""The fuzzer of the verifier: it finds no wrong proof, and it finds one where there is one."""

import dataclasses

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import fuzz_verify
from holdfast.verify import falsify, run
from holdfast.verify.problem import EngineResult, VerificationProblem

NUMBERS = [0, 6, 9, 23, 39]


@pytest.fixture(autouse=True)
def restored(monkeypatch):
    """Undo what the fuzzer changes in this process."""
    monkeypatch.setattr(VerificationProblem, "violates", None, raising=False)
    monkeypatch.setattr(falsify, "falsify", falsify.falsify)


@pytest.mark.parametrize("number", NUMBERS)
def test_no_proof_of_what_an_input_violates(number, tmp_path):
    outcome = fuzz_verify.tried(number, 0.3, tmp_path)
    assert outcome.attained != "not run"
    assert outcome.wrong == ""
    assert not list(tmp_path.iterdir())


def test_most_properties_that_hold_are_proven(tmp_path):
    found = [fuzz_verify.tried(number, 30.0, tmp_path).below for number in (1, 2, 3)]
    assert found.count("holds") >= 2


@pytest.mark.parametrize("real_only", [False, True])
def test_a_verifier_without_rounding_and_search_is_caught(monkeypatch, tmp_path, real_only):
    def careless(*_arguments):
        return EngineResult("holds", "careless", real_only=real_only)

    monkeypatch.setattr(run, "_search", careless)
    monkeypatch.setattr(fuzz_verify.Question, "attained_exactly", lambda _question: True)
    outcome = fuzz_verify.tried(0, 0.3, tmp_path)
    assert "careless proves what an input violates" in outcome.wrong
    assert {path.name for path in tmp_path.iterdir()} == {"0.onnx", "0.npz"}


@pytest.mark.parametrize(("above", "attained"), [(1.0, True), (-1.0, False)])
def test_a_threshold_that_only_rounding_attains_is_told_apart(above, attained):
    asked = fuzz_verify.question(np.random.default_rng([0, 25]), "Abs")
    assert dataclasses.replace(asked, lowest=asked.lowest + above).attained_exactly() is attained


def test_a_product_with_zero_leaves_a_proof_for_real_arithmetic_only(tmp_path):
    """What follows is constant: folded alone it may be rounded otherwise than within the network."""
    rng = np.random.default_rng(783)
    shapes = {"w": (3, 4), "c": (1, 4)}
    weights = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    nodes = [
        helper.make_node("Gemm", ["x", "w", "c"], ["g"], alpha=0.0),
        helper.make_node("Sigmoid", ["g"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(model, tmp_path / "net.onnx")
    fuzz_verify.without_counterexamples()
    box = fuzz_verify.InputBox(np.zeros((1, 3)), np.ones((1, 3)))
    row = np.array([1.0, 0.0, 0.0, 0.0])
    verdict = fuzz_verify.ask(tmp_path / "net.onnx", box, row, -1.0, 10.0)
    assert (verdict.status, verdict.real_only) == ("holds", True)
    assert "a product with 0 makes a value constant" in verdict.note
