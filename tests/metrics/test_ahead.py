"""A file scanned by a second process: the same columns, and none rather than wrong ones."""

import json
import mmap
import os
import sys
import threading

import numpy as np
import pytest

from holdfast.metrics import ahead, scan
from holdfast.metrics.ahead import scan_ahead
from holdfast.metrics.cocofile import read_predictions, read_truth

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux only")


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.setattr(ahead, "WORTH_IT", 0)
    monkeypatch.setattr(scan, "PIECE", 1 << 10)  # several parts of a small file
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    monkeypatch.setattr(threading, "active_count", lambda: 1)
    rng = np.random.default_rng(0)
    truth = {
        "images": [{"id": i} for i in range(5)],
        "categories": [{"id": 1, "name": "a"}],
        "annotations": [{"id": 1, "image_id": 0, "category_id": 1, "bbox": [1, 2, 3, 4]}],
    }
    found = [
        {"image_id": int(i % 5), "category_id": 1, "bbox": rng.random(4).round(3).tolist(), "score": 0.5}
        for i in range(300)
    ]
    (tmp_path / "gt.json").write_text(json.dumps(truth))
    (tmp_path / "dt.json").write_text(json.dumps(found))
    return tmp_path


def finished(begun):
    """What was begun, when its process has ended (and is still to be waited for)."""
    os.waitid(os.P_PID, begun.child, os.WEXITED | os.WNOWAIT)
    return begun


def same(table, other):
    for name in ("image", "category", "xywh", "score"):
        np.testing.assert_array_equal(getattr(table, name), getattr(other, name))


def test_the_table_is_the_same_when_the_child_was_first(files, monkeypatch):
    truth = read_truth(files / "gt.json")
    plain = read_predictions(files / "dt.json", truth)
    begun = finished(scan_ahead(files / "dt.json"))
    monkeypatch.setattr(scan, "_piece", lambda *_: pytest.fail("read twice"))
    same(read_predictions(files / "dt.json", truth, begun), plain)


@pytest.mark.parametrize("count", [0, 1, 5])
@pytest.mark.parametrize("left", ["by the child", "by both"])
def test_the_table_is_the_same_wherever_they_meet(files, monkeypatch, count, left):
    truth = read_truth(files / "gt.json")
    plain = read_predictions(files / "dt.json", truth)
    monkeypatch.setattr(ahead, "_mine", lambda shared, number, of: number < count)
    begun = finished(scan_ahead(files / "dt.json"))
    if left == "by both":
        monkeypatch.setattr(ahead.Ahead, "leaves", lambda self, number, of: number > 10)
    pieces, read = scan._piece, []
    monkeypatch.setattr(
        scan, "_piece", lambda data, span, *more: read.append(span) or pieces(data, span, *more)
    )
    same(read_predictions(files / "dt.json", truth, begun), plain)
    assert ahead._get(begun.shared, ahead.DONE) == count
    assert len(set(read)) == len(read)
    assert len(read) > 10


def test_the_table_is_the_same_when_both_are_at_it(files):
    truth = read_truth(files / "gt.json")
    plain = read_predictions(files / "dt.json", truth)
    for _ in range(20):
        same(read_predictions(files / "dt.json", truth, scan_ahead(files / "dt.json")), plain)


def test_each_leaves_what_the_other_has_begun(files):
    shared = mmap.mmap(-1, 64)
    parent = ahead.Ahead(files / "dt.json", 0, shared)
    assert ahead._mine(shared, 0, 4)
    assert parent.leaves(3, 4)
    assert ahead._mine(shared, 1, 4)
    assert not ahead._mine(shared, 3, 4)
    assert parent.leaves(2, 4) is False  # the child had announced it


def test_a_scan_of_another_file_is_not_used(files):
    truth = read_truth(files / "gt.json")
    (files / "other.json").write_text("[]")
    begun = scan_ahead(files / "other.json")
    assert len(read_predictions(files / "dt.json", truth, begun)) == 300
    assert begun.found([0, 8]) == []  # an empty list is not a regular one


def test_a_child_that_fails_leaves_nothing_and_the_file_is_read_as_always(files, monkeypatch):
    truth = read_truth(files / "gt.json")
    monkeypatch.setattr("holdfast.metrics.scan.scan_front", lambda *_: 1 / 0)
    begun = scan_ahead(files / "dt.json")
    assert len(read_predictions(files / "dt.json", truth, begun)) == 300


def test_a_file_written_to_meanwhile_is_read_again(files):
    truth = read_truth(files / "gt.json")
    begun = finished(scan_ahead(files / "dt.json"))
    content = json.loads((files / "dt.json").read_text())
    (files / "dt.json").write_text(json.dumps([{**row, "score": 0.25} for row in content[:200]]))
    table = read_predictions(files / "dt.json", truth, begun)
    assert len(table) == 200
    assert (table.score == 0.25).all()


def test_nothing_is_begun_where_it_cannot_or_need_not(files, monkeypatch):
    assert scan_ahead(files / "missing.json") is None
    monkeypatch.setattr(threading, "active_count", lambda: 2)
    assert scan_ahead(files / "dt.json") is None
    monkeypatch.setattr(threading, "active_count", lambda: 1)
    monkeypatch.setattr(ahead, "WORTH_IT", 1 << 20)
    assert scan_ahead(files / "dt.json") is None
