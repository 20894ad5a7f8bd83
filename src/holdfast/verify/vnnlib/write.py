"""Specifications printed as VNN-LIB 1.0."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from holdfast.core.types import Floats
from holdfast.verify.vnnlib.spec import Disjunct, Spec


def print_vnnlib(spec: Spec) -> str:
    """The specification as VNN-LIB 1.0 text that reads back as exactly the same one."""
    lines = [f"(declare-const X_{i} Real)" for i in range(spec.inputs)]
    lines += [f"(declare-const Y_{i} Real)" for i in range(spec.outputs)]
    common = _common(spec)
    lines += [f"(assert {bound})" for bound in _bounds(*common)]
    if len(spec.cases) == 1:
        lines += [f"(assert {row})" for row in _rows(spec.cases[0])]
    else:
        lines += ["(assert (or", *(f"  (and {_own(case, common)})" for case in spec.cases), "))"]
    return "\n".join(lines) + "\n"


def _common(spec: Spec) -> tuple[Floats, Floats]:
    """The bounds that all cases share; NaN where they differ."""
    if not spec.cases:
        return np.zeros(spec.inputs), np.zeros(spec.inputs)  # any box: no case is in it
    sides = []
    for first, others in (
        (spec.cases[0].lower, [case.lower for case in spec.cases[1:]]),
        (spec.cases[0].upper, [case.upper for case in spec.cases[1:]]),
    ):
        shared = np.ones(spec.inputs, np.bool_)
        for other in {id(other): other for other in others}.values():
            shared &= first == other
        sides.append(np.where(shared, first, np.nan))
    return sides[0], sides[1]


def _own(case: Disjunct, common: tuple[Floats, Floats]) -> str:
    lower = np.where(np.isnan(common[0]), case.lower, np.nan)
    upper = np.where(np.isnan(common[1]), case.upper, np.nan)
    return " ".join([*_bounds(lower, upper), *_rows(case)])


def _bounds(lower: Floats, upper: Floats) -> Iterator[str]:
    """The bounds of each input, those that are NaN left out."""
    for i, (low, high) in enumerate(zip(lower.tolist(), upper.tolist(), strict=True)):
        if low == low:
            yield f"(>= X_{i} {low!r})"
        if high == high:
            yield f"(<= X_{i} {high!r})"


def _rows(case: Disjunct) -> Iterator[str]:
    for i, bound in enumerate(case.bound.tolist()):
        sign = "" if case.strict[i] else "="
        named = [(f"Y_{j}", float(case.rows[i, j])) for j in np.flatnonzero(case.rows[i])]
        if case.inputs is not None:
            named += [(f"X_{j}", float(case.inputs[i, j])) for j in np.flatnonzero(case.inputs[i])]
        yield _row(named, sign, bound)


def _row(named: list[tuple[str, float]], sign: str, bound: float) -> str:
    weights = [weight for _, weight in named]
    if weights == [1.0]:
        return f"(<{sign} {named[0][0]} {bound!r})"
    if weights == [-1.0]:
        return f"(>{sign} {named[0][0]} {0.0 - bound!r})"
    if sorted(weights) == [-1.0, 1.0] and bound == 0.0:
        less, more = (name for name, _ in sorted(named, key=lambda pair: -pair[1]))
        return f"(<{sign} {less} {more})"
    terms = " ".join(f"(* {weight!r} {name})" for name, weight in named)
    return f"(<{sign} (+ {terms}) {bound!r})"
