"""A black square at every place of a grid over the scene: a finite set, run whole.

Every place is decoded, resized and run as the model was trained, through ONNX Runtime on the original file,
so `holds` and `violated` are both certain for the places of the grid; they say nothing of places between.
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
from holdfast.core.model import Model
from holdfast.core.patch import apply
from holdfast.core.pipeline import Pipeline, load_pipeline
from holdfast.core.registry import lookup
from holdfast.core.types import Boxes, Detections, Floats, Image, Ints, Label, Prediction, Scores, Size, Truth
from holdfast.engine.cells import ItemWork, Setup, run
from holdfast.engine.pipelines import ImagePipeline, content_of
from holdfast.engine.records import FailedImage
from holdfast.engine.store import Store, printable
from holdfast.evaluate.result import CELLS
from holdfast.evaluate.run import Plan, alignment_of, work_for
from holdfast.metrics.boxes import iou
from holdfast.noise.suite import Watch, unwatched
from holdfast.report.tables import many

TIE = 1e-12  # by how much a class that is not the first of equal ones counts as lost


@dataclass(frozen=True)
class SquaresPlan:
    """A model on a data set, the pipeline as trained, and the square."""

    plan: Plan
    pipeline: Pipeline
    rule: Rule = field(default_factory=Rule)
    share: float = 0.1  # of the image's shorter side
    most: int = 400  # places an image


@dataclass(frozen=True)
class SquareScorer:
    """A model opened with a pipeline, and how its answers are scored."""

    judge: Judge

    @property
    def threshold(self) -> float:
        """The score below which a target is lost."""
        return 0.0 if self.judge.machine.model.card.task == "classify" else self.judge.rule.score

    def predict(self, image: Image) -> Prediction:
        """What the model says of decoded pixels; an exception where an output is no number."""
        return self.judge.machine.predict(self.judge.prepared(image))

    def targets(self, image: Image, truth: Boxes | Label) -> Boxes | Label | None:
        """What is true of the image and found in it; None if nothing is."""
        said = self.predict(image)
        if isinstance(truth, Label):
            return truth if score_of(said, truth, self.judge.rule) >= self.threshold else None
        if not isinstance(said, Detections):
            raise ModelError(f"expected detections, got {type(said).__name__}")
        ours = found_boxes(said, truth, self.judge.rule) & ~truth.crowd
        return Boxes(truth.xyxy[ours], truth.classes[ours]) if ours.any() else None

    def score(self, image: Image, targets: Boxes | Label) -> float:
        """How well the least well found target is found in decoded pixels."""
        found = score_of(self.predict(image), targets, self.judge.rule)
        if not np.isfinite(found):
            raise ImageError(f"expected a score that is a number, got {found}")
        return found

    def replayed(self, data: bytes, grid: Grid, place: tuple[int, int], targets: Boxes | Label) -> bool:
        """Whether the square breaks it once more, from the encoded bytes, laid on as a patch."""
        return (
            self.score(apply(self.judge.machine.decode(data), black(grid, *place)), targets) < self.threshold
        )


def score_of(said: Prediction, targets: Boxes | Label, rule: Rule) -> float:
    """The least over the targets of the best score that finds it (0: none does), or a class's lead."""
    if isinstance(said, Scores) and isinstance(targets, Label):
        others = np.delete(said.values, targets.index)
        lead = float(said.values[targets.index] - (others.max() if others.size else 0.0))
        return lead if int(np.argmax(said.values)) == targets.index else min(lead, -TIE)
    if not isinstance(said, Detections) or not isinstance(targets, Boxes):
        raise ModelError(f"expected detections or scores of classes, got {type(said).__name__}")
    if not len(said):
        return 0.0
    same = targets.classes[:, None] == said.classes[None, :]
    good = same & (iou(targets.xyxy, said.boxes) >= rule.iou) & (said.scores[None, :] >= rule.score)
    return float(np.where(good, said.scores[None, :], 0.0).max(axis=1).min())


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
        """The map of an image, None where nothing true is found, or why it cannot be run as it is."""
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
            one = SquareMap(
                image=item.name,
                size=size,
                grid=grid,
                scores=scores,
                threshold=state.threshold,
                targets=targets,
                clean=0.0,
                seconds=0.0,
            )
            notes += _confirm_worst(state, sample.data, one)
            clean, seconds = state.score(image, targets), round(time.perf_counter() - began, 3)
        except ImageError as problem:
            return {"failed": str(problem)}
        note = f"{notes[0]} ({len(notes)} places are in doubt)" if notes else ""
        return {"map": to_plain(dataclasses.replace(one, clean=clean, seconds=seconds, note=note))}


def work_of(squares: SquaresPlan, pipeline: Pipeline) -> SquareWork:
    """The work under one pipeline with all it depends on: model, card, pipeline, rule and grid."""
    plan, model = squares.plan, squares.plan.model
    if model.card.task not in ("detect", "single", "classify"):
        got = f"got a model to {model.card.task}; leave squares out"
        raise ModelError(f"squares: {model.name}: expected a detector or a classifier, {got}")
    grid_for(Size(1, 1), squares.share, squares.most)  # a share or a number that cannot be is reported here
    (setup,) = work_for(plan, ImagePipeline(pipeline)).setups()
    numbers = to_model(alignment_of(plan))
    return SquareWork(
        model=model,
        pipeline=pipeline,
        rule=squares.rule,
        to_model=numbers,
        share=squares.share,
        most=squares.most,
        facts=[setup.facts, squares.rule, squares.share, squares.most, numbers],
        until=plan.until,
    )


def _score_places(
    scorer: SquareScorer, image: Image, grid: Grid, targets: Boxes | Label, until: float = math.inf
) -> tuple[Floats, list[str]]:
    """The score at every place (rows, columns), NaN where it could not be judged, and each reason why not.

    BudgetSpent at `until` (of time.monotonic).
    """
    size = Size(image.shape[1], image.shape[0])
    columns, rows = axes(size, grid)
    scores, notes = np.full(len(rows) * len(columns), np.nan), []  # a place left out would stay in doubt
    for at, (x, y) in enumerate(places(size, grid).tolist()):
        check_time(until)
        laid = image.copy()
        laid[y : y + grid.side, x : x + grid.side] = 0
        try:
            scores[at] = scorer.score(laid, targets)
        except Exception as problem:  # noqa: BLE001 - whatever it is, this place was not judged
            notes.append(f"at column {x}, row {y}: {one_line(problem)}")
    return scores.reshape(len(rows), len(columns)), notes


def _confirm_worst(scorer: SquareScorer, data: bytes, one: SquareMap) -> list[str]:
    """Why unsafe places do not count: the worst must break it again; one that does not becomes NaN."""
    notes, (columns, rows) = list[str](), axes(one.size, one.grid)
    while one.unsafe.any() and (here := one.where) is not None:
        try:
            if scorer.replayed(data, one.grid, here, one.targets):
                break
            notes.append(f"the square at column {here[0]}, row {here[1]} did not break it a second time")
        except Exception as problem:  # noqa: BLE001 - a violation that cannot be replayed is none
            notes.append(f"at column {here[0]}, row {here[1]}: {one_line(problem)}")
        one.scores[np.searchsorted(rows, here[1]), np.searchsorted(columns, here[0])] = np.nan
    return notes


@dataclass(frozen=True)
class Survey:
    """The maps, and the images that have none: nothing true is found in them, or they cannot be run."""

    maps: tuple[SquareMap, ...]
    without: tuple[str, ...] = ()
    failed: tuple[FailedImage, ...] = ()
    images: int = 0  # that were finished

    @property
    def note(self) -> str:
        """Which images have no map and why, in words; empty if all have one."""
        without, failed = (many(len(images), "image") for images in (self.without, self.failed))
        nothing = f"{without} without a map: nothing true is found there without a square"
        said = [nothing] if self.without else []
        said += [f"{failed} could not be run; first {self.failed[0]}"] if self.failed else []
        return "; ".join(said)


def survey(plan: SquaresPlan, watch: Watch = unwatched) -> Survey:
    """The maps of all images and what is to be said of those without; finished cells are not run again."""
    entries, work = plan.plan.dataset.entries, work_of(plan, plan.pipeline)
    store, jobs, until = Store(plan.plan.runs / CELLS), plan.plan.jobs, plan.plan.until
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
