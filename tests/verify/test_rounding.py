"""Proofs that cover the rounding of a floating-point evaluation, and those that do not."""

import time

import numpy as np
import pytest
from onnx import TensorProto, helper

from helpers.models import save_graph
from holdfast.core.model import Network
from holdfast.core.property import Budget, InputBox, LinearConstraints, Property
from holdfast.graph.ir import evaluate
from holdfast.graph.lower import lower_onnx
from holdfast.verify import run as decide
from holdfast.verify.build import problem_of
from holdfast.verify.problem import Deadline
from holdfast.verify.rounding import rounding_of

FLOAT = TensorProto.FLOAT
LARGE = 2.0**24  # the float32 after it is two above


def saved(folder, nodes, weights, inputs, outputs):
    """A file with one float32 input (1, inputs) and one output (1, outputs)."""
    x = helper.make_tensor_value_info("x", FLOAT, [1, inputs])
    y = helper.make_tensor_value_info("y", FLOAT, [1, outputs])
    return Network("net", save_graph(folder / "net.onnx", nodes, [x], [y], weights))


def cancelling(folder, inputs=1, curve=None):
    """The network (x + 2^24) - 2^24, perhaps behind a curve: float32 rounds x to even numbers."""
    first = "x" if curve is None else "c"
    nodes = [] if curve is None else [helper.make_node(curve, ["x"], ["c"])]
    nodes += [
        helper.make_node("Add", [first, "large"], ["a"]),
        helper.make_node("Sub", ["a", "large"], ["y"]),
    ]
    return saved(folder, nodes, {"large": np.full(inputs, LARGE, np.float32)}, inputs, inputs)


def asked(model, bound, inputs=1, high=3.0):
    """Whether the first output can be `bound` or more, for inputs between 0 and `high`."""
    rows = LinearConstraints(-np.eye(inputs)[:1], np.array([-bound]))
    return Property(model, InputBox(np.zeros((1, inputs)), np.full((1, inputs), high)), (rows,))


def test_a_violation_that_only_rounding_makes_is_found(tmp_path):
    verdict = decide.verify(asked(cancelling(tmp_path), 3.5), Budget(20))
    assert verdict.status == "violated"
    assert verdict.replay.output.tolist() == [4.0]


def test_a_proof_with_a_margin_below_the_rounding_is_one_for_real_arithmetic_only(tmp_path):
    pytest.importorskip("torch")
    verdict = decide.verify(asked(cancelling(tmp_path), 5.0), Budget(10))
    assert (verdict.status, verdict.real_only) == ("holds", True)
    assert "proven for real arithmetic, not for float32: rounding may reach" in verdict.note
    assert f"margin is {verdict.bound:.3g}" in verdict.note


def test_a_proof_with_a_margin_above_the_rounding_is_one_for_float32(tmp_path):
    verdict = decide.verify(asked(cancelling(tmp_path), 100.0), Budget(10))
    assert (verdict.status, verdict.real_only) == ("holds", False)
    assert "proven for every evaluation in float32" in verdict.note


ENGINES = ("sweep:search", "lowdim.search:search", "split.search:search", "bab.decide:decide")


@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_counts_the_rounding_of_an_evaluation(tmp_path, engine):
    pytest.importorskip("torch")
    inputs = 1 if engine == "sweep:search" else 2
    relu = engine in ("sweep:search", "lowdim.search:search")
    model = cancelling(tmp_path, inputs, "Relu" if relu else "LeakyRelu")
    near, far = asked(model, 5.0, inputs), asked(model, 100.0, inputs)

    def status(question, as_evaluated):
        problem = problem_of(question, as_evaluated=as_evaluated)
        return decide._run_engine(engine, problem, Deadline(Budget(5.0), time.monotonic())).status

    assert status(near, as_evaluated=False) == "holds"
    assert status(near, as_evaluated=True) != "holds"
    assert status(far, as_evaluated=True) == "holds"


def test_rounding_in_what_depends_on_fixed_inputs_alone_counts(tmp_path):
    question = asked(cancelling(tmp_path, 2), 5.0, 2)
    box = InputBox(np.array([[3.0, 0.0]]), np.array([[3.0, 1.0]]))
    rounded = problem_of(Property(question.model, box, question.unsafe), as_evaluated=True)
    error = rounding_of(rounded.net, np.zeros(1), np.ones(1)).error
    assert error[0] >= 1.0


def test_values_beyond_the_range_of_float32_are_no_proof_for_it(tmp_path):
    pytest.importorskip("torch")
    nodes = [helper.make_node("Mul", ["x", "up"], ["a"]), helper.make_node("Mul", ["a", "up"], ["b"])]
    nodes += [helper.make_node("Mul", ["b", "down"], ["c"]), helper.make_node("Mul", ["c", "down"], ["y"])]
    weights = {"up": np.array([1e30], np.float32), "down": np.array([1e-30], np.float32)}
    verdict = decide.verify(asked(saved(tmp_path, nodes, weights, 1, 1), 100.0), Budget(5))
    assert (verdict.status, verdict.real_only) == ("holds", True)
    assert "values may exceed the range of float32" in verdict.note


def test_values_below_the_range_of_float32_are_counted(tmp_path):
    nodes = [helper.make_node("Mul", ["x", "down"], ["a"]), helper.make_node("Mul", ["a", "down"], ["b"])]
    nodes += [helper.make_node("Mul", ["b", "up"], ["c"]), helper.make_node("Mul", ["c", "up"], ["y"])]
    weights = {"up": np.array([1e30], np.float32), "down": np.array([1e-30], np.float32)}
    model = saved(tmp_path, nodes, weights, 1, 1)
    rows = LinearConstraints(np.array([[1.0]]), np.array([0.5]))  # y <= 0.5, on [1, 3]: float32 gives 0
    question = Property(model, InputBox(np.ones((1, 1)), np.full((1, 1), 3.0)), (rows,))
    bound = problem_of(question, as_evaluated=True).cases[0].bound
    assert bound > 1e10
    assert decide.verify(question, Budget(5)).status == "violated"


CURVES = ["Relu", "LeakyRelu", "Sigmoid", "Tanh", "Erf", "Softplus", "Exp", "Elu", "Gelu", "Sin"]


@pytest.mark.parametrize("operator", [*CURVES, "HardSwish", "Softmax", "BatchNormalization", "MaxPool"])
def test_what_onnx_runtime_rounds_is_within_the_bound(tmp_path, operator):
    from holdfast.verify.replay import session_of

    rng = np.random.default_rng(5)
    weights = {"w": rng.normal(size=(6, 40)), "b": rng.normal(size=40), "v": rng.normal(size=(40, 5))}
    scale = 0.1 if operator == "Softmax" else 1.0  # intervals know little of large exponents
    weights = {name: (scale * value).astype(np.float32) for name, value in weights.items()}
    extra, more = [], {}
    if operator == "BatchNormalization":
        extra = ["one", "two", "three", "four"]
        more = {name: rng.uniform(0.5, 9, 40).astype(np.float32) for name in extra}
    shaped = operator == "MaxPool"
    middle = helper.make_node(operator, ["m" if shaped else "h", *extra], ["n" if shaped else "r"])
    nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["h"])]
    if shaped:
        middle.attribute.append(helper.make_attribute("kernel_shape", [2]))
        middle.attribute.append(helper.make_attribute("strides", [1]))
        middle.attribute.append(helper.make_attribute("pads", [1, 0]))
        more = {"in": np.array([1, 1, 40]), "out": np.array([1, 40])}
        nodes += [helper.make_node("Reshape", ["h", "in"], ["m"]), middle]
        middle = helper.make_node("Reshape", ["n", "out"], ["r"])
    nodes += [middle, helper.make_node("MatMul", ["r", "v"], ["y"])]
    opset = 20 if operator == "Gelu" else 17
    x = helper.make_tensor_value_info("x", FLOAT, [1, 6])
    y = helper.make_tensor_value_info("y", FLOAT, [1, 5])
    path = save_graph(tmp_path / "net.onnx", nodes, [x], [y], {**weights, **more}, opset=opset)
    net = lower_onnx(path, np.full(6, -1.0), np.ones(6), as_evaluated=True)
    assert net.roundoff == 2.0**-24
    found = rounding_of(net, np.full(6, -1.0), np.ones(6))
    points = rng.uniform(-1, 1, (50, 6)).astype(np.float32)
    session = session_of(path)
    outputs = np.concatenate([session.run(None, {"x": point[None]})[0] for point in points])
    off = np.abs(outputs - evaluate(net, points)).max(axis=0)
    assert (off <= found.error).all()
    assert (off > 0).any()
    assert (found.error < 1.0 + 1e-2 * found.outputs).all()  # a bound worth having


@pytest.mark.parametrize("seed", range(5))
def test_the_steps_of_an_evaluation_give_what_the_merged_ones_give(tmp_path, seed):
    rng = np.random.default_rng(seed)
    names = ("scale", "shift", "mean", "var")
    weights = {name: rng.uniform(0.5, 2, 4).astype(np.float32) for name in names}
    weights |= {"w": rng.normal(size=(4, 3)).astype(np.float32), "c": rng.normal(size=4).astype(np.float32)}
    nodes = [
        helper.make_node("Sub", ["x", "c"], ["a"]),
        helper.make_node("BatchNormalization", ["a", *names], ["n"]),
        helper.make_node("Add", ["n", "c"], ["s"]),
        helper.make_node("MatMul", ["s", "w"], ["y"]),
    ]
    model = saved(tmp_path, nodes, weights, 4, 3)
    low, high = np.array([-1.0, 0.25, -1.0, 0.25]), np.array([1.0, 0.25, 1.0, 0.25])
    merged, whole = (lower_onnx(model.path, low, high, as_evaluated=one) for one in (False, True))
    points = rng.uniform(-1, 1, (7, 2))
    assert np.allclose(evaluate(merged, points), evaluate(whole, points), atol=1e-12)
    assert len(whole.steps) > len(merged.steps)


def test_a_value_that_is_read_twice_keeps_both_its_products(tmp_path):
    nodes = [
        helper.make_node("Gather", ["x", "twice"], ["g"], axis=1),
        helper.make_node("MatMul", ["g", "w"], ["y"]),
    ]
    weights = {"twice": np.array([0, 0]), "w": np.array([[LARGE], [1 - LARGE]], np.float32)}
    model = saved(tmp_path, nodes, weights, 1, 1)
    net = lower_onnx(model.path, np.zeros(1), np.full(1, 3.0), as_evaluated=True)
    assert rounding_of(net, np.zeros(1), np.full(1, 3.0)).error >= 1.0


def test_a_softmax_of_values_far_apart_does_not_overflow(tmp_path):
    nodes = [
        helper.make_node("Mul", ["x", "large"], ["s"]),
        helper.make_node("Softmax", ["s"], ["p"], axis=1),
        helper.make_node("MatMul", ["p", "w"], ["y"]),
    ]
    weights = {"large": np.array([500.0], np.float32), "w": np.ones((3, 1), np.float32)}
    model = saved(tmp_path, nodes, weights, 3, 1)
    net = lower_onnx(model.path, np.full(3, -1.0), np.ones(3), as_evaluated=True)
    found = rounding_of(net, np.full(3, -1.0), np.ones(3))
    assert found.largest < 3000.0
    assert found.error < 0.1
    assert found.underflow < 1e-30
