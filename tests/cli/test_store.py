"""`holdfast store`: sizes, damaged cells, and what no run needs."""

import json
import os
import time

import pytest

from holdfast.cli.app import execute
from holdfast.core.errors import InputError
from holdfast.engine.store import FolderStore


@pytest.fixture
def store(tmp_path, monkeypatch):
    """The cells of a run on four scenes."""
    monkeypatch.chdir(tmp_path)
    assert execute(["evaluate", "signs-class", "signs:0:4", "--jobs", "1"]) == 0
    return FolderStore(tmp_path / "holdfast-runs" / "cells")


def cells_of(store):
    return sorted(store.folder.glob("*/*.json"))


def test_info_counts_cells_and_bytes(store, capsys, tmp_path):
    capsys.readouterr()
    assert execute(["store", "info", "holdfast-runs/cells", "--json", "cells.json"]) == 0
    (row,) = json.loads((tmp_path / "cells.json").read_bytes())
    size = sum(path.stat().st_size for path in cells_of(store))
    assert row == {"kind": "evaluate", "age": "today", "cells": 4, "bytes": size}
    assert "4 entries" in capsys.readouterr().out


def test_verify_names_damaged_and_swapped_cells_and_deletes_them(store, capsys):
    first, second, third, _ = cells_of(store)
    assert execute(["store", "verify", "holdfast-runs/cells"]) == 0
    first.write_bytes(first.read_bytes()[:-1])
    third.write_bytes(second.read_bytes())
    capsys.readouterr()
    assert execute(["store", "verify", "holdfast-runs/cells"]) == 1
    out = capsys.readouterr().out
    assert "4 cells checked, 2 damaged" in out
    assert first.name in out
    assert third.name in out
    assert execute(["store", "verify", "holdfast-runs/cells", "--delete"]) == 0
    assert cells_of(store) == [path for path in (second, cells_of(store)[-1]) if path.exists()]
    assert execute(["store", "verify", "holdfast-runs/cells"]) == 0


def test_prune_lists_and_then_deletes_what_no_run_needs(store, capsys, tmp_path):
    kept = cells_of(store)
    assert execute(["evaluate", "signs-class", "signs:1:3", "--jobs", "1", "--runs", "other"]) == 0
    other = FolderStore(tmp_path / "other" / "cells")
    for entry in other.entries():  # cells of a run that is not kept
        store.save(entry.key, other.load(entry.key))
    leftover = kept[0].parent / ".writing-1-2"
    leftover.write_bytes(b"half")
    for path in (*cells_of(store), leftover):
        os.utime(path, (time.time() - 3 * 86400,) * 2)
    prune = ["store", "prune", "holdfast-runs/cells", "--runs", "holdfast-runs"]
    capsys.readouterr()
    assert execute(prune) == 0
    assert "not needed: 3 cells and 1 leftover file" in capsys.readouterr().out
    assert len(cells_of(store)) == 7
    assert execute([*prune, "--older-than", "30"]) == 0
    assert "not needed: 0 cells and 1 leftover file" in capsys.readouterr().out
    assert execute([*prune, "--delete"]) == 0
    assert cells_of(store) == kept
    assert not leftover.exists()


def test_a_store_or_a_folder_of_runs_that_does_not_exist_is_refused(store):
    with pytest.raises(InputError, match="nowhere: expected a store"):
        execute(["store", "info", "nowhere"])
    with pytest.raises(InputError, match="--runs: expected the folder of the runs to keep, got nothing-here"):
        execute(["store", "prune", "holdfast-runs/cells", "--runs", "nothing-here"])
