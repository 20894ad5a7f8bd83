"""A file scanned by a second process: the same columns, and none rather than wrong ones."""

import json
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


def test_the_table_is_the_same(files, monkeypatch):
    truth = read_truth(files / "gt.json")
    plain = read_predictions(files / "dt.json", truth)
    begun = scan_ahead(files / "dt.json")
    assert begun is not None
    asked = []
    head = begun.head()
    assert len(head[0]) > 0
    monkeypatch.setattr(ahead.Ahead, "head", lambda self: asked.append(1) or head)
    table = read_predictions(files / "dt.json", truth, begun)
    assert asked
    for name in ("image", "category", "xywh", "score"):
        np.testing.assert_array_equal(getattr(table, name), getattr(plain, name))


def test_a_scan_of_another_file_is_not_used(files):
    truth = read_truth(files / "gt.json")
    (files / "other.json").write_text("[]")
    begun = scan_ahead(files / "other.json")
    assert len(read_predictions(files / "dt.json", truth, begun)) == 300
    assert begun.head() is None  # an empty list is not a regular one


def test_a_child_that_fails_leaves_nothing_and_the_file_is_read_as_always(files, monkeypatch):
    truth = read_truth(files / "gt.json")
    monkeypatch.setattr("holdfast.metrics.scan.scan_head", lambda data: 1 / 0)
    begun = scan_ahead(files / "dt.json")
    assert len(read_predictions(files / "dt.json", truth, begun)) == 300


def test_a_file_written_to_meanwhile_is_read_again(files):
    truth = read_truth(files / "gt.json")
    begun = scan_ahead(files / "dt.json")
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
