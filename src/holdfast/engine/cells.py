"""Work in cells: a result per item, stored under a key of everything that can change it, and computed once.

A kind of work is a frozen dataclass that derives from `Work`. `run` is the only way to do cells: it finds
what is finished, computes what is missing on one or many processes, stores it, and reports progress.

    @dataclass(frozen=True)
    class Brightness(ItemWork[Entry, Decode]):
        decoder: str

        def setups(self) -> list[Setup]:
            return [Setup("evaluate", self.decoder)]

        def contents(self, item: Entry) -> list[Any]:
            return [[item.name, item.key()]]

        def open(self, threads: int) -> Decode:
            return lookup("decode", self.decoder)

        def compute_item(self, decode: Decode, item: Entry) -> float:
            return float(decode(item.load().data).mean())

    values = run(Brightness("pillow"), entries, store, jobs=0).read()
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from holdfast.core import fingerprint
from holdfast.core.sources import code_of, versions
from holdfast.engine.execution import PartFinished, current
from holdfast.engine.executor import Progress, Shards, choose_executor, silent
from holdfast.engine.store import Store, open_store, to_json
from holdfast.engine.workers import WorkerLost

Item = TypeVar("Item")
State = TypeVar("State")


class Setup(NamedTuple):
    """What a cell depends on besides its item, the code and the libraries.

    `kind` is a kind of work of `core.sources`: the source code and the libraries the cell runs through.
    """

    kind: str
    facts: Any

    @property
    def name(self) -> str:
        """The kind of work, and the hash of the facts, the code and the library versions."""
        digest = fingerprint.of([self.kind, code_of(self.kind), versions(self.kind), self.facts])
        return f"{self.kind}.{digest}"


class MissingCells(NamedTuple):
    """An item and what is to be computed: number of a setup -> the item's content in that cell."""

    item: Any
    contents: Mapping[int, Any]


class CellResult(NamedTuple):
    """A result: the position of its item in the batch, the number of its setup, and a plain value.

    A result that is not `stored` is returned by this run and computed again by the next.
    """

    position: int
    setup: int
    value: Any
    stored: bool = True


class Work(ABC, Generic[Item, State]):
    """A kind of work. Instances are sent to worker processes, so their fields must be picklable."""

    batch = 1  # items a process gets at a time

    @abstractmethod
    def setups(self) -> Sequence[Setup]:
        """The cells of every item: one setup for each."""

    @abstractmethod
    def contents(self, item: Item) -> Sequence[Any]:
        """What identifies the item in each of its cells; None where it has none."""

    def open(self, threads: int) -> State | None:
        """Open what the work needs, if anything. Called once per process, before the first computation."""
        return None

    @abstractmethod
    def compute(self, state: State, batch: Sequence[MissingCells]) -> Iterator[CellResult]:
        """Compute the missing cells of a batch of items."""

    def is_valid(self, setup: int, data: bytes) -> bool:
        """Whether a stored cell may be used."""
        return True

    def use(self, item: Item, values: Sequence[Any]) -> None:
        """Use the finished cells of an item in the process that has them, for instance to write a file."""

    def problems(self, state: State) -> Mapping[int, str]:
        """Why some setups cannot be computed for any item."""
        return {}

    def skipped(self, item: Item, content: Any, reason: str) -> Any:
        """The value of a cell of an item that cannot be computed; `is_valid` must refuse it in later runs."""
        raise WorkerLost(f"{getattr(item, 'name', item)}: {reason}")

    def cost(self, item: Item) -> float:
        """How long an item takes compared with others; --part gives each part the same sum."""
        return 1.0

    def tally(self, item: Item, cells: int, found: int) -> tuple[int, int]:
        """How much progress an item is: units done, and units of them that were finished before."""
        return cells, found


class ItemWork(Work[Item, State]):
    """Work with one cell per item."""

    def compute(self, state: State, batch: Sequence[MissingCells]) -> Iterator[CellResult]:
        """Compute the items one by one."""
        for position, (item, _) in enumerate(batch):
            yield CellResult(position, 0, self.compute_item(state, item))

    @abstractmethod
    def compute_item(self, state: State, item: Item) -> Any:
        """Compute the cell of an item, as a plain value."""


@dataclass(frozen=True)
class CellSet:
    """The finished cells of one setup: the name of the setup and the hash of each item's content."""

    store: Store = field(repr=False)
    setup: str
    items: tuple[str, ...] = field(repr=False)

    def __len__(self) -> int:
        return len(self.items)

    def to_plain(self) -> dict[str, Any]:
        """The names as JSON values, and the store if it is the one of --store."""
        plain = {"setup": self.setup, "items": list(self.items)}
        return {**plain, "store": self.store.url} if current().store else plain

    @classmethod
    def from_plain(cls, folder: Path, plain: Mapping[str, Any]) -> CellSet:
        """What `to_plain` wrote, of cells in this folder unless it names another store."""
        return cls(open_store(plain.get("store") or folder), plain["setup"], tuple(plain["items"]))

    def read(self) -> Iterator[Any]:
        """The values, in the order of the items; DataError if a cell is missing or damaged."""
        return self.store.read_all([cell_key(self.setup, item) for item in self.items])


@dataclass(frozen=True)
class Cells:
    """The cells of a run: for each finished item the hash of its content per setup, "" where it has no cell.

    Items are finished in order: where the time was over, only the first ones are here.
    """

    store: Store = field(repr=False)
    setups: tuple[str, ...]
    items: tuple[tuple[str, ...], ...] = field(repr=False)
    problems: Mapping[int, str] = field(default_factory=dict)  # setup -> why it has no cells at all
    unstored: Mapping[tuple[int, int], Any] = field(default_factory=dict, repr=False)

    def of(self, setup: int = 0) -> CellSet:
        """The stored cells of one setup."""
        items = tuple(item[setup] for item in self.items if item[setup])
        return CellSet(self.store, self.setups[setup], items)

    def read(self, setup: int = 0) -> list[Any]:
        """The values of one setup in the order of the items, None where there is no cell."""
        values = []
        for at, item in enumerate(self.items):
            if (at, setup) in self.unstored:
                values.append(self.unstored[at, setup])
            else:
                key = item[setup] and cell_key(self.setups[setup], item[setup])
                values.append(self.store.read(key) if key else None)
        return values


@dataclass(frozen=True)
class ShardResult:
    """What a process returns for a shard."""

    items: list[tuple[str, ...]]
    problems: Mapping[int, str]
    unstored: dict[tuple[int, int], Any]


def run(
    work: Work[Any, Any],
    items: Sequence[Any],
    store: Store,
    *,
    jobs: int = 1,
    progress: Progress = silent,
    until: float = math.inf,
) -> Cells:
    """Compute the cells of all items that are not in the store; return them all.

    `jobs` is the number of processes (0: one per core). At `until` (of `time.monotonic`) the work stops: the
    items finished by then are returned, or BudgetSpent is raised if there are none. As one part of many
    (`engine.execution`) only the items of that part are computed; PartFinished is raised if other items are
    missing.
    """
    task = CellTask.of(work, store)
    part = current().part
    if part:
        digests = [_digests(work.contents(item)) for item in items]
        mine = part.share([fingerprint.of(row) for row in digests], [work.cost(item) for item in items])
        done = compute(task, [items[n] for n in mine], jobs=jobs, progress=progress, until=until)
        lacking, _ = task.missing(None, [task.keys(row) for row in digests])
        missing = [at for at, setups in lacking.items() if not set(setups) <= set(done.problems)]
        if missing:
            raise PartFinished(
                f"part {part.number}/{part.count} is finished: {len(mine)} of {len(items)} items; "
                f"{len(missing)} items of other parts are missing. Run the same command without --part when "
                "all are finished."
            )
        progress = silent
    return compute(task, items, jobs=jobs, progress=progress, until=until)


def compute(task: CellTask, items: Sequence[Any], *, jobs: int, progress: Progress, until: float) -> Cells:
    """Compute the missing cells of the items and return all."""
    size = task.work.batch
    shards: Shards = [tuple(items[i : i + size]) for i in range(0, len(items), size)]
    done = join(choose_executor(jobs, len(shards)).run(task, shards, progress, until), size)
    return Cells(task.store, task.setups, tuple(done.items), done.problems, done.unstored)


def join(shards: Sequence[ShardResult], size: int) -> ShardResult:
    """One result from those of shards of this many items; only the last shard may be smaller."""
    problems = {n: text for shard in reversed(shards) for n, text in shard.problems.items()}
    unstored = {
        (number * size + at, setup): value
        for number, shard in enumerate(shards)
        for (at, setup), value in shard.unstored.items()
    }
    return ShardResult([row for shard in shards for row in shard.items], problems, unstored)


def count_missing(work: Work[Any, Any], items: Iterable[Any], store: Store) -> int:
    """How many distinct cells of the items are not in the store."""
    task = CellTask.of(work, store)
    missing, _ = task.missing(None, [task.keys(_digests(work.contents(item))) for item in items])
    return sum(map(len, missing.values()))


def cell_key(setup: str, item: str) -> str:
    """The key of a cell: the kind of work, and the hash of its setup's name and of its item's content."""
    return f"{setup.partition('.')[0]}.{fingerprint.of([setup, item])}"


def _digests(contents: Sequence[Any]) -> tuple[str, ...]:
    """The hash of each content, "" for None. Contents are mostly the same object for all setups."""
    known = {id(content): content for content in contents}
    digests = {key: "" if content is None else fingerprint.of(content) for key, content in known.items()}
    return tuple(digests[id(content)] for content in contents)


@dataclass(frozen=True)
class CellTask:
    """The work as executors send it to processes."""

    work: Work[Any, Any]
    setups: tuple[str, ...]
    store: Store

    @classmethod
    def of(cls, work: Work[Any, Any], store: Store) -> CellTask:
        """The task of a work and a store."""
        return cls(work, tuple(setup.name for setup in work.setups()), store)

    def process(
        self, state: Any, shard: Sequence[Any], threads: int
    ) -> tuple[ShardResult, Any, tuple[int, int]]:
        """Compute what is missing of a shard; return the answer, the open state and the progress."""
        work = self.work
        contents = [work.contents(item) for item in shard]
        items = [_digests(row) for row in contents]
        keys = [self.keys(row) for row in items]
        missing, finished = self.missing(state, keys)
        unstored: dict[tuple[int, int], Any] = {}
        if missing:
            state = work.open(threads) if state is None else state
            places = list(missing)
            batch = [MissingCells(shard[p], {n: contents[p][n] for n in missing[p]}) for p in places]
            for result in work.compute(state, batch):
                at = places[result.position]
                if result.stored:
                    self.store.put(keys[at][result.setup], to_json(result.value))
                else:
                    unstored[at, result.setup] = result.value
            self.store.flush()
        tallies = [
            work.tally(item, len([k for k in row if k]), sum(k in finished for k in row))
            for item, row in zip(shard, keys, strict=True)
        ]
        answer = ShardResult(items, self._problems(state), unstored)
        if type(work).use is not Work.use:
            cells = Cells(self.store, self.setups, tuple(items), unstored=unstored)
            columns = [cells.read(n) for n in range(len(self.setups))]
            for at, item in enumerate(shard):
                work.use(item, [column[at] for column in columns])
        return answer, state, (sum(done for done, _ in tallies), sum(found for _, found in tallies))

    @property
    def kinds(self) -> list[str]:
        """The kinds of work, whose source code and libraries must be the same on every machine."""
        return sorted({setup.kind for setup in self.work.setups()})

    def skipped(self, item: Any, reason: str) -> ShardResult:
        """The answer to a shard of one item that cannot be computed."""
        contents = self.work.contents(item)
        digests = _digests(contents)
        for content, key in zip(contents, self.keys(digests), strict=True):
            if key and self.store.get(key) is None:
                self.store.put(key, to_json(self.work.skipped(item, content, reason)))
        self.store.flush()
        return ShardResult([digests], {}, {})

    def join(self, items: Sequence[ShardResult]) -> ShardResult:
        """The result of a shard from those of its items."""
        return join(items, 1)

    def keys(self, digests: Sequence[str]) -> list[str]:
        """The key of each cell of an item, "" where it has none."""
        return [d and cell_key(setup, d) for setup, d in zip(self.setups, digests, strict=True)]

    def missing(self, state: Any, keys: Sequence[list[str]]) -> tuple[dict[int, list[int]], set[str]]:
        """Position of an item -> setups to compute, each key once; and the keys of finished cells."""
        missing: dict[int, list[int]] = {}
        finished: set[str] = set()
        problems = self._problems(state)
        places: dict[str, tuple[int, int]] = {}
        for at, row in enumerate(keys):
            for n, key in enumerate(row):
                if key and n not in problems:
                    places.setdefault(key, (at, n))
        for (key, (at, n)), data in zip(places.items(), self.store.get_all(list(places)), strict=True):
            if data is not None and self.work.is_valid(n, data):
                finished.add(key)
            else:
                missing.setdefault(at, []).append(n)
        return missing, finished

    def _problems(self, state: Any) -> dict[int, str]:
        """Why some setups cannot be computed; setups of one name are computed once and share the problem."""
        if state is None:
            return {}
        named = {self.setups[n]: text for n, text in self.work.problems(state).items()}
        return {n: named[setup] for n, setup in enumerate(self.setups) if setup in named}
