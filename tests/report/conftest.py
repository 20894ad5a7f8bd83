"""Small made-up evaluations of each task: every number in them comes from the package's own scoring."""

import numpy as np
import pytest

from holdfast.core.types import Boxes, Detections, Size
from holdfast.engine.records import ClassificationRecord, DetectionRecord, FailedImage, SegmentationRecord
from holdfast.evaluate.result import Evaluation, RunInfo
from holdfast.evaluate.score import Settings, score_records
from holdfast.metrics.rules import RULES

SIZE = Size(320, 240)


def about(task, classes, rule, settings):
    return RunInfo(
        command="holdfast evaluate net.onnx data --score 0.5",
        created="2026-01-02T03:04:05+00:00",
        seconds=83.4,
        task=task,
        model={"name": "net", "path": "net.onnx", "sha256": "ab" * 32, "guessed": [], "card": {"task": task}},
        data={
            "name": "data",
            "source": {},
            "format": "coco",
            "images": 9,
            "problems": [],
            "problem_count": 0,
        },
        classes=tuple(classes),
        pipeline={"decode": "pillow", "infer": "onnxruntime"},
        rule=rule,
        settings={"rule": settings.rule.name, "iou": settings.iou, "score": settings.score},
        versions={"python": "3.11.9", "holdfast": "0.1.0"},
    )


def found(rng, name, classes, *, boxes=4):
    corner = rng.uniform(0, 180, (boxes, 2))
    truth = np.concatenate([corner, corner + rng.uniform(10, 60, (boxes, 2))], axis=1)
    labels = rng.integers(0, classes, boxes)
    kept = rng.random(boxes) < 0.8
    moved = truth[kept] + rng.normal(0, 1.5, (int(kept.sum()), 4))
    moved[:, 2:] = np.maximum(moved[:, 2:], moved[:, :2] + 1)
    said = np.where(rng.random(len(moved)) < 0.85, labels[kept], rng.integers(0, classes, len(moved)))
    return DetectionRecord(
        name, SIZE, Boxes(truth, labels), Detections(moved, rng.uniform(0.3, 1, len(moved)), said)
    )


def detector(classes, images=12, rule="coco", *, seed=0, boxes=4):
    rng = np.random.default_rng(seed)
    records = [found(rng, f"image-{i}.jpg", len(classes), boxes=boxes) for i in range(images)]
    return evaluation("detect", classes, records, rule)


def evaluation(task, classes, records, rule="coco", failed=(), notes=()):
    settings = Settings(RULES[rule])
    result = score_records(records, task, tuple(classes), settings)
    return Evaluation(about(task, classes, result["rule"], settings), tuple(records), failed, notes, result)


def classifier(classes, images=40):
    rng = np.random.default_rng(1)
    records = []
    for i in range(images):
        order = rng.permutation(len(classes))[:5]
        label = int(order[0]) if rng.random() < 0.7 else int(rng.integers(len(classes)))
        records.append(
            ClassificationRecord(f"image-{i}.jpg", SIZE, label, order, np.sort(rng.random(len(order)))[::-1])
        )
    return evaluation("classify", classes, records)


def segmenter(classes, images=6):
    rng = np.random.default_rng(2)
    n = len(classes)
    tables = [rng.integers(0, 50, (n, n)) + np.diag(rng.integers(100, 900, n)) for _ in range(images)]
    return evaluation(
        "segment", classes, [SegmentationRecord(f"m{i}.png", SIZE, t) for i, t in enumerate(tables)]
    )


def single(classes, images=20):
    rng = np.random.default_rng(3)
    records = [found(rng, f"image-{i}.jpg", len(classes), boxes=1) for i in range(images)]
    return evaluation("single", classes, records)


@pytest.fixture(scope="session")
def made():
    """The makers above, for tests in this folder."""
    return {"detect": detector, "classify": classifier, "segment": segmenter, "single": single}


@pytest.fixture(scope="session")
def scored():
    """Task, classes and records to a whole evaluation."""
    return evaluation


@pytest.fixture(scope="session")
def broken(made):
    """A detector's evaluation with failures, notes, guesses, problems and hostile names everywhere."""
    import dataclasses

    nasty = '"><script>alert(1)</script><img src=x onerror=alert(2)>'
    base = made["detect"]([nasty, "b & c", "日本"])
    records = tuple(dataclasses.replace(r, name=f"{nasty}{i}.jpg") for i, r in enumerate(base.records))
    what = dataclasses.replace(
        base.about,
        command=f"holdfast evaluate {nasty}",
        model={**base.about.model, "name": nasty, "guessed": [nasty], "card": {"head": {"name": nasty}}},
        data={**base.about.data, "name": nasty, "problems": [nasty], "problem_count": 7},
        pipeline={"decode": nasty},
        rule=f"{base.about.rule} {nasty}",
        versions={nasty: nasty},
    )
    return dataclasses.replace(
        base, about=what, records=records, failed=(FailedImage(nasty, nasty),), notes=(nasty,)
    )
