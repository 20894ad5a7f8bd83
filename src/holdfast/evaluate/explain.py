"""`--explain`: from detections to AP step by step, for a run, two files, or the lecture's example."""

from pathlib import Path
from typing import Any

import numpy as np

from holdfast.core.errors import InputError, UnknownName
from holdfast.engine.records import DetectionRecord
from holdfast.evaluate.result import Evaluation
from holdfast.evaluate.score import Settings, tables
from holdfast.metrics import explain as steps
from holdfast.metrics.boxes import DetectionTable, TruthTable
from holdfast.metrics.cocofile import read_predictions, read_truth


def explain_run(evaluation: Evaluation, settings: Settings, class_name: str | None) -> str:
    """The explanation of one class of a detector's run, as text."""
    records = [r for r in evaluation.records if isinstance(r, DetectionRecord)]
    names = tuple(r.name for r in records)
    return _explain_class(*tables(records), names, evaluation.about.classes, settings, class_name)


def explain_files(truth: Path, predictions: Path, settings: Settings, class_name: str | None) -> str:
    """The explanation of one class of two COCO files, as text."""
    true = read_truth(truth)
    found = read_predictions(predictions, true)
    return _explain_class(true.table, found, true.image_names, true.class_names, settings, class_name)


def explain_lecture() -> tuple[str, dict[str, Any]]:
    """The explanation of the lecture's worked example, as text and as plain values."""
    story = steps.explain_lecture()
    at = {f"{s:g}": {k: getattr(story.at(s), k) for k in ("tp", "fp", "fn")} for s in steps.LECTURE_SCORES}
    rows = [dict(vars(step)) for step in story.steps]
    plain = {"AP": story.ap, "at_score": at, "steps": rows, **story.by_interpolation}
    return steps.lecture_text(story), plain


def _explain_class(
    truth: TruthTable,
    detections: DetectionTable,
    images: tuple[str, ...],
    classes: tuple[str, ...],
    settings: Settings,
    class_name: str | None,
) -> str:
    if class_name is not None and class_name not in classes:
        raise UnknownName("class", class_name, classes)
    if not classes:
        raise InputError("--explain: the ground truth has no class to explain")
    counts = np.bincount(truth.category, minlength=len(classes))
    index = classes.index(class_name) if class_name is not None else int(counts.argmax())
    known: dict[str, Any] = {"images": len(images), "class_names": classes, "class_index": index}
    story = steps.explain(truth, detections, settings.rule, iou=settings.iou, **known)
    hint = (
        ""
        if class_name is not None
        else " (the class with the most true boxes; --class NAME selects another)"
    )
    text = steps.explanation_text(story, scores=(settings.score,), image_names=images)
    return f"AP step by step{hint}\n\n{text}"
