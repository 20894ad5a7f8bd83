"""Verdicts against exact answers: by breakpoints for nets of one input, by mixed-integer programs for two."""

import time
from dataclasses import dataclass, field, replace
from itertools import count

import numpy as np
import pytest
import torch

from helpers.bounds import conv_net, dense_net, points_of, problem, sample, values_of
from helpers.soundness import (
    ALPHA,
    CROWN,
    SMALL,
    check_conjunction,
    check_moves,
    check_offsets,
    check_threshold,
    check_verdict,
    check_weights,
)
from holdfast.core.property import Budget
from holdfast.graph.ir import Activation
from holdfast.verify.bab import decide as turns
from holdfast.verify.bab import tree
from holdfast.verify.bab.decide import decide
from holdfast.verify.bab.search import queries_for
from holdfast.verify.linear import root
from holdfast.verify.linear.pieces import LinearSteps
from holdfast.verify.linear.tune import Queries
from holdfast.verify.problem import LATE, Case, Deadline, OutOfTime, same_box
from holdfast.verify.split.search import search


@pytest.fixture(autouse=True)
def one_thread():
    """The other core is for others."""
    torch.set_num_threads(1)


@pytest.mark.parametrize("seed", range(5))
def test_a_hair_from_the_exact_minimum(seed):
    said = check_threshold(seed)
    assert said[3:] == ["violated", "holds"]  # at a thousandth to either side it is decided


@pytest.mark.parametrize("seed", range(3))
def test_bounds_that_float32_cannot_hold(seed):
    check_offsets(seed)


@pytest.mark.parametrize("seed", range(4))
def test_conjunctions_boxes_and_rows_over_inputs(seed):
    check_conjunction(seed)


def least(net, case):
    """The least t with rows·y + inputs·x - bound <= t, by a mixed-integer program over relus with big Ms."""
    import highspy

    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("mip_rel_gap", 0.0)
    inf = highspy.kHighsInf

    def variable(low, high):
        solver.addVar(low, high)
        return solver.getNumCol() - 1

    def constrain(low, high, terms):
        index, value = zip(*terms, strict=True)
        solver.addRow(low, high, len(index), np.array(index, np.int32), np.array(value, float))

    sweep = root.bounds(LinearSteps(net, torch.float64), case.lower, case.upper, root.Effort(iterations=0))
    inputs = values = [variable(low, high) for low, high in zip(case.lower, case.upper, strict=True)]
    for at, step in enumerate(net.steps[1:], 1):
        made = []
        low, high = sweep.lower[at][0].tolist(), sweep.upper[at][0].tolist()
        for i in range(len(low)):
            if not isinstance(step, Activation):
                made.append(variable(low[i] - 1, high[i] + 1))
                terms = [(v, -w) for v, w in zip(values, step.weight[i], strict=True)]
                constrain(step.bias[i], step.bias[i], [(made[-1], 1.0), *terms])
                continue
            bottom, top = (float(b[step.source][0, i]) for b in (sweep.lower, sweep.upper))
            made.append(variable(0.0, max(top, 0.0) + 1))
            on = variable(0.0, 1.0)
            solver.changeColIntegrality(on, highspy.HighsVarType.kInteger)
            z, y = values[i], made[-1]
            constrain(0.0, inf, [(y, 1.0), (z, -1.0)])
            constrain(-inf, -min(bottom, 0.0), [(y, 1.0), (z, -1.0), (on, -min(bottom, 0.0))])
            constrain(-inf, 0.0, [(y, 1.0), (on, -max(top, 0.0))])
        values = made
    worst = variable(-1e4, 1e4)
    solver.changeColCost(worst, 1.0)
    for r in range(len(case.bound)):
        terms = [(v, w) for v, w in zip(values, case.rows[r], strict=True)]
        if case.inputs is not None:
            terms += [(v, w) for v, w in zip(inputs, case.inputs[r], strict=True)]
        constrain(-inf, case.bound[r], [*terms, (worst, -1.0)])
    solver.run()
    assert solver.getModelStatus() == highspy.HighsModelStatus.kOptimal
    return solver.getInfo().objective_function_value


@pytest.mark.parametrize("seed", range(6))
def test_verdicts_agree_with_a_mixed_integer_program(seed):
    rng = np.random.default_rng(seed)
    net = dense_net(rng, inputs=2)
    lower = rng.normal(0, 0.5, 2)
    rows = rng.normal(0, 1, (1 + seed % 2, 2))
    inputs = rng.normal(0, 1, (len(rows), 2)) if seed % 3 == 1 else None
    zero = Case(lower, lower + 1.5, rows, np.zeros(len(rows)), inputs)
    exact = least(net, zero)
    for hair in (1e-4, -1e-4):
        case = Case(lower, lower + 1.5, rows, np.full(len(rows), exact + hair), inputs)
        answer = check_verdict(problem(net, case), hair > 0)
        assert answer.status != ("holds" if hair > 0 else "violated")
    # One case that is out of reach beside one that is not, over another box.
    far = Case(lower - 1, lower, rows, np.full(len(rows), -1e3), inputs)
    near = Case(lower, lower + 1.5, rows, np.full(len(rows), exact + 1e-4), inputs)
    assert check_verdict(problem(net, far, near), True).status != "holds"
    assert check_verdict(problem(net, far), False).status == "holds"


@pytest.mark.parametrize("seed", [42, 43])
def test_turns_that_change_after_every_round(seed, monkeypatch):
    """Every round is followed by tighter bounds, to which the open domains are moved."""
    carried = []

    def carry(search, before, state, pool):
        carried.append((len(pool), sum(before.root.sizes), sum(state.root.sizes)))
        return once(search, before, state, pool)

    def briefly(search, seconds):
        asked = count()
        return lambda: next(asked) > 2 or search.late()

    once = turns._carry
    monkeypatch.setattr(turns, "_carry", carry)
    monkeypatch.setattr(turns, "_until", briefly)
    rng = np.random.default_rng(seed)
    net = dense_net(rng, inputs=2)
    lower, upper = np.full(2, -1.2), np.full(2, 1.0)
    cases = [Case(lower, upper, rng.normal(0, 1, (n, 2)), np.zeros(n)) for n in (3, 2)]
    for hair in (-2e-2, 1e-3):
        asked = [replace(case, bound=np.full(len(case.bound), least(net, case) + hair)) for case in cases]
        asked[0] = replace(asked[0], bound=asked[0].bound - 0.05)
        answer = check_verdict(problem(net, *asked), hair > 0)
        assert answer.status == ("violated" if hair > 0 else "holds")
    assert carried


def test_a_problem_without_time_is_not_decided_by_guessing():
    rng = np.random.default_rng(0)
    net = conv_net(rng)
    lower, upper = np.full(net.inputs, -3.0), np.full(net.inputs, 3.0)
    points = points_of(rng, lower, upper, 200)
    row = np.array([[1.0, -1.0]])
    best = float((values_of(net, points)[-1] @ row[0]).min())
    case = Case(lower, upper, row, np.array([best + 1e-9]))
    for seconds in (0.0, 0.2, 1.5):
        answer = decide(problem(net, case), Deadline(Budget(seconds=seconds)), SMALL)
        assert answer.status in ("timeout", "unknown", "violated")


@dataclass(frozen=True)
class Stopping(Deadline):
    """A clock whose time is up before the step of that number, in the middle of a pass."""

    last: int = 0
    steps: count = field(default_factory=lambda: count(1))

    def check(self):
        if next(self.steps) == self.last:
            raise OutOfTime


@pytest.mark.parametrize("engine", [decide, search])
def test_a_pass_that_is_given_up_is_no_proof(engine):
    net = dense_net(np.random.default_rng(0))
    case = Case(np.zeros(3), np.ones(3), np.ones((1, 2)), np.array([-1e3]))
    for step in (1, 3, 5):
        answer = engine(problem(net, case), Stopping(Budget(60), last=step))
        assert answer.status == "timeout"
        assert "within one pass" in answer.note
    assert engine(problem(net, case), Deadline(Budget(60))).status == "holds"


def test_the_clock_gives_up_a_pass_some_time_after_the_limit():
    clock = Deadline(Budget(10.0), time.monotonic() - 10.0)
    clock.check()  # the time is up, but engines may still end by themselves
    with pytest.raises(OutOfTime):
        replace(clock, started=clock.started - LATE).check()


def test_a_case_without_rows_is_no_proof():
    """Every input meets an empty conjunction."""
    net = dense_net(np.random.default_rng(0))
    empty = Case(np.zeros(3), np.ones(3), np.zeros((0, 2)), np.zeros(0))
    full = Case(np.zeros(3), np.ones(3), np.ones((1, 2)), np.full(1, -1e3))
    for cases in ((empty,), (empty, full)):
        with pytest.raises((ValueError, ZeroDivisionError)):
            decide(problem(net, *cases), Deadline(Budget(seconds=5)), SMALL)


def test_a_negative_weight_is_no_proof():
    check_weights()


def test_undefined_bounds_are_no_proof():
    net = dense_net(np.random.default_rng(0))
    for bound in (np.nan, np.inf):
        case = Case(np.zeros(3), np.ones(3), np.ones((1, 2)), np.array([bound]))
        answer = decide(problem(net, case), Deadline(Budget(seconds=0.5)), SMALL)
        assert answer.status != "holds"


def test_conjunctions_of_different_length_are_asked_together():
    """Filled up with rows said twice; boxes are grouped by their bytes."""
    rng = np.random.default_rng(1)
    net = dense_net(rng)
    lower, upper = np.zeros(3), np.ones(3)
    cases = [Case(lower, upper, rng.normal(0, 1, (n, 2)), rng.normal(0, 1, n)) for n in (3, 1, 2)]
    cases.append(Case(lower, upper + 1, rng.normal(0, 1, (1, 2)), np.zeros(1)))
    assert same_box(cases) == [[0, 1, 2], [3]]
    pieces = LinearSteps(net, torch.float32)
    region = root.bounds(pieces, lower, upper, ALPHA)
    asked = queries_for(region, cases[:3])
    assert asked.spec is not None
    np.testing.assert_array_equal(asked.spec.offset[1].numpy(), cases[1].bound[[0, 0, 0]])
    np.testing.assert_array_equal(asked.spec.rows[2].numpy(), cases[2].rows[[0, 1, 0]])


@pytest.mark.parametrize("kind", ["sigmoid", "product", "sin", "elu"])
def test_verdicts_of_nets_with_curves(kind):
    """What one of many points does is never said to hold; well below all of them it is proven."""
    given = sample(kind, 0, 0.2, count=1000)
    row = np.random.default_rng(0).normal(0, 1, (1, 2))
    values = values_of(given.net, given.points)[-1] @ row[0]
    least, most = float(values.min()), float(values.max())
    asked = Case(given.lower, given.upper, row, np.array([least + 1e-6]))
    assert check_verdict(problem(given.net, asked), True, seconds=1.0).status != "holds"
    below = replace(asked, bound=np.array([least - 0.5 * (most - least)]))
    assert check_verdict(problem(given.net, below), False).status == "holds"


@pytest.mark.parametrize("engine", [decide, search])
def test_the_threads_of_torch_are_as_before(engine):
    given = sample("relu", 0)
    case = Case(given.lower, given.upper, np.ones((1, 2)), np.array([-1e3]))
    assert engine(problem(given.net, case), Deadline(Budget(5.0, jobs=3))).status == "holds"
    assert torch.get_num_threads() == 1


@pytest.mark.parametrize("kind", ["relu", "sigmoid", "tanh", "mixed"])
def test_moved_domains_cover_the_box(kind):
    torch.set_num_threads(1)
    for seed in range(2):
        check_moves(sample(kind, seed, 1.0))


def test_a_curve_is_cut_inside_what_is_left_of_it():
    """A point outside the interval, as one chosen before a move can be, becomes the middle."""
    given = sample("sigmoid", 0)
    region = root.bounds(LinearSteps(given.net, torch.float32), given.lower, given.upper, CROWN)
    theta = {at: bend.start(1) for at, bend in region.bends.items()}
    made = tree.plant(region, Queries(len(given.net.steps) - 1, torch.ones(1, 2), theta))
    blank, tuned = torch.zeros(sum(made.sizes)), torch.zeros(sum(made.widths))
    whole = tree.BranchDomain(0, 0.0, blank.to(torch.int8), tuned, tuned, None, torch.arange(1), blank[:1])
    low, high = (float(end[2]) for end in made.ends())
    for point in (high + 1, low, (2 * low + high) / 3):
        upper, lower = tree.children(made, [whole], [(2, point)])
        assert upper.cuts[2][0] == lower.cuts[2][1] == (point if low < point < high else (low + high) / 2)
        assert (lower.cuts[2][0], upper.cuts[2][1]) == (low, high)
