"""Checks of the engine for few inputs against exact arithmetic: what its kernels claim of true points."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from types import SimpleNamespace

import numpy as np

from helpers.bounds import Row
from holdfast.graph.ir import Dense, Net
from holdfast.verify.lowdim.layers import layers_of
from holdfast.verify.lowdim.search import SURE, BoxWalker, table_of
from holdfast.verify.problem import Case

U = Fraction(1, 2**53)
LEVEL = 1e-12  # of clips


def exactly(values) -> list[Fraction]:
    """The numbers as fractions."""
    return [Fraction(float(v)) for v in values]


def dot(left, right) -> Fraction:
    """The sum of products, without rounding."""
    return sum((a * b for a, b in zip(left, right, strict=True)), Fraction(0))


@dataclass(frozen=True, eq=False)
class Question:
    """A net of dense layers and relus, cases of one box, and exact points of that box.

    With `true`, the kernels are given the net, and told that weights may be off by `loose` of their size,
    but what they say must be right for the true one: rounding as it may be, and large enough to be seen.
    """

    net: Net
    cases: tuple[Case, ...]
    points: list[list[Fraction]]
    true: Net | None = None
    loose: float = 0.0

    def walker(self, target: float = SURE) -> BoxWalker:
        """The arrays of the kernels, the box on the stack."""
        layers = layers_of(self.net, inputs=any(case.inputs is not None for case in self.cases))
        made = BoxWalker(table_of(layers, self.cases), self.cases, target)
        made.net.unit[:] += self.loose
        made.put_box(self.cases[0])
        return made

    def truth(self, x: list[Fraction]) -> list[list[Fraction]]:
        """Every layer before its activations at a point, in the order of the kernels; the rows last."""
        tied = any(case.inputs is not None for case in self.cases)
        values, before, told = x, x, []
        for step in (self.true or self.net).steps[1:]:
            if isinstance(step, Dense):
                rows = zip(step.weight, step.bias, strict=True)
                before = [dot(exactly(w), values) + Fraction(float(b)) for w, b in rows]
                values = before
            else:
                told.append([*before, *x] if tied else before)
                slope = Fraction(float(step.slope if step.curve == "leaky" else 0.0))
                values = [max(v, slope * v) for v in before]
        rows = []
        for case in self.cases:
            for i, bound in enumerate(exactly(case.bound)):
                extra = Fraction(0) if case.inputs is None else dot(exactly(case.inputs[i]), x)
                rows.append(dot(exactly(case.rows[i]), values) + extra - bound)
        return [*told, rows]


def chain(rng: np.random.Generator, inputs: int, widths: tuple[int, ...], slope: float, scale: float) -> Net:
    """Dense layers whose weights and biases are of very different sizes."""
    row, at = Row(rng, (inputs,)), 0
    for width in widths:
        at = row.curve(row.dense(at, width), "leaky" if slope else "relu", slope)
    row.dense(at, 2)
    for step in row.steps:
        if isinstance(step, Dense):
            step.weight[:] *= scale ** rng.uniform(-1, 1)
            step.bias[:] *= scale ** rng.uniform(-1, 1)
    return row.net()


def off_by(rng: np.random.Generator, net: Net, loose: float) -> Net:
    """The net with every weight and bias off by this part of it, up or down, alike for one neuron."""
    steps = []
    for step in net.steps:
        if isinstance(step, Dense):
            by = 1 + loose * rng.choice([-1.0, 1.0], len(step.bias)) * 0.99
            by = (by, by if rng.random() < 0.5 else 2 - by)
            step = replace(step, weight=step.weight * by[0][:, None], bias=step.bias * by[1])
        steps.append(step)
    return replace(net, steps=tuple(steps))


def asked(
    seed: int,
    scale: float = 1.0,
    radius: float | None = None,
    widths: tuple[int, ...] | None = None,
    loose: float = 0.0,
) -> Question:
    """A question at random, two cases with bounds that one of its points meets just so."""
    rng = np.random.default_rng(seed)
    inputs = int(rng.integers(1, 4))
    widths = widths or tuple(int(w) for w in rng.integers(2, 6, rng.integers(1, 4)))
    net = chain(rng, inputs, widths, (0.0, 0.0, 0.125, 0.3)[seed % 4], scale)
    reach = radius if radius is not None else float(rng.choice([1.0, 1.0, 3.0, 0.05, 1e-9, 0.0]))
    middle = rng.normal(0, 1, inputs)
    lower, upper = middle - reach, middle + reach * rng.uniform(0, 1, inputs)
    picks = [rng.choice([0.0, 0.0, 1.0, 1.0, 0.3, 0.7], inputs) for _ in range(9)] + [rng.random(inputs)] * 2
    ends = [(exactly(lower), exactly(upper))] * len(picks)
    points = [
        [a + (b - a) * Fraction(float(p)) for a, b, p in zip(low, high, pick, strict=True)]
        for (low, high), pick in zip(ends, picks, strict=True)
    ]
    cases, true = [], off_by(rng, net, loose)
    for count in (2, 1):
        rows = rng.normal(0, 1, (count, 2))
        ties = rng.normal(0, 1, (count, inputs)) if seed % 3 == 0 else None
        bare = Question(net, (Case(lower, upper, rows, np.zeros(count), ties),), points, true)
        met = bare.truth(points[int(rng.integers(len(points)))])[-1]
        cases.append(Case(lower, upper, rows, np.nextafter([float(v) for v in met], np.inf), ties))
    return Question(net, tuple(cases), points, true, loose)


def check_layers(kernels: SimpleNamespace, given: Question) -> None:
    """Every range of every layer has the exact values at all points."""
    net, space, _, stack, _ = given.walker().arrays
    with np.errstate(all="ignore"):
        found = kernels.forward(net, space, stack.lower[0], stack.upper[0], stack.phase[0])
    assert found == kernels.FINE
    check_ranges(space.low, space.high, given)


def check_ranges(low: np.ndarray, high: np.ndarray, given: Question) -> None:
    """The ranges of all neurons and rows have the exact values at all points."""
    lows, highs = exactly(low), exactly(high)
    for point in given.points:
        flat = [v for layer in given.truth(point) for v in layer]
        assert all(a <= v <= b for a, v, b in zip(lows, flat, highs, strict=True))


@dataclass(frozen=True, eq=False)
class Stand:
    """A point, its values, and where it stands in the symbols of the forms."""

    point: list[Fraction]
    truth: list[list[Fraction]]
    symbols: list[Fraction]


def stand(net, space, given: Question, point: list[Fraction]) -> Stand:
    """The symbols that the forms must have at a point; each within [-1, 1]."""
    truth = given.truth(point)
    inputs = zip(point, exactly(space.middle), exactly(space.half), strict=True)
    symbols = [(x - middle) / half for x, middle, half in inputs]
    for k in range(1, len(net.sizes) - 1):
        first, size, count = int(net.first[k - 1]), int(net.sizes[k]), int(space.count[k])
        base = len(space.owner) * first
        new = []
        for i in range(size):
            q = first + i
            if space.symbol[q] < 0:
                continue
            form = exactly(space.form[base + i : base + count * size : size])
            keep, post = (
                Fraction(float(space.keep[q])),
                space.keep[q] * space.centre[q] + 0.5 * space.lift[q],
            )
            z = truth[k - 1][i]
            y = max(z, Fraction(float(net.slope[q])) * z)
            rest = y - Fraction(float(post)) - keep * dot(form, symbols[:count])
            new.append(rest / Fraction(float(space.radius[q])))
        symbols += new
    assert all(abs(e) <= 1 for e in symbols)
    return Stand(point, truth, symbols)


def check_programs(kernels: SimpleNamespace, given: Question, seed: int, fixed: bool) -> int:
    """How many points stood in the programs of all cases: rows, cuts, bounds and clips hold for each.

    With `fixed`, some relus are assumed to be as they are at one of the points.
    """
    walker, rng = given.walker(), np.random.default_rng(seed)
    net, space, _, stack, _ = walker.arrays
    if fixed:
        flat = [v for layer in given.truth(given.points[0])[:-1] for v in layer]
        for q in np.flatnonzero(rng.random(len(flat)) < 0.5):
            if net.slope[q] < 1.0:
                stack.phase[0, q] = 1 if flat[q] >= 0 else -1
    with np.errstate(all="ignore"):
        found = kernels.forward(net, space, stack.lower[0], stack.upper[0], stack.phase[0])
        assert found == kernels.FINE
        stands = [stand(net, space, given, p) for p in given.points if _fits(given, p, stack.phase[0])]
        for j in range(len(space.middle)):
            space.low_clip[j], space.high_clip[j] = 1.0, -1.0
        for case in range(len(given.cases)):
            _check_case(kernels, walker, stands, case)
    met = [s for s in stands if any(_met(given, s, c) for c in range(len(given.cases)))]
    low, high = stack.lower[0].copy(), stack.upper[0].copy()
    kernels.cut_box(space, low, high)
    for s in met:
        assert all(a <= x <= b for a, x, b in zip(exactly(low), s.point, exactly(high), strict=True)), (
            "a point that meets a case was cut off"
        )
    return len(stands)


def _fits(given: Question, point: list[Fraction], phase: np.ndarray) -> bool:
    """Whether the neurons have the signs assumed."""
    flat = [v for layer in given.truth(point)[:-1] for v in layer]
    return all(int(s) * v >= 0 for s, v in zip(phase[: len(flat)], flat, strict=True))


def _met(given: Question, s: Stand, case: int) -> bool:
    start = np.cumsum([0, *(len(c.bound) for c in given.cases)])
    return all(v <= 0 for v in s.truth[-1][start[case] : start[case + 1]])


def _check_case(kernels: SimpleNamespace, walker: BoxWalker, stands: list[Stand], case: int) -> None:
    net, space, lp, stack, _ = walker.arrays
    first, m = int(net.start[case]), int(net.start[case + 1] - net.start[case])
    n = int(space.count[len(net.sizes) - 1])
    highest = kernels.goal_rows(net, space, lp, case)
    kernels.back_rows(net, space, lp, case)
    rows = kernels.phase_rows(net, space, lp, stack.phase[0], 2 * m)
    _, rows, bound = kernels.solve_case(net, space, lp, case, rows, np.inf)
    kernels.clip(space, lp, rows, n, LEVEL)
    weights = exactly(lp.weight[:rows])
    assert min(weights) >= 0
    for s in stands:
        own = s.truth[-1][first : first + m]
        assert Fraction(float(highest)) <= max(own)
        for i in range(rows):
            value = Fraction(float(lp.fixed[i])) + dot(exactly(lp.row[i, :n]), s.symbols)
            slack = 2 * U * (rows + n + 8) * Fraction(float(abs(lp.fixed[i]) + lp.norm[i]))
            assert value <= (own[i % m] if i < 2 * m else 0) + slack, f"row {i} of {rows}"
        goals = [weights[i] + weights[m + i] for i in range(m)]
        assert Fraction(float(bound)) <= dot(goals, own)
        if max(own) <= Fraction(LEVEL):
            ranges = zip(exactly(space.low_one), s.symbols, exactly(space.high_one), strict=False)
            assert all(a <= e <= b for a, e, b in ranges)


def random_program(lp, rng: np.random.Generator, rows: int, n: int, near: bool) -> None:
    """Put in rows at random, and multipliers of every kind; `near`, the rows cancel but for rounding."""
    lp.row[:rows, :n] = rng.normal(0, 1, (rows, n)) * 10.0 ** rng.uniform(-3, 3, (rows, 1))
    if near:
        lp.row[rows - 1, :n] = -lp.row[: rows - 1, :n].sum(0)
    lp.fixed[:rows] = rng.normal(0, 1, rows) * 10.0 ** rng.uniform(-3, 3, rows)
    if near:
        lp.fixed[rows - 1] = np.abs(lp.row[:rows, :n].sum(0)).sum() - lp.fixed[: rows - 1].sum()
    lp.norm[:rows] = np.abs(lp.row[:rows, :n]).sum(1)
    lp.weight[:rows] = 1.0 if near else rng.choice([1.0, 0.3, 0.0, -0.5], rows)


def least_sum(lp, rows: int, n: int) -> Fraction:
    """The exact minimum over the cube of the rows weighted by multipliers, the negative ones left out."""
    kept = [i for i in range(rows) if lp.weight[i] > 0]
    weights = exactly(lp.weight[kept])
    columns = [dot(weights, exactly(lp.row[kept, j])) for j in range(n)]
    return dot(weights, exactly(lp.fixed[kept])) - sum((abs(c) for c in columns), Fraction(0))


@cache
def room():
    """A program with room for eight rows of eight symbols."""
    return asked(1, widths=(5, 5)).walker().lp


def check_certified(kernels: SimpleNamespace, seed: int) -> None:
    """A certified bound is below the exact minimum, whatever the multipliers are."""
    rng = np.random.default_rng(seed)
    lp = room()
    rows, n = int(rng.integers(2, 8)), int(rng.integers(2, 6))
    random_program(lp, rng, rows, n, near=seed % 2 == 0)
    exact = least_sum(lp, rows, n)
    assert Fraction(float(kernels.certified(lp, rows, n))) <= exact
