"""What the comparison of two runs found, as data."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from holdfast.compare.change import POINTS, Change, Kind, Verdict, order


@dataclass(frozen=True)
class Run:
    """One of the two: where it is, of what, and how it was made."""

    path: str
    model: str
    data: str
    created: str = ""
    command: str = ""


@dataclass(frozen=True)
class Listed:
    """Images (or questions) by name that changed sides."""

    title: str
    names: tuple[str, ...]
    tone: Literal["worse", "better"]


@dataclass(frozen=True)
class Body:
    """What the two runs of one kind have to say, the main metric first; `compare_runs` puts it in order."""

    changes: tuple[Change, ...]
    differs: tuple[tuple[str, str, str], ...] = ()  # what, in A, in B
    lists: tuple[Listed, ...] = ()
    notes: tuple[str, ...] = ()
    values: tuple[tuple[str, float | None, float | None], ...] = ()  # what gates read, in A and in B


@dataclass(frozen=True)
class Comparison:
    """Two runs side by side; the changes are sorted, worse first."""

    kind: Kind
    a: Run
    b: Run
    changes: tuple[Change, ...]
    differs: tuple[tuple[str, str, str], ...] = ()
    lists: tuple[Listed, ...] = ()
    notes: tuple[str, ...] = ()
    values: tuple[tuple[str, float | None, float | None], ...] = ()
    main: Change | None = None  # the metric of the whole, named in the summary
    same: bool = False  # both are one and the same run

    def of(self, verdict: Verdict) -> tuple[Change, ...]:
        """The rows of a verdict, the largest first."""
        return tuple(row for row in self.changes if row.verdict == verdict)

    @property
    def summary(self) -> str:
        """One sentence: how much is worse and better, and what most."""
        if self.same:
            return "A and B are one and the same run: every number is the same."
        counts = {v: len(self.of(v)) for v in ("worse", "better", "within chance", "undecided")}
        told = [f"{word} in {counts[word]}" for word in ("worse", "better", "within chance")]
        if counts["undecided"]:
            told.append(f"undecided in {counts['undecided']}")
        same = len(self.of("same to the last digit"))
        if not any(counts.values()):
            return self._equal(same) if same else _NOTHING
        if same:
            told.append(f"the same in {same}")
        most = _most(self)
        told[-1] += f"; most: {most.words}" if most is not None and most is not self.main else ""
        return f"B is {', '.join(told)}.{_headline(self.main)}"

    def _equal(self, same: int) -> str:
        """What is said when every number of what both measured is the same; gates read each run's own."""
        own = sum(a != b for _, a, b in self.values)
        if not own:
            return f"B and A are the same to the last digit in all {same} numbers."
        told = f"B and A are the same to the last digit in all {same} numbers of what both measured"
        values = f"{own} value{'s' * (own > 1)} for gates differ{'s' * (own == 1)}"
        return f"{told}; {values}, being of each run's own images and parts."


_NOTHING = "A and B have no number in common."


def _most(found: Comparison) -> Change | None:
    """The row that became most worse, else most better; in points if any is."""
    rows = found.of("worse") or found.of("better")
    return next((row for row in rows if row.about.unit == POINTS), rows[0] if rows else None)


def _headline(main: Change | None) -> str:
    if main is None or main.before.value is None or main.after.value is None:
        return ""
    span = f" [{main.low:+.2f}, {main.high:+.2f}]" if main.low is not None and main.high is not None else ""
    change = f"{main.difference or 0.0:+.2f} {main.about.unit}{span}"
    return f" {main.about.what}: {main.before.value:.2f} → {main.after.value:.2f} ({change}, {main.verdict})."


def made_of(kind: Kind, a: Run, b: Run, body: Body, *, same: bool = False) -> Comparison:
    """The comparison, its rows in order."""
    rows = order(list(body.changes))
    main = body.changes[0] if body.changes else None
    return Comparison(kind, a, b, rows, body.differs, body.lists, body.notes, body.values, main, same)


def as_plain(found: Comparison) -> dict[str, Any]:
    """The comparison as JSON values."""
    return {"holdfast": 1, "kind": "comparison", "of": found.kind, "summary": found.summary} | {
        **{name: dataclasses.asdict(getattr(found, name)) for name in ("a", "b")},
        "changes": [_row(row) for row in found.changes],
        "differs": [{"what": what, "a": a, "b": b} for what, a, b in found.differs],
        "lists": [dataclasses.asdict(one) for one in found.lists],
        "values": [{"name": name, "a": a, "b": b} for name, a, b in found.values],
        "notes": list(found.notes),
        "same": found.same,
    }


def _row(row: Change) -> dict[str, Any]:
    plain = dataclasses.asdict(row)
    return {**plain.pop("about"), "a": plain.pop("before"), "b": plain.pop("after"), **plain}


def differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> tuple[tuple[str, str, str], ...]:
    """What differs between two descriptions, value by value; what only one says reads as an empty text."""
    told = []
    for key in dict.fromkeys([*first, *second]):
        a, b = (str(side.get(key, "")) for side in (first, second))
        if a != b:
            told.append((key, a, b))
    return tuple(told)
