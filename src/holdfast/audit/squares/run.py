"""A black square laid over the scene's own pixels at every place of a grid: a finite set, run whole.

Every place is decoded, resized and run as the model was trained, through ONNX Runtime on the user's file, so
`holds` and `violated` are both certain for the places of the grid; they say nothing of places between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.audit.squares.map import (
    SquareMap,
    from_plain,
)
from holdfast.audit.squares.work import SquaresPlan, SquareWork, task_of
from holdfast.core.dataset import Entry
from holdfast.core.errors import DataError, InputError
from holdfast.engine.cells import run
from holdfast.engine.records import Failed
from holdfast.engine.store import Store, printable
from holdfast.evaluate.result import CELLS
from holdfast.noise.suite import Watch, unwatched


@dataclass(frozen=True)
class Survey:
    """The maps, and the images that have none: nothing true is found in them, or they cannot be run."""

    maps: tuple[SquareMap, ...]
    without: tuple[str, ...] = ()
    failed: tuple[Failed, ...] = ()
    images: int = 0  # that were finished

    @property
    def note(self) -> str:
        """Which images have no map and why, in words; empty if all have one."""
        said = []
        if self.without:
            said.append(
                f"{_images(self.without)} without a map: nothing true is found there without a square"
            )
        if self.failed:
            said.append(f"{_images(self.failed)} could not be run; first {self.failed[0]}")
        return "; ".join(said)


def _images(found: Sequence[object]) -> str:
    return f"{len(found)} image{'' if len(found) == 1 else 's'}"


def squares(plan: SquaresPlan, watch: Watch = unwatched) -> tuple[SquareMap, ...]:
    """The map of every image in which something true is found; a killed run goes on where it was."""
    return survey(plan, watch).maps


def survey(plan: SquaresPlan, watch: Watch = unwatched) -> Survey:
    """The maps of all images and what is to be said of those without; finished cells are not run again."""
    entries = asked(plan)
    task = task_of(plan, plan.pipeline)
    with watch(f"squares {plan.plan.model.name}", len(entries)) as progress:
        store = Store(plan.plan.runs / CELLS)
        jobs, until = plan.plan.jobs, plan.plan.until
        cells = run(SquareWork(task), entries, store, jobs=jobs, progress=progress, until=until).read()
    maps, without, failed = [], [], []
    for entry, cell in zip(entries, cells, strict=False):  # fewer cells where the time was over
        name = printable(entry.name)  # as records and attempts have it
        if "failed" in cell:
            failed.append(Failed(name, cell["failed"]))
        elif cell["map"] is None:
            without.append(name)
        else:
            maps.append(from_plain(name, cell["map"]))
    if failed and plan.plan.strict:
        raise DataError(str(failed[0]))
    return Survey(tuple(maps), tuple(without), tuple(failed), len(cells))


def asked(plan: SquaresPlan) -> tuple[Entry, ...]:
    """The images of the plan, in the order of the data set; InputError for a name that is not in it."""
    data = plan.plan.dataset
    if plan.names is None:
        return data.entries
    missing = set(plan.names) - {entry.name for entry in data.entries}
    if missing:
        raise InputError(f"squares: expected names of images of {data.name}, got {sorted(missing)[0]!r}")
    wanted = set(plan.names)
    return tuple(entry for entry in data.entries if entry.name in wanted)
