"""Asserted formulas made into the cases of a specification."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from holdfast.core.types import Floats
from holdfast.verify.vnnlib.algebra import All, Bound, Formula, Misfit, Row, conjoin
from holdfast.verify.vnnlib.spec import Disjunct, Spec


@dataclass
class PlainBounds:
    """Bounds that hold in every case, gathered in bulk: of which inputs, which values, whether from above."""

    inputs: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    upper: list[bool] = field(default_factory=list)


@dataclass(frozen=True)
class _Sizes:
    inputs: int
    outputs: int


def spec_of(inputs: int, outputs: int, asserted: list[Formula], plain: PlainBounds) -> Spec:
    """The specification of all asserted formulas together, its cases multiplied out."""
    lower, upper = np.full(inputs, -np.inf), np.full(inputs, np.inf)
    which, values, above = (
        np.array(plain.inputs, np.int64),
        np.array(plain.values),
        np.array(plain.upper, bool),
    )
    np.maximum.at(lower, which[~above], values[~above] + 0.0)
    np.minimum.at(upper, which[above], values[above] + 0.0)
    always = [formula[0] for formula in asserted if len(formula) == 1]
    for case in always:
        _narrow(lower, upper, case.bounds)
    rows = tuple(row for case in always for row in case.rows)
    factors = [formula for formula in asserted if len(formula) != 1]
    cases = [All(case.bounds, rows + case.rows) for case in conjoin(factors)]
    return _boxed(_Sizes(inputs, outputs), (lower, upper), cases)


def _narrow(lower: Floats, upper: Floats, bounds: tuple[Bound, ...]) -> None:
    for bound in bounds:
        if bound.side == "lower":
            lower[bound.input] = max(lower[bound.input], bound.value)
        else:
            upper[bound.input] = min(upper[bound.input], bound.value)


def _boxed(sizes: _Sizes, common: tuple[Floats, Floats], cases: list[All]) -> Spec:
    """The specification of the cases, each with its own box within the common one; empty ones are dropped."""
    boxes: dict[int, tuple[Floats, Floats] | None] = {}
    tables: dict[int, tuple[Floats, Floats, NDArray[np.bool_], Floats | None]] = {}
    kept, empty = [], 0
    for case in cases:
        # `cases` keeps every tuple alive, so that its id is its own.
        if id(case.bounds) not in boxes:
            boxes[id(case.bounds)] = _box(common, case.bounds)
        box = boxes[id(case.bounds)]
        if box is None:
            empty += 1
            continue
        if id(case.rows) not in tables:
            tables[id(case.rows)] = _table(sizes, case.rows)
        rows, bound, strict, inputs = tables[id(case.rows)]
        kept.append(Disjunct(*box, rows, bound, strict, inputs))
    which = "the only case" if len(cases) == 1 else f"{empty} of {len(cases)} cases"
    notes = (f"{which} dropped: its lower bound is above its upper bound",) if empty else ()
    return Spec(sizes.inputs, sizes.outputs, tuple(kept), notes)


def _box(common: tuple[Floats, Floats], bounds: tuple[Bound, ...]) -> tuple[Floats, Floats] | None:
    """The common box narrowed by these bounds; None if nothing is in it."""
    lower, upper = common if not bounds else (common[0].copy(), common[1].copy())
    _narrow(lower, upper, bounds)
    if (lower > upper).any():
        return None
    for side, values in (("lower", lower), ("upper", upper)):
        missing = np.flatnonzero(~np.isfinite(values))
        if len(missing):
            others = f" (and {len(missing) - 1} others)" if len(missing) > 1 else ""
            raise Misfit(f"expected a bounded input set, got no {side} bound of X_{missing[0]}{others}")
    return lower, upper


def _table(sizes: _Sizes, rows: tuple[Row, ...]) -> tuple[Floats, Floats, NDArray[np.bool_], Floats | None]:
    matrix = np.zeros((len(rows), sizes.outputs))
    tied = any(variable >= 0 for row in rows for variable, _ in row.weights)
    inputs = np.zeros((len(rows), sizes.inputs)) if tied else None
    for i, row in enumerate(rows):
        for variable, weight in row.weights:
            if variable < 0:
                matrix[i, -1 - variable] = weight
            elif inputs is not None:
                inputs[i, variable] = weight
    bound = np.array([row.bound for row in rows], np.float64)
    return matrix, bound, np.array([row.strict for row in rows], np.bool_), inputs
