"""The score of an entry: S_e and S_s of both scenarios, by the formulas of the contest's document.

    S_e = 1 − mAP(D*) / mAP(D)      S_s = (max − distance(D, D*)) / (max − min)      score = S_e · S_s

each of S_e and S_s clipped to the range the rules give; final = the sum over the scenarios.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.contest.contest import Contest, Hashes, open_contest
from holdfast.contest.judging import JudgeCells, Shot, ZippedImage
from holdfast.contest.rules import Rules, Scale, Vote
from holdfast.contest.validate import Entry, open_entry
from holdfast.core import fingerprint
from holdfast.core.errors import DataError, InputError
from holdfast.core.types import Bools, Boxes, Detections, Floats, no_detections
from holdfast.engine.cells import CellSet, run
from holdfast.engine.executor import Progress, silent
from holdfast.engine.pipelines import read_records
from holdfast.engine.records import Failed, Found
from holdfast.evaluate.classes import realign
from holdfast.evaluate.score import tables
from holdfast.metrics.boxes import iou
from holdfast.metrics.detection import evaluate
from holdfast.metrics.frechet import frechet
from holdfast.metrics.rules import rule_named

SINGLE, MIMIC = "single", "mimic"


@dataclass(frozen=True)
class Scenario:
    """One scenario's numbers: mAP before and after, S_e and S_s clipped and raw, and their product."""

    map_before: float
    map_after: float
    effect: float  # S_e
    effect_raw: float
    stealth: float  # S_s
    stealth_raw: float
    score: float

    def to_plain(self) -> dict[str, float]:
        """The numbers by the names of the contest's document."""
        return {
            "S_e": self.effect,
            "S_s": self.stealth,
            "score": self.score,
            "S_e_raw": self.effect_raw,
            "S_s_raw": self.stealth_raw,
            "mAP_before": self.map_before,
            "mAP_after": self.map_after,
        }


@dataclass(frozen=True)
class Row:
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
        plain: dict[str, Any] = {
            "image": f"{self.number}.png",
            "changed_pixels": self.changed_pixels,
            "psnr": self.psnr,
            "targets": self.targets,
        }
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
    rows: tuple[Row, ...] = field(repr=False)

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

    before: Mapping[str, tuple[Found, ...]]
    after: Mapping[str, tuple[Found, ...]]
    features: tuple[Floats, Floats]
    changed: tuple[int, ...]
    psnr: tuple[float, ...]


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
    shots = [
        dataclasses.replace(shot, change=ZippedImage(entry.path, entry.members[shot.number]))
        for shot in contest.shots
    ]
    work = contest.judging()
    cells = run(work, shots, contest.store, jobs=jobs, progress=progress)
    return gather(contest, JudgeCells(cells, work.count))


def gather(contest: Contest, cells: JudgeCells) -> Judgement:
    """All results, read from the store."""
    differences = cells.differences()
    return Judgement(
        scenarios(contest, cells.records(after=False)),
        scenarios(contest, cells.records(after=True)),
        (cells.features(after=False), cells.features(after=True)),
        tuple(changed for changed, _ in differences),
        tuple(ratio for _, ratio in differences),
    )


def scenarios(contest: Contest, members: Sequence[CellSet]) -> dict[str, tuple[Found, ...]]:
    """The records of the single model, and those of the vote of all."""
    answers = []
    for number, alignment in enumerate(contest.alignments):
        records = read_records(members[number]).records
        failed = [r for r in records if isinstance(r, Failed)]
        if failed:
            raise DataError(f"{contest.models[number].name}: {failed[0]}")
        answers.append([r for r in realign(records, alignment) if isinstance(r, Found)])
    rule = contest.rules.mimic
    voted = [
        dataclasses.replace(row[0], detections=vote([r.detections for r in row], rule))
        for row in zip(*answers, strict=True)
    ]
    return {SINGLE: tuple(answers[contest.single]), MIMIC: tuple(voted)}


def mean_ap(records: Sequence[Found], rules: Rules, classes: int) -> float:
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
    effect = 1.0 - map_after / map_before
    stealth = (rules.distance_max - distance) / (rules.distance_max - rules.distance_min)
    clipped = _clipped(effect, rules.effect), _clipped(stealth, rules.stealth)
    return Scenario(map_before, map_after, clipped[0], effect, clipped[1], stealth, clipped[0] * clipped[1])


def _clipped(value: float, scale: Scale) -> float:
    return min(max(value, scale.low), scale.high)


def _row(shot: Shot, place: int, judged: Judgement, rules: Rules) -> Row:
    truth = judged.before[SINGLE][place].truth
    ratio = judged.psnr[place]
    both = {"before": judged.before, "after": judged.after}
    counts = {
        f"detections_{when}": {name: len(r[place].detections) for name, r in records.items()}
        for when, records in both.items()
    }
    found = {
        f"found_{when}": {
            name: int(hits(truth, r[place].detections, rules.iou).sum()) for name, r in rs.items()
        }
        for when, rs in both.items()
    }
    pixels = judged.changed[place]
    targets = int((~(truth.crowd | truth.difficult)).sum())
    return Row(shot.number, pixels, ratio if math.isfinite(ratio) else None, targets, **counts, **found)


def hits(truth: Boxes, found: Detections, least: float) -> Bools:
    """Per true box (n,) whether it counts and a detection of its class overlaps it by that IoU."""
    counts = ~(truth.crowd | truth.difficult)
    if not len(truth) or not len(found):
        return np.zeros(len(truth), bool)
    good = (iou(truth.xyxy, found.boxes) >= least) & (truth.classes[:, None] == found.classes[None, :])
    result: Bools = counts & good.any(axis=1)
    return result


@dataclass(frozen=True)
class _Ballot:
    """One box of one member."""

    member: int
    score: float
    box: tuple[float, ...]
    place: int = field(compare=False)  # in the pool

    @property
    def rank(self) -> tuple[float, ...]:
        """What ballots are sorted by: best score first, then corners. The member does not count."""
        return (-self.score, *self.box)


def vote(answers: Sequence[Detections], vote: Vote) -> Detections:
    """What the members agree on, best score first; the order of the members does not matter.

    Class by class, every box is looked at, best score first. Each other member supports it by that box of
    its own, not used yet, which overlaps it most, if the IoU is at least `vote.iou`. With `vote.least`
    members in all it stands, and all of their boxes are used up: each serves once. The box that comes out is
    their mean, weighted by their scores; its score is the mean over *all* members, absent ones giving 0.
    """
    if not 1 <= vote.least <= len(answers):
        raise InputError(f"vote: expected 1 to {len(answers)} members to agree, got {vote.least}")
    found: list[tuple[float, int, tuple[float, ...]]] = []
    for category in sorted({int(c) for answer in answers for c in answer.classes}):
        for score, box in _agreed(_ballots(answers, category), len(answers), vote):
            found.append((-score, category, box))
    if not found:
        return no_detections()
    scores, classes, boxes = zip(*sorted(found), strict=True)
    return Detections(np.array(boxes), -np.array(scores), np.array(classes))


def _ballots(answers: Sequence[Detections], category: int) -> list[_Ballot]:
    rows = [
        (member, float(answer.scores[i]), tuple(map(float, answer.boxes[i])))
        for member, answer in enumerate(answers)
        for i in np.flatnonzero(answer.classes == category)
    ]
    return [_Ballot(*row, place) for place, row in enumerate(rows)]


def _agreed(ballots: list[_Ballot], members: int, vote: Vote) -> list[tuple[float, tuple[float, ...]]]:
    """Score and box of everything in one class that stands."""
    boxes = np.array([b.box for b in ballots])
    overlap = iou(boxes, boxes)
    used: set[int] = set()
    found = []
    for seed in sorted(ballots, key=lambda b: b.rank):
        if seed.place in used:
            continue
        near = np.flatnonzero((overlap[seed.place] >= vote.iou) & (overlap[seed.place] > 0)).tolist()
        free = [ballots[i] for i in near if i not in used and ballots[i].member != seed.member]
        group = [seed, *_supporters(free, overlap[seed.place])]
        # One that does not stand may still support another, so it is not used up.
        if len(group) >= vote.least:
            used |= {b.place for b in group}
            found.append((math.fsum(b.score for b in group) / members, _mean(group)))
    return found


def _supporters(free: list[_Ballot], overlap: Floats) -> list[_Ballot]:
    """Of each member the box that overlaps most; of equal ones the better ranked."""
    best: dict[int, _Ballot] = {}
    for ballot in sorted(free, key=lambda b: (-overlap[b.place], *b.rank)):
        best.setdefault(ballot.member, ballot)
    return list(best.values())


def _mean(group: list[_Ballot]) -> tuple[float, ...]:
    """The mean box; as a step from the first one, so that equal boxes give exactly that box."""
    weights = [b.score for b in group] if any(b.score for b in group) else [1.0] * len(group)
    total = math.fsum(weights)  # exact sums do not depend on the order
    return tuple(
        start + math.fsum(w * (b.box[i] - start) for w, b in zip(weights, group, strict=True)) / total
        for i, start in enumerate(group[0].box)
    )
