"""Images through pipelines of one model: a cell per image and pipeline, shared work done once."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, fields
from pathlib import Path
from traceback import walk_tb
from typing import Any, TypeVar

from holdfast.core.dataset import Entry
from holdfast.core.errors import HoldfastError, ImageError, InputError
from holdfast.core.model import Model
from holdfast.core.pipeline import Pipeline
from holdfast.core.registry import lookup
from holdfast.data.images import notes
from holdfast.engine.cells import CellSet, Computed, Missing, Setup, Work
from holdfast.engine.infer import ImageState, Inference
from holdfast.engine.preprocess import Errors, InputStages, InputTensor, distinct_tensors
from holdfast.engine.records import Failed, Record, from_plain, to_plain
from holdfast.engine.store import printable

AHEAD = 1  # batches prepared before the network asks for them
BATCH = 8 << 20  # bytes of tensors in a batch, which ends with its image or before
SHARD = 25  # images a process gets at a time

T = TypeVar("T")


@dataclass(frozen=True)
class ImagePipeline:
    """A pipeline and the images it is not run on, by name."""

    pipeline: Pipeline
    without: frozenset[str] = frozenset()


@dataclass(frozen=True)
class PreparedImage:
    """An image all of whose tensors were produced: remarks on it, and the pipelines that failed."""

    image: int
    remarks: tuple[str, ...]
    errors: Errors


@dataclass(frozen=True)
class PipelineWork(Work[Entry, Inference]):
    """Pipelines of one model on images.

    A pipeline that cannot be run at all is a problem of its own, and does not stop the others, unless
    `fatal` is set. With `strict`, the first image that fails ends the run.
    """

    model: Model
    pipelines: tuple[ImagePipeline, ...]
    classes: int
    ignore_index: int | None = None
    strict: bool = False
    fatal: bool = False
    batch: int = SHARD

    def setups(self) -> list[Setup]:
        """Model, card, pipeline with the user's parts, and how the truth is read."""
        head = lookup("head", self.model.card.head.name)
        setups = []
        for one in self.pipelines:
            stages = [f.name for f in fields(one.pipeline)]
            parts = {name: lookup(name, getattr(one.pipeline, name)) for name in stages}
            facts = {
                "model": self.model.sha256,
                "card": self.model.card,
                "pipeline": one.pipeline.describe(),
                "parts": {**parts, "head": head},
                "classes": self.classes,
                "ignore": self.ignore_index,
            }
            setups.append(Setup("evaluate", facts))
        return setups

    def contents(self, item: Entry) -> list[list[str] | None]:
        """Name and content of an image; None for a pipeline that is not run on it."""
        content = content_of(item)
        return [None if item.name in one.without else content for one in self.pipelines]

    def open(self, threads: int) -> Inference:
        """The networks, each opened when it is first needed."""
        return Inference(
            self.model,
            tuple(one.pipeline for one in self.pipelines),
            tuple(one.pipeline.describe() for one in self.pipelines),
            self.classes,
            self.ignore_index,
            threads,
            self.strict,
        )

    def is_valid(self, setup: int, data: bytes) -> bool:
        """With `strict`, a failed image is run again, so that it ends the run."""
        return not (self.strict and b'"failed"' in data)

    def problems(self, state: Inference) -> Mapping[int, str]:
        """Why some pipelines cannot be run at all."""
        return {n: describe_error(problem) for n, problem in sorted(state.problems.items())}

    def compute(self, state: Inference, batch: Sequence[Missing]) -> Iterator[Computed]:
        """The record of each image and pipeline; the next image is prepared while the networks run."""
        shown = ImageState()
        with contextlib.closing(unpacked(ahead(batches(self._prepared(state, batch)), AHEAD))) as items:
            for item in items:
                if isinstance(item, InputTensor):
                    state.infer(shown, item)
                    continue
                state.record(shown)
                entry, wanted = batch[item.image]
                for n, problem in item.errors.items():
                    state.settle(shown, n, entry.name, problem)
                if self.fatal and state.problems:
                    raise next(iter(state.problems.values()))
                for n, record in shown.records.items():
                    name, content = wanted[n]
                    cell = {
                        "record": to_plain(record),
                        "notes": [] if isinstance(record, Failed) else item.remarks,
                        "name": printable(name),
                        "content": content,
                        "input": shown.inputs.get(n, ""),
                    }
                    yield Computed(item.image, n, cell)
                shown = ImageState()

    def _prepared(self, state: Inference, batch: Sequence[Missing]) -> Iterator[InputTensor | PreparedImage]:
        """The distinct tensors of each image, then the image itself with the pipelines that have none."""
        stages = input_stages({n: self.pipelines[n].pipeline for _, wanted in batch for n in wanted})
        for image, (entry, wanted) in enumerate(batch):
            mine = {n: stages[n] for n in wanted if n not in state.problems}
            if not mine:
                continue
            try:
                sample = entry.load()
                remarks = notes(sample.data, sample.name)
            except InputError as problem:
                yield PreparedImage(image, (), dict.fromkeys(mine, problem))
                continue
            errors: Errors = {}
            yield from distinct_tensors(mine, self.model.card.input, image, sample, errors)
            yield PreparedImage(image, remarks, errors)


def content_of(entry: Entry) -> list[str]:
    """Name and key of an image; if it cannot be read, the reason instead of the key."""
    try:
        return [entry.name, entry.key()]
    except ImageError as problem:
        return [entry.name, f"unreadable: {problem}"]


def input_stages(pipelines: Mapping[int, Pipeline]) -> dict[int, InputStages]:
    """The stages before the network of each pipeline, by its number."""
    stages = {}
    for n, pipeline in pipelines.items():
        before = ("decode", "colour", "fit", "resize", "normalise")
        functions = {kind: lookup(kind, getattr(pipeline, kind)) for kind in before}
        stages[n] = InputStages(pipeline.describe(), **functions)
    return stages


def describe_error(problem: Exception) -> str:
    """A problem in one line; of an unexpected error, its type and where it was raised."""
    if isinstance(problem, HoldfastError):
        return str(problem)
    at = ""
    for frame, line in walk_tb(problem.__traceback__):
        at = f" ({Path(frame.f_code.co_filename).name}:{line})"
    return f"{type(problem).__name__}: {problem}{at}"


@dataclass(frozen=True)
class ImageRecords:
    """What cells hold: records in order, notes, the content of each image, and hashes of its tensors."""

    records: list[Record] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    content: dict[str, str] = field(default_factory=dict)
    inputs: dict[str, str] = field(default_factory=dict)  # image -> hash of its input tensor


def read_records(cells: CellSet) -> ImageRecords:
    """The records in these cells; DataError if one is missing or damaged."""
    found = ImageRecords()
    for cell in cells.read():
        found.records.append(from_plain(cell["record"]))
        found.notes.extend(cell["notes"])
        found.content[cell["name"]] = cell["content"]
        if cell["input"]:
            found.inputs[cell["name"]] = cell["input"]
    return found


def batches(
    items: Iterable[InputTensor | PreparedImage], size: int = BATCH
) -> Iterator[deque[InputTensor | PreparedImage]]:
    """The same items in rows; each ends with its image, or once its tensors take up `size` bytes."""
    row: deque[InputTensor | PreparedImage] = deque()
    held = 0
    for item in items:
        row.append(item)
        held += item.tensor.nbytes if isinstance(item, InputTensor) else size
        if held >= size:
            yield row
            row, held = deque(), 0
    if row:
        yield row


def unpacked(rows: Generator[deque[T], None, None]) -> Generator[T, None, None]:
    """The items of all rows; none is kept once it was yielded."""
    with contextlib.closing(rows):
        for row in rows:
            while row:
                yield row.popleft()


def ahead(items: Iterator[T], count: int) -> Generator[T, None, None]:
    """The same items, up to `count` of them produced by another thread before they are needed."""
    end: Any = object()
    with ThreadPoolExecutor(1, "holdfast-prepare") as pool:
        try:
            waiting: deque[Future[T]] = deque(pool.submit(next, items, end) for _ in range(count))
            while (item := waiting.popleft().result()) is not end:
                waiting.append(pool.submit(next, items, end))
                yield item
        finally:
            pool.shutdown(cancel_futures=True)
