"""Gates and what became of them, as a table and in words."""

from __future__ import annotations

import math
from collections.abc import Sequence

from holdfast.report.tables import Column, Table
from holdfast.run.audit.gates import Judged


def table(judged: Sequence[Judged]) -> Table:
    """One row a gate: what fails it, what was got, the verdict, and why or what it is about."""
    failed = sum(one.failed for one in judged)
    many = "gates" if len(judged) != 1 else "gate"
    caption = f"{failed} of {len(judged)} {many} failed" if failed else f"{len(judged)} {many}, none failed"
    columns = ("fail if", Column("got", note="fractions are 0 to 1"), "verdict", "reason")
    rows = [(called(j), got(j.value), "failed" if j.failed else "passed", j.reason) for j in judged]
    return Table(columns, rows, caption)


def got(value: float | None) -> str:
    """The number as it stands beside its bound: whole ones as they are, others with six digits."""
    if value is None or math.isnan(value):
        return "not measured"
    if math.isinf(value):
        return "none"
    return str(int(value)) if value.is_integer() else f"{value:.6g}"


def sentence(one: Judged) -> str:
    """The verdict of a gate in one sentence."""
    if one.value is None:
        return f"{called(one)}: failed, {one.reason}"
    about = f" ({one.reason})" if one.reason else ""
    return f"{called(one)}: {'failed' if one.failed else 'passed'}, got {got(one.value)}{about}"


def called(one: Judged) -> str:
    """The gate with the title its author gave it, if any."""
    return f"{one.gate.title}: {one.gate.text}" if one.gate.title else one.gate.text
