"""What is in a store of cells: sizes by kind of work and age, damaged cells, and cells that no run needs."""

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from holdfast.core.errors import InputError
from holdfast.engine.cells import cell_key
from holdfast.engine.store import Store, StoreEntry

DAY = 86400.0
AGES = (("today", DAY), ("this week", 7 * DAY), ("this month", 30 * DAY), ("older", float("inf")))
LEFTOVER_AGE = 3600.0  # seconds after which a file that is still being written is one of a killed writer
BATCH = 500  # cells that are read or deleted together
SETUP = re.compile(r"[a-z]+\.[0-9a-f]{64}")
ITEM = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Usage:
    """Cells and bytes of one kind of work and age; leftovers of killed writers have no kind."""

    kind: str
    age: str
    cells: int
    bytes: int


def usage(store: Store) -> list[Usage]:
    """What is in the store, from a listing alone."""
    now = time.time()
    cells: Counter[tuple[str, str]] = Counter()
    sizes: Counter[tuple[str, str]] = Counter()
    for entry in store.entries():
        group = entry.kind, next(name for name, limit in AGES if now - entry.written < limit)
        cells[group] += 1
        sizes[group] += entry.size
    order = [name for name, _ in AGES]
    groups = sorted(cells, key=lambda group: (group[0], order.index(group[1])))
    return [Usage(*group, cells[group], sizes[group]) for group in groups]


def verify(store: Store, progress: Callable[[int], None] = lambda done: None) -> tuple[int, list[str]]:
    """The number of cells, and the names of those that are damaged or under another cell's name."""
    count, damaged = 0, []
    for batch in _batches(entry for entry in store.entries() if entry.key):
        values = store.get_all([entry.key for entry in batch])
        damaged += [entry.name for entry, value in zip(batch, values, strict=True) if value is None]
        count += len(batch)
        progress(len(batch))
    return count, damaged


@dataclass
class Unneeded:
    """Entries that can be removed."""

    cells: list[StoreEntry] = field(default_factory=list)  # that no run needs
    leftovers: list[StoreEntry] = field(default_factory=list)  # of killed writers

    def delete(self, store: Store) -> None:
        """Remove them."""
        for batch in _batches([*self.cells, *self.leftovers]):
            store.delete([entry.name for entry in batch])


def unneeded(store: Store, runs: Sequence[Path], age: float) -> Unneeded:
    """The cells that no run in these folders names and that are older than `age` seconds, and leftovers."""
    needed = {key for folder in runs for manifest in _manifests(folder) for key in _keys(manifest)}
    removable, now = Unneeded(), time.time()
    for entry in store.entries():
        if not entry.key:
            if now - entry.written > LEFTOVER_AGE:
                removable.leftovers.append(entry)
        elif entry.key not in needed and now - entry.written > age:
            removable.cells.append(entry)
    return removable


def _manifests(folder: Path) -> Iterator[Any]:
    """The manifests of the runs in a folder; InputError if there is no folder, or one cannot be read."""
    if not folder.is_dir():
        raise InputError(f"--runs: expected the folder of the runs to keep, got {folder}")
    for path in sorted([*folder.glob("*.json"), *folder.glob("*/*.json")]):
        try:
            yield json.loads(path.read_bytes())
        except (OSError, ValueError, RecursionError) as problem:
            raise InputError(f"{path}: the run cannot be read ({problem}); repair it or remove it") from None


def _keys(manifest: Any) -> Iterator[str]:
    """The keys of every setup with every item that a manifest names: at least the cells it needs."""
    texts = set(_texts(manifest))
    items = [text for text in texts if ITEM.fullmatch(text)]
    for setup in (text for text in texts if SETUP.fullmatch(text)):
        yield from (cell_key(setup, item) for item in items)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for item in value if isinstance(value, list) else value.values():
            yield from _texts(item)


def _batches(entries: Iterable[StoreEntry]) -> Iterator[list[StoreEntry]]:
    rest = iter(entries)
    while batch := list(islice(rest, BATCH)):
        yield batch
