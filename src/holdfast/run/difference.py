"""The difference between two runs on the same images, with its paired interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from holdfast.core.errors import InputError
from holdfast.core.seeds import generator
from holdfast.core.types import Floats
from holdfast.metrics.coco import IOU_THRESHOLDS
from holdfast.metrics.intervals import Flips, Interval, flips, map_difference, mean_difference
from holdfast.metrics.matching import Matches, match
from holdfast.metrics.rules import Rule, rule_named
from holdfast.run.evaluation import Evaluation
from holdfast.run.records import Found, Ranked, Record
from holdfast.run.score import places, single_outputs, tables


@dataclass(frozen=True)
class Difference:
    """After − before of one metric on the images both runs have, with its interval."""

    metric: str
    images: int
    interval: Interval
    flips: Flips | None = None

    def __str__(self) -> str:
        i = self.interval
        words = "clear of 0" if i.excludes_zero else "includes 0: may be the choice of images"
        if i.low == i.estimate == i.high == 0.0:
            words = "no image makes a difference"
        changed = f"; {self.flips.lost} lost, {self.flips.gained} gained" if self.flips else ""
        return (
            f"Δ {self.metric} {i.estimate:+.4f}, paired {i.level:.0%} interval [{i.low:+.4f}, {i.high:+.4f}] "
            f"over {self.images} images ({words}){changed}"
        )


def difference(before: Evaluation, after: Evaluation, *, seed: int = 0, replicates: int = 1000) -> Difference:
    """The main metric of `after` minus that of `before` on their common images."""
    if before.about.task != after.about.task or before.about.classes != after.about.classes:
        raise InputError("two runs can be compared only if they have the same task and the same classes")
    first, second = _paired(before.records, after.records)
    rng = generator(seed, "difference")
    task = after.about.task
    if task == "detect":
        rule = rule_named(after.about.settings["rule"])
        levels = IOU_THRESHOLDS.tolist() if rule.name == "coco" else [after.about.settings["iou"]]
        classes, images = len(after.about.classes), len(second)
        old_side, new_side = (
            [_match(side, rule, level, classes) for level in levels] for side in (first, second)
        )
        interval = map_difference(old_side, new_side, rule, images, rng, replicates=replicates)
        return Difference("AP" if rule.name == "coco" else "mAP", images, interval)
    name, old, new = _values(task, first, second)
    interval = mean_difference(old, new, rng, replicates=replicates)
    return Difference(name, len(new), interval, flips(old > 0.5, new > 0.5))


def _paired(before: Sequence[Record], after: Sequence[Record]) -> tuple[list[Record], list[Record]]:
    known = {r.name: r for r in before}
    second = [r for r in after if r.name in known]
    if not second:
        raise InputError("the two runs have no image in common")
    first = [known[r.name] for r in second]
    for old, new in zip(first, second, strict=True):
        if _truth(old) != _truth(new):
            raise InputError(
                f"{new.name}: the two runs do not have the same image or truth of this name; "
                "compare runs on the same data"
            )
    return first, second


def _truth(record: Record) -> object:
    """The size and the truth of a record's image as a value that can be compared."""
    if isinstance(record, Found):
        t = record.truth
        return record.size, *(a.tolist() for a in (t.xyxy, t.classes, t.crowd, t.difficult, t.areas))
    if isinstance(record, Ranked):
        return record.size, record.label
    return None


def _match(records: Sequence[Record], rule: Rule, iou: float, classes: int) -> Matches:
    found = [r for r in records if isinstance(r, Found)]
    truth, detections = tables(found)
    return match(truth, detections, rule, iou, images=len(found), classes=classes)


def _values(task: str, first: Sequence[Record], second: Sequence[Record]) -> tuple[str, Floats, Floats]:
    if task == "classify":
        sides = [(places([r for r in s if isinstance(r, Ranked)])[0] == 0) for s in (first, second)]
        return "top1", sides[0].astype(np.float64), sides[1].astype(np.float64)
    if task == "single":
        outputs = [single_outputs([r for r in s if isinstance(r, Found)])[0] for s in (first, second)]
        return "iou_equal", outputs[0], outputs[1]
    raise InputError("mIoU is one number of all pixels together; a paired interval is not offered for it")
