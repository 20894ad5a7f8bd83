"""A dataset: entries that can be loaded one at a time, as encoded bytes with their truth."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Protocol

from holdfast.core.model import Task
from holdfast.core.types import Sample


class Entry(Protocol):
    """One image not yet read. Entries are small and picklable: worker processes load them."""

    @property
    def name(self) -> str:
        """A name unique in the dataset, for people: mostly the file's path inside it."""
        ...

    def key(self) -> str:
        """A text that changes when the image or its truth does: a content hash, or seed and index."""
        ...

    def load(self) -> Sample:
        """The encoded bytes and the truth; ImageError if the file cannot be read."""
        ...


@dataclass(frozen=True)
class DataProblem:
    """Something wrong with a dataset, found without decoding its images."""

    kind: str  # "missing file", "box outside the image", "unknown class", "duplicate id", ...
    where: str  # file, and line or annotation
    what: str  # expected and got

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


@dataclass(frozen=True)
class Dataset:
    """A named row of entries for one task, with the class names their truth refers to."""

    name: str
    format: str
    task: Task
    classes: tuple[str, ...]
    entries: tuple[Entry, ...] = field(repr=False)
    problems: tuple[DataProblem, ...] = ()
    ignore_index: int | None = None  # segmentation: the mask value that does not count

    def __len__(self) -> int:
        return len(self.entries)

    def first(self, count: int | None) -> Dataset:
        """The same dataset with at most `count` entries."""
        if count is None or count >= len(self.entries):
            return self
        return replace(self, entries=self.entries[:count])
