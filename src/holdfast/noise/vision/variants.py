"""A variant: one pipeline among the many a sweep runs on the same images, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast.core.pipeline import Pipeline
from holdfast.engine.cells import CellSet
from holdfast.engine.pipelines import ImageRecords, read_records

CLEAN = "clean"


@dataclass(frozen=True)
class Variant:
    """A named pipeline; `without` are images it must not be tested on, because it was calibrated on them."""

    name: str  # "clean", "resize=opencv-nearest", "decode=ffmpeg + precision=int8"
    pipeline: Pipeline
    without: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Swept:
    """The finished cells of a variant: records are read when asked for, one variant at a time.

    `problem` says why the pipeline cannot be run at all, on no image; it then has no cells.
    """

    variant: Variant
    cells: CellSet | None = field(default=None, repr=False)
    images: int = 0  # of the dataset that were finished in time, those it is not tested on included
    problem: str = ""

    def read(self) -> ImageRecords:
        """Records, notes and input hashes of all its images."""
        return read_records(self.cells) if self.cells else ImageRecords()


def same_inputs(first: Mapping[str, str], second: Mapping[str, str]) -> tuple[int, int]:
    """How many common images have the same input tensor, and how many are common."""
    common = first.keys() & second.keys()
    return sum(first[name] == second[name] for name in common), len(common)
