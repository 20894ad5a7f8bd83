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


@dataclass(frozen=True)
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
    """The result of one image; counts by scenario: detections, and detected true boxes."""

    number: int
    changed_pixels: int
    psnr: float | None  # dB; None if unchanged
    targets: int
    detections_before: Mapping[str, int]
    detections_after: Mapping[str, int]
    found_before: Mapping[str, int]
    found_after: Mapping[str, int]

    def to_plain(self) -> dict[str, Any]:
        """The row as flat columns: `single_found_after`, …; `single_still_found`: any target detected."""
        plain: dict[str, Any] = {"image": f"{self.number}.png"}
        plain |= {key: getattr(self, key) for key in ("changed_pixels", "psnr", "targets")}
        for name in self.found_before:
            for column in ("detections_before", "detections_after", "found_before", "found_after"):
                plain[f"{name}_{column}"] = getattr(self, column)[name]
            plain[f"{name}_still_found"] = self.found_after[name] > 0
        return plain


@dataclass(frozen=True)
class Score:
    """The score of one entry, with everything it depends on."""

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
        changed = [row.changed_pixels for row in self.rows]
        return {
            "contest": self.contest,
            "team": self.team,
            "archive_sha256": self.archive,
            "scenarios": {name: s.to_plain() for name, s in self.scenarios.items()},
            "final": self.final,
            "distance": {"name": self.distance_name, "value": self.distance},
            "changed_pixels": {"mean": float(np.mean(changed)), "most": max(changed)},
            "hash": self.hashes.whole,
            "hashes": dataclasses.asdict(self.hashes),
            "images": [row.to_plain() for row in self.rows],
        }


@dataclass(frozen=True)
class Judgement:
    """All results per image: records before and after by scenario, features, changed pixels."""

    before: Mapping[str, tuple[DetectionRecord, ...]]
    after: Mapping[str, tuple[DetectionRecord, ...]]
    features: tuple[Floats, Floats]
    changed: tuple[int, ...]
    psnr: tuple[float | None, ...]  # dB; None if unchanged


def score(contest: Path | Contest, archive: Path, progress: Progress = silent, jobs: int = 0) -> Score:
    """Score a valid zip. Raise InputError with the reason if it cannot be scored."""
    loaded = contest if isinstance(contest, Contest) else open_contest(contest)
    entry = open_entry(archive, loaded.rules)
    digest = fingerprint.of_file(archive)
    judgement = judge(loaded, entry, progress, jobs)
    if fingerprint.of_file(archive) != digest:
        raise DataError(f"{archive}: was changed while it was scored; score it again")
    largest, limit = max(judgement.changed), loaded.rules.pixels
    if largest > limit:
        name = f"{judgement.changed.index(largest) + 1}.png"
        raise DataError(f"{archive}: {name}: {largest} changed pixels, limit {limit}; validate it")
    return score_of(loaded, judgement, entry.team, digest)


def judge(contest: Contest, entry: Entry, progress: Progress = silent, jobs: int = 0) -> Judgement:
    """Run every scenario and the feature network on the originals and on an entry's images."""
    changes = [ZippedImage(entry.path, entry.members[shot.number]) for shot in contest.shots]
    cells = contest.judge(changes, progress, jobs)
    changed, ratios = zip(*cells.differences(), strict=True)
    before, after = (scenarios(contest, cells.records(after=after)) for after in (False, True))
    features = cells.features(after=False), cells.features(after=True)
    return Judgement(before, after, features, changed, ratios)


def scenarios(contest: Contest, members: Sequence[CellSet]) -> dict[str, tuple[DetectionRecord, ...]]:
    """The records of the single model, and those of the vote of all members."""
    aligned = []
    for number, alignment in enumerate(contest.alignments):
        records = read_records(members[number]).records
        for failed in (r for r in records if isinstance(r, FailedImage)):
            raise DataError(f"{contest.models[number].name}: {failed}")
        aligned.append([r for r in realign(records, alignment) if isinstance(r, DetectionRecord)])
    rule = contest.rules.mimic
    voted = [
        dataclasses.replace(row[0], detections=vote([r.detections for r in row], rule))
        for row in zip(*aligned, strict=True)
    ]
    return {SINGLE: tuple(aligned[contest.single]), MIMIC: tuple(voted)}


def mean_ap(records: Sequence[DetectionRecord], rules: Rules, classes: int) -> float:
    """The mean average precision by the rules; NaN if no true box counts."""
    truth, detections = tables(records)
    rule = rule_named(rules.ap)
    return evaluate(truth, detections, rule, images=len(records), classes=classes, iou=rules.iou).mean_ap


def score_of(contest: Contest, judgement: Judgement, team: str, archive: str) -> Score:
    """The score from all results."""
    rules = contest.rules
    distance = frechet(*judgement.features)
    results = {}
    for name, before in judgement.before.items():
        first, second = (mean_ap(r, rules, len(contest.classes)) for r in (before, judgement.after[name]))
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
        rows=tuple(_row(contest.shots[i], i, judgement, rules) for i in range(len(contest.shots))),
    )


def scenario(map_before: float, map_after: float, distance: float, rules: Rules) -> Scenario:
    """The numbers of one scenario; raise DataError if nothing is detected in the originals."""
    if not map_before > 0:
        raise DataError(f"mAP of the original images: expected more than 0, got {map_before}")
    effect_raw = 1.0 - map_after / map_before
    stealth_raw = (rules.distance_max - distance) / (rules.distance_max - rules.distance_min)
    effect = min(max(effect_raw, rules.effect.low), rules.effect.high)
    stealth = min(max(stealth_raw, rules.stealth.low), rules.stealth.high)
    return Scenario(effect, stealth, effect * stealth, effect_raw, stealth_raw, map_before, map_after)


def _row(shot: ContestImage, index: int, judgement: Judgement, rules: Rules) -> ImageScore:
    truth = judgement.before[SINGLE][index].truth
    counts: dict[str, dict[str, int]] = {}
    for when, records in (("before", judgement.before), ("after", judgement.after)):
        detections = {name: r[index].detections for name, r in records.items()}
        counts[f"detections_{when}"] = {name: len(d) for name, d in detections.items()}
        counts[f"found_{when}"] = {n: int(hits(truth, d, rules.iou).sum()) for n, d in detections.items()}
    targets = int((~(truth.crowd | truth.difficult)).sum())
    return ImageScore(shot.number, judgement.changed[index], judgement.psnr[index], targets, **counts)


def hits(truth: Boxes, detections: Detections, least: float) -> Bools:
    """Per true box (n,): whether it counts and a detection of its class overlaps it by that IoU."""
    counts = ~(truth.crowd | truth.difficult)
    if not len(truth) or not len(detections):
        return np.zeros(len(truth), bool)
    same_class = truth.classes[:, None] == detections.classes[None, :]
    return np.asarray(counts & (same_class & (iou(truth.xyxy, detections.boxes) >= least)).any(axis=1))


def vote(predictions: Sequence[Detections], vote: Vote) -> Detections:
    """The boxes on which the members agree, best score first; the order of the members does not matter.

    Per class, boxes are processed by decreasing score. Each other member supports a box with its unused box
    of largest overlap, if the IoU is at least `vote.iou`. With at least `vote.least` members the box is
    accepted, and all supporting boxes are used: each counts once. The result is their mean, weighted by their
    scores; its score is the mean over *all* members, where absent ones count as 0.
    """
    if not 1 <= vote.least <= len(predictions):
        raise InputError(f"vote: expected 1 to {len(predictions)} members to agree, got {vote.least}")
    columns = ([getattr(d, name) for d in predictions] for name in ("boxes", "scores", "classes"))
    boxes, scores, classes = map(np.concatenate, columns)
    members = np.repeat(np.arange(len(predictions)), [len(detections) for detections in predictions])
    order = np.lexsort((*boxes.T[::-1], -scores))  # by score, then by corners; not by member
    agreed: list[tuple[float, int, tuple[float, ...]]] = []
    for category in np.unique(classes).tolist():
        indices = order[classes[order] == category]
        for group in _groups(boxes[indices], members[indices], vote):
            supporters = indices[group]
            score = math.fsum(scores[supporters]) / len(predictions)
            agreed.append((-score, category, _mean(boxes[supporters], scores[supporters])))
    if not agreed:
        return no_detections()
    negated, categories, means = zip(*sorted(agreed), strict=True)
    return Detections(np.array(means), -np.array(negated), np.array(categories))


def _groups(boxes: Floats, members: Ints, vote: Vote) -> Iterator[list[int]]:
    """Yield the groups of boxes of one class, best first: the best box, then those that support it."""
    overlap = iou(boxes, boxes)
    used = np.zeros(len(boxes), bool)
    for seed, overlaps in enumerate(overlap):
        if used[seed]:
            continue
        supports = (overlaps >= vote.iou) & (overlaps > 0) & ~used & (members != members[seed])
        supporters = np.flatnonzero(supports)
        supporters = supporters[np.argsort(-overlaps[supporters], kind="stable")]
        _, first = np.unique(members[supporters], return_index=True)  # of each member the largest overlap
        group = [seed, *supporters[first].tolist()]
        # A rejected box may still support another one, so it is not marked as used.
        if len(group) >= vote.least:
            used[group] = True
            yield group


def _mean(boxes: Floats, scores: Floats) -> tuple[float, ...]:
    """The mean box, computed as an offset from the first one, so that equal boxes give exactly that box."""
    weights = scores if scores.any() else np.ones(len(scores))
    total = math.fsum(weights)  # exact sums do not depend on the order
    steps = [math.fsum(weights * column) / total for column in (boxes - boxes[0]).T]
    return tuple(float(start + step) for start, step in zip(boxes[0], steps, strict=True))
