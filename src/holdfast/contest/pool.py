"""Candidates for a contest: each scaled to the contest's size and shown to the single model."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import orjson

from holdfast.contest.judging import HeldImage
from holdfast.contest.run import hits
from holdfast.core import fingerprint
from holdfast.core.dataset import Entry
from holdfast.core.errors import DataError, ImageError
from holdfast.core.model import Model
from holdfast.core.pipeline import Machine, open_machine, pipeline_of
from holdfast.core.registry import lookup
from holdfast.core.types import Boxes, Detections, Image, Sample, Size
from holdfast.data.entries import PixelBoxes, Row, pack
from holdfast.data.patchfile import png_of
from holdfast.engine.cells import ItemWork, Setup, run
from holdfast.engine.executor import Progress
from holdfast.engine.pipelines import SHARD, ImagePipeline, PipelineWork, content_of
from holdfast.engine.store import Store, write_atomic
from holdfast.evaluate.classes import Alignment

Phase: TypeAlias = Callable[[str, int], AbstractContextManager[Progress]]  # (what, images) -> its progress


@dataclass(frozen=True)
class Candidate:
    """An image that can be taken: its name in the data, the PNG it became, and its truth in that size."""

    source: str
    file: Path
    sha256: str
    rows: tuple[Row, ...]


def is_written(folder: Path, cell: bytes) -> bool:
    """Whether the picture that a cell names is in the folder, and is the one that was written."""
    found = orjson.loads(cell)
    if found is None:
        return True
    file = folder / found["file"]
    return file.is_file() and fingerprint.of_file(file) == str(found["sha256"])


@dataclass(frozen=True)
class PoolWork(ItemWork[Entry, Machine]):
    """The search for candidates; those the model recognises are written to `folder`."""

    model: Model  # with the thresholds of the rules
    alignment: Alignment
    size: Size
    iou: float
    folder: Path
    batch: int = SHARD

    def setups(self) -> list[Setup]:
        """The model and its pipeline, the classes, the size and the IoU."""
        (model,) = PipelineWork(self.model, (ImagePipeline(pipeline_of(self.model.card)),), 0).setups()
        facts = [model.facts, self.alignment.of_model, self.size, self.iou]
        return [Setup("contest", ["candidates", facts])]

    def contents(self, item: Entry) -> list[list[str]]:
        """Name and content of the image."""
        return [content_of(item)]

    def open(self, threads: int) -> Machine:
        """The model under its pipeline."""
        return open_machine(pipeline_of(self.model.card), self.model, threads)

    def is_valid(self, setup: int, data: bytes) -> bool:
        """Whether the candidate's picture is there, and is the one that was written."""
        return is_written(self.folder, data)

    def compute_item(self, state: Machine, item: Entry) -> dict[str, Any] | None:
        """The candidate as JSON values, None if the model recognises no target in it or it is no image."""
        try:
            sample = item.load()
            image, rows = scaled(sample, state, self.size)
        except ImageError:
            return None
        truth = PixelBoxes(pack(rows))
        shown = HeldImage(sample.name, image, truth).load()
        said = state.predict(state.prepare(shown.data))
        if not isinstance(said, Detections) or not isinstance(shown.truth, Boxes):
            raise DataError(f"{self.model.name}: expected a detector")
        places = self.alignment.of_model[said.classes]
        known = dataclasses.replace(said.take(places >= 0), classes=places[places >= 0])
        if not hits(shown.truth, known, self.iou).any():
            return None
        data = png_of(image)
        digest = fingerprint.of_bytes(data)
        write_atomic(self.folder / f"{digest}.png", data, durable=False)
        return {"source": sample.name, "file": f"{digest}.png", "sha256": digest, "rows": rows}


def scaled(sample: Sample, machine: Machine, size: Size) -> tuple[Image, list[Row]]:
    """The picture in the contest's size by Pillow's bilinear filter, and its boxes, moved with it.

    A box marked difficult becomes one that is ignored (COCO knows no other mark).
    """
    truth = sample.truth
    if not isinstance(truth, Boxes):
        raise DataError(f"{sample.name}: expected boxes as truth, got {type(truth).__name__}")
    pixels = machine.decode(sample.data)
    height, width = pixels.shape[:2]
    image: Image = lookup("resize", "pillow-bilinear")(pixels, size)
    x, y = size.width / width, size.height / height
    xyxy = truth.xyxy * np.array([x, y, x, y])
    ignored = truth.crowd | truth.difficult
    columns = (values.tolist() for values in (xyxy, truth.classes, ignored, truth.areas))
    rows = [
        Row._make([*corners, category, crowd, False, area * x * y])
        for corners, category, crowd, area in zip(*columns, strict=True)
    ]
    return np.ascontiguousarray(image), rows


def search(
    work: PoolWork, entries: Sequence[Entry], wanted: int, store: Store, jobs: int, phase: Phase
) -> list[Candidate]:
    """The first `wanted` candidates, in the order of the entries, or all there are."""
    found: list[Candidate] = []
    rest = tuple(entries)
    while rest and len(found) < wanted:
        missing = wanted - len(found)
        length = SHARD * -(-(missing + missing // 8) // SHARD)  # a little more than what is missing
        part, rest = rest[:length], rest[length:]
        with phase("choose", len(part)) as step:
            rows = run(work, part, store, jobs=jobs, progress=step).read()
        for row in rows:
            if row is not None:
                boxes = tuple(Row(*r) for r in row["rows"])
                found.append(Candidate(row["source"], work.folder / row["file"], row["sha256"], boxes))
    return found[:wanted]
