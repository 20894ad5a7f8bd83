"""The work of one process: shards of images through an opened pipeline, into the store."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from holdfast.core import fingerprint
from holdfast.core.dataset import Entry
from holdfast.core.errors import CardError, ImageError, InputError, ModelError, UnknownName
from holdfast.core.model import Model
from holdfast.core.pipeline import Machine, Pipeline, Prepared, open_machine
from holdfast.core.registry import lookup
from holdfast.core.types import (
    Boxes,
    Detections,
    Ints,
    Label,
    LabelMap,
    MaskFile,
    Prediction,
    Sample,
    Scores,
    Size,
)
from holdfast.data.images import notes
from holdfast.metrics.segmentation import pixel_confusion
from holdfast.run.records import Counted, Failed, Found, Ranked, Record, to_plain
from holdfast.run.store import Store, printable, to_json
from holdfast.run.versions import versions

AHEAD = 4  # images prepared before the network asks for them
TOP = 5  # classes kept of a classifier's answer


@dataclass(frozen=True)
class Job:
    """Everything a process needs to work on any shard. `job_of` makes it."""

    model: Model
    pipeline: Pipeline
    classes: int
    ignore_index: int | None
    store: Store
    setup: str  # the hash of all that can change a number, but for the images
    modules: tuple[str, ...] = ()  # where named parts from outside holdfast are defined
    threads: int = 0
    strict: bool = False  # the first image that fails ends the run

    def key(self, shard: Sequence[Entry]) -> str:
        """The name of the cell: the set-up and the images, hashed."""
        return fingerprint.of([self.setup, [(e.name, _entry_key(e)) for e in shard]])


def job_of(
    model: Model, pipeline: Pipeline, classes: int, ignore: int | None, store: Store, strict: bool = False
) -> Job:
    """The job, its set-up hashed: model, card, pipeline with the source of its parts, and versions."""
    parts = {f.name: lookup(f.name, getattr(pipeline, f.name)) for f in fields(pipeline)}
    parts["head"] = lookup("head", model.card.head.name)
    setup = fingerprint.of(
        {
            "model": model.sha256,
            "card": model.card,
            "pipeline": pipeline.describe(),
            "parts": parts,
            "classes": classes,
            "ignore": ignore,
            "versions": versions(),
        }
    )
    homes = {str(getattr(part, "__module__", "")) for part in parts.values()}
    foreign = tuple(sorted(h for h in homes if not h.startswith(("holdfast.", "__"))))
    return Job(model, pipeline, classes, ignore, store, setup, foreign, strict=strict)


def _entry_key(entry: Entry) -> str:
    try:
        return entry.key()
    except ImageError as problem:
        return f"unreadable: {problem}"


def work(job: Job, machine: Machine | None, shard: Sequence[Entry]) -> tuple[str, Machine | None, bool]:
    """The key of the shard's cell, the machine (opened only if needed), and whether work was done."""
    key = job.key(shard)
    if _finished(job, key):
        return key, machine, False
    machine = machine or open_machine(job.pipeline, job.model, job.threads)
    records: list[dict[str, Any]] = []
    remarks: list[str] = []
    for record, remark in _process(job, machine, shard):
        if job.strict and isinstance(record, Failed):
            raise ImageError(str(record))
        records.append(to_plain(record))
        remarks.extend(remark)
    content = {printable(entry.name): _entry_key(entry) for entry in shard}
    job.store.put(key, to_json({"records": records, "notes": remarks, "content": content}))
    return key, machine, True


def _finished(job: Job, key: str) -> bool:
    data = job.store.get(key)
    return data is not None and not (job.strict and b'"failed"' in data)


def _process(job: Job, machine: Machine, shard: Sequence[Entry]) -> Iterator[tuple[Record, tuple[str, ...]]]:
    """Records in order; a thread decodes ahead while the network runs."""
    with ThreadPoolExecutor(1, "holdfast-prepare") as pool:
        waiting: list[tuple[Entry, Future[tuple[Sample, Prepared, tuple[str, ...]]]]] = []
        for entry in shard:
            waiting.append((entry, pool.submit(_prepare, machine, entry)))
            if len(waiting) > AHEAD:
                yield _finish(job, machine, *waiting.pop(0))
        for pair in waiting:
            yield _finish(job, machine, *pair)


def _prepare(machine: Machine, entry: Entry) -> tuple[Sample, Prepared, tuple[str, ...]]:
    sample = entry.load()
    return sample, machine.prepare(sample.data), notes(sample.data, sample.name)


def _finish(
    job: Job, machine: Machine, entry: Entry, future: Future[tuple[Sample, Prepared, tuple[str, ...]]]
) -> tuple[Record, tuple[str, ...]]:
    try:
        sample, prepared, remarks = future.result()
        prediction = machine.predict(prepared)
        return _record(job, sample, prepared.frame.original, prediction), remarks
    except (CardError, ModelError, UnknownName):
        raise  # wrong for every image alike
    except InputError as problem:
        return Failed(entry.name, str(problem).removeprefix(f"{entry.name}: ")), ()


def _record(job: Job, sample: Sample, size: Size, prediction: Prediction) -> Record:
    truth: Any = sample.truth
    if isinstance(truth, Boxes) and isinstance(prediction, Detections):
        return Found(sample.name, size, truth, prediction)
    if isinstance(truth, Label) and isinstance(prediction, Scores):
        top = np.argsort(-prediction.values, kind="stable")[:TOP]
        return Ranked(sample.name, size, truth.index, top, prediction.values[top])
    if isinstance(truth, MaskFile) and isinstance(prediction, LabelMap):
        return Counted(sample.name, size, _confusion(job, truth, size, prediction))
    got, has = type(prediction).__name__, type(truth).__name__
    raise InputError(f"a {job.model.card.task} model gives {got}, the data has {has}")


def _confusion(job: Job, truth: MaskFile, size: Size, prediction: LabelMap) -> Ints:
    mask = read_mask(truth.data)
    if mask.shape != prediction.classes.shape:
        raise ImageError(
            f"its mask is {mask.shape[1]}×{mask.shape[0]} pixels, the image {size.width}×{size.height}"
        )
    counted = mask[mask != job.ignore_index] if job.ignore_index is not None else mask
    if counted.size and not 0 <= counted.min() <= counted.max() < job.classes:
        wrong = int(counted.min() if counted.min() < 0 else counted.max())
        raise ImageError(f"its mask has the value {wrong}; expected classes 0 to {job.classes - 1}")
    return pixel_confusion(mask, prediction.classes, job.classes, ignore_index=job.ignore_index)


def read_mask(data: bytes) -> Any:
    """The class id of every pixel (h, w) of an encoded mask: grey values or palette indices, unscaled."""
    from PIL import Image as Pillow

    # Not OpenCV: it turns a palette (as PASCAL VOC's masks have) into colours.
    try:
        with Pillow.open(io.BytesIO(data)) as picture:
            mask = np.asarray(picture)
    except (OSError, SyntaxError, ValueError, Pillow.DecompressionBombError) as problem:
        raise ImageError(f"its mask cannot be decoded: {problem}") from problem
    if mask.ndim == 3 and (mask[:, :, :3] == mask[:, :, :1]).all():
        mask = mask[:, :, 0]
    if mask.ndim != 2 or mask.dtype.kind not in "biu":
        raise ImageError(f"its mask has colours; expected class ids in one channel, got mode {picture.mode}")
    return mask.astype(np.int64)
