"""Images through pipelines of one model: a cell per image and pipeline, each distinct run done once."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from traceback import walk_tb
from typing import Any

import numpy as np

from holdfast.core.dataset import Entry
from holdfast.core.errors import CardError, HoldfastError, ImageError, InputError, ModelError, UnknownName
from holdfast.core.model import Model
from holdfast.core.pipeline import Pipeline, Run, checked
from holdfast.core.registry import lookup
from holdfast.core.types import Tensor
from holdfast.data.images import notes
from holdfast.engine.cells import CellResult, CellSet, MissingCells, Setup, Work
from holdfast.engine.preprocess import Errors, InputStages, InputTensor, attempt, distinct_tensors, grouped
from holdfast.engine.records import FailedImage, Record, from_plain, record_of, to_plain
from holdfast.engine.store import printable

SHARD = 25  # images a process gets at a time
SKIPPED = b'"skipped":true'  # in the cell of an image that ended its worker processes
FATAL = (CardError, ModelError, UnknownName)  # wrong for every image alike


@dataclass(frozen=True)
class ImagePipeline:
    """A pipeline and the images it is not run on, by name."""

    pipeline: Pipeline
    without: frozenset[str] = frozenset()


@dataclass(frozen=True)
class ImageState:
    """Results of one image so far: records and input hashes by pipeline, records by what they depend on."""

    records: dict[int, Record] = field(default_factory=dict)
    inputs: dict[int, str] = field(default_factory=dict)
    known: dict[Hashable, Record | Exception] = field(default_factory=dict)


@dataclass(frozen=True)
class Inference:
    """The networks of some pipelines, and why some pipelines cannot be run at all."""

    work: PipelineWork
    threads: int
    stages: tuple[Mapping[str, str], ...]  # by pipeline: a text per stage, equal for equal stages
    runs: dict[str, Run | Exception] = field(default_factory=dict)
    problems: dict[int, Exception] = field(default_factory=dict)

    def infer(self, state: ImageState, item: InputTensor) -> None:
        """Run each network on the tensor and note the records of its pipelines."""
        users = [n for n in item.frames if n not in self.problems]
        state.inputs.update(dict.fromkeys(users, item.digest))
        networks = grouped(users, lambda n: self.stages[n]["infer"])
        for network, group in networks.items():
            # All that the record of an image depends on, besides the image.
            ways = grouped(
                group,
                lambda n: (item.digest, network, self.stages[n]["post"], item.frames[n]),  # noqa: B023
            )
            new = [way for way in ways if way not in state.known]
            if new:
                run = self._network(group)
                if run is None:
                    continue
                raw = attempt(_outputs, run, item.tensor, len(networks) > 1)
                for way in new:
                    state.known[way] = self._record(ways[way][0], item, raw, shared=len(new) > 1)
            for way, members in ways.items():
                for n in members:
                    self.settle(state, n, item.sample.name, state.known[way])

    def settle(self, state: ImageState, n: int, name: str, outcome: Record | Exception) -> None:
        """Note the record or the failure of one image, or why the pipeline cannot be run at all."""
        if not isinstance(outcome, Exception):
            state.records[n] = outcome
        elif isinstance(outcome, InputError) and not isinstance(outcome, FATAL):
            failed = FailedImage(name, str(outcome).removeprefix(f"{name}: "))
            if self.work.strict:
                raise ImageError(str(failed))
            state.records[n] = failed
        else:
            self.problems.setdefault(n, outcome)

    def _network(self, group: list[int]) -> Run | None:
        """The network of these pipelines; None if it cannot be opened, which is a problem of all of them."""
        infer = self.stages[group[0]]["infer"]
        if infer not in self.runs:
            function = lookup("infer", self.work.pipelines[group[0]].pipeline.infer)
            self.runs[infer] = attempt(function, self.work.model, self.threads)
        run = self.runs[infer]
        if isinstance(run, Exception):
            self.problems.update(dict.fromkeys(group, run))
            return None
        return run

    def _record(
        self, n: int, item: InputTensor, raw: Mapping[str, Tensor] | Exception, *, shared: bool
    ) -> Record | Exception:
        if isinstance(raw, Exception):
            return raw
        work, frame = self.work, item.frames[n]
        post = lookup("post", work.pipelines[n].pipeline.post)
        mine = {name: value.copy() for name, value in raw.items()} if shared else raw
        prediction = attempt(lambda: post(checked(mine), frame, work.model.card))
        if isinstance(prediction, Exception):
            return prediction
        record: Record | Exception = attempt(
            record_of, item.sample, frame.original, prediction, work.classes, work.ignore_index
        )
        return record


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
        return Inference(self, threads, tuple(one.pipeline.describe() for one in self.pipelines))

    def is_valid(self, setup: int, data: bytes) -> bool:
        """A skipped image is run again; with `strict` a failed one too, so that it ends the run."""
        return SKIPPED not in data and not (self.strict and b'"failed"' in data)

    def skipped(self, item: Entry, content: Any, reason: str) -> Any:
        """A failed image."""
        record = to_plain(FailedImage(item.name, reason))
        name, digest = content
        return {
            "record": record,
            "notes": [],
            "name": printable(name),
            "content": digest,
            "input": "",
            "skipped": True,
        }

    def problems(self, state: Inference) -> Mapping[int, str]:
        """Why some pipelines cannot be run at all."""
        return {n: describe_error(problem) for n, problem in sorted(state.problems.items())}

    def compute(self, state: Inference, batch: Sequence[MissingCells]) -> Iterator[CellResult]:
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
                    "notes": [] if isinstance(record, FailedImage) else remarks,
                    "name": printable(name),
                    "content": content,
                    "input": image.inputs.get(n, ""),
                }
                yield CellResult(place, n, cell)


def _outputs(run: Run, tensor: Tensor, shared: bool) -> Mapping[str, Tensor]:
    """The outputs of a network, in arrays that stay as they are. Others may share the tensor.

    A run that is not `pure` may write into its tensor or use its outputs' memory again: both are copied.
    """
    # What wraps a run by functools.wraps takes over its attributes, but may do anything.
    pure = getattr(run, "pure", False) and not hasattr(run, "__wrapped__")
    raw: Any = run(tensor.copy() if shared and not pure else tensor)
    if not isinstance(raw, Mapping):
        raise ModelError(f"expected a mapping of output names to arrays, got {type(raw).__name__}")
    return raw if pure else {name: np.array(value) for name, value in raw.items()}


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
