"""Checks that fail where a bound is not one: for the tests of bounds, and for mutants that must not pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
import torch

from helpers.bounds import Row, Sample, dense_net, least_on_line, points_of, problem, sample, values_of
from holdfast.core.property import Budget
from holdfast.graph.ir import Activation, Product, curve_of, sources_of
from holdfast.verify.bab import tree
from holdfast.verify.bab.decide import RefinementDepth, decide, refine
from holdfast.verify.bab.search import SearchSettings, SearchState, closed, queries_for
from holdfast.verify.bab.tree import BranchDomain, RootMapping, SearchRoot, plant
from holdfast.verify.linear import curves, passes, root, shapes, tune
from holdfast.verify.linear.pieces import LinearSteps
from holdfast.verify.problem import Case, Deadline, EngineResult, VerificationProblem

CROWN = root.Effort(iterations=0)
ALPHA = root.Effort(iterations=6)
TREES = root.Effort(
    iterations=4,
    finish=lambda region, asked, goal: refine(
        region, asked, goal, RefinementDepth(rounds=6, leaves=24, gain=0.0)
    ),
)
SLOPES = {"leaky": 0.1, "elu": 0.7}
Check = Callable[[], object]
ENDS = [(-30.0, 100.0), (-10.0, 1e6), (-2.0, 3.0), (-1.0, 0.5), (-1e4, 1e4)]  # for mutants of lines
SMALL = SearchSettings(root_iterations=10, iterations=4)


def check_lines(curve: str, dtype: torch.dtype, ends: Sequence[tuple[float, float]], seed: int = 0) -> None:
    """Fails unless the lines drawn over these intervals stay on their side of the curve.

    Parameters are drawn far and wide and moved by `keep` to where it says they are valid.
    """
    rng = np.random.default_rng(seed)
    step = Activation(0, curve, (len(ends),), SLOPES.get(curve, 0.0))
    lower, upper = torch.tensor(ends, dtype=dtype).T.reshape(2, 1, -1)
    bend = curves.bend(step, lower, upper)
    start = bend.start(9)
    noise = torch.as_tensor(rng.normal(0, 2, start.shape) * 10 ** rng.uniform(-2, 3, start.shape))
    low, high = lower.double().numpy(), upper.double().numpy()
    z = low + (high - low) * np.concatenate([np.linspace(0, 1, 301), rng.random(300) ** 8])[:, None]
    near = np.clip(np.linspace(-30, 30, 601)[:, None], low, high)
    z = np.clip(np.concatenate([z, low + high - z, near, np.zeros_like(low)]), low, high)
    true = curve_of(step, z)
    for theta in (start, bend.keep(start + noise.to(dtype))):
        lines = bend.lines(theta)
        shown = _whole(bend, lines)
        for slope, offset, side in ((shown[0], shown[1], 1), (shown[2], shown[3], -1)):
            gap = side * (true[:, None] - (z[:, None] * slope + offset))
            doubt = 4 * np.finfo(float).eps * (1 + np.abs(z[:, None] * slope) + np.abs(offset))
            doubt = doubt + 4 * np.finfo(float).eps * np.abs(true[:, None])
            # A relu's chord may miss by what the slack of a pass counts: a rounding of slope times z.
            if curve in ("relu", "leaky"):
                doubt = doubt + 3 * torch.finfo(dtype).eps * np.abs(z[:, None])
            assert (gap >= -doubt).all(), (curve, dtype, gap.min())


def check_planes(seed: int, dtype: torch.dtype = torch.float32) -> None:
    """Fails unless the planes of products stay on their side over boxes of all sizes, mixed at random."""
    rng = np.random.default_rng(seed)
    count = 60
    ends = rng.normal(0, 1, (2, 2, count)) * 10.0 ** rng.uniform(-6, 6, (2, 1, count))
    ends[:, 1, ::7] = ends[:, 0, ::7]  # points
    ends = np.sort(ends.astype(np.float32), 1)
    left, right = (tuple(torch.as_tensor(end[None], dtype=dtype) for end in pair) for pair in ends)
    made = shapes.ProductRelaxation(Product(0, 0, (count,)), left, right)
    start = made.start(9)
    noise = torch.as_tensor(rng.normal(0, 1, start.shape), dtype=dtype)
    share = np.concatenate([rng.random((40, 2)), [[0, 0], [0, 1], [1, 0], [1, 1]]])
    a, b = (
        np.clip(low + (high - low) * share[:, side, None], low, high)[:, None]
        for side, (low, high) in enumerate(ends.astype(np.float64))
    )
    for theta in (start, made.keep(start + noise)):
        planes = made.lines(theta)
        la, lb, lo, ua, ub, uo = (
            getattr(planes, name).double().numpy() for name in ("la", "lb", "lo", "ua", "ub", "uo")
        )
        doubt = 8 * np.finfo(float).eps * (np.abs(la * a) + np.abs(lb * b) + np.abs(lo) + np.abs(a * b))
        assert (la * a + lb * b + lo <= a * b + doubt).all()
        doubt = 8 * np.finfo(float).eps * (np.abs(ua * a) + np.abs(ub * b) + np.abs(uo) + np.abs(a * b))
        assert (a * b <= ua * a + ub * b + uo + doubt).all()


def _whole(bend: curves.Bend, lines: shapes.Lines) -> list[np.ndarray]:
    """Slopes and offsets (q, n) of every neuron, those with a known line included."""
    found = []
    for slope, offset in ((lines.ls, lines.lo), (lines.us, lines.uo)):
        count = len(slope)
        full = bend.base.double().expand(count, -1).clone()
        full[:, bend.index] = slope.double()
        fixed = torch.zeros_like(full)
        if offset is not None:
            fixed[:, bend.index] = offset.double().expand(count, -1)
        found += [full.numpy(), fixed.numpy()]
    return found


def check_adjoint(given: Sample, seed: int = 0) -> None:
    """Fails unless <rows, W v> = <W' rows, v> for every linear step."""
    rng = np.random.default_rng(seed)
    pieces = LinearSteps(given.net, torch.float64)
    for at, step in enumerate(given.net.steps):
        if at == 0 or isinstance(step, Activation | Product):
            continue
        values = [torch.as_tensor(rng.normal(0, 1, (1, pieces.sizes[s]))) for s in sources_of(step)]
        rows = torch.as_tensor(rng.normal(0, 1, (1, pieces.sizes[at])))
        out = float((rows * pieces.forward(at, values, bias=False)).sum())
        back = sum(float((r * v).sum()) for r, v in zip(pieces.backward(at, rows), values, strict=True))
        assert abs(out - back) <= 1e-9 * (1 + abs(out)), (at, step)


def check_steps(given: Sample, effort: root.Effort, dtype: torch.dtype = torch.float32) -> passes.Region:
    """Fails unless every step's bounds contain its values at the points; comes back with the bounds."""
    pieces = LinearSteps(given.net, dtype)
    region = root.bounds(pieces, given.lower, given.upper, effort)
    for at, value in enumerate(values_of(given.net, given.points)):
        low, high = region.lower[at].double().numpy(), region.upper[at].double().numpy()
        doubt = 1e-13 * (1 + np.abs(value).max(initial=0.0))
        assert (low - doubt <= value).all(), (at, given.net.steps[at])
        assert (value <= high + doubt).all(), (at, given.net.steps[at])
    return region


def check_queries(given: Sample, seed: int = 0, dtype: torch.dtype = torch.float32) -> None:
    """Fails unless tuned bounds under assumed signs are below all points that have these signs."""
    rng = np.random.default_rng(seed)
    pieces = LinearSteps(given.net, dtype)
    region = root.bounds(pieces, given.lower, given.upper, CROWN)
    values = values_of(given.net, given.points)
    rows = rng.normal(0, 1, (6, pieces.sizes[-1]))
    theta = {at: bend.start(len(rows)) for at, bend in region.bends.items()}
    made = plant(region, tune.Queries(len(pieces.sizes) - 1, pieces.tensor(rows), theta))
    if not made.layers:
        splits, met = None, np.ones((len(rows), len(given.points)), bool)
    else:
        splits, met = _signs(rng, given, made, values)
    asked = made.queries
    if splits is not None:
        zero = {at: torch.zeros(value[:, :2].shape, dtype=dtype) for at, value in splits.items()}
        zero.update({at: torch.zeros(v.shape, dtype=dtype) for at, v in splits.items() if v.dim() == 2})
        asked = replace(
            asked, theta={at: region.bends[at].keep(v, splits.get(at)) for at, v in theta.items()}
        )
        asked = replace(asked, split=splits, beta=zero)
    tuned = tune.tune(region, asked, 12, goal=float("inf"))[1]
    lower = tune.bound(region, tuned, careful=True).lower.numpy()
    exact = tuned.rows.double().numpy() @ values[-1].T  # (q, b): the rows that were asked, as rounded
    doubt = 1e-13 * (1 + np.abs(exact).max())
    for q in range(len(rows)):
        assert not met[q].any() or lower[q] <= exact[q, met[q]].min() + doubt, (q, lower[q])


def _signs(
    rng: np.random.Generator, given: Sample, made: SearchRoot, values: list[np.ndarray]
) -> tuple[dict[int, torch.Tensor], np.ndarray]:
    """For each query what some neurons do at one of the points, and which points (q, b) do it all.

    Of relus that is the sign, of curves the side of a place where their interval is cut.
    """
    count = len(made.queries)
    model = rng.integers(0, len(given.points), count)
    met = np.ones((count, len(given.points)), bool)
    splits: dict[int, torch.Tensor] = {}
    for at in made.layers:
        bend = made.region.bends[at]
        before = values[given.net.steps[at].source][:, bend.index.numpy()]
        known = rng.random((count, before.shape[1])) < 0.4
        if at not in made.curved:
            sign = np.where(known, np.where(before[model] >= 0, 1, -1), 0)
            met &= ((sign[:, None] * before[None]) >= 0).all(2)
            splits[at] = torch.as_tensor(sign, dtype=torch.int8)
            continue
        lower, upper = (end.expand(count, -1).clone() for end in (bend.lower, bend.upper))
        point = lower + (upper - lower) * torch.as_tensor(
            rng.uniform(0.1, 0.9, known.shape), dtype=lower.dtype
        )
        above = torch.as_tensor(before[model]) >= point.double()
        lower = torch.where(torch.as_tensor(known) & above, point, lower)
        upper = torch.where(torch.as_tensor(known) & ~above, point, upper)
        ends = [v.double().numpy()[:, None] for v in (lower, upper)]
        met &= ((before[None] >= ends[0]) & (before[None] <= ends[1]) | ~known[:, None]).all(2)
        splits[at] = bend.assumed(lower, upper)
    return splits, met


def check_rounding(kind: str, seed: int) -> None:
    """Fails unless a careful float32 bound over a box that is nearly a point is below the exact value."""
    given = sample(kind, seed, radius=1e-12, count=20)
    given = replace(given, lower=given.points.min(0), upper=given.points.max(0))
    check_steps(given, CROWN)
    check_queries(given, seed)


def check_moves(given: Sample) -> None:
    """Fails unless domains moved to tighter bounds still cover the box."""
    case = Case(given.lower, given.upper, np.array([[1.0, -1.0]]), np.zeros(1))
    search = SearchState(problem(given.net, case), Deadline(Budget()), SMALL)
    roots = []
    for effort, known in ((root.Effort(iterations=0, abort=lambda: True), None), (TREES, 0)):
        before = roots[0].region if known is not None else None
        region = root.bounds(search.pieces, given.lower, given.upper, effort, before)
        theta = {at: bend.start(1) for at, bend in region.bends.items()}
        top = len(given.net.steps) - 1
        roots.append(plant(region, tune.Queries(top, search.pieces.tensor(case.rows), theta)))
    old, new = roots
    width = sum(old.sizes)
    if not width:
        return
    blank, tuned = torch.zeros(width), torch.zeros(sum(old.widths))
    whole = BranchDomain(0, 0.0, blank.to(torch.int8), tuned, tuned, None, torch.arange(width), blank)
    domains = [whole]
    rng = np.random.default_rng(width)
    for neuron in rng.choice(width, 7):  # a curve may be cut twice
        low, high = (float(end[neuron]) for end in old.ends())
        domains = tree.children(old, domains, [(int(neuron), rng.uniform(low, high))] * len(domains))
    move = RootMapping.between(old, new)
    moved = [d for d in (move.domain(d, 0, 0) for d in domains) if d is not None]
    values = values_of(given.net, given.points)
    before = np.concatenate(
        [values[given.net.steps[at].source][:, new.region.bends[at].index.numpy()] for at in new.layers]
        or [np.zeros((len(given.points), 0))],
        1,
    )
    covered = np.zeros(len(before), bool)
    for domain in moved:
        inside = ((domain.split.numpy() * before) >= 0).all(1)
        for lower, upper in (tree.windows(new, [domain]),) if domain.cuts else ():
            cut = list(domain.cuts)
            inside &= (before[:, cut] >= lower.double().numpy()[:, cut]).all(1)
            inside &= (before[:, cut] <= upper.double().numpy()[:, cut]).all(1)
        covered |= inside
    assert covered.all()


def check_verdict(asked: VerificationProblem, unsafe: bool, seconds: float = 20.0) -> EngineResult:
    """Fails if the answer contradicts what is known; a witness must be judged unsafe by the problem."""
    answer = decide(asked, Deadline(Budget(seconds=seconds)), SMALL)
    assert answer.status != "holds" or not unsafe, answer
    if answer.status == "violated":
        assert answer.witness is not None
        assert asked.violates(answer.witness[None]).all()
    return answer


def check_threshold(seed: int) -> list[str]:
    """Fails unless verdicts agree with exact minima of nets of one input, at bounds a hair to either side."""
    rng = np.random.default_rng(seed)
    net = dense_net(rng, inputs=1)
    lower, upper = np.array([-0.7]), np.array([0.9])
    row = rng.normal(0, 1, (1, 2))
    least = least_on_line(net, -0.7, 0.9, row[0])
    said = []
    for hair in (0.0, 3e-9, -3e-9, 1e-3, -1e-3):
        bound = np.array([float(least) + hair])
        asked = problem(net, Case(lower, upper, row, bound))
        said.append(check_verdict(asked, least <= Fraction(float(bound[0]))).status)
    return said


def check_cut(seed: int, seconds: float = 1.0) -> None:
    """Fails if a sigmoid net is said not to reach the least of many values that it takes.

    Witnesses are refused, so that nothing but a complete search can be the answer.
    """
    given = sample("sigmoid", seed, 2.0, count=3000)
    row = np.random.default_rng(seed).normal(0, 1, (1, 2))
    least = float((values_of(given.net, given.points)[-1] @ row[0]).min())
    case = Case(given.lower, given.upper, row, np.array([least + 1e-4]))
    asked = replace(problem(given.net, case), violates=lambda points: np.zeros(len(points), np.bool_))
    check_verdict(asked, True, seconds=seconds)


def check_offsets(seed: int) -> None:
    """Fails unless a bound that float32 would round away decides the verdict.

    y = relu(x + 2) is least at the lower end of its box: nothing but the rounding of the bound, of the row
    and of the box can go wrong. With an end that float32 does not have no witness comes to the rescue.
    """
    rng = np.random.default_rng(seed)
    row = Row(rng, (1,))
    row.dense(row.curve(row.dense(0, 1), "relu"), 1)
    net = row.net()
    first, last = net.steps[1], net.steps[3]
    first.weight[:], first.bias[:], last.weight[:], last.bias[:] = 1.0, 2.0, 1.0, 0.0
    factor, end = float(rng.uniform(0.5, 3)), float(rng.uniform(0, 0.5))
    for lower in (0.0, end):
        least = Fraction(factor) * (2 + Fraction(lower))
        for share in (2.0**-30, 2.0**-26, 2.0**-48, 0.0, -(2.0**-30), -(2.0**-26)):
            bound = np.array([float(least) * (1 + share)])
            case = Case(np.array([lower]), np.ones(1), np.array([[factor]]), bound)
            check_verdict(problem(net, case), Fraction(float(bound[0])) >= least)


def check_specification(seed: int) -> None:
    """Fails unless careful bounds of mixed rows are those of the rows in float64, and worth something."""
    given = sample("relu", seed, radius=1e-9)
    pieces = LinearSteps(given.net, torch.float32)
    region = root.bounds(pieces, given.lower, given.upper, ALPHA)
    rng = np.random.default_rng(seed)
    rows, offset = rng.normal(0, 1, (200, 3, 2)), rng.normal(0, 100, (200, 3))
    spec = tune.QueryRows(torch.as_tensor(rows), torch.as_tensor(offset))
    parts = tune.QueryRows(pieces.tensor(rows), pieces.tensor(offset))
    theta = {at: bend.start(200) for at, bend in region.bends.items()}
    asked = tune.Queries(len(pieces.sizes) - 1, parts.rows[:, 0], theta, parts=parts, spec=spec)
    asked = asked.mixed(pieces.tensor(rng.dirichlet(np.ones(3), 200)))
    lower = tune.bound(region, asked, careful=True).lower.numpy()
    output = values_of(given.net, given.points[:1])[-1][0]
    exact = (asked.mix.double().numpy() * (rows @ output - offset)).sum(1)
    assert (lower <= exact).all()
    assert (exact - lower < 1e-3).all()


def check_weights() -> None:
    """Fails if a negative weight closes a case: y <= 1 and y <= 2 can be met, but (y - 1) - (y - 2) > 0."""
    net = dense_net(np.random.default_rng(0))
    rows, bound = np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([1e3, 2e3])
    case = Case(np.zeros(3), np.ones(3), rows, bound)
    found = SearchState(problem(net, case), Deadline(Budget()), SMALL)
    region = root.bounds(found.pieces, case.lower, case.upper, CROWN)
    asked = queries_for(region, [case]).mixed(torch.tensor([[1.0, -1.0]]))
    assert not bool(closed(found, region, found.in_float64(region, case), asked).any())


def check_conjunction(seed: int) -> None:
    """Fails unless conjunctions, several cases, boxes and rows over inputs agree with dense sampling.

    The bounds are set so that one sampled point just meets all rows of one of the cases.
    """
    rng = np.random.default_rng(seed)
    net = dense_net(rng, inputs=2)
    cases = []
    for number in range(3):
        low = rng.normal(0, 0.5, 2)
        points = points_of(rng, low, low + 0.5, 200)
        inputs = rng.normal(0, 1, (2, 2)) if number == 1 else None
        rows = rng.normal(0, 1, (2 if number else 1, 2))
        left = values_of(net, points)[-1] @ rows.T
        left = left if inputs is None else left + points @ inputs.T
        # Met by one point of the last case only; the others are out of reach.
        best = left[left.max(1).argmin()]
        cases.append(Case(low, low + 0.5, rows, best + 1e-6 if number == 2 else best - 10.0, inputs))
    check_verdict(problem(net, *cases), True)
    same = [replace(case, lower=cases[2].lower, upper=cases[2].upper) for case in cases[:2]]
    check_verdict(problem(net, *same, cases[2]), True)


def lines(*kinds: str) -> Iterator[Check]:
    """Every line of these curves."""
    return (lambda k=kind: check_lines(k, torch.float32, ENDS) for kind in kinds)


def steps(kind: str = "relu", effort: root.Effort = CROWN, seeds: int = 6) -> Iterator[Check]:
    """Every step's bounds."""
    return (lambda s=seed: check_steps(sample(kind, s), effort) for seed in range(seeds))


def queries(*kinds: str, seeds: int = 6) -> Iterator[Check]:
    """Bounds under assumed signs."""
    return (
        lambda k=kind, s=seed: check_queries(sample(k, s, 2.0), s) for kind in kinds for seed in range(seeds)
    )
