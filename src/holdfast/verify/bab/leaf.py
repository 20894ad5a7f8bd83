"""A domain with no undecided neuron left: the net is linear there, and one linear program settles it.

Minimise t over the box with rows_r·y(x) - bound_r <= t and s_i·z_i(x) >= 0 for every assumed sign s_i. The
program's multipliers are the best mix of rows and the best betas; only a careful pass with them proves. Its
point is tried as a counterexample.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from holdfast.verify.bab.search import Ground, Search, closed, replay
from holdfast.verify.bab.tree import Domain, Root, queries
from holdfast.verify.linear.passes import backward
from holdfast.verify.linear.tune import lines_of
from holdfast.verify.problem import Answer, Case

Tensor = Any


@dataclass(frozen=True, eq=False)
class Affine:
    """matrix (r, n) @ x + offset (r,)."""

    matrix: Any
    offset: Any


def settle_leaf(
    search: Search, land: Ground, root: Root, cases: Sequence[Case], domain: Domain
) -> tuple[bool, Answer | None]:
    """Whether the domain is closed, and a counterexample if one was found."""
    case = cases[domain.case]
    rows, signs = _rows(search, land, root, domain, case), _signs(search, land, root, domain)
    solved = _program(case, rows, signs, max(1.0, min(20.0, search.clock.left)))
    if solved is None:
        return False, None
    point, mix, beta, feasible = solved
    found = replay(search, torch.as_tensor(point[None]), [case])
    if found is not None:
        return False, found
    weights = None
    if domain.mix is not None:
        weights = torch.zeros_like(domain.mix)
        weights[: len(mix)] = torch.as_tensor(mix, dtype=weights.dtype)
        weights = weights / weights.sum()
    # Betas of an infeasible program may be taken as large as one likes; rounding sets the limit.
    for factor in (1.0, 1e3, 1e5, 1e7):
        full = torch.zeros(len(domain.split), dtype=search.pieces.dtype)
        full[domain.split != 0] = torch.as_tensor(factor * beta, dtype=search.pieces.dtype)
        asked = queries(root, [replace(domain, beta=full, mix=weights)])
        if bool(closed(search, land, asked)[0]):
            return True, None
        if feasible:
            break
    return False, None


def _affine(search: Search, land: Ground, domain_lines: Any, top: int, rows: Tensor) -> Affine:
    """Rows (r, n) of step `top` as functions of the inputs; exact but for rounding, since all lines are."""
    traced = backward(search.exact, land.exact, top, rows, domain_lines)
    at_input = traced.rows_in
    centre, radius = land.exact.centre[0], land.exact.radius[0]
    offset = traced.lower - at_input @ centre + at_input.abs() @ radius
    return Affine(at_input.numpy(), offset.numpy())


def _lines(land: Ground, root: Root, domain: Domain) -> Any:
    asked = queries(root, [domain])
    theta = {at: land.exact.bends[at].keep(value.double()) for at, value in asked.theta.items()}
    return lines_of(land.exact, replace(asked, theta=theta))


def _rows(search: Search, land: Ground, root: Root, domain: Domain, case: Case) -> Affine:
    top = len(search.exact.net.steps) - 1
    made = _affine(search, land, _lines(land, root, domain), top, search.exact.tensor(case.rows))
    matrix = made.matrix if case.inputs is None else made.matrix + case.inputs
    return Affine(matrix, made.offset - case.bound)


def _signs(search: Search, land: Ground, root: Root, domain: Domain) -> Affine:
    """s_i·z_i(x) of every split neuron, in the order of the flat split."""
    lines = _lines(land, root, domain)
    matrices, offsets = [], []
    for at, split in root.parts(domain.split[None]).items():
        bend, source = land.exact.bends[at], search.exact.net.steps[at].source  # type: ignore[union-attr]
        chosen = split[0] != 0
        rows = torch.zeros(int(chosen.sum()), search.exact.sizes[source], dtype=torch.float64)
        rows[torch.arange(len(rows)), bend.index[chosen]] = split[0][chosen].double()
        made = _affine(search, land, lines, source, rows)
        matrices.append(made.matrix)
        offsets.append(made.offset)
    return Affine(np.concatenate(matrices), np.concatenate(offsets))


def _program(case: Case, rows: Affine, signs: Affine, seconds: float) -> tuple[Any, Any, Any, bool] | None:
    """The optimum's point, weights of rows and betas, and whether there is one; None if the solver failed."""
    import highspy

    inputs, count = rows.matrix.shape[1], len(rows.offset)
    matrix = np.zeros((count + len(signs.offset), inputs + 1))
    matrix[:count, :-1], matrix[:count, -1] = rows.matrix, -1.0
    matrix[count:, :-1] = signs.matrix
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = inputs + 1, len(matrix)
    lp.col_cost_ = np.append(np.zeros(inputs), 1.0)
    lp.col_lower_ = np.append(case.lower, -highspy.kHighsInf)
    lp.col_upper_ = np.append(case.upper, highspy.kHighsInf)
    lp.row_lower_ = np.append(np.full(count, -highspy.kHighsInf), -signs.offset)
    lp.row_upper_ = np.append(-rows.offset, np.full(len(signs.offset), highspy.kHighsInf))
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
