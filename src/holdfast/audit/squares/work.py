"""The work of one process: a black square at every place of every image, through the user's own file."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import orjson

from holdfast.attack.judge import Judge, found_boxes
from holdfast.attack.plan import to_model
from holdfast.attack.types import Rule, check_time
from holdfast.audit.squares.map import Grid, SquareMap, axes, black, grid_for, places, to_plain
from holdfast.core import fingerprint
from holdfast.core.dataset import Entry
from holdfast.core.errors import DataError, ImageError, ModelError, one_line
from holdfast.core.model import Model
from holdfast.core.patch import apply
from holdfast.core.pipeline import Pipeline, open_machine
from holdfast.core.registry import lookup
from holdfast.core.sources import code_of
from holdfast.core.types import Boxes, Detections, Floats, Image, Ints, Label, Prediction, Scores, Size, Truth
from holdfast.engine.job import content_of
from holdfast.engine.store import Store, to_json
from holdfast.evaluate.result import CELLS
from holdfast.evaluate.run import Plan, alignment_of, job_for
from holdfast.metrics.boxes import iou

TIE = 1e-12  # by how much a class that is not the first of equal ones counts as lost


@dataclass(frozen=True)
class SquaresPlan:
    """A model on a data set, the pipeline as trained, and the square; `names` are the images (None: all)."""

    plan: Plan
    pipeline: Pipeline
    rule: Rule = field(default_factory=Rule)
    share: float = 0.1  # of the image's shorter side
    most: int = 400  # places an image
    names: tuple[str, ...] | None = None


@dataclass(frozen=True)
class SquareTask:
    """What a process needs to work on any image under one pipeline. `task_of` makes it."""

    model: Model
    pipeline: Pipeline
    rule: Rule
    to_model: Ints  # per class of the data its number in the model, or -1
    share: float
    most: int
    store: Store
    setup: str  # the hash of all that can change a result, but for the image
    modules: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()
    threads: int = 1
    until: float = math.inf  # of time.monotonic: an image that is not finished then is given up

    def key(self, *content: object) -> str:
        """The name of a cell."""
        return fingerprint.of([self.setup, *content])


def task_of(squares: SquaresPlan, pipeline: Pipeline) -> SquareTask:
    """The task under one pipeline, its set-up hashed: model, card, pipeline, rule, grid, versions, code."""
    plan = squares.plan
    model, store = plan.model, Store(plan.runs / CELLS)
    if model.card.task not in ("detect", "single", "classify"):
        wanted = "expected a detector or a classifier"
        raise ModelError(
            f"squares: {model.name}: {wanted}, got a model to {model.card.task}; leave squares out"
        )
    grid_for(Size(1, 1), squares.share, squares.most)  # a share or a number that cannot be is said here
    job = job_for(plan, pipeline, store)
    asked = [job.setup, squares.rule, squares.share, squares.most, code_of("squares")]
    numbers = to_model(alignment_of(plan))
    return SquareTask(
        model, pipeline, squares.rule, numbers, squares.share, squares.most, store,
        fingerprint.of(["squares", asked, numbers.tolist()]), job.modules, job.files, until=plan.until,
    )  # fmt: skip


@dataclass(frozen=True)
class Asker:
    """A model opened with a pipeline, and how its answers are scored."""

    judge: Judge

    @property
    def threshold(self) -> float:
        """The score below which a target is lost."""
        return 0.0 if self.judge.machine.model.card.task == "classify" else self.judge.rule.score

    def decoded(self, data: bytes) -> Image:
        """The scene's pixels (h, w, 3)."""
        return self.judge.machine.decode(data)

    def said(self, image: Image) -> Prediction:
        """What the model says of decoded pixels; an exception where an output is no number."""
        return self.judge.machine.predict(self.judge.prepared(image))

    def targets(self, image: Image, truth: Boxes | Label) -> Boxes | Label | None:
        """What is true of the image and found in it; None if nothing is."""
        said = self.said(image)
        if isinstance(truth, Label):
            return truth if score_of(said, truth, self.judge.rule) >= self.threshold else None
        if not isinstance(said, Detections):
            raise ModelError(f"expected detections, got {type(said).__name__}")
        ours = found_boxes(said, truth, self.judge.rule) & ~truth.crowd
        return Boxes(truth.xyxy[ours], truth.classes[ours]) if ours.any() else None

    def score(self, image: Image, targets: Boxes | Label) -> float:
        """How well the least well found target is found in decoded pixels."""
        found = score_of(self.said(image), targets, self.judge.rule)
        if not np.isfinite(found):
            raise ImageError(f"expected a score that is a number, got {found}")
        return found

    def replayed(self, data: bytes, grid: Grid, place: tuple[int, int], targets: Boxes | Label) -> bool:
        """Whether the square breaks it once more, from the encoded bytes, laid on as a patch."""
        return self.score(apply(self.decoded(data), black(grid, *place)), targets) < self.threshold


def open_asker(task: SquareTask) -> Asker:
    """The model opened; the card's thresholds give way to the rule's behind the network only.

    A rewritten graph is kept by model and card, and is the same for all thresholds: so it is made of the
    model as it is, once for this and for all other uses of it.
    """
    model, rule = task.model, task.rule
    infer = lookup("infer", task.pipeline.infer)
    card = dataclasses.replace(model.card, score=rule.score, nms_iou=rule.nms_iou)
    pipeline = task.pipeline.replace(infer=lambda _ruled, threads: infer(model, threads))
    return Asker(
        Judge(open_machine(pipeline, dataclasses.replace(model, card=card), task.threads), task.rule)
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


def known(truth: Truth, numbers: Ints, name: str) -> Boxes | Label | None:
    """The truth by the model's class numbers; None if the model knows none of it."""
    if isinstance(truth, Label):
        index = int(numbers[truth.index]) if len(numbers) else truth.index
        return Label(index) if index >= 0 else None
    if not isinstance(truth, Boxes):
        raise DataError(f"{name}: expected boxes or a class as truth, got {type(truth).__name__}")
    classes = numbers[truth.classes] if len(numbers) else truth.classes
    keep = classes >= 0
    return Boxes(truth.xyxy[keep], classes[keep], truth.crowd[keep], truth.difficult[keep], truth.areas[keep])


@dataclass(frozen=True)
class SquareWork:
    """The maps as work for any number of processes."""

    task: SquareTask

    @property
    def modules(self) -> tuple[str, ...]:
        """Modules other processes must import first."""
        return self.task.modules

    @property
    def files(self) -> tuple[Path, ...]:
        """Files of parts other processes must load first."""
        return self.task.files

    def on(self, threads: int) -> SquareWork:
        """The same work with so many threads a process."""
        return SquareWork(dataclasses.replace(self.task, threads=threads))

    def work(
        self, asker: Asker | None, shard: Sequence[Entry]
    ) -> tuple[tuple[str, ...], Asker | None, tuple[int, int]]:
        """The keys of the images' cells, what is open now, and how far that brings the run."""
        keys, found = [], 0
        for entry, content in zip(shard, content_of(shard), strict=True):
            keys.append(self.task.key("map", content))
            if self.task.store.get(keys[-1]) is not None:
                found += 1
                continue
            asker = asker or open_asker(self.task)
            try:
                made = mapped(self.task, asker, entry)
                plain: dict[str, object] = {"map": None if made is None else to_plain(made)}
            except ImageError as problem:  # one that cannot be read or run as it is
                plain = {"failed": str(problem)}
            self.task.store.put(keys[-1], to_json(plain))
        return tuple(keys), asker, (len(shard), found)


def mapped(task: SquareTask, asker: Asker, entry: Entry) -> SquareMap | None:
    """The map of one image; None if nothing true is found in it without a square."""
    began, sample = time.perf_counter(), entry.load()
    truth, image = known(sample.truth, task.to_model, sample.name), asker.decoded(sample.data)
    targets = None if truth is None else asker.targets(image, truth)
    if targets is None:
        return None
    size = Size(image.shape[1], image.shape[0])
    grid = grid_for(size, task.share, task.most)
    scores, notes = enumerated(asker, image, grid, targets, task.until)
    notes += _confirmed(asker, sample.data, scores, grid, size, targets)
    clean, seconds = asker.score(image, targets), round(time.perf_counter() - began, 3)
    note = f"{notes[0]} ({len(notes)} places are in doubt)" if notes else ""
    return SquareMap(entry.name, size, grid, scores, asker.threshold, targets, clean, seconds, note)


def enumerated(
    asker: Asker, image: Image, grid: Grid, targets: Boxes | Label, until: float = math.inf
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
            scores[at] = asker.score(laid, targets)
        except Exception as problem:  # noqa: BLE001 - whatever it is, this place was not judged
            notes.append(told(problem, (x, y)))
    return scores.reshape(len(rows), len(columns)), notes


def _confirmed(
    asker: Asker, data: bytes, scores: Floats, grid: Grid, size: Size, targets: Boxes | Label
) -> list[str]:
    """Why unsafe places do not count: the worst must break it again; one that does not becomes NaN."""
    notes: list[str] = []
    columns, rows = axes(size, grid)
    while (scores < asker.threshold).any():
        here = SquareMap("", size, grid, scores, asker.threshold, targets, 0.0, 0.0).where
        if here is None:
            break
        try:
            if asker.replayed(data, grid, here, targets):
                break
            notes.append(f"the square at column {here[0]}, row {here[1]} did not break it a second time")
        except Exception as problem:  # noqa: BLE001 - a violation that cannot be replayed is none
            notes.append(told(problem, here))
        scores[np.searchsorted(rows, here[1]), np.searchsorted(columns, here[0])] = np.nan
    return notes


def told(problem: Exception, place: tuple[int, int]) -> str:
    """What went wrong at a place, in one line."""
    return f"at column {place[0]}, row {place[1]}: {one_line(problem)}"


def read_cell(store: Store, key: str) -> dict[str, object]:
    """What a finished cell holds; DataError if it is gone or damaged."""
    data = store.get(key)
    if data is None:
        raise DataError(f"{store.path(key)}: the cell is missing or damaged; run the same command again")
    found: dict[str, object] = orjson.loads(data)
    return found
