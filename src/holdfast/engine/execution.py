"""Where work runs and where its cells are: this machine, one part of many, or a Ray cluster.

A command enters `executing(...)` once. `cell_store` and `engine.cells.run` read it, so that every kind of
work runs the same way everywhere.
"""

import heapq
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from holdfast.core.errors import HoldfastError, InputError

if TYPE_CHECKING:
    from holdfast.engine.store import Store

A = TypeVar("A")
B = TypeVar("B")


class PartFinished(HoldfastError):
    """The share of one part is computed; other parts, or the command without --part, do the rest."""

    exit_code = 0


@dataclass(frozen=True)
class Part:
    """One of several equal shares of a run."""

    number: int  # from 1
    count: int

    @classmethod
    def parse(cls, text: str) -> "Part":
        """The part of a text such as 3/8."""
        match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text)
        part = cls(int(match[1]), int(match[2])) if match else cls(0, 0)
        if not 1 <= part.number <= part.count:
            raise InputError(f"--part: expected NUMBER/COUNT such as 3/8, NUMBER up to COUNT, got {text!r}")
        return part

    def share(self, names: Sequence[str], costs: Sequence[float]) -> list[int]:
        """The positions of the items of this part, in their order.

        The parts cost about the same, and they depend on the names and costs alone, not on the order of the
        items: the most expensive item first, each goes to the part with the lowest cost so far.
        """
        loads = [(0.0, number) for number in range(1, self.count + 1)]  # a heap, the lowest first
        mine = []
        for position in sorted(range(len(names)), key=lambda n: (-costs[n], names[n])):
            load, number = loads[0]
            heapq.heapreplace(loads, (load + costs[position], number))
            if number == self.number:
                mine.append(position)
        return sorted(mine)


def check_cluster(on: str) -> None:
    """Raise InputError unless the value of --on can be used."""
    if on.startswith("ray://"):
        raise InputError(
            f"--on {on}: Ray Client is not supported: it needs the same patch version of Python on both "
            "sides; run the command on a machine of the cluster, with --on ray and RAY_ADDRESS=HOST:6379"
        )
    if on != "ray":
        raise InputError(f"--on: expected ray, got {on!r}")


@dataclass(frozen=True)
class Execution:
    """Where the work of a command runs."""

    store: str = ""  # folder or URL of the cells; empty: a folder of the run
    part: Part | None = None
    on: str = ""  # "ray"; empty: processes of this machine


HERE = Execution()
_current: ContextVar[Execution] = ContextVar("execution", default=HERE)


def current() -> Execution:
    """Where the work of the running command runs."""
    return _current.get()


@contextmanager
def executing(execution: Execution) -> Iterator[None]:
    """Run the work of this block there."""
    token = _current.set(execution)
    try:
        yield
    finally:
        _current.reset(token)


def each(items: Iterable[A], function: Callable[[A], B]) -> list[B]:
    """The results of independent pieces of work, one per item.

    As one part of many, every piece computes its share before PartFinished is raised.
    """
    results: list[B] = []
    finished: PartFinished | None = None
    for item in items:
        try:
            results.append(function(item))
        except PartFinished as problem:
            finished = problem
    if finished:
        raise finished
    return results


def cell_store(folder: Path) -> "Store":
    """The store of the running command: that of --store, else the folder."""
    from holdfast.engine.store import open_store  # it loads numpy, which help does not need

    return open_store(current().store or folder)
