"""The attack finds what there is, inside the box, and claims nothing that does not replay."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
import torch
from onnx import helper

from helpers.lower import by_runtime, model
from holdfast.core.property import Budget
from holdfast.graph.lower import lower_onnx
from holdfast.verify.falsify import CounterexampleSearch, falsify, targets_of
from holdfast.verify.problem import Case, Deadline, EngineResult, VerificationProblem

RNG = np.random.default_rng(11)


def perceptron(inputs: int = 4, hidden: int = 16, outputs: int = 3, last: str = ""):
    weights = {
        "w": RNG.normal(size=(inputs, hidden)).astype(np.float32),
        "b": RNG.normal(size=hidden).astype(np.float32),
        "v": RNG.normal(size=(hidden, outputs)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "v"], ["z" if last else "y"]),
    ]
    if last:
        nodes.append(helper.make_node(last, ["z"], ["y"]))
    return model(nodes, {"x": (1, inputs)}, weights=weights)


def posed(proto, *cases: Case) -> VerificationProblem:
    """The problem of these cases, judged by ONNX Runtime and strictly by the boxes as they are."""

    def violates(points: np.ndarray) -> np.ndarray:
        assert points.dtype == np.float32
        outputs = by_runtime(proto, points)
        found = np.zeros(len(points), bool)
        for case in cases:
            inside = ((case.lower <= points) & (points <= case.upper)).all(axis=1)
            left = outputs @ case.rows.T
            if case.inputs is not None:
                left = left + points.astype(np.float64) @ case.inputs.T
            found |= inside & (left <= case.bound).all(axis=1)
        return found

    return VerificationProblem(lower_onnx(proto), tuple(cases), violates)


def box(inputs: int = 4, low: float = -1.0, high: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    return np.full(inputs, low), np.full(inputs, high)


def attacked(problem: VerificationProblem, seconds: float = 5.0, seed: int = 0) -> EngineResult:
    answer = falsify(problem, Deadline(Budget(60.0)), seconds, np.random.default_rng(seed))
    if answer.status == "violated":
        assert answer.witness.dtype == np.float32
        assert problem.violates(answer.witness[None]).all()
    return answer


def row(*weights: float) -> np.ndarray:
    return np.array([weights])


@pytest.mark.parametrize("seed", range(3))
def test_the_lowest_value_of_a_small_net_is_found(seed: int) -> None:
    proto = perceptron(2)
    side = np.linspace(-1, 1, 81)
    grid = np.stack(np.meshgrid(side, side), -1).reshape(-1, 2).astype(np.float32)
    lowest = by_runtime(proto, grid)[:, 0].min()
    case = Case(*box(2), row(1, 0, 0), np.array([lowest + 1e-3]))
    assert attacked(posed(proto, case), seed=seed).status == "violated"
    none = Case(*box(2), row(1, 0, 0), np.array([lowest - 0.1]))
    assert attacked(posed(proto, none), seconds=0.3, seed=seed).status == "unknown"


def test_a_witness_stays_inside_bounds_that_are_no_float32() -> None:
    proto = model([helper.make_node("Identity", ["x"], ["y"])], {"x": (1, 3)})
    low, high = np.full(3, 0.1), np.full(3, 0.7)
    assert (np.float32(low) > low).any()
    assert (np.float32(high) < high).any()
    for sign, end in ((1.0, 0.1 + 2e-8), (-1.0, -0.7 + 6e-8)):  # only at the very end of the range
        case = Case(low, high, np.eye(3) * sign, np.full(3, end))
        answer = attacked(posed(proto, case))
        assert answer.status == "violated"
        assert ((low <= answer.witness) & (answer.witness <= high)).all()


def test_all_rows_must_be_met_together() -> None:
    proto = perceptron()
    outputs = by_runtime(proto, RNG.uniform(-1, 1, (1, 4)).astype(np.float32))[0]
    rows = np.vstack([np.eye(3)[:2], -np.eye(3)[:2]])
    thin = Case(*box(), rows, np.concatenate([outputs[:2], -outputs[:2]]) + 2e-3)  # two outputs nearly fixed
    assert attacked(posed(proto, thin)).status == "violated"
    none = Case(*box(), rows, np.concatenate([outputs[:2], -outputs[:2]]) - 1e-3)  # y <= b and y >= b + 2e-3
    assert attacked(posed(proto, none), seconds=0.3).status == "unknown"


def test_every_case_is_attacked_in_its_own_box() -> None:
    proto = perceptron()
    points = RNG.uniform(-1, 1, (2000, 4)).astype(np.float32)
    highest = by_runtime(proto, points)[:, 0].max()
    never = [
        Case(*box(4, i / 100, (i + 1) / 100), row(-1, 0, 0), np.array([-highest - 50])) for i in range(60)
    ]
    lone = Case(*box(4, 3.0, 3.5), row(0, 0, 1), np.array([by_runtime(proto, np.full((1, 4), 3.2))[0, 2]]))
    answer = attacked(posed(proto, *never, lone))
    assert answer.status == "violated"
    assert (answer.witness >= 3.0).all()


def test_constraints_that_tie_inputs_and_outputs() -> None:
    proto = model([helper.make_node("Relu", ["x"], ["y"])], {"x": (1, 2)})
    tied = Case(*box(2), np.eye(2)[:1], np.array([-0.9]), np.array([[1.0, 0.0]]))  # relu(x0) + x0 <= -0.9
    answer = attacked(posed(proto, tied))
    assert answer.status == "violated"
    assert answer.witness[0] <= -0.9


def test_a_plateau_of_dead_relus_is_left() -> None:
    """The output moves only in the last 1/40 of the way to one corner: the plain gradient is 0 elsewhere."""
    inputs = 20
    signs = RNG.choice([-1.0, 1.0], inputs)
    weights = {
        "w": signs.reshape(-1, 1).astype(np.float32),
        "b": np.float32([0.5 - inputs]),
        "v": np.float32([[-1.0]]),
    }
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "v"], ["y"]),
    ]
    proto = model(nodes, {"x": (1, inputs)}, weights=weights)
    assert attacked(posed(proto, Case(*box(inputs), row(1), np.array([-0.4])))).status == "violated"


@pytest.mark.parametrize("last", ["Sign", "Sigmoid"])
def test_steps_and_curves_can_be_climbed(last: str) -> None:
    proto = perceptron(12, last=last)
    points = RNG.uniform(-1, 1, (2000, 12)).astype(np.float32)
    outputs = by_runtime(proto, points)
    lowest = outputs[:, 0] - outputs[:, 1]
    case = Case(*box(12), row(1, -1, 0), np.array([lowest.min()]))
    assert attacked(posed(proto, case)).status == "violated"


def test_what_does_not_replay_is_not_claimed() -> None:
    problem = posed(perceptron(), Case(*box(), row(1, 0, 0), np.array([1e3])))  # met everywhere
    asked = []

    def never(points: np.ndarray) -> np.ndarray:
        asked.append(len(points))
        return np.zeros(len(points), bool)

    answer = attacked(VerificationProblem(problem.net, problem.cases, never), seconds=0.5)
    assert (answer.status, answer.witness) == ("unknown", None)
    assert 0 < len(asked) < 50  # it does not ask again and again about points that lie no deeper


def test_a_point_that_torch_puts_just_outside_is_replayed() -> None:
    proto = model([helper.make_node("Identity", ["x"], ["y"])], {"x": (1, 1)})
    case = Case(*box(1), row(1), np.array([-1.0 - 1e-9]))  # a bound of float64 that float32 rounds to -1
    problem = VerificationProblem(lower_onnx(proto), (case,), lambda points: points[:, 0] <= -1.0)
    assert attacked(problem).status == "violated"


def test_a_search_without_success_ends_with_its_time() -> None:
    problem = posed(perceptron(), Case(*box(), row(1, 0, 0), np.array([-1e3])))
    for clock, seconds in ((Deadline(Budget(60.0)), 0.4), (Deadline(Budget(0.4)), 60.0)):
        answer = falsify(problem, clock, seconds, np.random.default_rng(0))
        assert answer.status == "unknown"
        assert "the nearest one misses by" in answer.note
    assert falsify(problem, Deadline(Budget(0.0)), 1.0, np.random.default_rng(0)).status == "unknown"


def test_a_descent_ends_when_the_time_is_up() -> None:
    problem = posed(perceptron(), Case(*box(), row(1, 0, 0), np.array([-1e3])))
    targets = targets_of(problem.cases)
    hunt = CounterexampleSearch(problem, targets, Deadline(Budget(60.0)), time.monotonic(), 0)
    assert hunt.round(0) is None
    assert hunt.evaluated <= hunt.size


def test_a_box_without_a_float32_is_left_alone() -> None:
    value = 0.1 + 1e-12  # no float32
    problem = posed(perceptron(), Case(np.full(4, value), np.full(4, value), row(1, 0, 0), np.array([1e3])))
    assert attacked(problem).note == "no float32 value is in the box of any case"


def test_one_seed_gives_one_witness_and_the_threads_are_as_before() -> None:
    proto = perceptron()
    lowest = by_runtime(proto, RNG.uniform(-1, 1, (4000, 4)).astype(np.float32))[:, 0].min()
    problem = posed(proto, Case(*box(), row(1, 0, 0), np.array([lowest])))
    before = torch.get_num_threads()
    witnesses = [attacked(problem, seed=s).witness for s in (5, 5)]
    np.testing.assert_array_equal(*witnesses)
    assert torch.get_num_threads() == before


def test_a_case_without_rows_is_met_by_any_point() -> None:
    problem = posed(perceptron(), Case(*box(), np.zeros((0, 3)), np.zeros(0)))
    assert attacked(problem).status == "violated"


def test_values_that_are_not_numbers_are_no_witness() -> None:
    weights = {"w": np.float32([[3e38, 3e38]]).T, "v": np.float32([[3e38, -3e38]]).T}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("MatMul", ["x", "v"], ["b"]),
        helper.make_node("Mul", ["a", "b"], ["c"]),
        helper.make_node("Sub", ["c", "c"], ["y"]),
    ]
    proto = model(nodes, {"x": (1, 2)}, weights=weights)
    with np.errstate(invalid="ignore", over="ignore"):
        answer = attacked(posed(proto, Case(*box(2, 0.5, 1.0), row(1), np.array([-1.0]))), seconds=0.3)
    assert answer.status == "unknown"


@pytest.mark.shared
def test_counterexamples_of_the_competition(shared_data: Path) -> None:
    from holdfast.core.model import Network
    from holdfast.verify.build import problem_of
    from holdfast.verify.vnnlib.read import read_vnnlib
    from holdfast.verify.vnnlib.spec import property_of

    folder = shared_data / "vnncomp" / "mnistfc"
    for net, spec in (("256x2", "prop_0_0.05"), ("256x6", "prop_3_0.05")):  # on a plateau
        network = Network(net, folder / f"mnist-net_{net}.onnx")
        problem = problem_of(property_of(read_vnnlib(folder / f"{spec}.vnnlib"), network))
        assert attacked(problem, seconds=10.0).status == "violated"
