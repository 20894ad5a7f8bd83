"""One number of two runs side by side, and the word for what became of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

from holdfast.core.types import Floats
from holdfast.metrics.intervals import FEWEST, Interval, paired

Kind: TypeAlias = Literal["evaluation", "noise", "attack", "audit", "language noise", "speech noise"]
Verdict: TypeAlias = Literal[
    "worse", "better", "undecided", "within chance", "same to the last digit", "only in A", "only in B"
]
Rise: TypeAlias = Literal["is worse", "is better"]  # what it means that a number rises
VERDICTS: tuple[Verdict, ...] = (
    "worse", "better", "undecided", "within chance", "same to the last digit", "only in A", "only in B",
)  # fmt: skip
POINTS = "points"  # 1 point = 0.01 of a metric or of a share


@dataclass(frozen=True)
class Stated:
    """A number of one run as its manifest states it, with the 95 % interval if there is one."""

    value: float | None
    low: float | None = None
    high: float | None = None
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
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    images: int = 0  # common ones
    basis: str = ""

    @property
    def worsening(self) -> float | None:
        """The difference counted so that more is worse."""
        if self.difference is None:
            return None
        return self.difference if self.about.rise == "is worse" else 0.0 - self.difference

    @property
    def words(self) -> str:
        """What became of it, in a few words: "resize=opencv-nearest costs 4.10 points more"."""
        about, change = self.about, self.difference
        if change is None:
            return f"{about.what} is {self.verdict}"
        size = f"{abs(change):.2f} {about.unit}"
        if about.costs:
            return f"{about.what} costs {size} {'more' if change > 0 else 'less'}"
        return f"{about.what} {'rises' if change > 0 else 'falls'} by {size}"


def in_points(
    value: float | None,
    low: float | None = None,
    high: float | None = None,
    *,
    images: int = 0,
    words: str = "",
) -> Stated:
    """What is stated as a part of 1, in points."""
    whole = [None if number is None else 100 * number for number in (value, low, high)]
    return Stated(whole[0], whole[1], whole[2], images, words)


def from_draws(about: Subject, before: Floats, after: Floats, images: int, bound: float = 100.0) -> Change:
    """The row of two numbers in the row's unit, each followed by its values on the same draws of images.

    The difference is within ±`bound`: 100 for scores in points.
    """
    found = paired(before, after, bound=bound)
    return from_interval(about, float(before[0]), float(after[0]), found, images)


def from_interval(about: Subject, before: float, after: float, found: Interval, images: int) -> Change:
    """The row of two numbers and the paired interval of their difference."""
    first, second = Stated(_known(before), images=images), Stated(_known(after), images=images)
    change, low, high = (_known(v) for v in (found.estimate, found.low, found.high))
    if change is None:
        return Change(about, first, second, "undecided", images=images, basis="nothing to measure in one")
    if low is None or high is None:
        verdict: Verdict = "same to the last digit" if change == 0 else "undecided"
        return Change(about, first, second, verdict, change, images=images, basis="no draw has a value")
    basis = "paired on the same images"
    if low == change == high == 0.0:
        return Change(about, first, second, "same to the last digit", change, low, high, images, basis)
    if images < FEWEST:
        basis = f"{images} image{'s' if images > 1 else ''}: too few for an interval"
        return Change(about, first, second, "undecided", change, images=images, basis=basis)
    verdict = _direction(about, change) if low > 0 or high < 0 else "within chance"
    return Change(about, first, second, verdict, change, low, high, images, basis)


def from_stated(
    about: Subject, before: Stated | None, after: Stated | None, *, why: str = "no records of the same images"
) -> Change:
    """The row of two stated numbers: their intervals can only overlap or not, which is no paired interval.

    `why` says why there is no interval if none is stated.
    """
    if before is None or after is None:
        verdict: Verdict = "only in A" if after is None else "only in B"
        return Change(about, before or Stated(None), after or Stated(None), verdict)
    images = min(before.images, after.images)
    if before.value is None or after.value is None:
        return Change(about, before, after, _without_number(before, after), images=images)
    change = after.value - before.value
    if change == 0:
        return Change(about, before, after, "same to the last digit", 0.0, images=images)
    if None in (before.low, before.high, after.low, after.high):
        basis = f"no interval: {why}"
        return Change(about, before, after, "undecided", change, images=images, basis=basis)
    apart = _apart(before, after)
    basis = "the two intervals do not overlap" if apart else "the two intervals overlap"
    verdict = _direction(about, change) if apart else "undecided"
    return Change(about, before, after, verdict, change, images=images, basis=f"{basis} (not paired)")


def order(changes: list[Change]) -> tuple[Change, ...]:
    """The rows, worse first, then better and what is open; the largest first, points before other units."""

    def key(row: Change) -> tuple[int, bool, float]:
        size = abs(row.difference) if row.difference is not None else 0.0
        return VERDICTS.index(row.verdict), row.about.unit != POINTS, -size

    return tuple(sorted(changes, key=key))


def _direction(about: Subject, change: float) -> Verdict:
    return "worse" if (change > 0) == (about.rise == "is worse") else "better"


def _without_number(before: Stated, after: Stated) -> Verdict:
    if before.value is None and after.value is None:
        return "same to the last digit" if before.words == after.words else "undecided"
    return "only in A" if after.value is None else "only in B"


def _apart(first: Stated, second: Stated) -> bool:
    ends = (first.low, first.high, second.low, second.high)
    a_low, a_high, b_low, b_high = (math.nan if end is None else end for end in ends)
    return a_high < b_low or b_high < a_low


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
