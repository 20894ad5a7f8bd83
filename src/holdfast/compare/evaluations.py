"""Two evaluations: the metric, the numbers beside it and every class, paired on the images both have."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from holdfast.compare.change import Change, Subject, from_draws, from_interval, from_stated, in_points
from holdfast.compare.result import Body, Listed, differences
from holdfast.core.errors import InputError
from holdfast.core.seeds import generator
from holdfast.core.types import Floats
from holdfast.evaluate.difference import Side, broken, common, compare, drawn
from holdfast.evaluate.result import Evaluation
from holdfast.evaluate.score import Settings, places, tables
from holdfast.metrics.coco import IOU_THRESHOLDS
from holdfast.metrics.intervals import map_values, mean_difference
from holdfast.metrics.matching import Matches, match, prepare
from holdfast.metrics.rules import rule_named

WHOLE, CLASSES = "all images", "classes"
SEED = 0
_NOTHING = "nothing to measure"


def compare_evaluations(a: Evaluation, b: Evaluation) -> Body:
    """Every number of the two on their common images, by the rule of B; InputError if that means nothing."""
    _check(a, b)
    settings = settings_of(b.about.settings)
    first, second = (Side(run.records, b.about.task, b.about.classes, settings) for run in (a, b))
    try:
        names = common(first, second)
    except InputError as problem:
        data = [str(run.about.data.get("name")) for run in (a, b)]
        raise InputError(f"A is on {data[0]}, B on {data[1]}: {problem}") from None
    before, after = (_only(side, names) for side in (first, second))
    rows = [_main(before, after, names), *_others(before, after)]
    if b.about.task == "detect":
        rows += _classes(before, after)
    lost, gained = broken(before, after), broken(after, before)
    told = f"{compare(before, after).changes}"
    titles = ("right in A, wrong in B", "wrong in A, right in B")
    if b.about.task == "detect":  # an image may be in both: one object of it lost, another gained
        titles = ("an object found in A, missed in B", "an object missed in A, found in B")
    return Body(
        tuple(rows),
        differences(_description(a), _description(b)),
        (Listed(titles[0], lost, "worse"), Listed(titles[1], gained, "better")),
        (*_notes(a, b, len(names)), told),
    )


def settings_of(plain: dict[str, Any]) -> Settings:
    """The settings that a manifest names."""
    return Settings(rule_named(plain["rule"]), plain["iou"], plain["score"])


def ap_matches(records: Sequence[Any], classes: int, settings: Settings, levels: Sequence[float]) -> Any:
    """What became of every detection of the records, at each IoU."""
    truth, found = tables(records)
    known: dict[str, Any] = {"images": len(records), "classes": classes}
    known["prepared"] = prepare(truth, found, settings.rule, len(records))
    return [match(truth, found, settings.rule, level, **known) for level in levels]


def ap_draws(matches: Sequence[Matches], settings: Settings, images: int, replicates: int = 1000) -> Floats:
    """The mAP in points, then that of each draw; the same draws for every run of as many images."""
    rng = generator(SEED, "difference")
    return 100 * map_values(matches, settings.rule, images, rng, replicates=replicates)


def _check(a: Evaluation, b: Evaluation) -> None:
    if a.about.task != b.about.task:
        raise InputError(
            f"A is a run to {a.about.task}, B one to {b.about.task}: they have no number in common"
        )
    if a.about.classes != b.about.classes:
        only = [sorted(set(x.about.classes) - set(y.about.classes)) for x, y in ((a, b), (b, a))]
        said = [f"{len(o)} only in {n}{': ' + o[0] if o else ''}" for o, n in zip(only, "AB", strict=True)]
        raise InputError(
            f"the evaluated classes differ ({'; '.join(said)}): evaluate both with the same classes "
            "(--classes common, --map)"
        )


def _only(side: Side, names: Sequence[str]) -> Side:
    known = {record.name: record for record in side.records}
    return dataclasses.replace(side, records=tuple(known[name] for name in names), kept={})


def _main(before: Side, after: Side, names: Sequence[str]) -> Change:
    about = Subject(WHOLE, after.metric, "is better")
    return from_draws(about, 100 * drawn(before, names), 100 * drawn(after, names), len(names))


def _others(before: Side, after: Side) -> Iterator[Change]:
    """The numbers beside the main one; with an interval where the records give one at once."""
    numbers = [side.result["metrics"] for side in (before, after)]
    for name in numbers[1]:
        if name == after.metric:
            continue
        about = Subject(WHOLE, name, "is better")
        if name in ("AP50", "AP75"):
            level = [0.5 if name == "AP50" else 0.75]
            found = [
                ap_draws(ap_matches(s.records, len(s.classes), s.settings, level), s.settings, s.images)
                for s in (before, after)
            ]
            yield from_draws(about, found[0], found[1], after.images)
        elif name.startswith("top"):
            right = [100.0 * (places(s.records)[0] < int(name[3:])) for s in (before, after)]  # type: ignore[arg-type]
            interval = mean_difference(right[0], right[1], generator(SEED, "difference"), bound=100.0)
            yield from_interval(about, right[0].mean(), right[1].mean(), interval, after.images)
        else:
            sides = [in_points(n.get(name), images=after.images, words=_NOTHING) for n in numbers]
            yield from_stated(about, sides[0], sides[1], why="none is drawn for this number")


def _classes(before: Side, after: Side) -> Iterator[Change]:
    """The AP of every class that has truth, on as many images as have it."""
    settings, images = after.settings, after.images
    levels = IOU_THRESHOLDS.tolist() if settings.rule.name == "coco" else [settings.iou]
    both = [ap_matches(side.records, len(side.classes), settings, levels) for side in (before, after)]
    for place in np.flatnonzero(both[1][0].positives).tolist():
        found = [ap_draws([_class(m, place) for m in matches], settings, images) for matches in both]
        about = Subject(CLASSES, f"AP of {after.classes[place]}", "is better")
        first = both[1][0]
        having = np.unique(first.truth_image[first.counted & (first.truth_category == place)])
        yield from_draws(about, found[0], found[1], len(having))


def _class(matches: Matches, place: int) -> Matches:
    """The matches with only one class that counts."""
    own = np.zeros_like(matches.positives)
    own[place] = matches.positives[place]
    return dataclasses.replace(matches, positives=own)


def _description(run: Evaluation) -> dict[str, Any]:
    about = run.about
    told = {"model": about.model.get("name"), "model file": str(about.model.get("sha256", ""))[:12]}
    told |= {"data": about.data.get("name"), "images": len(run.records), "failed images": len(run.failed)}
    told |= {f"pipeline {stage}": value for stage, value in about.pipeline.items()}
    return told | dict(about.settings) | {f"version of {n}": v for n, v in about.versions.items()}


def _notes(a: Evaluation, b: Evaluation, images: int) -> Iterator[str]:
    if a.about.settings != b.about.settings:
        yield "A was scored by another rule or threshold: here both are scored by that of B"
    if not images == len(a.records) == len(b.records):
        yield f"compared on the {images} images both have; A has {len(a.records)}, B {len(b.records)}"
    if b.about.task == "detect" and len(b.about.classes) > 5:
        yield "of many rows one in twenty leaves out 0 by chance alone: single classes are hints, not proofs"
