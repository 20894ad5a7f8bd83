"""Work in cells: a new kind of work is one dataclass, without code for stores, keys or processes."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.errors import BudgetSpent, DataError
from holdfast.engine import cells as engine
from holdfast.engine.cells import CellResult, CellSet, ItemWork, Setup, Work, cell_key, count_missing, run
from holdfast.engine.store import FolderStore


@dataclass(frozen=True)
class Squares(ItemWork[int, str]):
    """A whole new kind of work: the square of each number."""

    offset: int = 0
    log: Path | None = None

    def setups(self):
        return [Setup("signs", self.offset)]

    def contents(self, item):
        return [item]

    def open(self, threads):
        return f"{threads} threads"

    def compute_item(self, state, item):
        if self.log:
            with self.log.open("a") as file:
                file.write(f"{item}\n")
        return {"square": item * item + self.offset, "state": bool(state)}


@pytest.fixture
def store(tmp_path):
    return FolderStore(tmp_path / "cells")


def squares(cells):
    return [cell["square"] for cell in cells.read()]


@pytest.mark.parametrize("jobs", [1, 2])
def test_every_item_is_computed_once_whatever_the_number_of_processes(store, tmp_path, jobs):
    work, steps = Squares(log=tmp_path / "log"), []
    first = run(work, range(7), store, jobs=jobs, progress=lambda *step: steps.append(step))
    assert squares(first) == [0, 1, 4, 9, 16, 25, 36]
    assert sum(done for done, _ in steps) == 7
    again = run(work, [5, 3, 8], store, jobs=jobs, progress=lambda *step: steps.append(step))
    assert squares(again) == [25, 9, 64]
    assert sorted(steps[7:]) == [(1, 0), (1, 1), (1, 1)]
    assert sorted(map(int, (tmp_path / "log").read_text().split())) == [0, 1, 2, 3, 4, 5, 6, 8]


def test_another_setup_shares_nothing(store, tmp_path):
    run(Squares(), range(3), store)
    other = Squares(offset=1, log=tmp_path / "log")
    assert count_missing(other, range(3), store) == 3
    assert squares(run(other, range(3), store)) == [1, 2, 5]
    assert count_missing(other, range(4), store) == 1


@pytest.mark.parametrize("damage", [b"", b"nonsense", None])
def test_a_damaged_cell_is_computed_again(store, damage):
    cells = run(Squares(), range(3), store).of()
    one, other = (store.path(cell_key(cells.setup, item)) for item in cells.items[:2])
    one.write_bytes(other.read_bytes() if damage is None else damage)
    with pytest.raises(DataError, match="missing or damaged; run the same command again"):
        list(cells.read())
    assert squares(run(Squares(), range(3), store)) == [0, 1, 4]


def test_cells_are_found_again_by_their_names(store):
    cells = run(Squares(), range(3), store).of()
    opened = CellSet.from_plain(store.folder, cells.to_plain())
    assert [cell["square"] for cell in opened.read()] == [0, 1, 4]


@dataclass(frozen=True)
class Both(Work[int, list[int]]):
    """Two cells per item; odd items have no second one, and the third setup cannot be computed."""

    batch = 4

    def setups(self):
        return [Setup("signs", "half"), Setup("signs", "double"), Setup("signs", "never")]

    def contents(self, item):
        return [item, None if item % 2 else item, item]

    def open(self, threads):
        return []

    def compute(self, state, batch):
        for position, (item, wanted) in enumerate(batch):
            state.append(item)
            for n in set(wanted) - {2}:
                yield CellResult(position, n, (item / 2, item * 2)[n], stored=item != 4)

    def problems(self, state):
        return {2: "cannot be computed"}

    def tally(self, item, cells, found):
        return 1, int(found == cells)


def test_an_item_may_have_several_cells_or_lack_some(store):
    cells = run(Both(), range(6), store)
    assert cells.read(0) == [0, 0.5, 1, 1.5, 2, 2.5]
    assert cells.read(1) == [0, None, 4, None, 8, None]
    assert cells.problems == {2: "cannot be computed"}
    assert len(cells.of(0)) == 6
    assert len(cells.of(1)) == 3


def test_what_is_not_stored_is_computed_by_the_next_run(store):
    steps = []
    run(Both(), range(6), store)
    assert run(Both(), range(6), store, progress=lambda *s: steps.append(s)).read(1)[4] == 8
    assert store.get(cell_key(run(Both(), [4], store).setups[0], run(Both(), [4], store).items[0][0])) is None
    assert sum(done for done, _ in steps) == 6


@dataclass(frozen=True)
class Written(Squares):
    """Work whose cells are used in the process that has them."""

    folder: Path = Path()

    def use(self, item: int, values: list[Any]) -> None:
        (self.folder / str(item)).write_text(str(values[0]["square"]))

    def is_valid(self, setup: int, data: bytes) -> bool:
        return b"25" not in data


def test_finished_cells_are_used_too_and_may_be_refused(store, tmp_path):
    run(Squares(), range(6), store)
    work = Written(folder=tmp_path, log=tmp_path / "log")
    assert squares(run(work, range(6), store)) == [0, 1, 4, 9, 16, 25]
    assert [(tmp_path / str(n)).read_text() for n in range(6)] == ["0", "1", "4", "9", "16", "25"]
    assert (tmp_path / "log").read_text() == "5\n"


def test_late_items_are_left_to_the_next_run(store):
    class Late(Squares):
        def compute_item(self, state, item):
            if item == 3:
                raise BudgetSpent("late")
            return super().compute_item(state, item)

    assert squares(run(Late(), range(6), store, until=time.monotonic() + 60)) == [0, 1, 4]
    assert squares(run(Squares(), range(6), store)) == [0, 1, 4, 9, 16, 25]


def test_code_and_libraries_are_part_of_the_name(monkeypatch):
    setup = Setup("signs", 1)
    names = {setup.name, Setup("signs", 2).name, Setup("train", 1).name}
    monkeypatch.setattr(engine, "code_of", lambda kind: "other code")
    names.add(setup.name)
    monkeypatch.undo()
    monkeypatch.setattr(engine, "versions", lambda kind: {"numpy": "other"})
    names.add(setup.name)
    assert len(names) == 5
