"""The matrix, threat × deployment: which threats still work, and whether the two magnify each other.

Every threat was computed for the training pipeline; here it is only replayed.
"""

import contextlib
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from holdfast.attack.judge import found_boxes
from holdfast.attack.types import Rule
from holdfast.audit.plan import LATE, Clock, skipped_images
from holdfast.audit.replay import PatchThreat, Records, as_trained, deployments_of, label_of, replay
from holdfast.audit.result import NO_THREAT, TOGETHER, TRAINED, Matrix, MatrixCell
from holdfast.audit.square_map import THREAT, worst_squares
from holdfast.audit.state import AuditState, PartOutcome
from holdfast.core.errors import BudgetSpent, DataError, InputError
from holdfast.core.model import Card
from holdfast.core.text import printable
from holdfast.core.types import Bools, Floats
from holdfast.engine.records import ClassificationRecord, DetectionRecord, FailedImage, Record
from holdfast.evaluate.difference import ScoredRun, bootstrap_values, scored_run
from holdfast.metrics.intervals import FEWEST, paired
from holdfast.noise.suite import Watch, no_progress
from holdfast.noise.vision.choose import ImageCandidate
from holdfast.noise.vision.run import PreparedNoise
from holdfast.noise.vision.sweep import Variant

RULE = Rule()  # when an object counts as detected


def matrix(
    prepared: PreparedNoise,
    deployments: Sequence[ImageCandidate],
    threats: Sequence[PatchThreat],
    watch: Watch = no_progress,
    names: Sequence[str] | None = None,
    replicates: int = 1000,
) -> Matrix:
    """Every threat under every deployment, on the same images in all cells; a killed run is resumed.

    `names` are the images (None: all of the plan's dataset). Images that an integer precision was calibrated
    on are skipped in all cells, and so is an image that fails in one; the notes say how many.
    """
    columns = [as_trained(prepared), *(d for d in deployments if label_of(d) != TRAINED)]
    titles = [label_of(column) for column in columns]
    twice = next((name for name in titles if titles.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"expected deployments of different names, got {twice!r} twice")
    dataset = prepared.noise.plan.dataset
    images = [printable(entry.name) for entry in dataset.entries]  # as records name them
    if names is not None:
        selected = {printable(name) for name in names}
        unknown = sorted(selected.difference(images))
        if unknown:
            raise InputError(f"{unknown[0]}: expected the name of an image of {dataset.name}")
        images = [name for name in images if name in selected]
    variants, tested, problems, notes = _testable(columns, images)
    records, failed = replay(prepared, variants, threats, tested, watch)
    sides, problems, skipped = _common_sides(prepared, records, tested, problems | failed)
    if skipped:
        why = f"they fail in at least one cell; first: {next(iter(skipped.values()))}"
        notes.append(f"{len(skipped)} of {len(tested)} images are skipped in all cells: {why}")
    table = _Table(sides, problems, {threat.name: threat.loses for threat in threats}, replicates)
    rows = (NO_THREAT, *(t.name for t in threats))
    cells = tuple(table.cell(row, deployment) for row in rows for deployment in titles)
    notes += [f"{TOGETHER}: {c.note}" for c in columns if label_of(c) == TOGETHER and c.variant]
    notes += _threat_notes(prepared.noise.plan.model.card, threats)
    return Matrix(rows, tuple(titles), cells, tuple(notes))


def _testable(
    columns: Sequence[ImageCandidate], images: Sequence[str]
) -> tuple[list[Variant], list[str], dict[str, str], list[str]]:
    """The runnable variants, their common test images, why the others cannot run, and notes."""
    variants = [column.variant for column in columns if column.variant is not None]
    problems = {label_of(c): c.note or c.status for c in columns if c.variant is None}
    calibrated = [v for v in variants if v.without]
    without = {printable(name) for v in calibrated for name in v.without}
    tested = [name for name in images if name not in without]
    if images and not tested:
        why = "calibrated on all of these images; none is left to test on"
        problems |= {v.name: why for v in calibrated}
        return [v for v in variants if not v.without], list(images), problems, []
    count, names = len(images) - len(tested), ", ".join(v.name for v in calibrated)
    note = f"{count} of {len(images)} images are skipped in all cells: {names} was calibrated on them"
    return variants, tested, problems, [note] if count else []


def _common_sides(
    prepared: PreparedNoise, records: Records, names: Sequence[str], problems: dict[str, str]
) -> tuple[dict[tuple[str, str], ScoredRun], dict[str, str], dict[str, str]]:
    """The cells on their common images, why deployments have no cells, and why images are skipped."""
    if TRAINED in problems:
        raise DataError(problems[TRAINED])
    failed: dict[str, dict[str, str]] = {}
    for (_, deployment), by_image in records.items():
        reasons = {n: r.reason for n, r in by_image.items() if isinstance(r, FailedImage)}
        failed[deployment] = reasons | failed.get(deployment, {})
    for deployment, reasons in failed.items():
        if deployment != TRAINED and 2 * len(reasons) > len(names):  # no cells; else few images would be left
            why = f"{len(reasons)} of {len(names)} images fail: {next(iter(reasons.values()))}"
            problems = {**problems, deployment: why}
    skipped = {n: why for d, reasons in failed.items() if d not in problems for n, why in reasons.items()}
    common = [name for name in names if name not in skipped]
    if not common:
        first = f"; first: {next(iter(skipped.values()))}" if skipped else ""
        raise DataError(f"none of the {len(names)} images could be run{first}")
    sides = {}
    for key, by_image in records.items():
        if key[1] not in problems:
            strong = [above_threshold(by_image[name], RULE) for name in common]
            sides[key] = scored_run(prepared.noise.plan, prepared.alignment, strong)
            if not sides[key].records:
                raise DataError(f"none of the {len(common)} images shows a class that is evaluated")
    return sides, problems, skipped


@dataclass(frozen=True)
class _Table:
    """The sides of all cells by threat and deployment, and why a deployment has none."""

    sides: dict[tuple[str, str], ScoredRun] = field(repr=False)
    problems: dict[str, str]
    loses: dict[str, str]  # by threat: what an image must lose to be broken
    replicates: int

    def values(self, threat: str, deployment: str) -> Floats:
        """The metric of a cell, then that of each draw: the same draws in all cells."""
        names = [r.name for r in self.sides[NO_THREAT, TRAINED].records]
        return bootstrap_values(self.sides[threat, deployment], names, replicates=self.replicates)

    def cell(self, threat: str, deployment: str) -> MatrixCell:
        images = self.sides[NO_THREAT, TRAINED].images
        if deployment in self.problems:
            return MatrixCell(threat, deployment, None, images, note=self.problems[deployment])
        value = _finite(self.values(threat, deployment)[0])
        note = "nothing to measure: no image has ground truth" if value is None else ""
        broken = (0, 0) if threat == NO_THREAT else self._broken(threat, deployment)
        cell = MatrixCell(threat, deployment, value, images, *broken, note=note)
        if threat == NO_THREAT or deployment == TRAINED:
            return cell
        # Points lost together minus the points each loses alone: threat + deployment − clean − both.
        clean, both = self.values(NO_THREAT, TRAINED), self.values(threat, deployment)
        alone, other = self.values(threat, TRAINED), self.values(NO_THREAT, deployment)
        extra = paired(clean + both, alone + other, bound=2.0)  # a difference of two differences
        points, low, high = (_finite(100.0 * value) for value in (extra.estimate, extra.low, extra.high))
        cell = replace(cell, extra_points_lost=points)
        return cell if images < FEWEST else replace(cell, low=low, high=high)

    def _broken(self, threat: str, deployment: str) -> tuple[int, int]:
        """How many images the threat breaks under the training pipeline, and how many of these still."""
        loses = self.loses[threat]
        clean, trained, deployed = (
            {r.name: found_in(r, RULE) for r in self.sides[key].records}
            for key in ((NO_THREAT, TRAINED), (threat, TRAINED), (threat, deployment))
        )
        broken = [name for name in clean if is_broken(clean[name], trained[name], loses)]
        return len(broken), sum(is_broken(clean[name], deployed[name], loses) for name in broken)


def _threat_notes(card: Card, threats: Sequence[PatchThreat]) -> list[str]:
    """How broken images are counted, and where the attack counts differently."""
    notes = [f"{t.name}: {t.words}" for t in threats if t.words]
    if not threats or card.task not in ("detect", "single"):
        return notes
    score = max(RULE.score, card.score)
    notes.append(
        f"an object is detected if its class is right, score ≥ {score:g} and IoU ≥ {RULE.iou:g}; "
        f"NMS uses the card's IoU {card.nms_iou:g} (`holdfast attack` uses {RULE.nms_iou:g})"
    )
    weak = f"the metric ignores detections with a score below {RULE.score:g}, as `holdfast attack` does"
    return [*notes, *([weak] if card.score < RULE.score else [])]


def above_threshold(record: Record, rule: Rule) -> Record:
    """The record without detections too weak to be acted on: a threat that presses scores down must show."""
    if not isinstance(record, DetectionRecord):
        return record
    return replace(record, detections=record.detections.take(record.detections.scores >= rule.score))


def found_in(record: Record, rule: Rule) -> Bools:
    """Per true object of the image (without crowds) whether it is detected; none of a segmenter's."""
    if isinstance(record, DetectionRecord):
        return found_boxes(record.detections, record.truth, rule)[~record.truth.crowd]
    if isinstance(record, ClassificationRecord):
        return np.array([bool(len(record.top)) and record.top[0] == record.label])
    return np.zeros(0, bool)


def is_broken(clean: Bools, now: Bools, loses: str) -> bool:
    """Whether all (or any) objects detected in the clean image are hidden."""
    if not clean.any():
        return False
    return not now.any() if loses == "all" else bool((clean & ~now).any())


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def matrix_part(state: AuditState, clock: Clock, watch: Watch) -> PartOutcome:
    """Run every threat under every deployment, on as many images as the time allows."""
    if state.prepared is None or state.noise is None:
        return PartOutcome(0, "no noise was measured")
    entries = state.prepared.noise.plan.dataset.entries
    tested = {printable(e.name) for e in entries}
    threats, names = _threats(state, tested), _threatened_images(state, tested)
    chosen = deployments_of(state.noise, state.prepared)
    cost = len(chosen) * (1 + len(threats)) * state.seconds_an_image  # of an image
    affordable = clock.seconds("matrix") / cost
    if names:
        count = clock.number("matrix images", None, affordable, 0, len(names))
    else:  # no threat: all images with noise, because they determined the deployments
        count = len(entries) * clock.number("matrix", None, affordable / len(entries), 0, 1)
    before, until = clock.finished("matrix"), clock.until("matrix")
    counts = [count if before is None else before]
    if names and until < math.inf:
        counts.insert(0, count // 3)  # should the time not suffice for all of them
    measure = partial(
        matrix, state.prepared.within(until), chosen, threats, watch, replicates=state.plan.replicates
    )
    result: Matrix | None = None
    count = 0
    with contextlib.suppress(BudgetSpent):  # then the largest number that the time allowed
        for number in filter(None, dict.fromkeys(counts)):
            try:
                result, count = measure(names=names[:number] or None), number
            except DataError:  # nothing to measure on these few
                if number == counts[-1]:
                    raise
    if not clock.ended("matrix", count) or result is None:
        return PartOutcome(0, f"{1 + len(threats)} threats × {len(chosen)} deployments ({LATE})")
    places = {printable(e.name): n for n, e in enumerate(state.plan.plan.dataset.entries, 1)}
    again = state.repeat_line("matrix", places[printable(names[count - 1])] if names else None)
    state.matrix = replace(result, cells=tuple(replace(m, command=again) for m in result.cells))
    return PartOutcome(count, skipped_images(count, len(names) or count))


def _threatened_images(state: AuditState, tested: Collection[str]) -> list[str]:
    """The images with threats that were also tested with noise, in order; those with both threats first."""
    attacks = state.attacks
    names = [a.name for a in attacks[0].attempts] if attacks else [m.image for m in state.maps]
    for result in attacks[1:2]:  # the smallest pixel budget may have run on fewer images
        both = {a.name for a in result.attempts}
        names = [name for name in names if name in both] or names
    names = [name for name in names if printable(name) in tested]
    if attacks and state.maps:
        covered = {printable(e.name) for e in state.plan.plan.dataset.entries[: state.counts["square"]]}
        names = [name for name in names if printable(name) in covered] or names
    return names


def _threats(state: AuditState, tested: Collection[str]) -> tuple[PatchThreat, ...]:
    """The worst black square, the patch and the pixels of each budget, on images tested with noise."""
    threats = []
    if state.maps:
        worst = worst_squares(state.maps)
        squares = {name: patch for name, patch in worst.items() if printable(name) in tested}
        threats.append(PatchThreat(THREAT, squares, "a black square at its worst position", "any"))
    for result in state.attacks:
        level = result.level
        patches = {a.name: a.patch for a in result.attempts if a.pixels and printable(a.name) in tested}
        threats.append(PatchThreat(level.threat, patches, level.words))
    return tuple(threats)
