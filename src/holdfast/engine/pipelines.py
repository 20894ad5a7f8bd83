"""Images through pipelines of one model: a cell per image and pipeline, each distinct computation done once.

Pipelines with the same decoder share the decoded pixels. Two decoders that give the same pixels share
everything that follows, down to the input tensor and the network's outputs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np

from holdfast.core.dataset import Entry
from holdfast.core.errors import CardError, ImageError, InputError, ModelError, UnknownName, describe_error
from holdfast.core.model import Input, Model
from holdfast.core.pipeline import STAGES, Frame, Pipeline, Run, checked, load_pipeline, place
from holdfast.core.registry import lookup
from holdfast.core.text import printable
from holdfast.core.types import Image, Sample, Tensor
from holdfast.data.images import notes
from holdfast.engine.cells import CellResult, CellSet, MissingCells, Setup, Work
from holdfast.engine.records import FailedImage, Record, from_plain, record_of, to_plain

A = TypeVar("A")
Errors = dict[int, Exception]  # pipeline -> why it has no tensor of this image
SPARSE = 16  # different pixels mostly differ in every 16th pixel of every 16th row
SHARD = 25  # images a process gets at a time
TOGETHER = 48  # pipelines whose pixels of one image are in memory at a time
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
            keys: dict[int, Hashable] = {
                n: (item.digest, network, self.stages[n]["post"], item.frames[n]) for n in group
            }
            new = {key: users[0] for key, users in grouped(group, keys.get).items() if key not in state.known}
            if new:
                run = self._network(group)
                if run is None:
                    continue
                raw = attempt(_outputs, run, item.tensor, len(networks) > 1)
                for key, n in new.items():
                    state.known[key] = self._record(n, item, raw, shared=len(new) > 1)
            for n, key in keys.items():
                self.settle(state, n, item.sample.name, state.known[key])

    def infer_defended(self, state: ImageState, n: int, sample: Sample) -> None:
        """Run one pipeline with a defence, which shares no tensor with others, and note its record."""
        run = self._network([n])
        if run is None:
            return
        pipeline, work = self.work.pipelines[n].pipeline, self.work
        machine = load_pipeline(pipeline.replace(infer=lambda _model, _threads: run), work.model)

        def predicted() -> Record:
            pixels = machine.decode(sample.data)
            prepared = machine.prepare_pixels(pixels.copy())
            # Equal for equal pixels through equal stages: the masked images are then equal, too.
            names = [self.stages[n][kind] for kind in ("colour", "fit", "resize", "normalise")]
            digest = hashlib.sha256(f"{pixels.shape}{names}".encode() + pixels.tobytes())
            state.inputs[n] = digest.hexdigest()[:16]
            truth = work.classes, work.ignore_index
            return record_of(sample, prepared.frame.original, machine.predict(prepared), *truth)

        self.settle(state, n, sample.name, attempt(predicted))

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
        truth = work.classes, work.ignore_index
        record: Record | Exception = attempt(record_of, item.sample, frame.original, prediction, *truth)
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
        model, truth = self.model, {"classes": self.classes, "ignore": self.ignore_index}
        common = {"model": model.sha256, "card": model.card, **truth}
        head = lookup("head", model.card.head.name)
        setups = []
        for pipeline in (one.pipeline for one in self.pipelines):
            parts = {kind: lookup(kind, getattr(pipeline, kind)) for kind in STAGES}
            facts = {**common, "pipeline": pipeline.describe(), "parts": {**parts, "head": head}}
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
        return {**_cell(FailedImage(item.name, reason), content), "skipped": True}

    def problems(self, state: Inference) -> Mapping[int, str]:
        """Why some pipelines cannot be run at all."""
        return {n: describe_error(problem) for n, problem in sorted(state.problems.items())}

    def compute(self, state: Inference, batch: Sequence[MissingCells]) -> Iterator[CellResult]:
        """The record of each image and pipeline."""
        stages = input_stages({n: self.pipelines[n].pipeline for _, contents in batch for n in contents})
        for position, (entry, contents) in enumerate(batch):
            mine = {n: stages[n] for n in contents if n not in state.problems}
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
                defended = [n for n in mine if self.pipelines[n].pipeline.defence is not None]
                plain = {n: mine[n] for n in mine if n not in defended}
                for together in _parts(plain):
                    for tensor in distinct_tensors(together, self.model.card.input, sample, errors):
                        state.infer(image, tensor)
                for n in defended:
                    state.infer_defended(image, n, sample)
            for n, error in errors.items():
                state.settle(image, n, entry.name, error)
            if self.fatal and state.problems:
                raise next(iter(state.problems.values()))
            for n, record in image.records.items():
                cell = _cell(record, contents[n], remarks, image.inputs.get(n, ""))
                yield CellResult(position, n, cell)


def _parts(stages: dict[int, InputStages]) -> Iterator[dict[int, InputStages]]:
    """At most TOGETHER pipelines at a time."""
    numbers = sorted(stages)
    for start in range(0, len(numbers), TOGETHER):
        yield {n: stages[n] for n in numbers[start : start + TOGETHER]}


def _cell(
    record: Record, content: Sequence[str], remarks: Sequence[str] = (), digest: str = ""
) -> dict[str, Any]:
    name, key = content
    remarks = [] if isinstance(record, FailedImage) else remarks
    facts = {"name": name if name.isprintable() else printable(name), "content": key, "input": digest}
    return {"record": to_plain(record), "notes": remarks, **facts}


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
    before = ("decode", "colour", "fit", "resize", "normalise")
    return {
        n: InputStages(pipeline.describe(), {kind: lookup(kind, getattr(pipeline, kind)) for kind in before})
        for n, pipeline in pipelines.items()
    }


@dataclass(frozen=True)
class ImageRecords:
    """What cells hold: records in order, notes, the content of each image, and hashes of its tensors."""

    records: list[Record] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    content: dict[str, str] = field(default_factory=dict)
    inputs: dict[str, str] = field(default_factory=dict)  # image -> hash of its input tensor


def read_records(cells: CellSet) -> ImageRecords:
    """The records in these cells; DataError if one is missing or damaged."""
    images = ImageRecords()
    for cell in cells.read():
        images.records.append(from_plain(cell["record"]))
        images.notes.extend(cell["notes"])
        images.content[cell["name"]] = cell["content"]
        if cell["input"]:
            images.inputs[cell["name"]] = cell["input"]
    return images


@dataclass(frozen=True)
class InputStages:
    """The stages of one pipeline before the network, and their names, which are equal for equal stages."""

    names: Mapping[str, str]
    functions: Mapping[str, Callable[..., Any]]


@dataclass(frozen=True)
class InputTensor:
    """A distinct tensor (1, …) of an image, its hash, and the pipelines that use it, with their frames."""

    sample: Sample
    tensor: Tensor
    digest: str
    frames: dict[int, Frame]


@dataclass
class _Pixels:
    """Distinct pixels and the pipelines that use them, with their frames and inputs (or nothing yet)."""

    pixels: Image
    users: dict[int, Any] = field(default_factory=dict)


_Distinct = dict[Hashable, list[_Pixels]]  # by a sample of the pixels


def digest_of(tensor: Tensor, pixels: Image, target: Input, normalise: str) -> str:
    """16 hex digits that are equal for equal inputs of the network.

    The card's normalisation maps different pixels to different tensors, so the pixels are hashed instead of
    the tensor, which is four times as large. With any other normalisation the tensor itself is hashed.
    """
    content, head = (pixels, _text(target)) if normalise == "card" else (tensor, "")
    digest = hashlib.sha256(f"{content.shape}{content.dtype.str}{head}".encode())
    digest.update(np.ascontiguousarray(content).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()[:16]


_text = lru_cache(maxsize=64)(str)


def distinct_tensors(
    stages: Mapping[int, InputStages], card: Input, sample: Sample, errors: Errors
) -> Iterator[InputTensor]:
    """The distinct tensors of one image. A pipeline that fails has none and is put into `errors`."""
    for small in _resized(stages, card, sample.data, errors):
        tensors: dict[str, InputTensor] = {}
        groups = grouped(small.users, lambda u: (small.users[u][1], stages[u].names["normalise"]))  # noqa: B023
        for (target, name), users in groups.items():
            normalise = stages[users[0]].functions["normalise"]
            tensor = _attempt(errors, users, normalise, _given(normalise, small.pixels), target)
            if tensor is None:
                continue
            tensor = tensor[np.newaxis]
            digest = digest_of(tensor, small.pixels, target, name)
            shared = tensors.setdefault(digest, InputTensor(sample, tensor, digest, {}))
            shared.frames.update({u: small.users[u][0] for u in users})
        yield from tensors.values()


def _resized(stages: Mapping[int, InputStages], card: Input, data: bytes, errors: Errors) -> list[_Pixels]:
    distinct: _Distinct = {}
    targets: dict[int, Input] = {}
    for users in grouped(stages, lambda u: stages[u].names["fit"]).values():
        target = _attempt(errors, users, stages[users[0]].functions["fit"], card)
        if target is not None:
            targets.update(dict.fromkeys(users, target))
    for decoded, by_decode in _split(list(targets), stages, "decode", data, errors):
        for coloured, by_colour in _split(by_decode, stages, "colour", decoded, errors):
            groups = grouped(by_colour, lambda u: (targets[u], stages[u].names["resize"]))
            for (target, _), users in groups.items():
                resize = stages[users[0]].functions["resize"]
                placed = _attempt(errors, users, place, _given(resize, coloured), target, resize)
                if placed is not None:
                    _same_pixels(distinct, placed[0]).users.update(dict.fromkeys(users, (placed[1], target)))
    return [pixels for alike in distinct.values() for pixels in alike]


def _given(stage: Callable[..., Any], pixels: A) -> A:
    """The pixels, copied for a stage outside holdfast, which may write into them."""
    ours = str(getattr(stage, "__module__", "")).startswith("holdfast.")
    return pixels.copy() if isinstance(pixels, np.ndarray) and not ours else pixels


def _split(
    users: Iterable[int], stages: Mapping[int, InputStages], kind: str, given: Any, errors: Errors
) -> list[tuple[Image, dict[int, Any]]]:
    """The distinct results of one stage, each with the pipelines that share it."""
    distinct: _Distinct = {}
    for group in grouped(users, lambda u: stages[u].names[kind]).values():
        stage = stages[group[0]].functions[kind]
        pixels = _attempt(errors, group, stage, _given(stage, given))
        if pixels is not None:
            _same_pixels(distinct, pixels).users.update(dict.fromkeys(group))
    return [(shared.pixels, shared.users) for alike in distinct.values() for shared in alike]


def _same_pixels(distinct: _Distinct, pixels: Image) -> _Pixels:
    """The entry with these pixels, added if there is none."""
    sparse = (pixels.shape, pixels.dtype.str, pixels[::SPARSE, ::SPARSE].tobytes())
    alike = distinct.setdefault(sparse, [])
    for candidate in alike:
        if candidate.pixels is pixels or np.array_equal(candidate.pixels, pixels):
            return candidate
    alike.append(_Pixels(pixels))
    return alike[-1]


def grouped(users: Iterable[int], key: Callable[[int], Hashable]) -> dict[Any, list[int]]:
    """The users that have the same key, in order."""
    groups: dict[Any, list[int]] = {}
    for user in users:
        groups.setdefault(key(user), []).append(user)
    return groups


def attempt(function: Callable[..., Any], *given: Any) -> Any:
    """The result of the function, or the exception it raises."""
    try:
        return function(*given)
    except MemoryError:
        raise
    except Exception as problem:  # noqa: BLE001 - a stage may be the user's; its error is reported
        return problem


def _attempt(errors: Errors, users: list[int], function: Callable[..., Any], *given: Any) -> Any:
    result = attempt(function, *given)
    if isinstance(result, Exception):
        errors.update(dict.fromkeys(users, result))
        return None
    return result
