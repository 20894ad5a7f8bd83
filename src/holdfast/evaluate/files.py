"""Scores of two COCO files, truth and predictions, without a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from holdfast.evaluate.score import Settings, score_tables
from holdfast.metrics.cocofile import read_predictions, read_truth


def score_files(truth: Path, predictions: Path, settings: Settings) -> dict[str, Any]:
    """The result of the predictions against the truth, of the form `score_records` gives."""
    true = read_truth(truth)
    found = read_predictions(predictions, true)
    result = score_tables(true.table, found, true.images, true.class_names, settings)
    return {"task": "detect", "images": true.images, **result}
