"""The result of a comparison of two runs: every number of A and B, their difference, and the verdict."""

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
from holdfast.engine.manifest import to_plain
from holdfast.metrics.intervals import FEWEST, Interval, mean_values, paired
from holdfast.metrics.points import interval_text
from holdfast.report.tables import shown

Kind: TypeAlias = Literal["evaluation", "noise", "attack", "audit", "language noise", "speech noise"]
Verdict: TypeAlias = Literal[
    "worse", "better", "undecided", "not significant", "identical", "only in A", "only in B"
]
Number: TypeAlias = float | None  # None: there is none
RiseMeaning: TypeAlias = Literal["is worse", "is better"]  # what a rise of the number means
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
SAME: Verdict = "identical"
SEED = 0  # of all draws
POINTS = "points"  # percentage points: 1 point = 0.01 of a metric or of a share


@dataclass(frozen=True)
class StatedNumber:
    """A number of one run as its manifest states it, with the 95% interval if there is one."""

    value: Number
    low: Number = None
    high: Number = None
    images: int = 0
    words: str = ""  # instead of a number: identical, no effect, …


@dataclass(frozen=True)
class ComparedNumber:
    """The number that a row compares: its part and name, and which way is worse."""

    group: str
    what: str
    rise: RiseMeaning
    unit: str = POINTS
    costs: bool = False  # the number is a loss, in points lost


@dataclass(frozen=True)
class Change:
    """A row. `difference` = B − A in the unit, `low` and `high` its *paired* 95% interval.

    Without records of the same images there is no paired interval: then `basis` says what the verdict is
    based on. `undecided`: the numbers differ, and there is no paired interval.
    """

    about: ComparedNumber
    before: StatedNumber
    after: StatedNumber
    verdict: Verdict
    difference: Number = None
    low: Number = None
    high: Number = None
    images: int = 0  # common images
    basis: str = ""

    @property
    def direction(self) -> str:
        """Whether B is better or worse, significant or not; empty without a difference."""
        return _direction(self.about, self.difference) if self.difference else ""

    @property
    def reading(self) -> str:
        """The verdict with its direction: "worse", "worse, not significant", "better, undecided"."""
        if self.verdict in ("not significant", "undecided") and self.direction:
            return f"{self.direction}, {self.verdict}"
        return self.verdict

    @property
    def words(self) -> str:
        """The change in a few words: "points lost to resize=opencv-nearest rise by 4.10"."""
        name, unit, change = self.about.what, self.about.unit, self.difference
        if change is None:
            return f"{name} is {self.verdict}"
        verb = "rise" if change > 0 else "fall"
        if self.about.costs and unit == POINTS:
            return f"points lost to {name} {verb} by {abs(change):.2f}"
        return f"{name} {verb}s by {abs(change):.2f} {unit}"


def in_points(
    value: Number, low: Number = None, high: Number = None, *, images: int = 0, words: str = ""
) -> StatedNumber:
    """A number stated as a fraction, in percentage points."""
    value, low, high = (None if number is None else 100 * number for number in (value, low, high))
    return StatedNumber(value, low, high, images, words)


def from_draws(
    about: ComparedNumber, before: Floats, after: Floats, images: int, bound: float = 100.0
) -> Change:
    """The row of two numbers, each followed by its values on the same draws; `bound` of their difference."""
    interval = paired(before, after, bound=bound)
    return from_interval(about, float(before[0]), float(after[0]), interval, images)


def from_interval(
    about: ComparedNumber, before: float, after: float, interval: Interval, images: int
) -> Change:
    """The row of two numbers and the paired interval of their difference."""
    first, second = StatedNumber(_known(before), images=images), StatedNumber(_known(after), images=images)
    row = partial(Change, about, first, second, images=images)
    change, low, high = (_known(v) for v in (interval.estimate, interval.low, interval.high))
    if change is None:
        return row("undecided", basis="nothing to measure in one run")
    if low is None or high is None:
        return row(SAME if change == 0 else "undecided", change, basis="no interval")
    paired_row = partial(row, difference=change, low=low, high=high, basis="paired on the same images")
    if low == change == high == 0.0:
        return paired_row(SAME)
    if images < FEWEST:
        return row("undecided", change, basis=f"too few images for an interval (n = {images})")
    return paired_row(_direction(about, change) if low > 0 or high < 0 else "not significant")


def from_stated(
    about: ComparedNumber,
    before: StatedNumber | None,
    after: StatedNumber | None,
    *,
    why: str = "no records of the same images",
) -> Change:
    """The row of two stated numbers, whose intervals overlap or not; `why` one may have no interval."""
    if before is None or after is None:
        missing = StatedNumber(None)
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
        return row(_direction(about, change), change, basis="the separate intervals do not overlap")
    return row("undecided", change, basis="the separate intervals overlap")


def zero_if_unchanged(stated: StatedNumber) -> StatedNumber:
    """The points lost that a run states; 0 for an option with identical input or no effect."""
    same = stated.value is None and stated.words in ("identical", "no effect")
    return dataclasses.replace(stated, value=0.0, low=0.0, high=0.0) if same else stated


def mean_change(about: ComparedNumber, before: Sequence[float], after: Sequence[float]) -> Change:
    """The row of one value per image and run: their means, with the paired interval of the difference."""
    bound = 100.0 if about.unit == POINTS else math.inf
    drawn = [mean_values(np.asarray(v, np.float64), generator(SEED, "difference")) for v in (before, after)]
    return from_draws(about, drawn[0], drawn[1], len(before), bound)


def share_change(
    about: ComparedNumber,
    sides: Sequence[Mapping[str, bool]],
    stated: Sequence[StatedNumber | None] = (None, None),
) -> Change:
    """The share of images for which something holds in A and in B: paired on common ones, else as stated."""
    names = [name for name in sides[0] if name in sides[1]]
    if not names:
        return from_stated(about, *stated)
    return mean_change(about, *([100.0 * side[name] for name in names] for side in sides))


def changed_images(sides: Sequence[Mapping[str, bool]], begin: str = "") -> tuple[ImageList, ImageList]:
    """The common images that are broken in B only, and those broken in A only."""
    before, after = sides
    both = [name for name in before if name in after]
    lost = tuple(name for name in both if after[name] and not before[name])
    won = tuple(name for name in both if before[name] and not after[name])
    return (
        ImageList(f"{begin}not broken in A, broken in B", lost, "worse"),
        ImageList(f"{begin}broken in A, not broken in B", won, "better"),
    )


def order(changes: Iterable[Change]) -> tuple[Change, ...]:
    """The rows, worse first, then better and undecided; the largest first, points before other units."""
    largest = sorted(changes, key=lambda row: -abs(row.difference or 0.0))
    return tuple(sorted(largest, key=lambda row: (VERDICTS.index(row.verdict), row.about.unit != POINTS)))


def _direction(about: ComparedNumber, change: float) -> Verdict:
    return "worse" if (change > 0) == (about.rise == "is worse") else "better"


def _known(value: float) -> Number:
    return None if math.isnan(value) else value


@dataclass(frozen=True)
class RunSummary:
    """One of the two runs: its path, model, data, date and command."""

    path: str
    model: str
    data: str
    created: str = ""
    command: str = ""


@dataclass(frozen=True)
class ImageList:
    """The names of images (or questions) that changed between the runs."""

    title: str
    names: tuple[str, ...]
    tone: Literal["worse", "better"]


@dataclass(frozen=True)
class ComparisonContent:
    """The contents of a comparison, the main metric first; `compare_runs` sorts the changes."""

    changes: tuple[Change, ...]
    differs: tuple[tuple[str, str, str], ...] = ()  # name, value in A, value in B
    lists: tuple[ImageList, ...] = ()
    notes: tuple[str, ...] = ()
    values: tuple[tuple[str, Number, Number], ...] = ()  # gate values in A and in B
    rule: str = ""  # the AP rule


@dataclass(frozen=True, kw_only=True, repr=False)
class Comparison(Result, ComparisonContent):
    """Two runs compared; the changes are sorted, worse first."""

    kind: Kind
    a: RunSummary
    b: RunSummary
    main: Change | None = None  # the overall metric, named in the summary
    same: bool = False  # A and B are the same run

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
        """The main metric, how many numbers are worse and better, and the largest change."""
        if self.same:
            return "A and B are the same run: all numbers are identical."
        counts = {v: len(self.of(v)) for v in ("worse", "better", "not significant", "undecided")}
        same = len(self.of(SAME))
        if not any(counts.values()):
            if not same:
                return "A and B have no number in common."
            equal = f"All {same} numbers of B and A are identical"
            own = sum(a != b for _, a, b in self.values)  # gate values are of each run's own images
            if not own:
                return f"{equal}."
            values = f"{own} gate value{'s' * (own > 1)} differ{'s' * (own == 1)}"
            return f"{equal} on what both measured; {values}, which each run measured on its own images."
        parts = [f"{n} {word}" for word, n in counts.items() if n or word != "undecided"]
        parts += [f"{same} identical"] if same else []
        # The largest change for the worse, else for the better; in points if there is one.
        significant = self.of("worse") or self.of("better")
        most = next((r for r in significant if r.about.unit == POINTS), next(iter(significant), None))
        largest = f" Largest change: {most.words}." if most is not None and most is not self.main else ""
        return f"{_headline(self.main, self.rule)}Numbers of B against A: {', '.join(parts)}.{largest}"

    @property
    def next_step(self) -> str:
        """What to do next, in a sentence; empty if there is nothing to do."""
        worse = next((images for images in self.lists if images.names and images.tone == "worse"), None)
        if self.same or not self.of("worse"):
            more = self.of("undecided") and not self.of("better")
            return "Next: compare runs on more images to decide the undecided numbers." if more else ""
        if worse is not None:
            return f"Next: look at the images listed under “{worse.title}”, such as {shown(worse.names[0])}."
        if self.differs:
            return f"Next: check what differs between the runs, first {shown(self.differs[0][0])}."
        return "Next: look at the rows marked worse."


def _headline(main: Change | None, rule: str) -> str:
    """The main metric of both runs, B − A with its interval and the verdict; empty without it."""
    if main is None or main.before.value is None or main.after.value is None:
        return ""
    size, span = f"{main.difference:+z.2f}" if main.difference else "0", ""
    if main.low is not None and main.difference:
        span = f", 95% interval {interval_text(main.low, main.high)}"
    change = f"B − A = {size} {main.about.unit}{span}, n = {main.images}"
    name = f"{main.about.what} ({rule})" if rule else main.about.what
    sides = f"{main.before.value:.2f} in A, {main.after.value:.2f} in B"
    return f"{name}: {sides} ({change}: {main.reading}). "


def as_plain(comparison: Comparison) -> dict[str, Any]:
    """The comparison as JSON values."""
    plain = to_plain(comparison)
    changes = []
    for change, row in zip(comparison.changes, plain["changes"], strict=True):
        about, before, after = (row.pop(name) for name in ("about", "before", "after"))
        changes.append({**about, "a": before, "b": after, **row, "direction": change.direction})
    return {
        "holdfast": 1, "kind": "comparison", "of": comparison.kind,
        "summary": comparison.summary, "next_step": comparison.next_step, "a": plain["a"], "b": plain["b"],
        "changes": changes,
        "differs": [{"what": what, "a": a, "b": b} for what, a, b in comparison.differs],
        "lists": plain["lists"],
        "values": [{"name": name, "a": a, "b": b} for name, a, b in comparison.values],
        "notes": plain["notes"], "rule": comparison.rule, "same": comparison.same,
    }  # fmt: skip


def differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> tuple[tuple[str, str, str], ...]:
    """The values that differ between two descriptions; a missing value is an empty text."""
    rows = ((k, str(first.get(k, "")), str(second.get(k, ""))) for k in dict.fromkeys([*first, *second]))
    return tuple(row for row in rows if row[1] != row[2])
