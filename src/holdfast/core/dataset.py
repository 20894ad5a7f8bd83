"""A dataset: entries that can be loaded one at a time, as encoded bytes with their truth."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, overload

from holdfast.core import fingerprint
from holdfast.core.model import Task
from holdfast.core.types import Sample


class Entry(Protocol):
    """One image not yet read. Entries are small and picklable: worker processes load them."""

    @property
    def name(self) -> str:
        """A readable name, unique in the dataset; usually the file's path inside it."""
        ...

    def key(self) -> str:
        """A text that changes when the image or its truth does: a content hash, or seed and index."""
        ...

    def load(self) -> Sample:
        """The encoded bytes and the truth; raise ImageError if the file cannot be read."""
        ...


@dataclass(frozen=True)
class DataProblem:
    """A fault of a dataset, found without decoding its images."""

    kind: str  # "missing file", "box outside the image", "unknown class", "duplicate id", ...
    where: str  # file, and line or annotation
    what: str  # expected and got

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


@dataclass(frozen=True)
class Dataset:
    """A named sequence of entries for one task, with the class names that their truth refers to."""

    name: str
    format: str
    task: Task
    classes: tuple[str, ...]
    entries: tuple[Entry, ...] = field(repr=False)
    problems: tuple[DataProblem, ...] = ()
    ignore_index: int | None = None  # segmentation: the ignored mask value
    source: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)  # how to reopen it

    def __len__(self) -> int:
        return len(self.entries)

    def first(self, count: int | None) -> Dataset:
        """The same dataset with at most `count` entries."""
        if count is None or count >= len(self.entries):
            return self
        return replace(self, entries=self.entries[:count])

    def __iter__(self) -> Iterator[Sample]:
        """Load one sample after the other."""
        return (self._sample(entry) for entry in self.entries)

    @overload
    def __getitem__(self, place: int) -> Sample: ...

    @overload
    def __getitem__(self, place: slice) -> Dataset: ...

    def __getitem__(self, place: int | slice) -> Sample | Dataset:
        """One image with its ground truth, or the dataset of a slice."""
        chosen = self.entries[place]
        return self._selected(chosen) if isinstance(chosen, tuple) else self._sample(chosen)

    def filter(self, keep: Callable[[Sample], bool]) -> Dataset:
        """The dataset of the samples for which `keep` is true; every image is loaded once."""
        return self._selected(tuple(entry for entry in self.entries if keep(self._sample(entry))))

    def _sample(self, entry: Entry) -> Sample:
        return replace(entry.load(), classes=self.classes, task=self.task)

    def _selected(self, entries: tuple[Entry, ...]) -> Dataset:
        """The dataset of some entries; its source distinguishes it from others of the same name."""
        names = fingerprint.of([entry.name for entry in entries])[:16]
        return replace(self, entries=entries, source={**self.source, "selection": names})
