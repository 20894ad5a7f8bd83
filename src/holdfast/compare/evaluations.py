"""Compare two evaluations or two attacks on their common images."""

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from holdfast.attack.plan import CELLS
from holdfast.attack.result import Attempt, attempt_from_plain
from holdfast.attack.run import MANIFEST
from holdfast.compare import result
from holdfast.compare.result import SEED, Change, ComparedNumber, ComparisonContent, ImageList, RiseMeaning
from holdfast.core.errors import HoldfastError, InputError
from holdfast.core.fingerprint import generator
from holdfast.core.types import Floats
from holdfast.engine.cells import CellSet
from holdfast.evaluate.classes import Alignment, realign
from holdfast.evaluate.difference import (
    ScoredRun,
    bootstrap_values,
    broken_images,
    common_images,
    compare,
    match_levels,
    same_truth,
)
from holdfast.evaluate.result import Evaluation
from holdfast.evaluate.score import Settings, true_class_ranks
from holdfast.metrics.intervals import map_values, mean_difference
from holdfast.metrics.matching import Matches

ALL_IMAGES, CLASSES = "all images", "classes"
_NOTHING = "nothing to measure"
ATTACK = "attack"
# What, its key in the manifest, what its rise means, and the largest difference in points.
EFFECTS: tuple[tuple[str, str, RiseMeaning, float], ...] = (
    ("mAP before", "before", "is better", 100.0),
    ("mAP under attack", "after", "is better", 100.0),
    ("S_e", "S_e", "is worse", math.inf),  # 1 − after / before: no lower limit
)


def compare_evaluations(a: Evaluation, b: Evaluation) -> ComparisonContent:
    """Every number of the two on their common images, by the rule of B."""
    _check(a, b)
    settings = Settings.from_plain(b.about.settings)
    first, second = (ScoredRun(run.records, b.about.task, b.about.classes, settings) for run in (a, b))
    try:
        names = common_images(first, second)
    except InputError as problem:
        data = [str(run.about.data.get("name")) for run in (a, b)]
        raise InputError(f"A is on {data[0]}, B is on {data[1]}: {problem}") from None
    before, after = (_restrict(side, names) for side in (first, second))
    main = ComparedNumber(ALL_IMAGES, after.metric, "is better")
    old, new = (100 * bootstrap_values(side, names) for side in (before, after))
    rows = [result.from_draws(main, old, new, len(names)), *_other_numbers(before, after)]
    lost, gained = broken_images(before, after), broken_images(after, before)
    titles = ("correct in A, wrong in B", "wrong in A, correct in B")
    if b.about.task == "detect":  # an image may be in both: one object of it lost, another gained
        rows += _class_changes(before, after)
        titles = ("an object detected in A, missed in B", "an object missed in A, detected in B")
    return ComparisonContent(
        tuple(rows),
        result.differences(_description(a), _description(b)),
        (ImageList(titles[0], lost, "worse"), ImageList(titles[1], gained, "better")),
        (*_notes(a, b, len(names)), str(compare(before, after).changes)),
        rule=settings.rule.name if b.about.task == "detect" else "",
    )


def ap_draws(matches: Sequence[Matches], settings: Settings, images: int, replicates: int = 1000) -> Floats:
    """The mAP in points, then that of each draw; the same draws for every run of this many images."""
    rng = generator(SEED, "difference")
    return 100 * map_values(matches, settings.rule, images, rng, replicates=replicates)


def _check(a: Evaluation, b: Evaluation) -> None:
    if a.about.task != b.about.task:
        raise InputError(
            f"the task of A is {a.about.task}, that of B is {b.about.task}: they have no number in common"
        )
    if a.about.classes != b.about.classes:
        only = [sorted(set(x.about.classes) - set(y.about.classes)) for x, y in ((a, b), (b, a))]
        texts = [f"{len(o)} only in {n}{': ' + o[0] if o else ''}" for o, n in zip(only, "AB", strict=True)]
        raise InputError(
            f"the evaluated classes differ ({'; '.join(texts)}): evaluate both with the same classes "
            "(--classes common, --map)"
        )


def _restrict(side: ScoredRun, names: Sequence[str]) -> ScoredRun:
    known = {record.name: record for record in side.records}
    return replace(side, records=tuple(known[name] for name in names), computed={})


def _other_numbers(before: ScoredRun, after: ScoredRun) -> Iterator[Change]:
    numbers = [side.result["metrics"] for side in (before, after)]
    for name in numbers[1]:
        if name == after.metric:
            continue
        about = ComparedNumber(ALL_IMAGES, name, "is better")
        if name in ("AP50", "AP75"):
            level = [0.5 if name == "AP50" else 0.75]
            old, new = (
                ap_draws(match_levels(s.records, len(s.classes), s.settings, level), s.settings, s.images)
                for s in (before, after)
            )
            yield result.from_draws(about, old, new, after.images)
        elif name.startswith("top"):
            right = [100.0 * (true_class_ranks(s.records)[0] < int(name[3:])) for s in (before, after)]  # type: ignore[arg-type]
            interval = mean_difference(right[0], right[1], generator(SEED, "difference"), bound=100.0)
            yield result.from_interval(about, right[0].mean(), right[1].mean(), interval, after.images)
        else:
            sides = [result.in_points(n.get(name), images=after.images, words=_NOTHING) for n in numbers]
            yield result.from_stated(about, sides[0], sides[1], why="not computed for this metric")


def _class_changes(before: ScoredRun, after: ScoredRun) -> Iterator[Change]:
    """The AP of every class that has ground truth, with the number of images that have it."""
    settings, images = after.settings, after.images
    both = [match_levels(side.records, len(side.classes), settings) for side in (before, after)]
    first = both[1][0]
    for number in np.flatnonzero(first.positives).tolist():
        own = np.arange(len(after.classes)) == number  # the only class that counts
        old, new = (
            ap_draws([replace(m, positives=m.positives * own) for m in matches], settings, images)
            for matches in both
        )
        about = ComparedNumber(CLASSES, f"AP of {after.classes[number]}", "is better")
        having = np.unique(first.truth_image[first.counted & (first.truth_category == number)])
        yield result.from_draws(about, old, new, len(having))


def _description(run: Evaluation) -> dict[str, Any]:
    about = run.about
    facts = {"model": about.model.get("name"), "model file": str(about.model.get("sha256", ""))[:12]}
    facts |= {"data": about.data.get("name"), "images": len(run.records), "failed images": len(run.failed)}
    facts |= {f"pipeline {stage}": value for stage, value in about.pipeline.items()}
    return facts | dict(about.settings) | {f"version of {n}": v for n, v in about.versions.items()}


def _notes(a: Evaluation, b: Evaluation, images: int) -> Iterator[str]:
    if a.about.settings != b.about.settings:
        yield "A was scored by another rule or threshold; here both are scored by those of B"
    if not images == len(a.records) == len(b.records):
        yield f"compared on the {images} common images; A has {len(a.records)}, B has {len(b.records)}"
    if b.about.task == "detect" and len(b.about.classes) > 5:
        yield (
            "about 1 in 20 numbers is significant by chance alone; treat significant single classes as hints"
        )


@dataclass(frozen=True)
class AttackRun:
    """An attack as in its manifest."""

    about: dict[str, Any]
    effects: tuple[dict[str, Any], ...]
    images: dict[str, dict[str, Any]]  # by name
    folder: Path
    cells: dict[str, Any]

    @cached_property
    def broken(self) -> dict[str, bool]:
        """Whether each image that had a target is broken."""
        return {n: bool(r["success"]) for n, r in self.images.items() if r["targets"] or r["steps"]}


def open_attack(path: Path) -> AttackRun:
    """The attack in a folder; InputError if there is none."""
    file = path / MANIFEST if path.is_dir() else path
    try:
        plain = orjson.loads(file.read_bytes())
        rows = {row["name"]: row for row in plain["images"]}
        for row in rows.values():
            _ = row["targets"], row["steps"], row["success"], row["pixels"], row["image_sha256"]
        about, effects = plain["about"], tuple(plain["effects"])
        _ = about["model"]["name"], about["data"]["name"], about["method"]["goal"], about["rule"]
        _ = effects[0]["before"], effects[0]["after"], effects[0]["S_e"]
    except (OSError, ValueError, KeyError, TypeError, IndexError) as problem:
        raise InputError(f"{file}: expected the {MANIFEST} of an attack, got: {problem!r}") from problem
    return AttackRun(about, effects, rows, file.parent, plain.get("cells") or {})


def compare_attacks(a: AttackRun, b: AttackRun) -> ComparisonContent:
    """Every number of the two on their common images."""
    goals = [run.about["method"]["goal"] for run in (a, b)]
    if goals[0] != goals[1]:
        raise InputError(f"the goal of A is {goals[0]}, that of B is {goals[1]}: expected the same goal")
    names = [name for name in a.images if name in b.images]
    if not names:
        raise InputError("the two attacks have no image in common")
    notes, rows = [], list(_broken_share(a, b))
    try:
        attempts = [attempts_of(run, which) for run, which in ((a, "A"), (b, "B"))]
        rows += effect_changes(a.about, b.about, [[side[n] for n in names] for side in attempts])
    except NotPaired as reason:
        data = [run.about["data"]["name"] for run in (a, b)]
        if data[0] != data[1]:
            raise InputError(f"A is on {data[0]}, B is on {data[1]}: expected the same data") from None
        rows += _stated_effects(a, b)
        notes.append(f"mAP and S_e have no paired interval: {reason}")
    if not len(names) == len(a.images) == len(b.images):
        notes.append(
            f"compared on the {len(names)} common images; A has {len(a.images)}, B has {len(b.images)}"
        )
    lists = result.changed_images((a.broken, b.broken))
    differs = result.differences(_describe_attack(a), _describe_attack(b))
    return ComparisonContent(tuple(rows), differs, lists, tuple(notes))


def _broken_share(a: AttackRun, b: AttackRun) -> Iterator[Change]:
    """The share of broken images, and the pixels of attacks that succeeded in both."""
    both = [name for name in a.broken if name in b.broken]
    if both:
        yield result.share_change(ComparedNumber(ATTACK, "images broken", "is worse"), (a.broken, b.broken))
    broken = [name for name in both if a.broken[name] and b.broken[name]]
    if broken:
        about = ComparedNumber(ATTACK, "pixels needed (images broken in both)", "is better", "pixels")
        yield result.mean_change(about, *([float(run.images[n]["pixels"]) for n in broken] for run in (a, b)))


class NotPaired(Exception):
    """Why two attacks have no metric on the same images."""


def effect_changes(
    a: dict[str, Any], b: dict[str, Any], both: Sequence[Sequence[Attempt]], begin: str = ""
) -> list[Change]:
    """The mAP before and after, and S_e, of attempts on the same images in A and B, with paired intervals."""
    if a.get("settings") != b.get("settings"):
        raise NotPaired("the rule of the metric differs, or one run does not state it")
    clean = [[attempt.record(attempt.model, after=False) for attempt in side] for side in both]
    if not all(map(same_truth, *clean)):
        raise InputError("images of the same name or their ground truth differ; attack the same data")
    draws = zip(effect_draws(a, both[0]), effect_draws(b, both[1]), EFFECTS, strict=True)
    return [
        result.from_draws(ComparedNumber(ATTACK, begin + what, rise), before, after, len(both[0]), bound)
        for before, after, (what, _, rise, bound) in draws
    ]


def effect_draws(
    about: dict[str, Any], attempts: Sequence[Attempt], *, replicates: int = 1000
) -> tuple[Floats, Floats, Floats]:
    """The mAP before and after and S_e in points, each followed by its values on the draws."""
    alignment, settings = Alignment.from_plain(about["alignment"]), Settings.from_plain(about["settings"])
    level = [0.5 if settings.rule.name == "coco" else settings.iou]
    draws = []
    for after in (False, True):
        records = realign([attempt.record(attempt.model, after) for attempt in attempts], alignment)
        matches = match_levels(records, len(alignment.names), settings, level)
        draws.append(ap_draws(matches, settings, len(records), replicates))
    before, left = draws
    effect = np.full(len(before), np.nan)
    np.divide(before - left, before, out=effect, where=before > 0)
    return before, left, 100 * effect


def attempts_of(run: AttackRun, which: str) -> dict[str, Attempt]:
    """The attempts of the manifest's images from the cells of its folder; NotPaired if one is missing."""
    if "alignment" not in run.about:
        raise NotPaired(f"{which} was written by a version that did not store the classes")
    attempts = {}
    with suppress(ValueError, KeyError, TypeError, HoldfastError):
        for attempt in map(attempt_from_plain, CellSet.from_plain(run.folder / CELLS, run.cells).read()):
            sha256 = run.images.get(attempt.name, {}).get("image_sha256")
            if isinstance(attempt, Attempt) and sha256 == attempt.image_sha256:
                attempts[attempt.name] = attempt
    missing = [name for name in run.images if name not in attempts]
    if missing:
        raise NotPaired(f"{which} no longer has a record of {missing[0]}")
    return attempts


def _stated_effects(a: AttackRun, b: AttackRun) -> Iterator[Change]:
    """The numbers of the manifests, without intervals, if rule and images are the same."""
    if a.about["rule"] != b.about["rule"] or a.images.keys() != b.images.keys():
        return
    for what, key, rise, _ in EFFECTS:
        sides = (result.in_points(run.effects[0][key], images=len(run.images)) for run in (a, b))
        yield result.from_stated(ComparedNumber(ATTACK, what, rise), *sides)


def _describe_attack(run: AttackRun) -> dict[str, Any]:
    about = run.about
    facts: dict[str, Any] = {"model": about["model"]["name"], "data": about["data"]["name"]}
    facts |= {"model file": str(about["model"].get("sha256", ""))[:12], "images": len(run.images)}
    for part in ("method", "limits", "pipeline"):
        facts |= {f"{part} {key}": value for key, value in about.get(part, {}).items()}
    facts |= {key: about.get(key) for key in ("seed", "universal", "rule")}
    return facts | {f"version of {n}": v for n, v in about.get("versions", {}).items()}
