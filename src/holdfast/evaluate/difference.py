"""The difference between two runs on the same images: paired interval, flips, changed predictions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from holdfast.core.errors import InputError
from holdfast.core.seeds import generator
from holdfast.core.types import Bools, Floats
from holdfast.engine.records import Counted, Found, Ranked, Record
from holdfast.evaluate import changes as changed_images
from holdfast.evaluate.changes import Changes, changes
from holdfast.evaluate.classes import realign
from holdfast.evaluate.score import Settings, places, score_records, single_outputs, tables
from holdfast.metrics.coco import IOU_THRESHOLDS
from holdfast.metrics.intervals import Flips, Interval, flips, map_values, mean_values, miou_values, paired
from holdfast.metrics.matching import match, prepare
from holdfast.metrics.rules import rule_named

if TYPE_CHECKING:
    from holdfast.core.model import Task
    from holdfast.evaluate.classes import Alignment
    from holdfast.evaluate.result import Evaluation
    from holdfast.evaluate.run import Plan


@dataclass(frozen=True, eq=False)
class Side:
    """One run, ready to be compared with any number of others: what was computed once is kept.

    `records` have the evaluated classes' numbers and no failures (see `realign`).
    """

    records: tuple[Record, ...] = field(repr=False)
    task: Task
    classes: tuple[str, ...] = field(repr=False)
    settings: Settings
    kept: dict[Any, Floats] = field(default_factory=dict, repr=False)

    @property
    def metric(self) -> str:
        """The name of the main metric."""
        if self.task == "detect":
            return "AP" if self.settings.rule.name == "coco" else "mAP"
        return {"classify": "top1", "single": "iou_equal", "segment": "mIoU"}[self.task]

    @property
    def images(self) -> int:
        """How many images the run has."""
        return len(self.records)

    @cached_property
    def result(self) -> dict[str, Any]:
        """All numbers of the run, as an evaluation has them."""
        return score_records(self.records, self.task, self.classes, self.settings)

    @property
    def value(self) -> float:
        """The main metric, as an evaluation has it; NaN where there is nothing to measure."""
        number = self.result["metrics"][self.metric]
        return float("nan") if number is None else float(number)

    @property
    def rule(self) -> str:
        """The rule of the metric in words."""
        return str(self.result["rule"])


@dataclass(frozen=True)
class Difference:
    """After − before of one metric on the images both runs have, with its interval and what changed."""

    metric: str
    images: int
    interval: Interval
    before: float
    after: float
    changes: Changes
    flips: Flips | None = None

    @property
    def changed(self) -> int:
        """On how many images the prediction is another."""
        return self.changes.images

    def __str__(self) -> str:
        i = self.interval
        words = "clear of 0" if i.excludes_zero else "includes 0: may be the choice of images"
        if i.low == i.estimate == i.high == 0.0:
            words = "no image makes a difference"
        right = f"; {self.flips.lost} lost, {self.flips.gained} gained" if self.flips else ""
        return (
            f"Δ {self.metric} {i.estimate:+.4f}, paired {i.level:.0%} interval [{i.low:+.4f}, {i.high:+.4f}] "
            f"over {self.images} images ({words}){right}; {self.changes}"
        )


def side_of(plan: Plan, alignment: Alignment, records: Sequence[Record]) -> Side:
    """The run of a plan with these records; failures and what has no evaluated class are left out."""
    task = plan.model.card.task
    return Side(realign(records, alignment, task), task, alignment.names, plan.settings)


def difference(before: Evaluation, after: Evaluation) -> Difference:
    """The main metric of `after` minus that of `before` on their common images, by the rule of `after`."""
    if before.about.task != after.about.task or before.about.classes != after.about.classes:
        raise InputError("two runs can be compared only if they have the same task and the same classes")
    told = after.about.settings
    settings = Settings(rule_named(told["rule"]), told["iou"], told["score"])
    first, second = (
        Side(tuple(run.records), after.about.task, after.about.classes, settings) for run in (before, after)
    )
    return compare(first, second)


def compare(before: Side, after: Side, *, seed: int = 0, replicates: int = 1000) -> Difference:
    """The main metric of `after` minus that of `before` on their common images, in the order of `before`."""
    if (before.task, before.classes, before.settings) != (after.task, after.classes, after.settings):
        raise InputError("two runs can be compared only if task, classes and rule are the same")
    first, second = _paired(before.records, after.records)
    old, new = (
        _values(side, records, seed, replicates) for side, records in ((before, first), (after, second))
    )
    right = [_right(before.task, records) for records in (first, second)]
    return Difference(
        after.metric,
        len(second),
        paired(old, new),
        float(old[0]),
        float(new[0]),
        changes(first, second, after.task, after.settings),
        None if right[0] is None or right[1] is None else flips(right[0], right[1]),
    )


def broken(before: Side, after: Side) -> tuple[str, ...]:
    """The names of images that were right before and are wrong after (see changes.broken)."""
    first, second = _paired(before.records, after.records)
    wrong = changed_images.broken(first, second, after.task, after.settings)
    return tuple(first[i].name for i in np.flatnonzero(wrong).tolist())


def drawn(side: Side, names: Sequence[str], *, seed: int = 0, replicates: int = 1000) -> Floats:
    """The main metric on the named images, then that of each draw of them, (1 + replicates,); computed once.

    Sides of the same names and seed are scored on the same draws: sums and differences of them are paired.
    """
    known = {r.name: r for r in side.records}
    missing = next((name for name in names if name not in known), None)
    if missing is not None:
        raise InputError(f"{missing}: the run has no image of this name")
    return _values(side, [known[name] for name in names], seed, replicates)


def common(before: Side, after: Side) -> tuple[str, ...]:
    """The names of the images both runs have, in the order of `before`; InputError if their truth differs."""
    return tuple(record.name for record in _paired(before.records, after.records)[0])


def _paired(before: Sequence[Record], after: Sequence[Record]) -> tuple[list[Record], list[Record]]:
    found = {r.name: r for r in after}
    first = [r for r in before if r.name in found]
    if not first:
        raise InputError("the two runs have no image in common")
    second = [found[r.name] for r in first]
    for old, new in zip(first, second, strict=True):
        if not same_truth(old, new):
            raise InputError(
                f"{new.name}: the two runs do not have the same image or truth of this name; "
                "compare runs on the same data"
            )
    return first, second


def same_truth(first: Record, second: Record) -> bool:
    """Whether two records are of the same image with the same truth, as far as they tell."""
    return first is second or _truth(first) == _truth(second)


def _truth(record: Record) -> object:
    """The size and the truth of a record's image as a value that can be compared."""
    if isinstance(record, Found):
        t = record.truth
        return record.size, *(a.tobytes() for a in (t.xyxy, t.classes, t.crowd, t.difficult, t.areas))
    if isinstance(record, Ranked):
        return record.size, record.label
    if isinstance(record, Counted):
        return record.size, record.confusion.sum(axis=1).tobytes()
    return None


def _values(side: Side, records: Sequence[Record], seed: int, replicates: int) -> Floats:
    """The metric of these records of the side, then that of each draw; computed once."""
    key = (tuple(r.name for r in records), seed, replicates)
    if key not in side.kept:
        side.kept[key] = _scored(side, records, seed, replicates)
    return side.kept[key]


def _scored(side: Side, records: Sequence[Any], seed: int, replicates: int) -> Floats:
    rng = generator(seed, "difference")
    if side.task == "segment":
        return miou_values([r.confusion for r in records], rng, replicates=replicates)
    if side.task == "detect":
        rule, images = side.settings.rule, len(records)
        levels = IOU_THRESHOLDS.tolist() if rule.name == "coco" else [side.settings.iou]
        truth, found = tables(records)
        known: dict[str, Any] = {"images": images, "classes": len(side.classes)}
        known["prepared"] = prepare(truth, found, rule, images)
        matches = [match(truth, found, rule, level, **known) for level in levels]
        return map_values(matches, rule, images, rng, replicates=replicates)
    column = places(records)[0] == 0 if side.task == "classify" else single_outputs(records)[0]
    return mean_values(np.asarray(column, np.float64), rng, replicates=replicates)


def _right(task: Task, records: Sequence[Any]) -> Bools | None:
    """Which images are right, (n,); None where an image is neither right nor wrong."""
    if task == "classify":
        return np.asarray(places(records)[0] == 0)
    return np.asarray(single_outputs(records)[0] > 0.5) if task == "single" else None
