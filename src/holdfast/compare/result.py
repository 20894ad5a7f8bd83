"""What the comparison of two runs found: every number side by side, and the word for what became of it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from holdfast.core.fingerprint import generator
from holdfast.core.result import Result
from holdfast.core.types import Floats
from holdfast.metrics.intervals import FEWEST, Interval, mean_values, paired

Kind: TypeAlias = Literal["evaluation", "noise", "attack", "audit", "language noise", "speech noise"]
Verdict: TypeAlias = Literal[
    "worse", "better", "undecided", "within chance", "same to the last digit", "only in A", "only in B"
]
Number: TypeAlias = float | None  # None: there is none
Rise: TypeAlias = Literal["is worse", "is better"]  # what it means that a number rises
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
SAME: Verdict = "same to the last digit"
SEED = 0  # of all draws
POINTS = "points"  # 1 point = 0.01 of a metric or of a share


@dataclass(frozen=True)
class Stated:
    """A number of one run as its manifest states it, with the 95 % interval if there is one."""

    value: Number
    low: Number = None
    high: Number = None
    images: int = 0
    words: str = ""  # instead of a number: identical, no effect, impossible, …


@dataclass(frozen=True)
class Subject:
    """What a row is about: its name and part, and which way is worse."""

    group: str
    what: str
    rise: Rise
    unit: str = POINTS
    costs: bool = False  # the number is a loss: "costs more", not "loses"


@dataclass(frozen=True)
class Change:
    """A row. `difference` = B − A in the unit, `low` and `high` its *paired* 95 % interval.

    Without records of the same images there is no paired interval: then `basis` says what the verdict rests
    on. `undecided`: the numbers differ, and nothing at hand says whether that is chance.
    """

    about: Subject
    before: Stated
    after: Stated
    verdict: Verdict
    difference: Number = None
    low: Number = None
    high: Number = None
    images: int = 0  # common ones
    basis: str = ""

    @property
    def words(self) -> str:
        """The change in a few words: "resize=opencv-nearest costs 4.10 points more"."""
        about, change = self.about, self.difference
        if change is None:
            return f"{about.what} is {self.verdict}"
        size = f"{abs(change):.2f} {about.unit}"
        if about.costs:
            return f"{about.what} costs {size} {'more' if change > 0 else 'less'}"
        return f"{about.what} {'rises' if change > 0 else 'falls'} by {size}"


def in_points(
    value: Number, low: Number = None, high: Number = None, *, images: int = 0, words: str = ""
) -> Stated:
    """A number stated as a part of 1, in points."""
    value, low, high = (None if number is None else 100 * number for number in (value, low, high))
    return Stated(value, low, high, images, words)


def from_draws(about: Subject, before: Floats, after: Floats, images: int, bound: float = 100.0) -> Change:
    """The row of two numbers, each followed by its values on the same draws; `bound` of their difference."""
    found = paired(before, after, bound=bound)
    return from_interval(about, float(before[0]), float(after[0]), found, images)


def from_interval(about: Subject, before: float, after: float, found: Interval, images: int) -> Change:
    """The row of two numbers and the paired interval of their difference."""
    first, second = Stated(_known(before), images=images), Stated(_known(after), images=images)
    row = partial(Change, about, first, second, images=images)
    change, low, high = (_known(v) for v in (found.estimate, found.low, found.high))
    if change is None:
        return row("undecided", basis="nothing to measure in one")
    if low is None or high is None:
        return row(SAME if change == 0 else "undecided", change, basis="no draw has a value")
    paired_row = partial(row, difference=change, low=low, high=high, basis="paired on the same images")
    if low == change == high == 0.0:
        return paired_row(SAME)
    if images < FEWEST:
        basis = f"{images} image{'s' if images > 1 else ''}: too few for an interval"
        return row("undecided", change, basis=basis)
    return paired_row(_direction(about, change) if low > 0 or high < 0 else "within chance")


def from_stated(
    about: Subject, before: Stated | None, after: Stated | None, *, why: str = "no records of the same images"
) -> Change:
    """The row of two stated numbers, whose intervals can only overlap or not; `why` none may be stated."""
    if before is None or after is None:
        missing = Stated(None)
        return Change(about, before or missing, after or missing, "only in B" if after else "only in A")
    row = partial(Change, about, before, after, images=min(before.images, after.images))
    if before.value is None and after.value is None:
        return row(SAME if before.words == after.words else "undecided")
    if before.value is None or after.value is None:
        return row("only in A" if after.value is None else "only in B")
    change = after.value - before.value
    if change == 0:
        return row(SAME, 0.0)
    if before.low is None or before.high is None or after.low is None or after.high is None:
        return row("undecided", change, basis=f"no interval: {why}")
    if before.high < after.low or after.high < before.low:
        return row(_direction(about, change), change, basis="the two intervals do not overlap (not paired)")
    return row("undecided", change, basis="the two intervals overlap (not paired)")


def as_cost(stated: Stated) -> Stated:
    """The cost that a run states; an option that leaves the input as it is costs exactly nothing."""
    same = stated.value is None and stated.words in ("identical", "no effect")
    return dataclasses.replace(stated, value=0.0, low=0.0, high=0.0) if same else stated


def mean_change(about: Subject, before: Sequence[float], after: Sequence[float]) -> Change:
    """The row of one value per image and run: their means, with the paired interval of the difference."""
    bound = 100.0 if about.unit == POINTS else math.inf
    drawn = [mean_values(np.asarray(v, np.float64), generator(SEED, "difference")) for v in (before, after)]
    return from_draws(about, drawn[0], drawn[1], len(before), bound)


def share_change(
    about: Subject, sides: Sequence[Mapping[str, bool]], stated: Sequence[Stated | None] = (None, None)
) -> Change:
    """The share of images of which something is true in A and in B: paired on common ones, else as stated."""
    names = [name for name in sides[0] if name in sides[1]]
    if not names:
        return from_stated(about, *stated)
    return mean_change(about, *([100.0 * side[name] for name in names] for side in sides))


def turned_images(sides: Sequence[Mapping[str, bool]], begin: str = "") -> tuple[Listed, Listed]:
    """The common images that are broken in B only, and those broken in A only."""
    before, after = sides
    both = [name for name in before if name in after]
    lost = tuple(name for name in both if after[name] and not before[name])
    kept = tuple(name for name in both if before[name] and not after[name])
    return (
        Listed(f"{begin}withstood in A, broken in B", lost, "worse"),
        Listed(f"{begin}broken in A, withstood in B", kept, "better"),
    )


def order(changes: Iterable[Change]) -> tuple[Change, ...]:
    """The rows, worse first, then better and what is open; the largest first, points before other units."""

    def key(row: Change) -> tuple[int, bool, float]:
        size = abs(row.difference) if row.difference is not None else 0.0
        return VERDICTS.index(row.verdict), row.about.unit != POINTS, -size

    return tuple(sorted(changes, key=key))


def _direction(about: Subject, change: float) -> Verdict:
    return "worse" if (change > 0) == (about.rise == "is worse") else "better"


def _known(value: float) -> Number:
    return None if math.isnan(value) else value


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
    values: tuple[tuple[str, Number, Number], ...] = ()  # what gates read, in A and in B


@dataclass(frozen=True, kw_only=True, repr=False)
class Comparison(Result, Body):
    """Two runs side by side; the changes are sorted, worse first."""

    kind: Kind
    a: Run
    b: Run
    main: Change | None = None  # the metric of the whole, named in the summary
    same: bool = False  # both are one and the same run

    @property
    def worse(self) -> tuple[Change, ...]:
        """The rows that became worse, the largest first."""
        return self.of("worse")

    @property
    def better(self) -> tuple[Change, ...]:
        """The rows that became better, the largest first."""
        return self.of("better")

    def to_dict(self) -> dict[str, Any]:
        """The comparison as plain values, as `--json` writes them."""
        return as_plain(self)

    def _summary(self) -> str:
        return self.summary

    def _rows(self) -> list[dict[str, Any]]:
        return [
            {
                "what": row.about.what, "a": row.before.value, "b": row.after.value,
                "difference": row.difference, "low": row.low, "high": row.high, "unit": row.about.unit,
                "verdict": row.verdict, "images": row.images,
            }
            for row in self.changes
        ]  # fmt: skip

    def _page(self) -> str:
        from holdfast.compare.page import page

        return page(self)

    def of(self, verdict: Verdict) -> tuple[Change, ...]:
        """The rows of a verdict, the largest first."""
        return tuple(row for row in self.changes if row.verdict == verdict)

    @property
    def summary(self) -> str:
        """One sentence: how much is worse and better, and what most."""
        if self.same:
            return "A and B are one and the same run: every number is the same."
        counts = {v: len(self.of(v)) for v in ("worse", "better", "within chance", "undecided")}
        parts = [f"{word} in {counts[word]}" for word in ("worse", "better", "within chance")]
        if counts["undecided"]:
            parts.append(f"undecided in {counts['undecided']}")
        same = len(self.of(SAME))
        if not any(counts.values()):
            if not same:
                return "A and B have no number in common."
            equal = f"B and A are the same to the last digit in all {same} numbers"
            own = sum(a != b for _, a, b in self.values)  # what gates read is of each run's own images
            if not own:
                return f"{equal}."
            values = f"{own} value{'s' * (own > 1)} for gates differ{'s' * (own == 1)}"
            return f"{equal} of what both measured; {values}, being of each run's own images and parts."
        if same:
            parts.append(f"the same in {same}")
        # The row that became most worse, else most better; in points if any is.
        moved = self.of("worse") or self.of("better")
        most = next((row for row in moved if row.about.unit == POINTS), moved[0] if moved else None)
        parts[-1] += f"; most: {most.words}" if most is not None and most is not self.main else ""
        return f"B is {', '.join(parts)}.{_headline(self.main)}"


def _headline(main: Change | None) -> str:
    if main is None or main.before.value is None or main.after.value is None:
        return ""
    span = f" [{main.low:+.2f}, {main.high:+.2f}]" if main.low is not None and main.high is not None else ""
    change = f"{main.difference or 0.0:+.2f} {main.about.unit}{span}"
    return f" {main.about.what}: {main.before.value:.2f} → {main.after.value:.2f} ({change}, {main.verdict})."


def as_plain(found: Comparison) -> dict[str, Any]:
    """The comparison as JSON values."""
    rows = [
        {**row.pop("about"), "a": row.pop("before"), "b": row.pop("after"), **row}
        for row in map(dataclasses.asdict, found.changes)
    ]
    return {"holdfast": 1, "kind": "comparison", "of": found.kind, "summary": found.summary} | {
        **{name: dataclasses.asdict(getattr(found, name)) for name in ("a", "b")},
        "changes": rows,
        "differs": [{"what": what, "a": a, "b": b} for what, a, b in found.differs],
        "lists": [dataclasses.asdict(one) for one in found.lists],
        "values": [{"name": name, "a": a, "b": b} for name, a, b in found.values],
        "notes": list(found.notes),
        "same": found.same,
    }


def differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> tuple[tuple[str, str, str], ...]:
    """What differs between two descriptions, value by value; what only one says reads as an empty text."""
    rows = ((k, str(first.get(k, "")), str(second.get(k, ""))) for k in dict.fromkeys([*first, *second]))
    return tuple(row for row in rows if row[1] != row[2])
