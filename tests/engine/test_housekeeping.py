"""Stores are measured, checked and pruned."""

import os
import time

import pytest

from holdfast.core import fingerprint
from holdfast.core.errors import InputError
from holdfast.engine.cells import CellSet, cell_key
from holdfast.engine.housekeeping import DAY, Usage, unneeded, usage, verify
from holdfast.engine.store import FolderStore, to_json, write_atomic

SETUP = f"evaluate.{fingerprint.of('setup')}"
ITEMS = [fingerprint.of(n) for n in range(4)]
KEYS = [cell_key(SETUP, item) for item in ITEMS]


@pytest.fixture
def store(tmp_path):
    """A store of four cells, two of which a run names, and the leftover of a killed writer."""
    made = FolderStore(tmp_path / "runs" / "cells")
    for key in KEYS:
        made.put(key, b"1")
    manifest = {"cells": CellSet(made, SETUP, tuple(ITEMS[:2])).to_plain()}
    write_atomic(tmp_path / "runs" / "a-run" / "run.json", to_json(manifest))
    (made.path(KEYS[0]).parent / ".writing-1-2").write_bytes(b"half")
    return made


def age(path, days):
    then = time.time() - days * DAY
    os.utime(path, (then, then))


def test_usage_is_by_kind_of_work_and_age(store):
    age(store.path(KEYS[3]), 3)
    size = store.path(KEYS[0]).stat().st_size
    assert usage(store) == [
        Usage("", "today", 1, 4),
        Usage("evaluate", "today", 3, 3 * size),
        Usage("evaluate", "this week", 1, size),
    ]


def test_a_damaged_cell_and_a_cell_under_another_name_are_found(store):
    store.path(KEYS[0]).write_bytes(store.path(KEYS[1]).read_bytes())
    store.path(KEYS[2]).write_bytes(b"cut off")
    names = {f"{store.path(KEYS[n]).parent.name}/{KEYS[n]}.json" for n in (0, 2)}
    cells, damaged = verify(store)
    assert (cells, set(damaged)) == (4, names)


def test_what_no_run_needs_is_removed_and_nothing_else(store, tmp_path):
    for path in store.folder.glob("*/*"):
        age(path, 10)
    found = unneeded(store, [tmp_path / "runs"], 7 * DAY)
    assert {entry.key for entry in found.cells} == set(KEYS[2:])
    assert len(found.leftovers) == 1
    found.delete(store)
    assert [store.get(key) for key in KEYS] == [b"1", b"1", None, None]


def test_new_cells_are_kept_for_work_that_is_running(store, tmp_path):
    assert unneeded(store, [tmp_path / "runs"], DAY).cells == []


def test_a_run_that_cannot_be_read_stops_pruning(store, tmp_path):
    (tmp_path / "runs" / "a-run" / "run.json").write_bytes(b"{")
    with pytest.raises(InputError, match=r"run\.json: the run cannot be read"):
        unneeded(store, [tmp_path / "runs"], 0)
