"""The sweep of one input against breakpoints in exact arithmetic, and mistakes that these checks catch."""

import dataclasses
from fractions import Fraction
from itertools import pairwise
from math import prod

import numpy as np
import pytest

from helpers.bounds import Row, only_in, problem
from holdfast.core.property import Budget
from holdfast.graph.ir import (
    Activation,
    Conv,
    Dense,
    FreeInputs,
    Product,
    ScaleShift,
    Selection,
    WeightedSum,
    sources_of,
)
from holdfast.verify import sweep
from holdfast.verify.problem import Case, Deadline, VerificationProblem

SIZE = 1e-2


def dense(rng, curve="relu", slope=0.0):
    row = Row(rng, (1,))
    at = row.curve(row.dense(0, 5), curve, slope)
    row.dense(row.curve(row.dense(at, 5), curve, slope), 2)
    return row.net()


def maxima(rng):
    """The largest of four lines, as a pool makes it, and a residual."""
    row = Row(rng, (1,))
    lines = at = row.dense(0, 4)
    for width in (2, 1):
        left, right = (row.put(Selection((at,), np.arange(width) + s, None, (width,))) for s in (0, width))
        above = row.curve(row.put(WeightedSum((right, left), (1.0, -1.0), (width,))), "relu")
        at = row.put(WeightedSum((left, above), (1.0, 1.0), (width,)))
    spread = row.put(Selection((at,), np.array([0, -1, 0, -1]), np.ones(4), (4,)))
    row.dense(row.curve(row.scale(row.total(spread, lines)), "leaky", 0.25), 2)
    return row.net()


def images(rng):
    row = Row(rng, (1,))
    index = np.where(rng.random((1, 3, 3)) < 0.5, 0, -1)
    picture = row.put(Selection((0,), index, rng.normal(size=(1, 3, 3)), (1, 3, 3)))
    at = row.curve(row.conv(picture, 2, (2, 2), (1, 1), (1, 0, 0, 1)), "relu")
    row.dense(row.curve(row.conv(at, 1, (2, 2), (2, 2)), "relu"), 2)
    return row.net()


KINDS = {
    "relu": dense,
    "leaky": lambda rng: dense(rng, "leaky", 0.3),
    "steep": lambda rng: dense(rng, "leaky", 1.75),
    "fold": lambda rng: dense(rng, "leaky", -0.5),
    "maxima": maxima,
    "images": images,
}


def rational(values):
    return [Fraction(float(v)) for v in np.ravel(values)]


def window(step, shape):
    """The weights of a convolution as rows over its flat source."""
    _, inner, kh, kw = step.weight.shape
    rows = np.zeros((prod(step.shape), prod(shape)))
    place = np.arange(prod(shape)).reshape(shape)
    for at in np.ndindex(*step.shape):
        for c, i, j in np.ndindex(inner, kh, kw):
            y, x = at[1] * step.stride[0] + i - step.pads[0], at[2] * step.stride[1] + j - step.pads[1]
            if 0 <= y < shape[1] and 0 <= x < shape[2]:
                rows[np.ravel_multi_index(at, step.shape), place[c, y, x]] += step.weight[at[0], c, i, j]
    return rows, np.repeat(step.bias, prod(step.shape[1:]))


def applied(net, step, given):
    """A step's values without any rounding."""
    if isinstance(step, Activation):
        slope = Fraction(step.slope if step.curve == "leaky" else 0.0)
        return [v if v > 0 else slope * v for v in given[0]]
    if isinstance(step, Dense | Conv):
        shape = net.steps[step.source].shape
        rows, bias = (step.weight, step.bias) if isinstance(step, Dense) else window(step, shape)
        return [
            sum((Fraction(float(w)) * v for w, v in zip(row, given[0], strict=True) if w), Fraction(float(b)))
            for row, b in zip(rows, bias, strict=True)
        ]
    if isinstance(step, ScaleShift):
        parts = zip(rational(step.factor), given[0], rational(step.offset), strict=True)
        return [f * v + o for f, v, o in parts]
    if isinstance(step, WeightedSum):
        weights = [Fraction(w) for w in step.weights]
        return [sum(w * v for w, v in zip(weights, vs, strict=True)) for vs in zip(*given, strict=True)]
    assert isinstance(step, Selection)
    joined = [v for part in given for v in part]
    fill = [Fraction(0)] * step.index.size if step.fill is None else rational(step.fill)
    return [joined[i] if i >= 0 else f for i, f in zip(step.index.ravel(), fill, strict=True)]


def exactly(net, x, top=None):
    """The values of one step, in fractions."""
    held = [[x]]
    for step in net.steps[1 : None if top is None else top + 1]:
        held.append(applied(net, step, [held[s] for s in sources_of(step)]))
    return held[-1]


def knots_of(net, lower, upper):
    """Points between which the net is linear."""
    knots = [Fraction(lower), Fraction(upper)]
    for step in net.steps:
        if isinstance(step, Activation):
            added = []
            ends = [exactly(net, x, step.source) for x in knots]
            for (left, right), (start, end) in zip(pairwise(knots), pairwise(ends), strict=True):
                for a, b in zip(start, end, strict=True):
                    if (a < 0 < b) or (b < 0 < a):
                        added.append(left + (right - left) * a / (a - b))
            knots = sorted({*knots, *added})
    return knots


def least(net, case):
    """The least, over the case's box, of its largest row beyond the bound, and where: in fractions."""
    knots = knots_of(net, *(np.nextafter(v[0], w) for v, w in ((case.lower, -9e9), (case.upper, 9e9))))
    over = [Fraction(0)] * len(case.bound) if case.inputs is None else rational(case.inputs)

    def rows(x):
        y = exactly(net, x)
        parts = zip(case.rows, over, rational(case.bound), strict=True)
        return [sum(r * v for r, v in zip(rational(row), y, strict=True)) + o * x - b for row, o, b in parts]

    found = []
    for left, right in pairwise(knots):
        start, end = rows(left), rows(right)
        shares = {Fraction(0), Fraction(1)}
        for i, (a, b) in enumerate(zip(start, end, strict=True)):
            for c, d in list(zip(start, end, strict=True))[:i]:
                if (a - c) * (b - d) < 0:
                    shares.add((a - c) / ((a - c) - (b - d)))
        for share in shares:
            values = [a + share * (b - a) for a, b in zip(start, end, strict=True)]
            found.append((max(values), left + share * (right - left)))
    return min(found)


def case_of(rng, net, rows=1, tied=False, lower=-1.0, upper=1.0):
    inputs = rng.normal(size=(rows, 1)) if tied else None
    matrix = rng.normal(size=(rows, net.outputs))
    return Case(np.array([lower]), np.array([upper]), matrix, rng.normal(size=rows), inputs)


def answered(net, *cases, seconds=20.0):
    asked = problem(net, *cases)
    found = sweep.search(asked, Deadline(Budget(seconds=seconds)))
    if found.status == "violated":
        assert asked.violates(found.witness[None])[0]
    return found


def check(kind, seed, offs=(-SIZE, -1e-10, 0.0, 1e-10, SIZE)):
    """Bounds moved about the exact least value: what is said is true, and a clear case is said."""
    rng = np.random.default_rng((seed, len(kind)))
    net = KINDS[kind](rng)
    case = case_of(rng, net, 1 + seed % 3, seed % 2 == 1)
    margin, _ = least(net, case)
    for off in offs:
        moved = dataclasses.replace(case, bound=case.bound + float(margin) + off)
        real = margin - Fraction(float(margin)) - Fraction(off)  # up to what moving the bounds rounds
        found = answered(net, moved)
        if found.status == "holds":
            assert real > -1e-14, (kind, seed, off)
            assert found.margin <= float(real) + 1e-12
        if off == SIZE:
            assert found.status == "violated", (kind, seed)
        if off <= -1e-10:
            assert found.status == "holds", (kind, seed, off)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(6))
def test_answers_are_those_of_exact_arithmetic(kind, seed):
    check(kind, seed)


def check_chords(kind, seed, radius=1.0):
    """Exact values lie within `off` of the chord, on any segments; short ones have nothing but rounding."""
    rng = np.random.default_rng(seed)
    net = KINDS[kind](rng)
    left = rng.uniform(-radius, radius, 4)
    right = left + radius * rng.uniform(0, 1, 4) ** 4
    drawn = sweep.chords(net, left, right)
    for at, (a, b) in enumerate(zip(left, right, strict=True)):
        for share in (Fraction(0), Fraction(1, 3), Fraction(1, 2), Fraction(1)):
            x = Fraction(a) + share * (Fraction(b) - Fraction(a))
            ends = zip(rational(drawn.left[at]), rational(drawn.right[at]), strict=True)
            line = [p + share * (q - p) for p, q in ends]
            for value, on, off in zip(exactly(net, x), line, rational(drawn.off[at]), strict=True):
                assert abs(value - on) <= off


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("radius", [1e-12, 1.0, 1e6])
def test_chords_contain_exact_values(kind, radius):
    for seed in range(3):
        check_chords(kind, seed, radius)


def check_chain():
    """What bends before an active relu is still bent after it: relu(relu(x) + 5) over [-1, 1]."""
    row = Row(np.random.default_rng(0), (1,))
    first = row.put(ScaleShift(row.curve(0, "relu"), np.ones(1), np.full(1, 5.0), (1,)))
    row.curve(first, "relu")
    drawn = sweep.chords(row.net(), np.array([-1.0]), np.array([1.0]))
    assert abs((drawn.left + drawn.right) / 2 - 5.0) <= drawn.off
    assert drawn.off < 0.51
    assert drawn.at.tolist() == [0.0]


def test_an_active_relu_keeps_what_bends_before_it():
    check_chain()


def check_end(seed=0):
    """One unsafe float32 at the very end of the range, then at the very beginning, in one case of many."""
    rng = np.random.default_rng(seed)
    row = Row(rng, (1,))
    for side in (1.0, -1.0):
        row = Row(rng, (1,))
        first = row.put(Dense(0, np.array([[side]]), np.array([-0.7]), (1,)))
        row.put(Dense(row.curve(first, "relu"), np.array([[-1.0]]), np.zeros(1), (1,)))
        net = row.net()
        end = float(np.float32(0.9))
        value = exactly(net, Fraction(side * end))[0]
        cuts = np.sort(side * np.linspace(-1.0, end, 20))
        cases = [
            Case(cuts[i : i + 1], cuts[i + 1 : i + 2], np.ones((1, 1)), np.array([float(value)]))
            for i in range(len(cuts) - 1)
        ]
        found = answered(net, *cases)
        assert found.status == "violated"
        assert found.witness[0] == np.float32(side * end)
        safe = [dataclasses.replace(c, bound=c.bound - 1e-12) for c in cases]
        assert answered(net, *safe).status == "holds"


def test_unsafe_ends_of_the_range_are_found():
    check_end()


def check_many(seed=0, count=400):
    """Overlapping boxes with a case each: the one that is unsafe is found wherever it stands."""
    rng = np.random.default_rng(seed)
    net = dense(rng)
    cases = []
    for _ in range(count):
        low, high = np.sort(rng.uniform(-1, 1, 2))
        cases.append(case_of(rng, net, 1, False, low, high))
    margins = [least(net, case)[0] for case in cases[:12]]
    safe = [
        dataclasses.replace(case, bound=case.bound + float(margin) - 1e-9)
        for case, margin in zip(cases, margins, strict=False)
    ]
    safe = safe * (count // len(safe))
    assert answered(net, *safe).status == "holds"
    unsafe = dataclasses.replace(safe[7], bound=safe[7].bound + 2e-4)
    for place in (0, len(safe) // 2, len(safe)):
        assert answered(net, *safe[:place], unsafe, *safe[place:]).status == "violated"


def test_every_case_counts():
    check_many()


def test_cases_beyond_counting_do_not_share_segments(monkeypatch):
    monkeypatch.setattr(sweep, "MOST_PAIRS", 10)
    check_many(1)


def test_small_batches_change_nothing(monkeypatch):
    monkeypatch.setattr(sweep, "_batch", lambda *rest: 3)
    for kind in KINDS:
        check(kind, 2)


def test_rows_said_of_nothing_and_empty_boxes():
    net = dense(np.random.default_rng(0))
    none = Case(np.array([0.0]), np.array([1.0]), np.zeros((0, 2)), np.zeros(0))
    empty = Case(np.array([1.0]), np.array([0.0]), np.zeros((1, 2)), np.ones(1))
    assert answered(net, none).status == "violated"
    assert answered(net, empty).status == "holds"
    assert answered(net, empty, none).status == "violated"


def test_no_input_at_all():
    row = Row(np.random.default_rng(0), (0,))
    start = row.put(Selection((0,), np.array([-1]), np.array([2.0]), (1,)))
    row.put(Dense(row.curve(start, "relu"), np.array([[3.0]]), np.array([0.5]), (1,)))
    net = row.net()

    def said(bound):
        case = Case(np.zeros(0), np.zeros(0), np.ones((1, 1)), np.array([bound]))
        asked = VerificationProblem(net, (case,), lambda points: np.full(len(points), bound >= 6.5))
        return sweep.search(asked, Deadline(Budget(5)))

    assert said(6.4).status == "holds"
    assert said(6.6).status == "violated"
    assert said(6.6).witness.shape == (0,)


def test_what_does_not_replay_or_is_not_finite_is_unknown():
    net = dense(np.random.default_rng(0))
    case = Case(np.array([-1.0]), np.array([1.0]), np.zeros((1, 2)), np.zeros(1))
    never = VerificationProblem(net, (case,), lambda points: np.zeros(len(points), np.bool_))
    assert sweep.search(never, Deadline(Budget(5))).status == "unknown"
    steps = list(net.steps)
    steps[1] = dataclasses.replace(steps[1], weight=steps[1].weight * 1e308, bias=steps[1].bias + np.inf)
    broken = dataclasses.replace(net, steps=tuple(steps))
    case = dataclasses.replace(case, rows=np.ones((1, 2)), bound=np.array([-1e300]))
    never = VerificationProblem(broken, (case,), lambda points: np.zeros(len(points), np.bool_))
    assert sweep.search(never, Deadline(Budget(5))).status == "unknown"


def test_a_real_violation_between_two_float32_is_no_proof_and_no_witness():
    row = Row(np.random.default_rng(0), (1,))
    row.put(Dense(0, np.array([[-1.0]]), np.zeros(1), (1,)))
    end = (float(np.float32(0.9)) + float(np.nextafter(np.float32(0.9), np.float32(1)))) / 2
    case = Case(np.array([0.0]), np.array([end]), np.ones((1, 1)), np.array([-end + 1e-12]))
    assert answered(row.net(), case).status == "unknown"


def test_which_nets_it_takes():
    rng = np.random.default_rng(0)
    assert all(sweep.piecewise(make(rng)) for make in KINDS.values())
    row = Row(rng, (2,))
    row.dense(0, 1)
    assert not sweep.piecewise(row.net())
    for curve in ("sigmoid", "tanh", "sign"):
        assert not sweep.piecewise(dense(rng, curve))
    square = dataclasses.replace(row.net(), steps=(FreeInputs((1,)), Product(0, 0, (1,))), free=np.arange(1))
    assert not sweep.piecewise(square)
    found = sweep.search(problem(square), Deadline(Budget(5)))
    assert found.status == "unknown"


def test_the_clock_is_heeded_and_progress_told():
    net = dense(np.random.default_rng(0))
    case = Case(np.array([-1.0]), np.array([1.0]), np.ones((1, 2)), np.array([-1e9]))
    assert answered(net, case, seconds=0.0).status == "timeout"
    told = []
    clock = Deadline(Budget(5), tell=lambda *what: told.append(what))
    assert sweep.search(problem(net, case), clock).status == "holds"
    assert told


def last_segment_dropped(patch):
    once = sweep.segments_of
    patch.setattr(sweep, "segments_of", lambda asked: once(asked).part(slice(-1)))


def last_piece_dropped(patch):
    once = sweep._cut
    patch.setattr(sweep, "_cut", lambda *given: once(*given).part(slice(-1)))


def sign_flipped_in_the_phase(patch):
    once = sweep._ChordPass.bend

    def bend(self, step, values, off):
        return once(self, step, -values, off)

    patch.setattr(sweep._ChordPass, "bend", bend)


def a_crossing_thought_positive(patch):
    once = sweep._ChordPass.bend

    def bend(self, step, values, off):
        return once(self, step, np.abs(values), off)

    patch.setattr(sweep._ChordPass, "bend", bend)


def a_case_skipped(patch):
    once = sweep.sweep_cases
    patch.setattr(sweep, "sweep_cases", lambda cases, dtype: once(cases[:-1], dtype))


def no_slack(patch):
    only_in(patch, sweep, "chords", MERGED=0, UNIT=0.0)


def slack_of_the_wrong_sign(patch):
    only_in(patch, sweep, "chords", UNIT=-sweep.UNIT)


def offs_not_carried(patch):
    once = sweep.magnitude
    patch.setattr(sweep, "magnitude", lambda step, unit: dataclasses.replace(once(step, unit), **zeros(step)))


def zeros(step):
    return {"weight": np.zeros_like(step.weight)} if isinstance(step, Dense) else {}


def weights_keep_their_sign(patch):
    def magnitude(step, unit):
        made = once(step, unit)
        return dataclasses.replace(made, weight=step.weight) if isinstance(step, Dense) else made

    once = sweep.magnitude
    patch.setattr(sweep, "magnitude", magnitude)


def rows_of_a_case_forgotten(patch):
    once = sweep.sweep_cases

    def asked_of(cases, dtype):
        return once([dataclasses.replace(c, inputs=None) for c in cases])

    patch.setattr(sweep, "sweep_cases", asked_of)


def mixes_with_negative_weights(patch):
    patch.setattr(sweep, "_mixed", lambda left, right: np.abs(left).max(axis=1))


def boxes_not_widened(patch):
    once = sweep.sweep_cases

    def asked_of(cases, dtype):
        made = once(cases, dtype)
        return dataclasses.replace(made, upper=np.nextafter(made.last.astype(np.float64), -np.inf))

    patch.setattr(sweep, "sweep_cases", asked_of)


MUTANTS = (
    last_segment_dropped,
    last_piece_dropped,
    sign_flipped_in_the_phase,
    a_crossing_thought_positive,
    a_case_skipped,
    no_slack,
    slack_of_the_wrong_sign,
    offs_not_carried,
    weights_keep_their_sign,
    rows_of_a_case_forgotten,
    mixes_with_negative_weights,
    boxes_not_widened,
)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.__name__)
def test_a_mutant_is_caught(mutant, monkeypatch):
    mutant(monkeypatch)
    with pytest.raises(AssertionError):  # noqa: PT012 - any of the checks may be the one
        check_end()
        check_chain()
        for seed in range(4):
            check_chords("relu", seed, 1.0)
            check_chords("images", seed, 1e-12)
            check("relu", seed, (0.0, 1e-10, SIZE))
            check("maxima", seed, (0.0, 1e-10, SIZE))
        check_many()
