"""An evaluation: what was run, every image's record, the numbers; saved, opened again, and as tables."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from holdfast.core.errors import InputError
from holdfast.core.model import Task
from holdfast.engine.cells import CellSet
from holdfast.engine.pipelines import read_records
from holdfast.engine.records import FailedImage, Record
from holdfast.engine.store import Store, to_json, write_atomic
from holdfast.evaluate.classes import Alignment, realign

MANIFEST = "run.json"
CELLS = "cells"  # the store lies beside the run folders and is shared by them


@dataclass(frozen=True)
class About:
    """What was run: enough to run it again and to read the numbers."""

    command: str
    created: str  # ISO 8601, UTC
    seconds: float
    task: Task
    model: dict[str, Any]  # name, path, sha256, guessed, card
    data: dict[str, Any]  # name, source, format, images, problems
    classes: tuple[str, ...]  # the evaluated classes; indices of records refer to them
    pipeline: dict[str, str]
    rule: str  # the rule in words
    settings: dict[str, Any]  # rule name, iou, score
    versions: dict[str, str]


@dataclass(frozen=True)
class Evaluation:
    """The records of all images that could be evaluated, the failures, the notes and the numbers."""

    about: About
    records: tuple[Record, ...] = field(repr=False)
    failed: tuple[FailedImage, ...]
    notes: tuple[str, ...]
    result: dict[str, Any]
    cells: CellSet | None = field(default=None, repr=False)
    alignment: Alignment | None = field(default=None, repr=False)
    content: Mapping[str, str] = field(default_factory=dict, repr=False)  # image -> key of what it held


def save(evaluation: Evaluation, folder: Path) -> Path:
    """The path of the written manifest; the records stay in the cells."""
    plain = {
        "holdfast": 1,
        "about": dataclasses.asdict(evaluation.about),
        "result": evaluation.result,
        "failed": [dataclasses.asdict(f) for f in evaluation.failed],
        "notes": evaluation.notes,
        "cells": evaluation.cells.to_plain() if evaluation.cells else None,
        "alignment": evaluation.alignment.to_plain() if evaluation.alignment else None,
    }
    path = folder / MANIFEST
    write_atomic(path, to_json(plain, indent=True))
    return path


def identity(folder: Path) -> dict[str, Any] | None:
    """Which model, card, data, images and rule the run in a folder is of; None if there is none readable."""
    try:
        about = orjson.loads((folder / MANIFEST).read_bytes())["about"]
        data = about["data"]
        model = {"sha256": about["model"]["sha256"], "card": about["model"]["card"]}
        return {**model, "source": data["source"], "images": data["images"], "settings": about["settings"]}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def open_run(folder: Path) -> Evaluation:
    """The evaluation saved in a run folder, its records read from the cells beside it."""
    path = folder / MANIFEST if folder.is_dir() else folder
    try:
        plain = orjson.loads(path.read_bytes())
        about = About(**{**plain["about"], "classes": tuple(plain["about"]["classes"])})
        alignment = Alignment.from_plain(plain["alignment"])
        failed = tuple(FailedImage(**f) for f in plain["failed"])
        # Resolved: the folder above `run.json` or `.` cannot be told from the text of the path.
        cells = CellSet.from_plain(Store(path.resolve().parent.parent / CELLS), plain["cells"])
        notes, result = tuple(plain["notes"]), plain["result"]
    except FileNotFoundError:
        raise InputError(f"{path}: no such run; give the folder that a run was written to") from None
    except OSError as problem:
        raise InputError(f"{path}: cannot be read: {problem.strerror}") from problem
    except (KeyError, TypeError, ValueError) as problem:
        raise InputError(f"{path}: expected a holdfast run ({MANIFEST}), got: {problem}") from problem
    held = read_records(cells)
    records = realign(held.records, alignment, about.task)
    return Evaluation(
        about, records, failed, notes, result, cells=cells, alignment=alignment, content=held.content
    )
