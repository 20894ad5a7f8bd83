"""One run of the branch and bound: the net in two precisions, what is proven, and witnesses replayed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import torch

from holdfast.verify.bab.tree import BranchDomain, SearchRoot, queries_of
from holdfast.verify.linear.curves import Cut, doubled
from holdfast.verify.linear.passes import Region, backward, evaluate
from holdfast.verify.linear.pieces import LinearSteps
from holdfast.verify.linear.root import ball
from holdfast.verify.linear.tune import Queries, QueryRows, bound, exactly, lines_of
from holdfast.verify.problem import Case, Deadline, EngineResult, VerificationProblem, stacked_rows

Tensor = Any
ENGINE = "branch and bound"
GOAL = 2e-4  # bounds are tuned until they exceed this, so that proofs have a margin for rounding


@dataclass(frozen=True)
class SearchSettings:
    """Settings of the search, the same for every network."""

    root_iterations: int = 60
    iterations: int = 8
    candidates: int = 4
    seconds_a_round: float = 0.8
    largest_batch: int = 512


class SearchState:
    """Shared state of one run: the problem, the deadline and the smallest margin proven so far."""

    def __init__(self, problem: VerificationProblem, clock: Deadline, plan: SearchSettings) -> None:
        self.problem, self.clock, self.plan = problem, clock, plan
        self.pieces = LinearSteps(problem.net, torch.float32, clock.check)
        self.exact = LinearSteps(problem.net, torch.float64, clock.check)
        self.margin, self.worst, self.parked = math.inf, math.inf, 0

    def late(self) -> bool:
        """Whether the time is up."""
        return self.clock.left < 0.3

    def park(self, lower: float) -> None:
        """Give up a domain that cannot be split further; the result will be unknown."""
        self.parked += 1
        self.worst = min(self.worst, lower)

    def in_float64(self, region: Region, case: Case) -> Region:
        """The same region in float64: the bounds carry over, the relaxations are recomputed."""
        centre, radius = ball(self.exact, case.lower, case.upper)
        bends = {at: doubled(relaxation) for at, relaxation in region.bends.items()}
        lower, upper = ({at: v.double() for at, v in ends.items()} for ends in (region.lower, region.upper))
        return Region(self.exact, centre, radius, lower=lower, upper=upper, bends=bends)


def closed(search: SearchState, region: Region, exact: Region, queries: Queries) -> Tensor:
    """Which queries (q,) are proven by a careful pass, in float64 where float32 does not suffice."""
    proven = bound(region, queries, careful=True).lower
    again = (proven <= 0).nonzero().reshape(-1)
    if len(again):
        lower = bound(exact, _double(queries.pick(again), exact), careful=True).lower
        proven[again] = torch.maximum(proven[again], lower)
    done = proven > 0
    if bool(done.any()):
        search.margin = min(search.margin, float(proven[done].min()))
    return done


def _double(queries: Queries, exact: Region) -> Queries:
    if queries.spec is not None:
        queries = replace(exactly(queries, queries.spec)[1], parts=None)
    split = None if queries.split is None else dict(queries.split)
    for at, value in (split or {}).items():  # signs stay; lines over a part of an interval are recomputed
        bend = exact.bends[at]
        if split is not None and isinstance(bend, Cut):
            split[at] = bend.assumed(value[:, 0].double(), value[:, 1].double())
    theta = {at: exact.bends[at].keep(v.double(), (split or {}).get(at)) for at, v in queries.theta.items()}
    beta = None if queries.beta is None else {at: value.double() for at, value in queries.beta.items()}
    return replace(queries, rows=queries.rows.double(), split=split, theta=theta, beta=beta)


def replay(search: SearchState, points: Tensor, cases: Sequence[Case]) -> EngineResult | None:
    """A violation among points (q, n) of the cases' box, replayed on the original file."""
    dtype = search.problem.dtype
    inside = np.clip(points.double().numpy().astype(dtype), *cases[0].ends(dtype))
    outputs = evaluate(search.pieces, search.pieces.tensor(inside)).double().numpy()
    near = np.zeros(len(inside), bool)
    for case in cases:
        slack = outputs @ case.rows.T - case.bound
        if case.inputs is not None:
            slack = slack + inside.astype(np.float64) @ case.inputs.T
        near |= slack.max(1) <= 1e-4 * (1 + np.abs(case.bound).max(initial=0.0))
    for point in inside[near][:4]:
        if bool(search.problem.violates(point[None])[0]):
            return EngineResult("violated", ENGINE, witness=point)
    return None


def queries_for(region: Region, cases: Sequence[Case]) -> Queries:
    """One query per case: its row, or an even mix of the rows of its conjunction."""
    pieces = region.pieces
    rows, inputs, offset = stacked_rows(cases)
    most = offset.shape[1]
    spec, parts = (
        QueryRows(*(None if value is None else tensor(value) for value in (rows, offset, inputs)))
        for tensor in (torch.as_tensor, pieces.tensor)
    )
    top = len(pieces.net.steps) - 1
    theta = {at: bend.start(len(cases)) for at, bend in region.bends.items()}
    if most == 1:
        rows_in = None if parts.rows_in is None else parts.rows_in[:, 0]
        return Queries(top, parts.rows[:, 0], theta, parts.offset[:, 0], rows_in, spec=spec)
    mix = pieces.tensor(np.full((len(cases), most), 1.0 / most))
    return Queries(top, parts.rows[:, 0], theta, parts=parts, spec=spec).mixed(mix)


Affine: TypeAlias = tuple[Any, Any]  # matrix (r, n) and offset (r,): matrix @ x + offset


def settle_leaf(
    search: SearchState, exact: Region, root: SearchRoot, case: Case, domain: BranchDomain
) -> tuple[bool, EngineResult | None]:
    """Whether a domain with no undecided neuron is closed, and a counterexample if one was found.

    The net is linear there, and one linear program decides it: minimise t over the box with
    rows_r·y(x) - bound_r <= t and s_i·z_i(x) >= 0 for every assumed sign s_i. The program's multipliers are
    the best mix of rows and the best betas; only a careful pass with them is a proof. Its point is replayed
    as a candidate counterexample.
    """
    queries = queries_of(root, [domain])
    theta = {at: exact.bends[at].keep(value.double()) for at, value in queries.theta.items()}
    lines = lines_of(exact, replace(queries, theta=theta))
    matrix, offset = _affine(exact, lines, queries.top, exact.pieces.tensor(case.rows))
    rows = matrix if case.inputs is None else matrix + case.inputs, offset - case.bound
    signs = _signs(exact, root, domain, lines)
    solved = _program(case, rows, signs, max(1.0, min(20.0, search.clock.left)))
    if solved is None:
        return False, None
    point, mix, beta, feasible = solved
    answer = replay(search, torch.as_tensor(point[None]), [case])
    if answer is not None:
        return False, answer
    weights = None
    if domain.mix is not None:
        weights = torch.zeros_like(domain.mix)
        weights[: len(mix)] = torch.as_tensor(mix, dtype=weights.dtype)
        weights = weights / weights.sum()
    # Betas of an infeasible program may be scaled arbitrarily; rounding sets the limit.
    for factor in (1.0, 1e3, 1e5, 1e7):
        full = torch.zeros(len(domain.split), dtype=search.pieces.dtype)
        full[domain.split != 0] = torch.as_tensor(factor * beta, dtype=search.pieces.dtype)
        queries = queries_of(root, [replace(domain, beta=full, mix=weights)])
        if bool(closed(search, root.region, exact, queries)[0]):
            return True, None
        if feasible:
            break
    return False, None


def _affine(exact: Region, lines: Any, top: int, rows: Tensor) -> Affine:
    """Rows (r, n) of step `top` as functions of the inputs; exact but for rounding, since all lines are."""
    traced = backward(exact, top, rows, lines)
    at_input = traced.rows_in
    offset = traced.lower - at_input @ exact.centre[0] + at_input.abs() @ exact.radius[0]
    return at_input.numpy(), offset.numpy()


def _signs(exact: Region, root: SearchRoot, domain: BranchDomain, lines: Any) -> Affine:
    """s_i·z_i(x) of every split neuron, in the order of the flat split."""
    parts = []
    for at, split in root.parts(domain.split[None]).items():
        bend, source = exact.bends[at], exact.pieces.net.steps[at].source  # type: ignore[union-attr]
        chosen = split[0] != 0
        rows = torch.zeros(int(chosen.sum()), exact.pieces.sizes[source], dtype=torch.float64)
        rows[torch.arange(len(rows)), bend.index[chosen]] = split[0][chosen].double()
        parts.append(_affine(exact, lines, source, rows))
    matrix, offset = (np.concatenate(part) for part in zip(*parts, strict=True))
    return matrix, offset


def _program(case: Case, rows: Affine, signs: Affine, seconds: float) -> tuple[Any, Any, Any, bool] | None:
    """The optimum's point, weights of rows and betas, and whether there is one; None if the solver failed."""
    import highspy

    inputs, count, zero = rows[0].shape[1], len(rows[1]), signs[1]
    matrix = np.zeros((count + len(zero), inputs + 1))
    matrix[:count, :-1], matrix[:count, -1] = rows[0], -1.0
    matrix[count:, :-1] = signs[0]
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = inputs + 1, len(matrix)
    lp.col_cost_ = np.append(np.zeros(inputs), 1.0)
    lp.col_lower_ = np.append(case.lower, -highspy.kHighsInf)
    lp.col_upper_ = np.append(case.upper, highspy.kHighsInf)
    lp.row_lower_ = np.append(np.full(count, -highspy.kHighsInf), -zero)
    lp.row_upper_ = np.append(-rows[1], np.full(len(zero), highspy.kHighsInf))
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_ = np.arange(len(matrix) + 1) * (inputs + 1)
    lp.a_matrix_.index_ = np.tile(np.arange(inputs + 1), len(matrix))
    lp.a_matrix_.value_ = matrix.ravel()
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("presolve", "off")  # an infeasible program gives its ray only without
    solver.setOptionValue("solver", "simplex")
    solver.setOptionValue("time_limit", float(seconds))
    solver.passModel(lp)
    solver.run()
    status = solver.getModelStatus()
    if status == highspy.HighsModelStatus.kInfeasible:
        _, has, ray = solver.getDualRay()
        duals = np.asarray(ray) if has else np.zeros(len(matrix))
        size = np.abs(duals[count:]).max(initial=0.0)
        betas = np.abs(duals[count:]) * (1.0 / size if size else 0.0)
        return (case.lower + case.upper) / 2, np.full(count, 1.0 / count), betas, False
    if status != highspy.HighsModelStatus.kOptimal:
        return None
    solution = solver.getSolution()
    duals = np.asarray(solution.row_dual)
    mix = np.maximum(-duals[:count], 0.0)
    mix = mix / mix.sum() if mix.sum() > 0 else np.full(count, 1.0 / count)
    return np.asarray(solution.col_value)[:-1], mix, np.maximum(duals[count:], 0.0), True
