"""The tables of an evaluation: which classes are printed, and what each number is."""

import pytest

from holdfast.evaluate.score import class_table, counts_table, csv_table, headline

CLASSES = [{"class": f"c{i}", "AP": i / 20, "truth": 3, "tp": 1} for i in range(15)]
RESULT = {
    "images": 24,
    "rule": "coco: 101-point AP",
    "metrics": {"AP": 0.5, "AP50": 0.75},
    "per_class": [*reversed(CLASSES), {"class": "absent", "AP": None, "truth": 0, "tp": 0}],
    "at_score": {
        "score": 0.5, "iou": 0.5, "precision": 0.9, "recall": 0.8, "f1": 0.85, "tp": 8, "fp": 1, "fn": 2
    },
}  # fmt: skip


@pytest.mark.parametrize(("top", "count"), [(10, 10), (3, 3), (100, 15)])
def test_the_worst_classes_with_ground_truth_come_first(top, count):
    table = class_table(RESULT, top=top)
    assert [row[0] for row in table.rows] == [f"c{i}" for i in range(count)]
    assert table.caption == f"Worst {count} classes of 16 by AP; --all-classes prints all"
    assert [head.name for head in table.heads] == ["class", "AP", "objects", "TP"]


def test_all_classes_keep_their_order():
    table = class_table(RESULT, top=None)
    assert [row[0] for row in table.rows] == [row["class"] for row in RESULT["per_class"]]
    assert table.caption == "By class"


def test_counts_are_counts_and_the_thresholds_are_stated_once():
    table = counts_table(RESULT)
    assert table.caption == "At score threshold 0.5 and IoU threshold 0.5"
    assert table.rows == ((0.9, 0.8, 0.85, 8, 1, 2),)
    assert [row[0] for row in headline(RESULT).rows] == ["AP", "AP50"]
    assert headline(RESULT).caption == "24 images. Rule coco: 101-point AP"


def test_a_classifier_has_no_counts():
    assert counts_table({**RESULT, "at_score": {}}) is None


def test_csv_has_all_classes():
    assert len(csv_table(RESULT).rows) == 17
