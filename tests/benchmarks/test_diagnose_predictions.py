"""The detector of the benchmark, which shares no code with the package."""

import importlib
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from holdfast.graph.nms import nms

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def bench():
    sys.path.insert(0, str(FOLDER))
    try:
        yield importlib.import_module("diagnose_predictions")
    finally:
        sys.path.remove(str(FOLDER))
        for name in ("diagnose_dumps", "diagnose_mistakes", "diagnose", "diagnose_predictions"):
            sys.modules.pop(name, None)


@pytest.fixture
def raw():
    """An output (n, 85) with one object of class 3: 64×32 pixels around (100, 60) of a 416×416 input."""
    cells = np.zeros((52 * 52 + 26 * 26 + 13 * 13, 85), np.float32)
    cells[52 * 7 + 12, :5] = 0.5, 0.5, np.log(8), np.log(4), 0.9
    cells[52 * 7 + 12, 8] = 0.8
    return cells


def test_cells_are_decoded(bench, raw):
    boxes, scores, classes = bench.candidates(raw, (416, 416), 0.001)
    assert np.allclose(boxes, [[68, 44, 132, 76]], atol=1e-4)
    assert np.allclose(scores, 0.72)
    assert classes.tolist() == [3]


@pytest.mark.parametrize(
    ("change", "box", "number"),
    [
        ({}, [136, 88, 128, 64], 4),
        ({"form": "xyxy", "ids": "from 0"}, [136, 88, 264, 152], 3),
        ({"form": "yxyx"}, [88, 136, 152, 264], 4),
        ({"form": "cxcywh"}, [200, 120, 128, 64], 4),
        ({"form": "xyxy", "normalised": True}, [136 / 832, 88 / 416, 264 / 832, 152 / 416], 4),
        ({"undone": False, "ids": "from 2"}, [68, 44, 64, 32], 5),
        ({"ids": "reversed"}, [136, 88, 128, 64], 77),
    ],
)
def test_boxes_are_written_in_the_form_of_the_target(bench, raw, change, box, number):
    finish = replace(bench.Finish(), **change)
    boxes, _, classes = bench.finished(raw, bench.CLEAN[bench.MODEL], finish, (832, 416))
    assert np.allclose(boxes, [box], atol=1e-3)
    assert classes.tolist() == [number]


def test_coco_ids_end_at_90(bench):
    assert len(bench.COCO_IDS) == 80
    assert bench.COCO_IDS[[0, 11, 79]].tolist() == [1, 13, 90]


def test_suppression_is_that_of_the_package(bench):
    rng = np.random.default_rng(3)
    corners = rng.uniform(0, 60, (200, 2))
    boxes = np.hstack([corners, corners + rng.uniform(10, 40, (200, 2))])
    scores, classes = rng.uniform(size=200), rng.integers(0, 3, 200)
    kept = bench.suppressed(boxes, scores, classes, 0.45)
    assert 0 < len(kept) < 200
    assert kept.tolist() == nms(boxes, scores, classes, 0.45).tolist()


def test_all_rows_have_names_of_their_own_and_an_answer(bench):
    rows = list(bench.target_mistakes())
    assert len({row.name for row in rows}) == len(rows) >= 30
    assert {row.expected for row in rows if not row.needs} == {"no cause", "unknown"}
