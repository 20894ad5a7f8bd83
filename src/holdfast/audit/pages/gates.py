"""Gates and what became of them, as a table and in words."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from holdfast.audit.gates import Judged
from holdfast.report.tables import Column, Table


def table(judged: Sequence[Judged]) -> Table:
    """One row a gate: what fails it, what was got, the verdict, and why or what it is about."""
    many = "gates" if len(judged) != 1 else "gate"
    columns = ("fail if", Column("got", note="fractions are 0 to 1"), "n", "verdict", "reason")
    rows = [(called(j), got(j.value), j.images, j.verdict, j.reason) for j in judged]
    return Table(columns, rows, f"{len(judged)} {many}: {counted(judged)}")


def counted(judged: Sequence[Judged]) -> str:
    """How many gates failed, were not decided and passed: 1 failed, 2 not decided, 3 passed."""
    found = Counter(one.verdict for one in judged)
    said = [f"{found[word]} {word}" for word in ("failed", "not decided", "passed") if found[word]]
    return f"all {len(judged)} {judged[0].verdict}" if len(said) == 1 and len(judged) > 1 else ", ".join(said)


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
    if not one.decided:
        return f"{called(one)}: not decided: {one.reason}, got {got(one.value)}"
    about = "; ".join([*([f"n = {one.images}"] if one.images is not None else []), one.reason]).strip("; ")
    return f"{called(one)}: {one.verdict}, got {got(one.value)}{f' ({about})' if about else ''}"


def called(one: Judged) -> str:
    """The gate with the title its author gave it, if any."""
    return f"{one.gate.title}: {one.gate.text}" if one.gate.title else one.gate.text
