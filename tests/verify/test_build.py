"""Problems: what is free, what the cases say, which points are real counterexamples, softmax taken off."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from helpers.models import save_graph
from holdfast.core.errors import ModelError
from holdfast.core.model import Network
from holdfast.core.property import Budget, InputBox, LinearConstraints, Property
from holdfast.graph.ir import evaluate
from holdfast.verify.build import cases_of, problem_of, without_softmax
from holdfast.verify.problem import Case, Deadline, domain_of
from holdfast.verify.replay import membership, runner_of, search_randomly
from holdfast.verify.run import verify


def network(folder, batch=1, mix=False):
    """A file: y = relu(x @ w) for 3 inputs, 2 outputs; with `mix` the batch is mixed up, as some files do."""
    weights = {"w": np.array([[1, 0], [0, 1], [1, -1]], np.float32)}
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["r"])]
    if mix:
        nodes.append(helper.make_node("ReduceSum", ["r", "zero"], ["s"], keepdims=1))
        nodes.append(helper.make_node("Add", ["r", "s"], ["y"]))
        weights["zero"] = np.array([0])
    else:
        nodes.append(helper.make_node("Identity", ["r"], ["y"]))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 3])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, 2])
    return Network("net", save_graph(folder / "net.onnx", nodes, [x], [y], weights))


def question(model, *unsafe, lower=(-1, -1, 0.5), upper=(1, 1, 0.5)):
    return Property(model, InputBox(np.array([lower]), np.array([upper])), unsafe)


def test_only_free_inputs_are_in_the_problem(tmp_path):
    rows = LinearConstraints([[1.0, 0.0]], [0.1], [[2.0, 0.0, 3.0]])
    problem = problem_of(question(network(tmp_path), rows))
    assert problem.net.free.tolist() == [0, 1]
    (case,) = problem.cases
    assert case.lower.tolist() == [-1, -1]
    assert case.inputs.tolist() == [[2, 0]]
    assert 0.1 - 1.5 < case.bound[0] < 0.1 - 1.5 + 1e-12  # wider, not narrower


def test_bounds_of_rows_are_widened(tmp_path):
    domain = domain_of(question(network(tmp_path)))
    (case,) = cases_of((LinearConstraints([[1.0, 0.0], [0.0, 1.0]], [0.1, 0.0]),), domain)
    assert (case.bound > [0.1, 0.0]).all()
    assert (case.bound < [0.1 + 1e-15, 1e-300]).all()


@pytest.mark.parametrize(
    ("batch", "mix", "batched"), [(1, False, False), ("n", False, True), ("n", True, False)]
)
def test_violations_are_those_of_the_file(tmp_path, batch, mix, batched):
    model = network(tmp_path, batch, mix)
    asked = question(model, LinearConstraints([[1.0, -1.0]], [0.0]), LinearConstraints([[0.0, 1.0]], [-1.0]))
    domain = domain_of(asked)
    runner = runner_of(asked, domain)
    assert runner.batched == batched
    problem = problem_of(asked, domain, runner)
    points = np.random.default_rng(0).uniform(-1.2, 1.2, (60, 2)).astype(np.float32)
    whole = np.c_[points, np.full(60, 0.5, np.float32)]
    y = np.maximum(whole @ np.array([[1, 0], [0, 1], [1, -1]], np.float32), 0)
    inside = (np.abs(points) <= 1).all(axis=1)
    assert problem.violates(points).tolist() == ((y[:, 0] <= y[:, 1]) & inside).tolist()
    assert not problem.violates(np.zeros((0, 2), np.float32)).size


def test_points_outside_a_cases_own_box_do_not_count(tmp_path):
    own = InputBox(np.array([[0.5, -1, 0.5]]), np.array([[1.0, 1, 0.5]]))
    problem = problem_of(question(network(tmp_path), LinearConstraints([[0.0, 1.0]], [9.0], None, own)))
    found = problem.violates(np.array([[0.4, 0], [0.5, 0], [1, 1], [1, 1.5]], np.float32))
    assert found.tolist() == [False, True, True, False]


@given(st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_meeting_all_cases_at_once_is_meeting_one_by_one(seed):
    rng = np.random.default_rng(seed)
    boxes = [np.sort(rng.uniform(-1, 1, (2, 2)), axis=0) for _ in range(3)]
    cases = []
    for _ in range(rng.integers(1, 8)):
        low, high = boxes[rng.integers(3)]
        m = rng.integers(0, 3)
        over = rng.normal(size=(m, 2)) if rng.random() < 0.5 else None
        cases.append(Case(low, high, rng.normal(size=(m, 2)), rng.normal(size=m), over))
    points, outputs = rng.uniform(-1, 1, (30, 2)).astype(np.float32), rng.normal(size=(30, 2))

    def met(case, x, y):
        left = case.rows @ y + (0 if case.inputs is None else case.inputs @ x.astype(np.float64))
        return bool((case.lower <= x).all() and (x <= case.upper).all() and (left <= case.bound).all())

    pairs = [(i, j) for i in range(30) for j, case in enumerate(cases) if met(case, points[i], outputs[i])]
    assert sorted(map(tuple, membership(cases)(points, outputs).tolist())) == pairs


def softmax(z):
    e = np.exp(z - z.max())
    return e / e.sum()


@given(st.integers(0, 10_000), st.integers(2, 4), st.sampled_from(["Softmax", "LogSoftmax"]))
@settings(max_examples=200, deadline=None)
def test_what_a_softmax_meets_is_met_before_it(seed, size, kind):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=size) * 3
    p = np.log(softmax(z)) if kind == "LogSoftmax" else softmax(z)
    rows, bound = [], []
    for _ in range(rng.integers(1, 4)):
        i, j = rng.permutation(size)[:2]
        row = np.zeros(size)
        row[i] = rng.choice([-1.0, 1.0]) * rng.uniform(0.5, 2)
        pair = rng.random() < 0.5
        if pair:
            row[j] = -row[i]
        rows.append(row)
        near = 0.0 if pair else row[i] * p[i] + rng.normal() * rng.choice([1e-9, 0.3])
        bound.append(near)
    before = without_softmax(LinearConstraints(rows, bound), kind)
    if LinearConstraints(rows, bound).met_by(p):
        assert any(case.met_by(z) for case in before)
    elif size == 2 and LinearConstraints(rows, bound).slack(p) > 1e-6 and kind == "Softmax":
        assert not any(case.met_by(z) for case in before)  # exact for two


def test_other_constraints_on_a_softmax_are_not_understood(tmp_path):
    assert without_softmax(LinearConstraints([[0.5, 1.0, 0.0]], [0.1]), "Softmax") is None
    assert without_softmax(LinearConstraints([[1.0, 0.0, 0.0]], [0.1], [[1.0]]), "Softmax") is None


def test_a_node_that_cannot_be_lowered_is_named(tmp_path):
    nodes = [helper.make_node("Asin", ["x"], ["y"], name="wave")]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 3]) for name in ("x", "y")]
    path = save_graph(tmp_path / "net.onnx", nodes, values[:1], values[1:], {})
    with pytest.raises(ModelError, match="wave"):
        problem_of(question(Network("net", path), LinearConstraints([[1.0, 0.0, 0.0]], [0.0])))


def test_the_blind_search_finds_what_is_easy_and_stays_inside(tmp_path):
    asked = question(
        network(tmp_path), LinearConstraints([[-1.0, 0.0]], [-1.49])
    )  # y0 >= 1.49: near x0 = 1 alone
    domain = domain_of(asked)
    runner, clock = runner_of(asked, domain), Deadline(Budget(20))
    found = search_randomly(asked, domain, runner, clock, 20, np.random.default_rng(0))
    assert found.status == "violated"
    assert 0.99 <= found.witness[0] <= 1
    none = question(network(tmp_path), LinearConstraints([[-1.0, 0.0]], [-1.51]))
    assert search_randomly(none, domain, runner, clock, 0.2, np.random.default_rng(0)).status == "unknown"


def softmax_network(folder, groups, weight, bias):
    """A file: softmax of each of so many groups of x @ weight + bias."""
    weights = {
        "w": np.asarray(weight, np.float32),
        "b": np.asarray(bias, np.float32),
        "shape": np.array([1, groups, -1]),
    }
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["h"]),
        helper.make_node("Reshape", ["h", "shape"], ["r"]),
        helper.make_node("Softmax", ["r"], ["y"], axis=-1),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, len(weights["w"])])
    size = len(weights["b"]) // groups
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, groups, size])
    return Network("net", save_graph(folder / "net.onnx", nodes, [x], [y], weights))


def asked(model, lower, upper, row, bound):
    box = InputBox(np.array([lower]), np.array([upper]))
    return Property(model, box, (LinearConstraints(np.array([row], np.float64), np.array([bound])),))


def test_a_softmax_over_groups_of_outputs_is_not_taken_off(tmp_path):
    pytest.importorskip("torch")
    weight = [[1, 0, 0, 5, 0, 0]]
    model = softmax_network(tmp_path, 2, weight, [0] * 6)
    # p_0 = e^x / (e^x + 2) is 0.576 to 0.787 here, while p_3 of the other group is larger all over
    violated = verify(asked(model, [1.0], [2.0], [-1, 0, 0, 0, 0, 0], -0.5), Budget(10))
    assert violated.status == "violated"
    assert verify(asked(model, [1.0], [2.0], [-1, 0, 0, 0, 0, 0], -0.8), Budget(10)).status == "holds"


def test_a_softmax_of_constants_is_judged_as_what_it_is(tmp_path):
    pytest.importorskip("torch")
    # p = (0.3, 0.35, 0.35) whatever x is: both where x is fixed and where no output depends on it
    bias = np.log([0.3, 0.35, 0.35])
    model = softmax_network(tmp_path, 1, [[0, 0, 0]], bias)
    for upper in (1.0, 2.0):
        assert verify(asked(model, [1.0], [upper], [1, 0, 0], 0.31), Budget(10)).status != "holds"
        assert verify(asked(model, [1.0], [upper], [1, 0, 0], 0.2), Budget(10)).status == "holds"


def test_rows_before_a_softmax_are_asked_of_what_is_before_it_also_where_that_is_constant(tmp_path):
    bias = np.log([0.3, 0.35, 0.35])
    problem = problem_of(
        asked(softmax_network(tmp_path, 1, [[1, 2, 3]], bias), [0.0], [0.0], [1, 0, 0], 0.31)
    )
    z = evaluate(problem.net, np.zeros((1, 0)))[0]
    assert np.allclose(z, bias)
    assert any((case.rows @ z <= case.bound).all() for case in problem.cases)
