"""Verdicts of the engine for few inputs against exact minima, corners and what is no number."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np

from helpers.bounds import Row, dense_net, problem
from helpers.few_inputs import Question, chain, exactly
from holdfast.core.property import Budget
from holdfast.graph.ir import Activation, Dense
from holdfast.verify.lowdim.search import search
from holdfast.verify.problem import Case, Deadline, EngineResult


def least_on_line(given: Question) -> Fraction:
    """The exact minimum over one input of the highest row of a case, over all cases."""
    case = given.cases[0]
    knots = [Fraction(float(case.lower[0])), Fraction(float(case.upper[0]))]
    for k in range(sum(isinstance(step, Activation) for step in given.net.steps)):
        knots = _kinks(given, knots, k)
    best, start = None, np.cumsum([0, *(len(c.bound) for c in given.cases)])
    for left, right in pairwise(knots):
        a, b = given.truth([left])[-1], given.truth([right])[-1]
        for low, high in pairwise(start):
            crossings = {Fraction(0), Fraction(1)}
            for i in range(low, high):
                for j in range(low, i):
                    d0, d1 = a[i] - a[j], b[i] - b[j]
                    if d0 * d1 < 0:
                        crossings.add(d0 / (d0 - d1))
            for t in crossings:
                value = max(a[i] + t * (b[i] - a[i]) for i in range(low, high))
                best = value if best is None else min(best, value)
    return best


def _kinks(given: Question, knots: list[Fraction], layer: int) -> list[Fraction]:
    """The knots and those where a neuron of the layer changes its sign."""
    added = []
    for left, right in pairwise(knots):
        ends = given.truth([left])[layer], given.truth([right])[layer]
        added += [left + (right - left) * a / (a - b) for a, b in zip(*ends, strict=True) if a * b < 0]
    return sorted({*knots, *added})


def line(seed: int, count: int = 2, scale: float = 1.0) -> Question:
    """A question of one input with some cases of one or two rows."""
    rng = np.random.default_rng(seed)
    net = chain(rng, 1, (4, 3), (0.0, 0.25)[seed % 2], scale)
    low, high = np.full(1, -1.0), np.ones(1)
    cases = [Case(low, high, rng.normal(0, 1, (1 + c % 2, 2)), np.zeros(1 + c % 2)) for c in range(count)]
    return Question(net, tuple(cases), [])


def moved(given: Question, by: float) -> Question:
    """The question with every bound moved up."""
    return replace(given, cases=tuple(replace(case, bound=case.bound + by) for case in given.cases))


def answer(given: Question, seconds: float = 10.0, jobs: int = 1) -> EngineResult:
    """What the engine says; a witness is checked."""
    posed = problem(given.net, *given.cases)
    found = search(posed, Deadline(Budget(seconds=seconds, jobs=jobs)))
    assert found.status != "violated" or posed.violates(found.witness[None])[0]
    return found


def check_line(seed: int, offsets: tuple[float, ...], scale: float = 1.0, jobs: int = 1) -> list[str]:
    """Verdicts at these distances from the exact minimum of one input; none contradicts it."""
    given, said = line(seed, 1 + seed % 3, scale), []
    least = float(least_on_line(given))
    for off in offsets:
        near = moved(given, least + off * abs(least))
        exact = least_on_line(near)
        found = answer(near, jobs=jobs)
        said.append(found.status)
        if found.status == "holds":
            assert exact > 0, f"a point meets a case by {float(exact)}"
            assert found.margin is None or Fraction(found.margin) <= exact
        if found.status == "violated":  # the witness is judged in float64
            assert exact <= Fraction(1e-9) * (1 + abs(Fraction(least)))
    return said


def corner(seed: int, inputs: int) -> tuple[Question, np.ndarray]:
    """A question whose only unsafe point is one corner of the box, by nothing; and the corner."""
    rng = np.random.default_rng(seed)
    signs = rng.choice([-1.0, 1.0], inputs)
    row = Row(rng, (inputs,))
    first = np.concatenate([signs[None] * 2.0 ** rng.integers(-2, 3, inputs), np.zeros((1, inputs))])
    row.put(Dense(0, np.concatenate([first, -first]), np.zeros(4), (4,)))
    row.curve(1, "relu")
    row.put(Dense(2, np.array([[1.0, 0.0, -1.0, 0.0]]), np.zeros(1), (1,)))  # relu(s) - relu(-s) = s
    net, reach = row.net(), np.full(inputs, 1.0)
    at = -signs * reach
    least = -np.abs(first[0]).sum()
    return Question(net, (Case(-reach, reach, np.ones((1, 1)), np.array([least])),), [exactly(at)]), at


def check_corner(seed: int) -> None:
    """The one unsafe point, at a corner, is found or left open; nothing is said to be unsafe below it."""
    given, at = corner(seed, 1 + seed % 4)
    found = answer(given)
    assert found.status != "holds"
    if found.status == "violated":
        assert (found.witness == at).all()
    assert answer(moved(given, -1e-6)).status == "holds"


def check_boxes(seed: int) -> None:
    """Of two cases over two boxes each decides, wherever it stands."""
    given = line(seed, 1)
    case = given.cases[0]
    least = float(least_on_line(given))
    met = replace(case, bound=case.bound + least + 1e-2 * (1 + abs(least)))
    never = replace(case, lower=case.lower * 0.5, bound=case.bound + least - 1e3 * (1 + abs(least)))
    also = replace(met, lower=never.lower, bound=met.bound + 1e3)
    for cases in ((met, never), (never, met), (never, also)):
        assert answer(replace(given, cases=cases)).status == "violated"
    assert answer(replace(given, cases=(never, never))).status == "holds"


def check_numbers(wrong: float) -> None:
    """Boxes, rows and bounds that are not finite are never proven."""
    net = dense_net(np.random.default_rng(0), inputs=2)
    row, far = np.ones((1, net.outputs)), np.array([-1e9])
    with np.errstate(all="ignore"):
        for case in (
            Case(np.array([wrong, -1.0]), np.array([wrong, 1.0]), row, far),
            Case(np.array([-1.0, -1.0]), np.array([wrong, 1.0]), row, far),
            Case(-np.ones(2), np.ones(2), row * wrong, far),
            Case(-np.ones(2), np.ones(2), row, far * np.nan),
        ):
            said = search(problem(net, case), Deadline(Budget(seconds=0.3)))
            assert said.status in ("unknown", "timeout")
