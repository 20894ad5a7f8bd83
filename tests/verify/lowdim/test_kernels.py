"""What the kernels claim of a box, against exact arithmetic at points of the box."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from helpers.few_inputs import (
    Question,
    asked,
    check_certified,
    check_layers,
    check_programs,
    check_ranges,
    least_sum,
    random_program,
    room,
)
from helpers.plain_kernels import plain
from holdfast.verify.lowdim import search as engine
from holdfast.verify.lowdim.search import BoxWalker

seeds = some.integers(0, 10**6)
scales = some.sampled_from([1.0, 10.0, 1e4, 1e12])
radii = some.sampled_from([0.0, 1e-300, 1e-12, 1e-3, 1.0, 50.0])


@settings(max_examples=40, deadline=None)
@given(seeds, scales, radii)
def test_ranges_of_layers_have_the_exact_values(seed, scale, radius):
    check_layers(plain(), asked(seed, scale, radius))


@settings(max_examples=40, deadline=None)
@given(seeds, scales, radii, some.booleans())
def test_programs_have_the_exact_points(seed, scale, radius, fixed):
    check_programs(plain(), asked(seed, scale, radius), seed, fixed)


@settings(max_examples=30, deadline=None)
@given(seeds, radii, some.booleans(), some.sampled_from([1e-9, 1e-3, 0.1]))
def test_programs_have_the_points_of_every_net_that_rounding_allows(seed, radius, fixed, loose):
    check_programs(plain(), asked(seed, 3.0, radius, None, loose), seed, fixed)


@pytest.mark.parametrize("seed", range(4))
def test_programs_with_more_open_relus_than_symbols(seed, monkeypatch):
    monkeypatch.setattr(engine, "WORK", 0)
    assert check_programs(plain(), asked(seed, 1.0, 1.0, (20, 6)), seed, False)


@settings(max_examples=100, deadline=None)
@given(seeds)
def test_certified_bounds_are_below_the_exact_ones(seed):
    check_certified(plain(), seed)


def test_multipliers_that_are_no_numbers_prove_nothing():
    lp, kernels = room(), plain()
    random_program(lp, np.random.default_rng(0), 4, 4, near=False)
    lp.fixed[:4] = 1e9
    for wrong in (np.nan, np.inf, -np.inf, -1.0):
        lp.weight[:4] = wrong
        with np.errstate(all="ignore"):
            assert not kernels.certified(lp, 4, 4) > 0.0


def test_sums_below_the_smallest_number_prove_nothing():
    """Products that underflow round up to a positive sum: 2.6e-324 - 2 · 2.4e-324 is not above 0."""
    lp = room()
    lp.row[0, :2], lp.fixed[0], lp.norm[0], lp.weight[0] = 2.4e-162, 2.6e-162, 4.8e-162, 1e-162
    assert least_sum(lp, 1, 2) < 0
    assert not plain().certified(lp, 1, 2) > 0.0


@settings(max_examples=60, deadline=None)
@given(seeds)
def test_programs_are_solved_as_an_exact_solver_does(seed):
    import highspy

    rng, lp, kernels = np.random.default_rng(seed), room(), plain()
    rows, goals, n = int(rng.integers(1, 8)), 1, int(rng.integers(1, 7))
    goals = int(rng.integers(1, rows + 1))
    lp.row[:rows, :n], lp.fixed[:rows] = rng.normal(0, 1, (rows, n)), rng.normal(0, 1, rows)
    lp.norm[:rows] = np.abs(lp.row[:rows, :n]).sum(1)
    kernels.begin(lp, goals, rows, n)
    how, bound = kernels.improve(lp, rows, n, np.inf)
    solver = highspy.Highs()
    solver.silent()
    t = solver.addVariable(-1e6, 1e6)
    symbols = [solver.addVariable(-1.0, 1.0) for _ in range(n)]
    for i in range(rows):
        left = sum(float(a) * e for a, e in zip(lp.row[i, :n], symbols, strict=True))
        solver.addConstr(left - (t if i < goals else 0.0 * t) <= -float(lp.fixed[i]))
    solver.minimize(t)
    if solver.getModelStatus() == highspy.HighsModelStatus.kInfeasible:
        assert how == kernels.NONE
        assert bound > 0.0
        return
    assert how == kernels.BEST
    assert bound == pytest.approx(solver.getObjectiveValue(), abs=1e-6)
    assert Fraction(float(bound)) <= least_sum(lp, rows, n)


def walked(question: Question) -> BoxWalker:
    """A walker after one look at the whole box, by the compiled kernels."""
    walker = question.walker(1e-12)
    walker.boxes = 1
    walker.walk(climbs=0)
    return walker


@settings(max_examples=60, deadline=None)
@given(seeds, scales, radii)
def test_compiled_ranges_have_the_exact_values(seed, scale, radius):
    question = asked(seed, scale, radius)
    space = walked(question).space
    check_ranges(space.low, space.high, question)


@pytest.mark.parametrize("seed", range(20))
def test_compiled_kernels_say_what_the_plain_ones_say(seed):
    question = asked(seed, 10.0, 1.0)
    compiled = walked(question).space
    net, space, _, stack, _ = question.walker().arrays
    plain().forward(net, space, stack.lower[0], stack.upper[0], stack.phase[0])
    for name in ("centre", "error", "spread", "low", "high", "keep", "lift", "radius"):
        np.testing.assert_allclose(getattr(compiled, name), getattr(space, name), rtol=1e-9, atol=1e-11)
