"""Candidates for a contest: each scaled to the contest's size and shown to the single model."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import orjson

from holdfast.contest.run import hits
from holdfast.contest.shots import Held
from holdfast.core import fingerprint
from holdfast.core.dataset import Entry
from holdfast.core.errors import DataError, ImageError
from holdfast.core.model import Model
from holdfast.core.pipeline import Machine, open_machine, pipeline_of
from holdfast.core.registry import lookup
from holdfast.core.sources import code_of
from holdfast.core.types import Boxes, Detections, Image, Sample, Size
from holdfast.data.entries import PixelBoxes, Row, pack
from holdfast.data.patchfile import png_of
from holdfast.engine.executor import SHARD, Progress, execute
from holdfast.engine.job import content_of, job_of
from holdfast.engine.store import Store, to_json, write_atomic
from holdfast.evaluate.classes import Alignment

Phase: TypeAlias = Callable[[str, int], AbstractContextManager[Progress]]  # (what, images) -> its progress


@dataclass(frozen=True)
class Candidate:
    """An image that can be taken: its name in the data, the PNG it became, and its truth in that size."""

    source: str
    file: Path
    sha256: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Pool:
    """The work of looking at candidates; those the model recognises are written to `folder`."""

    model: Model  # with the thresholds of the rules
    alignment: Alignment
    size: Size
    iou: float
    store: Store
    folder: Path
    threads: int = 1
    modules: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()

    def on(self, threads: int) -> Pool:
        """The same work with so many threads a process."""
        return dataclasses.replace(self, threads=threads)

    def setup(self) -> str:
        """The hash of all that decides which images are taken, and how they look."""
        job = job_of(self.model, pipeline_of(self.model.card), 0, None, self.store)
        asked = [self.alignment.of_model, self.size, self.iou]
        return fingerprint.of(["candidates", job.setup, code_of("contest"), *asked])

    def work(
        self, machine: Machine | None, shard: Sequence[Entry]
    ) -> tuple[str, Machine | None, tuple[int, int]]:
        """The key of the row's cell, the open model, and how far that brings the search."""
        key = fingerprint.of([self.setup(), content_of(shard)])
        found = self.store.get(key)
        if found is not None and all(map(_is_whole, self.read(key))):
            return key, machine, (len(shard), len(shard))
        machine = machine or open_machine(pipeline_of(self.model.card), self.model, self.threads)
        self.store.put(key, to_json([self._look(machine, entry) for entry in shard]))
        return key, machine, (len(shard), 0)

    def read(self, key: str) -> list[Candidate]:
        """The candidates of a finished cell that can be taken."""
        found = self.store.get(key)
        if found is None:
            raise DataError(f"{self.store.path(key)}: the cell is damaged; run the same command again")
        return [
            Candidate(
                row["source"], self.folder / row["file"], row["sha256"], tuple(Row(*r) for r in row["rows"])
            )
            for row in orjson.loads(found)
            if row is not None
        ]

    def _look(self, machine: Machine, entry: Entry) -> dict[str, Any] | None:
        """The candidate as JSON values, None if the model recognises no target in it or it is no image."""
        try:
            sample = entry.load()
            image, rows = scaled(sample, machine, self.size)
        except ImageError:
            return None
        truth = PixelBoxes(pack(rows))
        shown = Held(sample.name, image, truth).load()
        said = machine.predict(machine.prepare(shown.data))
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


def _is_whole(candidate: Candidate) -> bool:
    """Whether the candidate's picture is there, and is the one that was written."""
    return candidate.file.is_file() and fingerprint.of_file(candidate.file) == candidate.sha256


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
    rows = [
        Row(corners[0], corners[1], corners[2], corners[3], category, crowd, False, area * x * y)
        for corners, category, crowd, area in zip(
            xyxy.tolist(), truth.classes.tolist(), ignored.tolist(), truth.areas.tolist(), strict=True
        )
    ]
    return np.ascontiguousarray(image), rows


def search(pool: Pool, entries: Sequence[Entry], wanted: int, jobs: int, phase: Phase) -> list[Candidate]:
    """The first `wanted` candidates, in the order of the entries, or all there are."""
    found: list[Candidate] = []
    for part in _parts(len(entries), wanted, found):
        with phase("choose", len(entries[part])) as step:
            keys = execute(pool, entries[part], jobs, step)
        found += [candidate for key in keys for candidate in pool.read(key)]
    return found[:wanted]


def _parts(total: int, wanted: int, found: list[Candidate]) -> Iterator[slice]:
    """Slices of the entries, each a little longer than what is still missing, until there is enough."""
    start = 0
    while start < total and len(found) < wanted:
        missing = wanted - len(found)
        length = SHARD * -(-(missing + missing // 8) // SHARD)
        yield slice(start, start + length)
        start += length
