"""The score of an entry: S_e and S_s of both scenarios, by the formulas of the contest's document.

    S_e = 1 − mAP(D*) / mAP(D)      S_s = (max − distance(D, D*)) / (max − min)      score = S_e · S_s

each of S_e and S_s clipped to the range the rules give; final = the sum over the scenarios.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.contest.contest import Contest, Hashes, open_contest
from holdfast.contest.entry import Entry, open_entry
from holdfast.contest.judging import ContestImage, ZippedImage
from holdfast.contest.rules import Rules, Vote
from holdfast.core import fingerprint
from holdfast.core.errors import DataError, InputError
from holdfast.core.types import Bools, Boxes, Detections, Floats, Ints, no_detections
from holdfast.engine.cells import CellSet
from holdfast.engine.executor import Progress, silent
from holdfast.engine.pipelines import read_records
from holdfast.engine.records import DetectionRecord, FailedImage
from holdfast.evaluate.classes import realign
from holdfast.evaluate.score import tables
from holdfast.metrics.boxes import iou
from holdfast.metrics.detection import evaluate
from holdfast.metrics.frechet import frechet
from holdfast.metrics.rules import rule_named

SINGLE, MIMIC = "single", "mimic"


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One scenario's numbers: S_e and S_s clipped and raw, their product, mAP before and after."""

    effect: float  # S_e
    stealth: float  # S_s
    score: float
    effect_raw: float
    stealth_raw: float
    map_before: float
    map_after: float

    def to_plain(self) -> dict[str, float]:
        """The numbers by the names of the contest's document."""
        names = ("S_e", "S_s", "score", "S_e_raw", "S_s_raw", "mAP_before", "mAP_after")
        return dict(zip(names, dataclasses.astuple(self), strict=True))


@dataclass(frozen=True)
class ImageScore:
    """What became of one image; counts by scenario: detections, and true boxes that are found."""

    number: int
    changed_pixels: int
    psnr: float | None  # dB; None if nothing is changed
    targets: int
    detections_before: Mapping[str, int]
    detections_after: Mapping[str, int]
    found_before: Mapping[str, int]
    found_after: Mapping[str, int]

    def to_plain(self) -> dict[str, Any]:
        """The row as flat columns: `single_found_after`, …; `single_still_found` says if any target is."""
        plain: dict[str, Any] = {"image": f"{self.number}.png"}
        plain |= {key: getattr(self, key) for key in ("changed_pixels", "psnr", "targets")}
        for name in self.found_before:
            for column in ("detections_before", "detections_after", "found_before", "found_after"):
                plain[f"{name}_{column}"] = getattr(self, column)[name]
            plain[f"{name}_still_found"] = self.found_after[name] > 0
        return plain


@dataclass(frozen=True)
class Score:
    """The score of one entry, with all it depends on."""

    contest: str
    team: str
    archive: str  # sha256 of the zip
    scenarios: Mapping[str, Scenario]
    final: float
    distance_name: str
    distance: float
    hashes: Hashes
    rows: tuple[ImageScore, ...] = field(repr=False)

    def to_plain(self) -> dict[str, Any]:
        """The score as JSON values; the same for the same entry, whenever and wherever it is scored."""
        return {
            "contest": self.contest,
            "team": self.team,
            "archive_sha256": self.archive,
            "scenarios": {name: s.to_plain() for name, s in self.scenarios.items()},
            "final": self.final,
            "distance": {"name": self.distance_name, "value": self.distance},
            "changed_pixels": {
                "mean": float(np.mean([r.changed_pixels for r in self.rows])),
                "most": max(r.changed_pixels for r in self.rows),
            },
            "hash": self.hashes.whole,
            "hashes": dataclasses.asdict(self.hashes),
            "images": [row.to_plain() for row in self.rows],
        }


@dataclass(frozen=True)
class Judgement:
    """Every answer about the images: by scenario the records before and after, features, what was changed."""

    before: Mapping[str, tuple[DetectionRecord, ...]]
    after: Mapping[str, tuple[DetectionRecord, ...]]
    features: tuple[Floats, Floats]
    changed: tuple[int, ...]
    psnr: tuple[float | None, ...]  # dB; None if nothing is changed


def score(contest: Path | Contest, archive: Path, progress: Progress = silent, jobs: int = 0) -> Score:
    """The score of a zip that `validate` found good; InputError says in one line why it cannot be scored."""
    opened = contest if isinstance(contest, Contest) else open_contest(contest)
    entry = open_entry(archive, opened.rules)
    digest = fingerprint.of_file(archive)
    judged = judge(opened, entry, progress, jobs)
    if fingerprint.of_file(archive) != digest:
        raise DataError(f"{archive}: was changed while it was scored; score it again")
    most = max(judged.changed)
    if most > opened.rules.pixels:
        name = f"{judged.changed.index(most) + 1}.png"
        raise DataError(f"{archive}: {name}: {most} changed pixels, limit {opened.rules.pixels}; validate it")
    return score_of(opened, judged, entry.team, digest)


def judge(contest: Contest, entry: Entry, progress: Progress = silent, jobs: int = 0) -> Judgement:
    """What every scenario and the feature net say of the originals and of an entry's images."""
    changes = [ZippedImage(entry.path, entry.members[shot.number]) for shot in contest.shots]
    cells = contest.judge(changes, progress, jobs)
    changed, ratios = zip(*cells.differences(), strict=True)
    return Judgement(
        scenarios(contest, cells.records(after=False)),
        scenarios(contest, cells.records(after=True)),
        (cells.features(after=False), cells.features(after=True)),
        changed,
        ratios,
    )


def scenarios(contest: Contest, members: Sequence[CellSet]) -> dict[str, tuple[DetectionRecord, ...]]:
    """The records of the single model, and those of the vote of all."""
    answers = []
    for number, alignment in enumerate(contest.alignments):
        records = read_records(members[number]).records
        failed = [r for r in records if isinstance(r, FailedImage)]
        if failed:
            raise DataError(f"{contest.models[number].name}: {failed[0]}")
        answers.append([r for r in realign(records, alignment) if isinstance(r, DetectionRecord)])
    rule = contest.rules.mimic
    voted = [
        dataclasses.replace(row[0], detections=vote([r.detections for r in row], rule))
        for row in zip(*answers, strict=True)
    ]
    return {SINGLE: tuple(answers[contest.single]), MIMIC: tuple(voted)}


def mean_ap(records: Sequence[DetectionRecord], rules: Rules, classes: int) -> float:
    """The mean average precision by the rules; NaN if no true box counts."""
    truth, found = tables(records)
    rule = rule_named(rules.ap)
    return evaluate(truth, found, rule, images=len(records), classes=classes, iou=rules.iou).mean_ap


def score_of(contest: Contest, judged: Judgement, team: str, archive: str) -> Score:
    """The score from all answers."""
    rules = contest.rules
    distance = frechet(*judged.features)
    results = {}
    for name, before in judged.before.items():
        first, second = (mean_ap(r, rules, len(contest.classes)) for r in (before, judged.after[name]))
        results[name] = scenario(first, second, distance, rules)
    return Score(
        contest=rules.name,
        team=team,
        archive=archive,
        scenarios=results,
        final=math.fsum(s.score for s in results.values()),
        distance_name=rules.distance,
        distance=distance,
        hashes=contest.hashes,
        rows=tuple(_row(contest.shots[i], i, judged, rules) for i in range(len(contest.shots))),
    )


def scenario(map_before: float, map_after: float, distance: float, rules: Rules) -> Scenario:
    """The numbers of one scenario; DataError if nothing was found in the originals."""
    if not map_before > 0:
        raise DataError(f"mAP of the original images: expected more than 0, got {map_before}")
    effect_raw = 1.0 - map_after / map_before
    stealth_raw = (rules.distance_max - distance) / (rules.distance_max - rules.distance_min)
    effect = min(max(effect_raw, rules.effect.low), rules.effect.high)
    stealth = min(max(stealth_raw, rules.stealth.low), rules.stealth.high)
    return Scenario(
        effect=effect,
        stealth=stealth,
        score=effect * stealth,
        effect_raw=effect_raw,
        stealth_raw=stealth_raw,
        map_before=map_before,
        map_after=map_after,
    )


def _row(shot: ContestImage, place: int, judged: Judgement, rules: Rules) -> ImageScore:
    truth = judged.before[SINGLE][place].truth
    counts: dict[str, dict[str, int]] = {}
    for when, records in (("before", judged.before), ("after", judged.after)):
        said = {name: r[place].detections for name, r in records.items()}
        counts[f"detections_{when}"] = {name: len(d) for name, d in said.items()}
        counts[f"found_{when}"] = {n: int(hits(truth, d, rules.iou).sum()) for n, d in said.items()}
    targets = int((~(truth.crowd | truth.difficult)).sum())
    return ImageScore(shot.number, judged.changed[place], judged.psnr[place], targets, **counts)


def hits(truth: Boxes, found: Detections, least: float) -> Bools:
    """Per true box (n,) whether it counts and a detection of its class overlaps it by that IoU."""
    counts = ~(truth.crowd | truth.difficult)
    if not len(truth) or not len(found):
        return np.zeros(len(truth), bool)
    good = (iou(truth.xyxy, found.boxes) >= least) & (truth.classes[:, None] == found.classes[None, :])
    return np.asarray(counts & good.any(axis=1))


def vote(answers: Sequence[Detections], vote: Vote) -> Detections:
    """What the members agree on, best score first; the order of the members does not matter.

    Class by class, every box is looked at, best score first. Each other member supports it by that box of
    its own, not used yet, which overlaps it most, if the IoU is at least `vote.iou`. With `vote.least`
    members in all it stands, and all of their boxes are used up: each serves once. The box that comes out is
    their mean, weighted by their scores; its score is the mean over *all* members, absent ones giving 0.
    """
    if not 1 <= vote.least <= len(answers):
        raise InputError(f"vote: expected 1 to {len(answers)} members to agree, got {vote.least}")
    columns = ([getattr(answer, name) for answer in answers] for name in ("boxes", "scores", "classes"))
    boxes, scores, classes = map(np.concatenate, columns)
    members = np.repeat(np.arange(len(answers)), [len(answer) for answer in answers])
    order = np.lexsort((*boxes.T[::-1], -scores))  # by score, then by corners; not by member
    found: list[tuple[float, int, tuple[float, ...]]] = []
    for category in np.unique(classes).tolist():
        of = order[classes[order] == category]
        for group in _groups(boxes[of], members[of], vote):
            ballots = of[group]
            score = math.fsum(scores[ballots]) / len(answers)
            found.append((-score, category, _mean(boxes[ballots], scores[ballots])))
    if not found:
        return no_detections()
    negated, categories, means = zip(*sorted(found), strict=True)
    return Detections(np.array(means), -np.array(negated), np.array(categories))


def _groups(boxes: Floats, members: Ints, vote: Vote) -> Iterator[list[int]]:
    """The boxes of one class, best first, that stand together: the best one, then those that support it."""
    overlap = iou(boxes, boxes)
    used = np.zeros(len(boxes), bool)
    for seed, near in enumerate(overlap):
        if used[seed]:
            continue
        free = np.flatnonzero((near >= vote.iou) & (near > 0) & ~used & (members != members[seed]))
        free = free[np.argsort(-near[free], kind="stable")]
        _, first = np.unique(members[free], return_index=True)  # of each member the box that overlaps most
        group = [seed, *free[first].tolist()]
        # One that does not stand may still support another, so it is not used up.
        if len(group) >= vote.least:
            used[group] = True
            yield group


def _mean(boxes: Floats, scores: Floats) -> tuple[float, ...]:
    """The mean box; as a step from the first one, so that equal boxes give exactly that box."""
    weights = scores if scores.any() else np.ones(len(scores))
    total = math.fsum(weights)  # exact sums do not depend on the order
    steps = [math.fsum(weights * column) / total for column in (boxes - boxes[0]).T]
    return tuple(float(start + step) for start, step in zip(boxes[0], steps, strict=True))
