"""Images through pipelines of one model: a cell per image and pipeline, shared work done once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from traceback import walk_tb

from holdfast.core.dataset import Entry
from holdfast.core.errors import HoldfastError, ImageError, InputError
from holdfast.core.model import Model
from holdfast.core.pipeline import Pipeline
from holdfast.core.registry import lookup
from holdfast.data.images import notes
from holdfast.engine.cells import CellSet, Computed, Missing, Setup, Work
from holdfast.engine.infer import ImageState, Inference
from holdfast.engine.preprocess import Errors, InputStages, distinct_tensors
from holdfast.engine.records import Failed, Record, from_plain, to_plain
from holdfast.engine.store import printable

SHARD = 25  # images a process gets at a time


@dataclass(frozen=True)
class ImagePipeline:
    """A pipeline and the images it is not run on, by name."""

    pipeline: Pipeline
    without: frozenset[str] = frozenset()


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
        """The record of each image and pipeline."""
        stages = input_stages({n: self.pipelines[n].pipeline for _, wanted in batch for n in wanted})
        for place, (entry, wanted) in enumerate(batch):
            mine = {n: stages[n] for n in wanted if n not in state.problems}
            if not mine:
                continue
            image, errors = ImageState(), Errors()
            remarks: tuple[str, ...] = ()
            try:
                sample = entry.load()
                remarks = notes(sample.data, sample.name)
            except InputError as problem:
                errors = dict.fromkeys(mine, problem)
            else:
                for tensor in distinct_tensors(mine, self.model.card.input, sample, errors):
                    state.infer(image, tensor)
            for n, error in errors.items():
                state.settle(image, n, entry.name, error)
            if self.fatal and state.problems:
                raise next(iter(state.problems.values()))
            for n, record in image.records.items():
                name, content = wanted[n]
                cell = {
                    "record": to_plain(record),
                    "notes": [] if isinstance(record, Failed) else remarks,
                    "name": printable(name),
                    "content": content,
                    "input": image.inputs.get(n, ""),
                }
                yield Computed(place, n, cell)


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
