import errno
import os

import pytest

from holdfast.core.errors import OutputError
from holdfast.engine import store as module
from holdfast.engine.store import FolderStore, write_atomic


def test_what_is_put_is_got_and_survives_damage(tmp_path):
    store = FolderStore(tmp_path)
    assert store.get("ab12") is None
    store.put("ab12", b"result")
    assert store.get("ab12") == b"result"
    path = store.path("ab12")
    path.write_bytes(path.read_bytes()[:-1])  # as a torn write would leave it
    assert store.get("ab12") is None
    store.put("ab12", b"result")
    assert store.get("ab12") == b"result"


def test_a_cell_under_the_name_of_another_is_damaged(tmp_path):
    store = FolderStore(tmp_path)
    store.put("ab12", b"one")
    store.put("cd34", b"other")
    store.path("ab12").write_bytes(store.path("cd34").read_bytes())
    assert store.get("ab12") is None
    assert store.get("cd34") == b"other"


def test_a_full_disk_is_one_clear_error_and_leaves_the_old_file(tmp_path, monkeypatch):
    target = tmp_path / "x.json"
    write_atomic(target, b"old")

    def full(_handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(module.os, "fsync", full)
    with pytest.raises(OutputError, match="No space left on device; free some space"):
        write_atomic(target, b"new")
    assert target.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["x.json"]


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(OutputError, match="cannot write"):
        write_atomic(blocked / "inside" / "x.json", b"")


def test_a_folder_is_not_written_over(tmp_path):
    with pytest.raises(OutputError, match="is a folder; give the name of a file"):
        write_atomic(tmp_path, b"x")
