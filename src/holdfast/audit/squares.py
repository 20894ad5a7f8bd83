"""A black square at every position of a grid over the image: a finite set that is run completely.

Every position runs through the training pipeline and ONNX Runtime on the original file, so `holds` and
`violated` are exact for the positions of the grid. They say nothing about positions in between.
"""

import dataclasses
import math
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from holdfast.attack.judge import Judge, found_boxes, known_boxes
from holdfast.attack.plan import to_model
from holdfast.attack.types import Rule, check_time
from holdfast.audit.square_map import Grid, SquareMap, axes, black, from_plain, grid_for, places, to_plain
from holdfast.core.dataset import Entry
from holdfast.core.errors import DataError, ImageError, ModelError, one_line
from holdfast.core.model import MODEL_KINDS, Model
from holdfast.core.patch import apply
from holdfast.core.pipeline import Pipeline, load_pipeline
from holdfast.core.registry import lookup
from holdfast.core.text import printable
from holdfast.core.types import Boxes, Detections, Floats, Image, Ints, Label, Prediction, Scores, Size, Truth
from holdfast.engine.cells import ItemWork, Setup, run
from holdfast.engine.execution import cell_store
from holdfast.engine.pipelines import ImagePipeline, content_of
from holdfast.engine.records import FailedImage
from holdfast.evaluate.result import CELLS
from holdfast.evaluate.run import EvaluationPlan, alignment_of, work_for
from holdfast.metrics.boxes import iou
from holdfast.noise.suite import Watch, no_progress
from holdfast.report.tables import many

TIE = 1e-12  # by how much a class that is not the first of equal ones counts as lost


@dataclass(frozen=True)
class SquaresPlan:
    """A model on a dataset, its training pipeline, and the square."""

    plan: EvaluationPlan
    pipeline: Pipeline
    rule: Rule = field(default_factory=Rule)
    share: float = 0.1  # of the image's shorter side
    most: int = 400  # positions per image


@dataclass(frozen=True)
class SquareScorer:
    """A model opened with a pipeline, and how its predictions are scored."""

    judge: Judge

    @property
    def threshold(self) -> float:
        """The score below which a target is lost."""
        return 0.0 if self.judge.machine.model.card.task == "classify" else self.judge.rule.score

    def predict(self, image: Image) -> Prediction:
        """The prediction for decoded pixels; an exception where an output is not finite."""
        return self.judge.machine.predict(self.judge.prepared(image))

    def targets(self, image: Image, truth: Boxes | Label) -> Boxes | Label | None:
        """The ground truth that the model detects in the image; None if there is none."""
        prediction = self.predict(image)
        if isinstance(truth, Label):
            return truth if score_of(prediction, truth, self.judge.rule) >= self.threshold else None
        if not isinstance(prediction, Detections):
            raise ModelError(f"expected detections, got {type(prediction).__name__}")
        detected = found_boxes(prediction, truth, self.judge.rule) & ~truth.crowd
        return Boxes(truth.xyxy[detected], truth.classes[detected]) if detected.any() else None

    def score(self, image: Image, targets: Boxes | Label) -> float:
        """The score of the least certain target in decoded pixels."""
        score = score_of(self.predict(image), targets, self.judge.rule)
        if not np.isfinite(score):
            raise ImageError(f"expected a finite score, got {score}")
        return score

    def replayed(self, data: bytes, grid: Grid, place: tuple[int, int], targets: Boxes | Label) -> bool:
        """Whether the square breaks the image again, from the encoded bytes, applied as a patch."""
        image = apply(self.judge.machine.decode(data), black(grid, *place))
        return self.score(image, targets) < self.threshold


def score_of(prediction: Prediction, targets: Boxes | Label, rule: Rule) -> float:
    """The lowest best score over the targets (0: a target is missed), or the margin of the true class."""
    if isinstance(prediction, Scores) and isinstance(targets, Label):
        others = np.delete(prediction.values, targets.index)
        margin = float(prediction.values[targets.index] - (others.max() if others.size else 0.0))
        return margin if int(np.argmax(prediction.values)) == targets.index else min(margin, -TIE)
    if not isinstance(prediction, Detections) or not isinstance(targets, Boxes):
        raise ModelError(f"expected detections or scores of classes, got {type(prediction).__name__}")
    if not len(prediction):
        return 0.0
    scores = prediction.scores[None, :]
    same = targets.classes[:, None] == prediction.classes[None, :]
    good = same & (iou(targets.xyxy, prediction.boxes) >= rule.iou) & (scores >= rule.score)
    return float(np.where(good, scores, 0.0).max(axis=1).min())


def known_truth(truth: Truth, numbers: Ints, name: str) -> Boxes | Label | None:
    """The truth by the model's class numbers; None if the model knows none of it."""
    if isinstance(truth, Boxes):
        return known_boxes(truth, numbers)
    if not isinstance(truth, Label):
        raise DataError(f"{name}: expected boxes or a class as truth, got {type(truth).__name__}")
    index = int(numbers[truth.index]) if len(numbers) else truth.index
    return Label(index) if index >= 0 else None


@dataclass(frozen=True)
class SquareWork(ItemWork[Entry, SquareScorer]):
    """The map of each image under one pipeline. `work_of` makes it."""

    model: Model
    pipeline: Pipeline
    rule: Rule
    to_model: Ints  # per class of the data its number in the model, or -1
    share: float
    most: int
    facts: Any  # all that can change a result, but for the image
    until: float = math.inf  # of time.monotonic: an image that is not finished then is given up

    def setups(self) -> list[Setup]:
        """Model, pipeline, rule and grid."""
        return [Setup("squares", ["map", self.facts])]

    def contents(self, item: Entry) -> list[list[str]]:
        """Name and content of the image."""
        return [content_of(item)]

    def open(self, threads: int) -> SquareScorer:
        """The model opened; the card's thresholds give way to the rule's behind the network only.

        A rewritten graph is kept by model and card, and is the same for all thresholds: so it is made of the
        model as it is, once for this and for all other uses of it.
        """
        model, infer = self.model, lookup("infer", self.pipeline.infer)
        card = dataclasses.replace(model.card, score=self.rule.score, nms_iou=self.rule.nms_iou)
        pipeline = self.pipeline.replace(infer=lambda _ruled, threads: infer(model, threads))
        machine = load_pipeline(pipeline, dataclasses.replace(model, card=card), threads)
        return SquareScorer(Judge(machine, self.rule))

    def compute_item(self, state: SquareScorer, item: Entry) -> dict[str, Any]:
        """The map of an image, None where no true object is detected, or why it cannot be run."""
        try:
            began, sample = time.perf_counter(), item.load()
            truth = known_truth(sample.truth, self.to_model, sample.name)
            image = state.judge.machine.decode(sample.data)
            targets = None if truth is None else state.targets(image, truth)
            if targets is None:
                return {"map": None}
            size = Size(image.shape[1], image.shape[0])
            grid = grid_for(size, self.share, self.most)
            scores, notes = _score_places(state, image, grid, targets, self.until)
            square_map = SquareMap(
                item.name, size, grid, scores, state.threshold, targets=targets, clean=0.0, seconds=0.0
            )
            notes += _confirm_worst(state, sample.data, square_map)
            clean, seconds = state.score(image, targets), round(time.perf_counter() - began, 3)
        except ImageError as problem:
            return {"failed": str(problem)}
        note = f"{notes[0]} ({many(len(notes), 'position')} not decided)" if notes else ""
        return {"map": to_plain(dataclasses.replace(square_map, clean=clean, seconds=seconds, note=note))}


def work_of(squares: SquaresPlan, pipeline: Pipeline) -> SquareWork:
    """The work under one pipeline with all it depends on: model, card, pipeline, rule and grid."""
    plan, model = squares.plan, squares.plan.model
    if model.card.task not in ("detect", "single", "classify"):
        got = f"got a {MODEL_KINDS[model.card.task]}; skip the part squares"
        raise ModelError(f"squares: {model.name}: expected a detector or a classifier, {got}")
    grid_for(Size(1, 1), squares.share, squares.most)  # a share or a number that cannot be is reported here
    (setup,) = work_for(plan, ImagePipeline(pipeline)).setups()
    numbers = to_model(alignment_of(plan))
    rule, share, most = squares.rule, squares.share, squares.most
    facts = [setup.facts, rule, share, most, numbers]
    return SquareWork(model, pipeline, rule, numbers, share, most=most, facts=facts, until=plan.until)


def _score_places(
    scorer: SquareScorer, image: Image, grid: Grid, targets: Boxes | Label, until: float = math.inf
) -> tuple[Floats, list[str]]:
    """The score at every position (rows, columns), NaN where it could not be computed, and the reasons."""
    size = Size(image.shape[1], image.shape[0])
    columns, rows = axes(size, grid)
    scores, notes = np.full(len(rows) * len(columns), np.nan), []  # a skipped position stays undecided
    for at, (x, y) in enumerate(places(size, grid).tolist()):
        check_time(until)
        patched = image.copy()
        patched[y : y + grid.side, x : x + grid.side] = 0
        try:
            scores[at] = scorer.score(patched, targets)
        except Exception as problem:  # noqa: BLE001 - whatever it is, this position is undecided
            notes.append(f"at column {x}, row {y}: {one_line(problem)}")
    return scores.reshape(len(rows), len(columns)), notes


def _confirm_worst(scorer: SquareScorer, data: bytes, m: SquareMap) -> list[str]:
    """Replay the worst unsafe positions; one that is not confirmed becomes NaN. Returns the reasons."""
    notes, (columns, rows) = list[str](), axes(m.size, m.grid)
    while m.unsafe.any() and m.where is not None:
        x, y = m.where
        try:
            if scorer.replayed(data, m.grid, (x, y), m.targets):
                break
            notes.append(f"at column {x}, row {y}: not confirmed by a second run")
        except Exception as problem:  # noqa: BLE001 - a violation that cannot be replayed does not count
            notes.append(f"at column {x}, row {y}: {one_line(problem)}")
        m.scores[np.searchsorted(rows, y), np.searchsorted(columns, x)] = np.nan
    return notes


@dataclass(frozen=True)
class Survey:
    """The maps, and the images without one: no true object is detected, or they cannot be run."""

    maps: tuple[SquareMap, ...]
    without: tuple[str, ...] = ()
    failed: tuple[FailedImage, ...] = ()
    images: int = 0  # that were finished

    @property
    def note(self) -> str:
        """Which images have no map and why; empty if all have one."""
        notes = []
        if self.without:
            notes.append(f"{many(len(self.without), 'image')} without a detected true object")
        if self.failed:
            notes.append(f"{many(len(self.failed), 'image')} could not be run; first: {self.failed[0]}")
        return "; ".join(notes)


def survey(plan: SquaresPlan, watch: Watch = no_progress) -> Survey:
    """Compute the maps of all images; completed cells are reused."""
    entries, work = plan.plan.dataset.entries, work_of(plan, plan.pipeline)
    store, jobs, until = cell_store(plan.plan.runs / CELLS), plan.plan.jobs, plan.plan.until
    with watch(f"squares {plan.plan.model.name}", len(entries)) as progress:
        cells = run(work, entries, store, jobs=jobs, progress=progress, until=until).read()
    maps, without, failed = [], [], []
    for entry, cell in zip(entries, cells, strict=False):  # fewer cells where the time was over
        name = printable(entry.name)  # as records and attempts have it
        if "failed" in cell:
            failed.append(FailedImage(name, cell["failed"]))
        elif cell["map"] is None:
            without.append(name)
        else:
            maps.append(from_plain(name, cell["map"]))
    if failed and plan.plan.strict:
        raise DataError(str(failed[0]))
    return Survey(tuple(maps), tuple(without), tuple(failed), len(cells))
