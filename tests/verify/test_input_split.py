"""Splitting inputs: bands, forms, planes, boxes and verdicts, and mistakes that these checks catch."""

import dataclasses
import math
from fractions import Fraction

import numpy as np
import pytest
import torch

from helpers.bounds import KINDS, Row, points_of, problem, values_of
from holdfast.core.property import Budget
from holdfast.graph.ir import Activation, Dense, Product, Selection
from holdfast.verify.linear.pieces import LinearSteps
from holdfast.verify.problem import Case, Deadline, VerificationProblem
from holdfast.verify.split import forms, planes, search
from holdfast.verify.split.search import BoxBatch, clipped

CURVES = [("leaky", 0.2), ("leaky", 1.5), ("leaky", -0.5), ("elu", 0.7)]
CURVES += [(name, 0.0) for name in ("relu", "sigmoid", "tanh", "sin", "square", "softplus", "exp", "erf")]
CURVES += [(name, 0.0) for name in ("log", "sqrt", "reciprocal")]


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def product_net(rng):
    """Gates: a relu times a sigmoid, and the square of a line."""
    row = Row(rng, (3,))
    gate, value = row.curve(row.dense(0, 4), "sigmoid"), row.curve(row.dense(0, 4), "relu")
    line = row.dense(0, 4)
    row.dense(row.total(row.put(Product(gate, value, (4,))), row.put(Product(line, line, (4,)))), 2)
    return row.net()


LOOSE = ("sign", "mixed")  # jumps: a box with one in it has loose bounds however small it is
NETS = {**{kind: make for kind, make in KINDS.items() if kind != "conv"}, "product": product_net}


def true(curve, slope, z):
    if curve == "erf":
        return np.array([math.erf(v) for v in z])
    z = z.astype(np.longdouble)
    if curve in ("relu", "leaky", "elu"):
        return np.where(z < 0, slope * (np.expm1(np.minimum(z, 0)) if curve == "elu" else z), z)
    if curve == "softplus":
        return np.maximum(z, 0) + np.log1p(np.exp(-abs(z)))
    if curve == "sigmoid":
        return 1 / (1 + np.exp(-z))
    return getattr(np, curve)(z)


def check_bands(curve, slope):
    """The curve between its lines, from tiny intervals to wide ones."""
    rng = np.random.default_rng(0)
    centre = np.concatenate([rng.normal(0, s, 100) for s in (1e-6, 1.0, 5.0, 30.0)])
    radius = np.concatenate([10.0 ** rng.uniform(-14, 1.5, 100) for _ in range(4)])
    if curve in ("log", "sqrt", "reciprocal"):  # above zero, and for 1/z below it as well
        side = np.where(np.arange(400) % 2, 1.0, -1.0 if curve == "reciprocal" else 1.0)
        centre, radius = side * (0.01 + abs(centre)), np.minimum(radius, 0.005 + 0.9 * abs(centre))
    lower, upper = centre - radius, centre + radius
    step = Activation(0, curve, (1,), slope)
    made = forms.band(step, torch.tensor(lower), torch.tensor(upper))
    for share in np.linspace(0, 1, 41):
        z = np.clip(lower + share * (upper - lower), lower, upper)
        f, z = true(curve, slope, z), z.astype(np.longdouble)
        flat = {name: getattr(made, name).numpy().astype(np.longdouble) for name in ("slope", "low", "high")}
        assert (flat["slope"] * z + flat["low"] <= f).all()
        assert (f <= flat["slope"] * z + flat["high"]).all()
        if made.below is not None:
            assert (made.below.numpy() * z <= f).all()
        if made.above is not None:
            assert (f <= made.above.numpy() * z).all()
    assert np.isfinite(made.gap.numpy()).all()
    if curve not in ("exp", "square", "reciprocal", "log", "sqrt"):  # whose slopes have no limit
        assert (made.gap.numpy() <= 5 * radius + 1e-9).all()


@pytest.mark.parametrize(("curve", "slope"), CURVES)
def test_bands_contain_their_curves(curve, slope):
    check_bands(curve, slope)


def ranges(rng, net, count, radius):
    centre = rng.normal(0, 0.7, (count, net.inputs))
    reach = radius * rng.uniform(0.1, 1, (count, net.inputs))
    return torch.tensor(centre - reach), torch.tensor(centre + reach)


def least(plane):
    """The least value (q,) of a plane over its box."""
    return plane.base - plane.slopes.abs().sum(1)


def check_forms(kind, seed, radius=1.0):
    """Outputs inside the forms, and rows above each kind of plane, at points of every box."""
    rng = np.random.default_rng((seed, len(kind)))
    net = NETS[kind](rng)
    lower, upper = ranges(rng, net, 5, radius)
    machine, given = forms.FormBounds(net), forms.start(lower, upper)
    passed = forms.forward(machine, given)
    box = torch.arange(5).repeat_interleave(2)
    rows, over = (
        torch.tensor(rng.normal(size=(10, net.outputs))),
        torch.tensor(rng.normal(size=(10, net.inputs))),
    )
    found = [f(given, passed.output, box, rows, over) for f in (planes.along, planes.between)]
    found.append(planes.backward(machine, given, passed, box, rows, over))
    room = 1e-13
    for at in range(5):
        points = points_of(rng, lower[at].numpy(), upper[at].numpy(), 100)
        outputs, out = values_of(net, points)[-1], passed.output
        t = (points - given.middle[at].numpy()) / given.slopes[at].diagonal().numpy()
        assert (abs(t) <= 1).all()
        line = out.middle[at].numpy() + t @ out.slopes[at].numpy()
        size = 1 + abs(outputs)
        assert (abs(outputs - line) <= out.off[at].numpy() + room * size).all()
        assert (outputs >= out.lower[at].numpy() - room * size).all()
        assert (outputs <= out.upper[at].numpy() + room * size).all()
        for query in (2 * at, 2 * at + 1):
            value = outputs @ rows[query].numpy() + points @ over[query].numpy()
            for plane in found:
                under = float(plane.base[query]) + t @ plane.slopes[query].numpy()
                assert (value >= under - room * 20 * size.max()).all()
                assert value.min() >= float(least(plane)[query]) - room * 20 * size.max()


@pytest.mark.parametrize("kind", NETS)
def test_forms_and_planes_contain_what_nets_do(kind):
    for seed in range(3):
        for radius in (1e-3, 0.3, 2.0):
            check_forms(kind, seed, radius)


def check_rounding(seed):
    """Over boxes that are nearly points, bounds hold for values with more digits than float64."""
    rng = np.random.default_rng(seed)
    net = NETS["relu"](rng)
    centre = rng.normal(size=(6, net.inputs)) * 1e3
    lower = torch.tensor(centre)
    machine, given = forms.FormBounds(net), forms.start(lower, lower)
    passed = forms.forward(machine, given)
    value = centre.astype(np.longdouble)
    for step in net.steps[1:]:
        if isinstance(step, Dense):
            value = (value[:, None] * step.weight.astype(np.longdouble)).sum(2) + step.bias
        else:
            value = np.maximum(value, 0)
    assert (value >= passed.output.lower.numpy()).all()
    assert (value <= passed.output.upper.numpy()).all()
    rows = torch.tensor(rng.normal(size=(6, net.outputs)))
    none = torch.zeros(6, net.inputs, dtype=torch.float64)
    plane = planes.backward(machine, given, passed, torch.arange(6), rows, none)
    assert ((value * rows.numpy()).sum(1) >= least(plane).numpy()).all()


def test_bounds_hold_beyond_rounding():
    for seed in range(10):
        check_rounding(seed)


def check_clips(seed):
    """A point where all planes of its case are at most 0 stays in the clipped box."""
    rng = np.random.default_rng(seed)
    count, inputs = 20, 3
    lower = rng.normal(size=(count, inputs))
    upper = lower + rng.uniform(0.1, 1, (count, inputs))
    box = np.repeat(np.arange(count), 2)
    made = search.BoxBatch(*(torch.tensor(v) for v in (lower, upper, box, np.arange(2 * count))))
    base, slopes = rng.normal(0.5, 1, (2 * count, 2)), rng.normal(size=(2 * count, 2, inputs))
    rest = search.clipped(made, torch.arange(2 * count), torch.tensor(base), torch.tensor(slopes))
    assert len(rest) == count
    t = rng.uniform(-1, 1, (3000, inputs))
    smaller = 0
    for at in range(count):
        points = (lower[at] + upper[at]) / 2 + (upper[at] - lower[at]) / 2 * t
        met = np.zeros(len(t), bool)
        for pair in (2 * at, 2 * at + 1):
            met |= (base[pair] + t @ slopes[pair].T <= 0).all(1)
        inside = ((points >= rest.lower[at].numpy()) & (points <= rest.upper[at].numpy())).all(1)
        assert inside[met].all()
        smaller += not inside.all()
    return smaller


def check_halves(seed):
    """Halves cover their boxes and keep their cases."""
    rng = np.random.default_rng(seed)
    lower = rng.normal(size=(6, 3))
    upper = lower + rng.uniform(0.1, 1, (6, 3))
    box = np.repeat(np.arange(6), 2)
    case = np.arange(12)
    made = search.BoxBatch(*(torch.tensor(v) for v in (lower, upper, box, case)))
    floor = torch.full((3,), 1e-9, dtype=torch.float64)
    score, lowest = torch.tensor(rng.random((6, 3))), torch.tensor(rng.normal(size=6))
    for times in (1, 2, 3):
        parts = search.halved(made, score, lowest, floor, times)
        assert len(parts) == 6 * 2**times
        for pair in range(12):
            of = parts.box[parts.case == case[pair]]
            for point in points_of(rng, lower[box[pair]], upper[box[pair]], 30):
                inside = (torch.tensor(point) >= parts.lower[of]) & (torch.tensor(point) <= parts.upper[of])
                assert bool(inside.all(1).any())


def test_boxes_are_covered():
    assert sum(check_clips(seed) for seed in range(5)) > 10
    for seed in range(3):
        check_halves(seed)


def check_mixes(seed):
    """A mix of planes is nowhere above the largest of them."""
    rng = np.random.default_rng(seed)
    base, slopes = torch.tensor(rng.normal(0, 1, (30, 4))), torch.tensor(rng.normal(0, 1, (30, 4, 2)))
    mix = planes.mixed(base, slopes)
    side = torch.linspace(-1, 1, 41, dtype=torch.float64)
    t = torch.cartesian_prod(side, side)
    largest = (base[:, :, None] + slopes @ t.T).amax(1).amin(1)
    assert (mix.weight >= 0).all()
    assert (mix.lower <= largest + 1e-12).all()
    alone = (base - slopes.abs().sum(2)).amax(1)
    assert (mix.lower >= alone - 1e-12).all()
    return float((mix.lower > alone + 1e-3).double().mean())


def test_mixes_of_rows():
    assert max(check_mixes(seed) for seed in range(3)) > 0.2


def answered(net, *cases, seconds=20.0):
    asked = problem(net, *cases)
    found = search.search(asked, Deadline(Budget(seconds=seconds)))
    if found.status == "violated":
        assert asked.violates(found.witness[None])[0]
    return found


def check_verdicts(kind, seed, rows=1, tied=False, offs=(-0.1, -0.02, 0.02)):
    """Bounds moved about the least value seen: nothing is proven that is seen, and clear cases are said."""
    rng = np.random.default_rng((seed, len(kind)))
    net = NETS[kind](rng)
    radius = 0.4 if kind in LOOSE else 0.8
    lower, upper = (v[0].numpy() for v in ranges(rng, net, 1, radius))
    points = points_of(rng, lower, upper, 20_000)
    matrix = rng.normal(size=(rows, net.outputs))
    inputs = rng.normal(size=(rows, net.inputs)) if tied else None
    values = values_of(net, points)[-1] @ matrix.T + (points @ inputs.T if tied else 0)
    worst = values.max(1)
    for off in offs:
        bound = np.full(rows, worst.min() + off * (np.ptp(worst) + 0.1))
        case = Case(lower, upper, matrix, bound, inputs)
        found = answered(net, case, seconds=0.8 if kind in LOOSE else 5.0)
        said = found.status
        assert said != "holds" or found.margin <= worst.min() - bound[0] + 1e-9, (kind, seed, off)
        assert off < 0 or said != "holds", (kind, seed, off)
        assert kind in LOOSE or abs(off) < 0.02 or said == ("violated" if off > 0 else "holds"), (kind, seed)


@pytest.mark.parametrize("kind", NETS)
def test_verdicts(kind):
    check_verdicts(kind, 0)
    check_verdicts(kind, 1, rows=2, tied=kind != "sign")


def check_cases(seed=0):
    """Every case of every box counts, wherever the unsafe one stands."""
    rng = np.random.default_rng(seed)
    net = NETS["tanh"](rng)
    cases = []
    for _ in range(4):
        lower, upper = (v[0].numpy() for v in ranges(rng, net, 1, 0.5))
        values = values_of(net, points_of(rng, lower, upper, 3000))[-1]
        rows = np.eye(net.outputs)
        cases += [Case(lower, upper, rows[i : i + 1], values[:, i : i + 1].min(0) - 0.2) for i in range(2)]
    assert answered(net, *cases).status == "holds"
    for at in range(len(cases)):
        unsafe = dataclasses.replace(cases[at], bound=cases[at].bound + 0.25)
        assert answered(net, *cases[:at], unsafe, *cases[at + 1 :]).status == "violated"


def test_a_margin_is_never_more_than_what_points_show():
    """Parts that are clipped away count: the two that made this a test had their least margin there."""
    for seed in range(12):
        check_verdicts("maxima", seed, rows=2 + seed % 2, offs=(-0.02, -0.001))


def test_every_case_counts():
    check_cases()


def test_small_batches_change_nothing(monkeypatch):
    monkeypatch.setattr(search, "_batch", lambda *rest: 3)
    check_verdicts("maxima", 2)
    check_cases(1)


def test_one_unsafe_corner_is_found():
    row = Row(np.random.default_rng(0), (3,))
    row.put(Dense(row.curve(0, "tanh"), np.array([[-1.0, -1.0, 1.0]]), np.zeros(1), (1,)))
    net = row.net()
    lower, upper = np.full(3, -0.5), np.full(3, 0.75)
    least = float(values_of(net, np.array([[0.75, 0.75, -0.5]]))[-1][0, 0])
    found = answered(net, Case(lower, upper, np.ones((1, 1)), np.array([least])))
    assert found.status == "violated"
    assert found.witness.tolist() == [0.75, 0.75, -0.5]
    assert answered(net, Case(lower, upper, np.ones((1, 1)), np.array([least - 1e-9]))).status == "holds"


def test_what_does_not_replay_or_is_not_finite_is_unknown():
    net = NETS["tanh"](np.random.default_rng(0))
    lower, upper = np.full(net.inputs, -1e-8), np.full(net.inputs, 1e-8)
    never = lambda points: np.zeros(len(points), np.bool_)  # noqa: E731
    case = Case(lower, upper, np.zeros((1, net.outputs)), np.zeros(1))
    assert search.search(VerificationProblem(net, (case,), never), Deadline(Budget(0.6))).status in (
        "unknown",
        "timeout",
    )
    steps = list(net.steps)
    steps[1] = dataclasses.replace(steps[1], bias=steps[1].bias + np.inf)
    broken = dataclasses.replace(net, steps=tuple(steps))
    case = dataclasses.replace(case, rows=np.ones((1, net.outputs)), bound=np.array([-1e300]))
    found = search.search(VerificationProblem(broken, (case,), never), Deadline(Budget(0.6)))
    assert found.status in ("unknown", "timeout")


def test_rows_said_of_nothing_empty_boxes_and_no_inputs():
    net = NETS["tanh"](np.random.default_rng(0))
    zero, one = np.zeros(net.inputs), np.ones(net.inputs)
    none = Case(zero, one, np.zeros((0, net.outputs)), np.zeros(0))
    empty = Case(one, zero, np.zeros((1, net.outputs)), np.ones(1))
    assert answered(net, empty).status == "holds"
    assert answered(net, empty, none).status == "violated"
    row = Row(np.random.default_rng(0), (0,))
    row.curve(row.put(Selection((0,), np.array([-1]), np.array([2.0]), (1,))), "tanh")
    case = Case(np.zeros(0), np.zeros(0), np.ones((1, 1)), np.array([0.9]))
    asked = VerificationProblem(row.net(), (case,), lambda points: np.zeros(len(points), np.bool_))
    assert search.search(asked, Deadline(Budget(5))).status == "unknown"


def test_a_net_too_large_for_boxes_is_refused_at_once():
    net = NETS["tanh"](np.random.default_rng(0))
    case = Case(-np.ones(3), np.ones(3), np.ones((1, 2)), np.array([-1e9]))
    found = search.search(problem(net, case), Deadline(Budget(5, memory_bytes=1000)))
    assert (found.status, "too large" in found.note) == ("unknown", True)


def test_the_clock_is_heeded_and_progress_told():
    net = NETS["sigmoid"](np.random.default_rng(0))
    case = Case(-np.ones(3), np.ones(3), np.ones((1, 2)), np.array([-1e9]))
    assert answered(net, case, seconds=0.0).status == "timeout"
    told = []
    clock = Deadline(Budget(5), tell=lambda *what: told.append(what))
    assert search.search(problem(net, case), clock).status == "holds"
    assert told


def chord_offset_flipped(patch):
    once = forms._hinge
    patch.setattr(forms, "_hinge", lambda *given: flipped(once(*given)))
    return lambda: [check_forms("relu", seed) for seed in range(4)]


def flipped(made):
    return dataclasses.replace(made, low=-made.high, high=-made.low)


def lower_line_above(patch):
    once = forms._hinge
    patch.setattr(forms, "_hinge", lambda *g: dataclasses.replace(once(*g), below=once(*g).below + 0.3))
    return lambda: [check_forms("relu", seed, 2.0) for seed in range(4)]


def places_of_extremes_forgotten(patch):
    patch.setattr(torch, "log1p", lambda value: torch.full_like(value, 1e9))
    return lambda: check_bands("sigmoid", 0.0)


def offs_keep_the_signs_of_weights(patch):
    patch.setattr(LinearSteps, "mass", LinearSteps.forward)
    return lambda: [check_forms("relu", seed, 2.0) for seed in range(4)]


def product_rest_dropped(patch):
    once = forms._multiplied

    def multiplied(left, right, error):
        form, made = once(left, right, error)
        return form, dataclasses.replace(made, rest=torch.zeros_like(made.rest))

    patch.setattr(forms, "_multiplied", multiplied)
    return lambda: [check_forms("product", seed, 2.0) for seed in range(4)]


def no_slack(patch):
    patch.setattr(forms.FormBounds, "unit", lambda self, at: 0.0)
    patch.setattr(forms, "UNIT", 0.0)
    return lambda: [check_rounding(seed) for seed in range(10)]


def one_half_forgotten(patch):
    once = search._twice

    def twice(made, score, floor):
        parts, scores = once(made, score, floor)
        return parts.part(slice(0, len(made))), scores[: len(made)]

    patch.setattr(search, "_twice", twice)
    return lambda: check_halves(0)


def clipped_too_far(patch):
    patch.setattr(search, "OUTWARD", -0.05)
    return lambda: [check_clips(seed) for seed in range(5)]


def the_narrower_case_decides(patch):
    once = torch.Tensor.scatter_reduce
    other = {"amax": "amin", "amin": "amax"}

    def narrow(self, dim, index, src, how, **rest):
        return once(self, dim, index, src, other[how], include_self=False)

    patch.setattr(torch.Tensor, "scatter_reduce", narrow)
    return lambda: [check_clips(seed) for seed in range(5)]


def a_case_skipped(patch):
    once = search.BoxBatch.of
    patch.setattr(search.BoxBatch, "of", lambda cases: once(cases[:-1]))
    return check_cases


def best_row_of_any_point(patch):
    once = planes.mixed

    def mixed(base, slopes):
        return dataclasses.replace(once(base, slopes), lower=base.amax(1))

    patch.setattr(search, "mixed", mixed)
    return lambda: [check_verdicts("relu", seed, 2, True, (0.02,)) for seed in range(6)]


def input_rows_forgotten(patch):
    once = search._Search.rows_of

    def rows_of(self, box, case):
        box, rows, over = once(self, box, case)
        return box, rows, torch.zeros_like(over)

    patch.setattr(search._Search, "rows_of", rows_of)
    return lambda: [check_verdicts("relu", seed, 1, True, (0.02, 0.001)) for seed in range(6)]


MUTANTS = (
    chord_offset_flipped,
    lower_line_above,
    places_of_extremes_forgotten,
    offs_keep_the_signs_of_weights,
    product_rest_dropped,
    no_slack,
    one_half_forgotten,
    clipped_too_far,
    the_narrower_case_decides,
    a_case_skipped,
    best_row_of_any_point,
    input_rows_forgotten,
)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.__name__)
def test_a_mutant_is_caught(mutant, monkeypatch):
    check = mutant(monkeypatch)
    with pytest.raises(AssertionError):
        check()


def exact(base, slopes, point):
    return Fraction(base) + sum(Fraction(s) * Fraction(t) for s, t in zip(slopes, point, strict=True))


def test_an_input_that_hardly_counts_is_not_clipped_by_rounding():
    """The plane is 0 at the corner as computed sums have it; a tiny slope divides what they were rounded."""
    rng = np.random.default_rng(0)
    for _ in range(400):
        slopes = rng.normal(0, 1, 6)
        slopes[0] = 10.0 ** rng.uniform(-16, -6)
        base = float(np.abs(slopes).sum()) + 10.0 ** rng.uniform(-17, -9) * rng.normal()
        one = torch.ones(1, 6, dtype=torch.float64)
        boxes = BoxBatch(-one, one, torch.zeros(1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64))
        planes = torch.tensor([[base]], dtype=torch.float64), torch.tensor(slopes)[None, None]
        kept = clipped(boxes, torch.zeros(1, dtype=torch.int64), *planes)
        corner = -np.sign(slopes)  # where the plane is least, but for the input of the tiny slope
        if kept.upper[0, 0] < 1:
            corner[0] = np.nextafter(float(kept.upper[0, 0]), 2)
            assert exact(base, slopes.tolist(), corner.tolist()) > 0
