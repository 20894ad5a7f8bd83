"""Runs made by hand, for tests of what compares them."""

from __future__ import annotations

import numpy as np

from holdfast.attack.plan import CELLS as ATTACK_CELLS
from holdfast.attack.result import AttackResult, Attempt, BudgetPoint, Pair, attempt_to_plain, effect_of
from holdfast.attack.run import as_plain
from holdfast.core import fingerprint
from holdfast.core.patch import Patch
from holdfast.core.types import Boxes, Detections, Size
from holdfast.engine.cells import CellSet, cell_key
from holdfast.engine.records import DetectionRecord, to_plain
from holdfast.engine.store import FolderStore, to_json, write_atomic
from holdfast.evaluate.classes import Alignment
from holdfast.evaluate.result import CELLS, Evaluation, RunInfo, save
from holdfast.evaluate.score import Settings, score_records
from holdfast.metrics.rules import RULES

SIZE = Size(100, 100)
CLASSES = ("round", "square")
BOXES = np.array([[10.0, 10, 40, 40], [50, 50, 90, 90]])  # of class 0 and 1, in every image
VOC = Settings(RULES["voc"])
EVERY = Alignment(CLASSES, np.arange(2), np.arange(2))


def detections(found=(0, 1), move=0.0):
    """Detections of these of the two boxes, moved by so many pixels."""
    rows = list(found)
    return Detections(BOXES[rows] + move, np.array([0.9 - 0.1 * r for r in rows]), np.array(rows, int))


def record(name, found=(0, 1), move=0.0, truth=BOXES):
    return DetectionRecord(name, SIZE, Boxes(truth, np.arange(2)), detections(found, move))


def evaluation(runs, name, records, task="detect", settings=VOC, classes=CLASSES, data="scenes"):
    """The folder of an evaluation with these records."""
    cells = CellSet(
        FolderStore(runs / CELLS), fingerprint.of(name), tuple(fingerprint.of(r.name) for r in records)
    )
    for item, one in zip(cells.items, records, strict=True):
        cell = {"record": to_plain(one), "notes": [], "name": one.name, "content": "", "input": ""}
        cells.store.put(cell_key(cells.setup, item), to_json(cell))
    told = {"rule": settings.rule.name, "iou": settings.iou, "score": settings.score}
    about = RunInfo(
        f"holdfast evaluate {name}", "2026-01-02T03:04:05+00:00", 1.0, task,
        {"name": name, "sha256": "ab" * 32}, {"name": data}, tuple(classes), {"resize": "pillow-bilinear"},
        str(settings.rule), told, {"holdfast": "1"},
    )  # fmt: skip
    result = score_records(tuple(records), task, tuple(classes), settings)
    places = np.arange(len(classes))
    save(
        Evaluation(about, tuple(records), (), (), result, cells, Alignment(tuple(classes), places, places)),
        runs / name,
    )
    return runs / name


def attempt(name, left=(), pixels=100, truth=BOXES, targets=2):
    """An image whose boxes are found before, and `left` of them after the attack."""
    patch = Patch(np.zeros((1, 1, 3), np.uint8), np.ones((1, 1), bool))
    return Attempt(
        name, SIZE, Boxes(truth, np.arange(2)), Pair(detections((0, 1)[:targets]), detections(left)), targets,
        len(left), not left, pixels, 255, 1, 20.0, 0.9, 10, 0.1, patch, f"{name}-{pixels}-{left}",
    )  # fmt: skip


def attack(folder, attempts, goal="vanish", data="scenes", kept=True, limit=300):
    """The folder of an attack with these attempts; without its cells if they are not kept."""
    told = {"rule": VOC.rule.name, "iou": VOC.iou, "score": VOC.score}
    about = {
        "command": "holdfast attack", "created": "2026-01-02T03:04:05+00:00", "data": {"name": data},
        "model": {"name": folder.name, "sha256": "cd" * 32}, "alignment": EVERY.to_plain(), "settings": told,
        "method": {"goal": goal}, "limits": {"pixels": limit}, "rule": "voc; IoU 0.5", "seed": 0,
        "universal": "none", "versions": {"holdfast": "1"}, "pipeline": {"resize": "pillow-bilinear"},
    }  # fmt: skip
    effect = effect_of(attempts, folder.name, [a.model for a in attempts], EVERY, VOC)
    points = (BudgetPoint(300, len(attempts), 1.0, effect.after, None),)
    items = tuple(fingerprint.of(one.name) for one in attempts)
    cells = CellSet(FolderStore(folder / ATTACK_CELLS), fingerprint.of("attack"), items)
    outcome = AttackResult(tuple(attempts), (), (effect,), points, "", EVERY, about, cells)
    write_atomic(folder / "attack.json", to_json(as_plain(outcome)))
    for item, one in zip(items, attempts, strict=True) if kept else ():
        cells.store.put(cell_key(cells.setup, item), to_json(attempt_to_plain(one)))
    return folder
