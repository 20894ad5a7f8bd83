"""A file scanned by a second process: the same columns, and none rather than wrong ones."""

import json
import os
import sys
import threading

import numpy as np
import pytest

from holdfast.metrics import ahead, cocofile
from holdfast.metrics.ahead import scan_ahead
from holdfast.metrics.cocofile import read_predictions, read_truth

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux only")


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.setattr(ahead, "WORTH_IT", 0)
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
    monkeypatch.setattr(cocofile, "read_bytes", None)  # whoever reads it now fails
    table = read_predictions(files / "dt.json", truth, begun)
    for name in ("image", "category", "xywh", "score"):
        np.testing.assert_array_equal(getattr(table, name), getattr(plain, name))


def test_a_scan_of_another_file_is_not_used(files):
    truth = read_truth(files / "gt.json")
    (files / "other.json").write_text("[]")
    begun = scan_ahead(files / "other.json")
    assert len(read_predictions(files / "dt.json", truth, begun)) == 300
    assert begun.result() is None  # an empty list is not a regular one


def test_a_child_that_fails_leaves_nothing_and_the_file_is_read_as_always(files, monkeypatch):
    truth = read_truth(files / "gt.json")
    monkeypatch.setattr("holdfast.metrics.scan.scan_records", lambda data: 1 / 0)
    begun = scan_ahead(files / "dt.json")
    assert len(read_predictions(files / "dt.json", truth, begun)) == 300


def test_nothing_is_begun_where_it_cannot_or_need_not(files, monkeypatch):
    assert scan_ahead(files / "missing.json") is None
    monkeypatch.setattr(threading, "active_count", lambda: 2)
    assert scan_ahead(files / "dt.json") is None
    monkeypatch.setattr(threading, "active_count", lambda: 1)
    monkeypatch.setattr(ahead, "WORTH_IT", 1 << 20)
    assert scan_ahead(files / "dt.json") is None
