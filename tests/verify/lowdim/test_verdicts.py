"""Verdicts of the engine for few inputs against exact minima, samples and ONNX Runtime."""

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from helpers.bounds import KINDS, dense_net, points_of, sample, values_of
from helpers.few_inputs import Question, asked
from helpers.models import save_graph
from helpers.verdicts import answer, check_boxes, check_corner, check_line, check_numbers, corner, moved
from holdfast.graph.ir import Dense, evaluate
from holdfast.graph.session import runtime
from holdfast.verify.lowdim.layers import layers_of
from holdfast.verify.lowdim.search import kernel
from holdfast.verify.problem import Case

ULP = 2.0**-52


@pytest.fixture(scope="module", autouse=True)
def compiled():
    """The kernels, compiled before a clock runs: the first time takes half a minute."""
    kernel()


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("seed", range(20))
def test_units_in_the_last_place_from_the_exact_minimum(seed, jobs):
    check_line(seed, (-64 * ULP, -4 * ULP, -ULP, 0.0, ULP, 4 * ULP), jobs=jobs)


@pytest.mark.parametrize("scale", [1e-3, 30.0, 1e3])
@pytest.mark.parametrize("seed", range(10))
def test_far_enough_from_the_exact_minimum_all_is_decided(seed, scale):
    assert check_line(seed, (-1e-3, 1e-3), scale) == ["holds", "violated"]


@pytest.mark.parametrize("seed", range(24))
def test_the_only_unsafe_point_is_a_corner(seed):
    check_corner(seed)
    given, at = corner(seed, 1 + seed % 4)
    found = answer(moved(given, 1e-6))
    assert found.status == "violated"
    assert np.abs(found.witness - at).max() <= 1e-5


@pytest.mark.parametrize("seed", range(8))
def test_every_box_and_every_case_counts(seed):
    check_boxes(seed)


@pytest.mark.parametrize("seed", range(30))
def test_a_bound_that_a_point_meets_is_never_said_to_hold(seed):
    """One of the question's points, often a corner, meets a case by a unit in the last place or so."""
    assert answer(asked(seed, radius=(1.0, 0.0, 1e-6)[seed % 3]), seconds=1.0).status != "holds"


@pytest.mark.parametrize("seed", [2, 3])
def test_rows_that_cancel_do_not_mislead_the_split(seed):
    """Rows of these programs cancel but for inputs that hardly matter, and not only these are split."""
    rng = np.random.default_rng(seed)
    inputs = int(rng.integers(2, 6))
    net = dense_net(rng, inputs=inputs)
    lower, upper = np.full(inputs, -1.0), np.ones(inputs)
    seen = values_of(net, points_of(rng, lower, upper, 20_000))[-1]
    rows = rng.normal(size=(2, net.outputs))
    worst = (seen @ rows.T).max(1).min()
    case = Case(lower, upper, rows, np.full(2, worst - 0.02 * (1 + abs(worst))))
    assert answer(Question(net, (case,), [])).status == "holds"


def test_margins_are_not_above_what_points_have():
    for seed in range(10):
        rng = np.random.default_rng(seed)
        net = dense_net(rng, inputs=3)
        lower, upper = -np.ones(3), np.ones(3)
        rows = rng.normal(size=(2, net.outputs))
        values = (evaluate(net, points_of(rng, lower, upper, 5_000)) @ rows.T).max(1)
        bound = np.full(2, values.min() - 0.3 * values.std())
        found = answer(Question(net, (Case(lower, upper, rows, bound),), []))
        assert found.status != "holds" or found.margin <= values.min() - bound[0]


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_what_is_no_number_proves_nothing(wrong):
    check_numbers(wrong)


def test_an_empty_box_is_no_case_and_a_case_without_rows_is_met_anywhere():
    net = dense_net(np.random.default_rng(0), inputs=2)
    empty = Case(np.ones(2), -np.ones(2), np.ones((1, net.outputs)), np.array([1e9]))
    free = Case(-np.ones(2), np.ones(2), np.ones((0, net.outputs)), np.zeros(0))
    assert answer(Question(net, (empty,), [])).status == "holds"
    assert answer(Question(net, (empty, free), [])).status == "violated"


@pytest.mark.parametrize("kind", ["relu", "leaky", "conv", "spread", "maxima", "branched"])
@pytest.mark.parametrize("seed", range(3))
def test_layers_say_what_the_net_says(kind, seed):
    """Merged steps, residuals and maxima; and rows that tie inputs and outputs."""
    given = sample(kind, seed)
    layers = layers_of(given.net, inputs=True)
    values = given.points
    for layer in layers.hidden:
        values = values @ layer.weight.T + layer.bias
        values = np.maximum(values, layer.slope * values)
    rng = np.random.default_rng(seed)
    rows, ties = rng.normal(size=(3, given.net.outputs)), rng.normal(size=(3, given.net.inputs))
    last = layers.rows(rows, ties, np.ones(3))
    wanted = evaluate(given.net, given.points) @ rows.T + given.points @ ties.T - 1.0
    np.testing.assert_allclose(values @ last.weight.T + last.bias, wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", sorted(set(KINDS) & {"spread", "maxima", "branched", "leaky"}))
@pytest.mark.parametrize("seed", range(4))
def test_nets_of_other_steps_against_points(kind, seed):
    given, rng = sample(kind, seed), np.random.default_rng(seed)
    lower, upper = given.lower.astype(np.float32), given.upper.astype(np.float32)
    lower, upper = lower.astype(np.float64), upper.astype(np.float64)
    points = points_of(rng, lower, upper, 3_000)
    rows, ties = rng.normal(size=(2, given.net.outputs)), rng.normal(size=(2, given.net.inputs))
    values = (evaluate(given.net, points) @ rows.T + points @ ties.T).max(1)
    for off in (-0.5, 0.05):
        case = Case(lower, upper, rows, np.full(2, values.min() + off * values.std()), ties)
        said = answer(Question(given.net, (case,), []), seconds=3.0).status
        assert said == "violated" if off > 0 else said in ("holds", "violated", "timeout")


def in_runtime(question: Question, path: Path, points: np.ndarray) -> np.ndarray:
    """Every dense layer's values (b, neurons) by ONNX Runtime, in float32."""
    nodes, weights, told, last = [], {}, [], "x"
    for at, step in enumerate(question.net.steps[1:]):
        if isinstance(step, Dense):
            weights |= {f"w{at}": step.weight.T.astype(np.float32), f"b{at}": step.bias.astype(np.float32)}
            nodes.append(helper.make_node("Gemm", [last, f"w{at}", f"b{at}"], [f"z{at}"]))
            told.append(helper.make_tensor_value_info(f"z{at}", TensorProto.FLOAT, ["b", len(step.bias)]))
            last = f"z{at}"
        else:
            nodes.append(helper.make_node("LeakyRelu", [last], [f"y{at}"], alpha=float(step.slope)))
            last = f"y{at}"
    start = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["b", question.net.inputs])
    session = runtime().InferenceSession(str(save_graph(path, nodes, [start], told, weights)))
    return np.concatenate(session.run(None, {"x": points.astype(np.float32)}), 1)


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("seed", range(6))
def test_ranges_have_what_onnx_runtime_says(seed, whole, tmp_path):
    """With small whole weights and eighths as inputs float32 rounds nothing: then without a tolerance."""
    rng = np.random.default_rng(seed)
    net = dense_net(rng, "leaky", (0.0, 0.25)[seed % 2], inputs=3)
    for step in net.steps:
        if isinstance(step, Dense):
            step.weight[:] = (
                rng.integers(-3, 4, step.weight.shape) if whole else step.weight.astype(np.float32)
            )
            step.bias[:] = rng.integers(-3, 4, step.bias.shape) if whole else step.bias.astype(np.float32)
    lower = rng.integers(-16, 8, 3) / 8.0
    upper = lower + rng.integers(0, 12, 3) / 8.0
    case = Case(lower, upper, np.eye(net.outputs), np.zeros(net.outputs))
    question = Question(net, (case,), [])
    walker = question.walker(1e-12)
    walker.boxes = 1
    walker.walk(climbs=0)
    space = walker.space
    points = np.round(points_of(rng, lower, upper, 200) * 8) / 8
    seen = in_runtime(question, tmp_path / "net.onnx", points).astype(np.float64)
    slack = 0.0 if whole else 1e-5
    assert (space.low - slack <= seen.min(0)).all()
    assert (space.high + slack >= seen.max(0)).all()
