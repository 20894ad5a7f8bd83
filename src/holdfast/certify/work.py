"""The detections on every masked image: a cell per image and family of masks."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from holdfast.core.dataset import Entry
from holdfast.core.errors import ImageError
from holdfast.core.model import Model
from holdfast.core.pipeline import LoadedPipeline, Pipeline, load_pipeline
from holdfast.core.types import Detections, Ints, Size
from holdfast.data.images import Encoding
from holdfast.engine.cells import ItemWork, Setup
from holdfast.engine.pipelines import content_of
from holdfast.stages.defence import Where, detections_of, masked, masked_size
from holdfast.stages.double_masking import DoubleMasking, MaskedViews, all_pairs_agree, decide
from holdfast.stages.masks import MaskFamily


@dataclass(frozen=True)
class MaskWork(ItemWork[Entry, LoadedPipeline]):
    """The detections of one pipeline on images with the masks of one family."""

    model: Model
    pipeline: Pipeline  # without a defence
    family: MaskFamily
    score: float  # detections up to this score are not kept: no threshold of the defence is lower
    where: Where
    facts: Any  # all that can change a result, except the image

    def setups(self) -> list[Setup]:
        """Model, pipeline, masks and the lowest score."""
        masks = [type(self.family).__name__, self.family, self.where]
        return [Setup("certify", ["masked", masks, self.score, self.facts])]

    def contents(self, item: Entry) -> list[list[str]]:
        """Name and content of the image."""
        return [content_of(item)]

    def open(self, threads: int) -> LoadedPipeline:
        """The model opened with its pipeline."""
        return load_pipeline(self.pipeline, self.model, threads)

    def compute_item(self, state: LoadedPipeline, item: Entry) -> dict[str, Any]:
        """The masks of an image and the detections on each, or why it cannot be run."""
        began = time.perf_counter()
        try:
            data = item.load().data
            pixels, encoding = state.decode(data), Encoding.of(data)
            size = masked_size(state, pixels, self.where)
            masks = self.family.masks(size)
            found = []
            for number, prepared in enumerate(masked(state, pixels, masks, self.where)):
                one = detections_of(state, prepared)
                one = one.take(one.scores > self.score)
                rows = zip(one.classes.tolist(), one.scores.tolist(), one.boxes.tolist(), strict=True)
                found += [[number, label, score, *box] for label, score, box in rows]
        except ImageError as problem:
            return {"failed": str(problem)}
        seconds = round(time.perf_counter() - began, 3)
        coded = None if encoding is None else [*encoding.blocks, encoding.margin]
        masked_images = {"size": list(size), "masks": masks.tolist(), "found": found}
        return {**masked_images, "encoding": coded, "seconds": seconds}

    def is_valid(self, setup: int, data: bytes) -> bool:
        """A failed image is run again."""
        return b'"failed"' not in data


@dataclass(frozen=True)
class ClassWork(ItemWork[Entry, LoadedPipeline]):
    """The answers of a classifier with one mask and with two."""

    model: Model
    pipeline: Pipeline  # without a defence
    defence: DoubleMasking
    facts: Any  # all that can change a result, except the image

    def setups(self) -> list[Setup]:
        """Model, pipeline and masks."""
        return [Setup("certify", ["classes", self.defence.squares, self.defence.where, self.facts])]

    def contents(self, item: Entry) -> list[list[str]]:
        """Name and content of the image."""
        return [content_of(item)]

    def open(self, threads: int) -> LoadedPipeline:
        """The model opened with its pipeline."""
        return load_pipeline(self.pipeline, self.model, threads)

    def compute_item(self, state: LoadedPipeline, item: Entry) -> dict[str, Any]:
        """The answers with one mask, whether all pairs give one answer, and that of double masking."""
        began = time.perf_counter()
        try:
            data = item.load().data
            encoding = Encoding.of(data)
            views = MaskedViews(self.defence, state, state.decode(data))
            agree, answer = all_pairs_agree(views), decide(views)
        except ImageError as problem:
            return {"failed": str(problem)}
        return {
            "first": views.labels,
            "agree": agree,
            "answer": answer,
            "masks": views.masks.tolist(),
            "passes": views.passes + 1,
            "encoding": None if encoding is None else [*encoding.blocks, encoding.margin],
            "seconds": round(time.perf_counter() - began, 3),
        }

    def is_valid(self, setup: int, data: bytes) -> bool:
        """A failed image is run again."""
        return b'"failed"' not in data


@dataclass(frozen=True)
class MaskedImage:
    """The masks (n, 4) of one image, all detections on masked images, and the mask of each (k,)."""

    size: Size  # of what is masked
    masks: Ints
    detections: Detections
    mask: Ints
    encoding: Encoding | None = None  # of the image file; None: not known
    seconds: float = 0.0

    @classmethod
    def from_cell(cls, cell: dict[str, Any]) -> MaskedImage:
        """What a cell holds."""
        rows = np.array(cell["found"], np.float64).reshape(-1, 7)
        detections = Detections(rows[:, 3:], rows[:, 2], rows[:, 1].astype(np.int64))
        masks = np.array(cell["masks"], np.int64).reshape(-1, 4)
        coded, numbers = cell["encoding"], rows[:, 0].astype(np.int64)
        encoding = coded and Encoding((coded[0], coded[1]), coded[2])
        return cls(Size(*cell["size"]), masks, detections, numbers, encoding, seconds=cell["seconds"])

    def above(self, score: float) -> MaskedImage:
        """The same with the detections above a score only."""
        keep = self.detections.scores > score
        return replace(self, detections=self.detections.take(keep), mask=self.mask[keep])


def join_families(parts: list[MaskedImage]) -> MaskedImage:
    """The masks and detections of several families on one image."""
    starts = np.cumsum([0, *(len(part.masks) for part in parts)])
    columns = ([getattr(p.detections, name) for p in parts] for name in ("boxes", "scores", "classes"))
    return MaskedImage(
        parts[0].size,
        np.concatenate([part.masks for part in parts]),
        Detections(*map(np.concatenate, columns)),
        np.concatenate([part.mask + start for part, start in zip(parts, starts[:-1], strict=True)]),
        parts[0].encoding,
        seconds=sum(part.seconds for part in parts),
    )
