"""The result of an evaluation: what was run, one record per image, the numbers; saved and opened."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from holdfast.core.dataset import Dataset
from holdfast.core.errors import InputError
from holdfast.core.model import Task
from holdfast.core.result import Result, in_folder, look_up
from holdfast.engine.cells import CellSet
from holdfast.engine.pipelines import read_records
from holdfast.engine.records import FailedImage, Record
from holdfast.engine.store import to_json, write_atomic
from holdfast.evaluate.classes import Alignment, realign

if TYPE_CHECKING:
    from holdfast.metrics.intervals import Interval

MANIFEST = "run.json"
CELLS = "cells"  # the store, next to the run folders and shared by them


@dataclass(frozen=True)
class RunInfo:
    """What was run: enough to run it again and to interpret the numbers."""

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


@dataclass(frozen=True, repr=False)
class Evaluation(Result):
    """The records of all images that could be evaluated, the failures, the notes and the numbers."""

    about: RunInfo
    records: tuple[Record, ...] = field(repr=False)
    failed: tuple[FailedImage, ...]
    notes: tuple[str, ...]
    result: dict[str, Any]
    cells: CellSet | None = field(default=None, repr=False)
    alignment: Alignment | None = field(default=None, repr=False)
    content: Mapping[str, str] = field(default_factory=dict, repr=False)  # image -> key of its content
    dataset: Dataset | None = field(default=None, repr=False, compare=False)  # None: opened from a run

    @property
    def metrics(self) -> dict[str, float | None]:
        """All metrics by name, 0 to 1; None where there is nothing to measure."""
        return dict(self.result["metrics"])

    @property
    def metric(self) -> str:
        """The name of the main metric: AP, mAP, top1, mIoU or iou_equal."""
        names = {"classify": "top1", "segment": "mIoU", "single": "iou_equal"}
        return names.get(self.about.task) or ("AP" if "AP" in self.result["metrics"] else "mAP")

    @property
    def value(self) -> float | None:
        """The main metric."""
        return self.metrics[self.metric]

    @property
    def map50(self) -> float | None:
        """Mean AP at IoU 0.5; None if the evaluation has none."""
        at_half = self.about.settings.get("iou") == 0.5
        return self.metrics.get("AP50", self.metrics.get("mAP") if at_half else None)

    @property
    def map(self) -> float | None:
        """Mean AP over the IoU thresholds 0.5 to 0.95 (rule coco); None if the evaluation has none."""
        return self.metrics.get("AP")

    @property
    def top1(self) -> float | None:
        """Accuracy of a classifier; None for other tasks."""
        return self.metrics.get("top1")

    @property
    def miou(self) -> float | None:
        """Mean IoU of a segmenter; None for other tasks."""
        return self.metrics.get("mIoU")

    @property
    def images(self) -> int:
        """How many images are in the numbers."""
        return int(self.result["images"])

    @cached_property
    def interval(self) -> "Interval | None":
        """The main metric with its 95% interval by bootstrap over the images; None without records."""
        interval: Interval | None = look_up("evaluate.difference:interval")(self) if self.records else None
        return interval

    @property
    def per_class(self) -> dict[str, dict[str, Any]]:
        """The numbers of each class by its name."""
        numbers: dict[str, dict[str, Any]] = look_up("evaluate.score:as_json")(self.result)["per_class"]
        return numbers

    @property
    def per_image(self) -> list[dict[str, Any]]:
        """One row per image: true positives, false positives, misses and AP of a detector, or the like."""
        records = look_up("evaluate.per_image:records_of")(self)
        return list(look_up("evaluate.per_image:per_image_rows")(records))

    def to_dict(self) -> dict[str, Any]:
        """The metrics, the numbers of each class, and how many images failed, as `--json` writes them."""
        folder = {"run": str(self.folder)} if self.folder else {}
        numbers = look_up("evaluate.score:as_json")(self.result)
        return {**numbers, **folder, "failed": len(self.failed)}

    def to_fiftyone(self, folder: str | Path | None = None) -> Any:
        """A FiftyOne dataset with ground truth and predictions.

        Images that are not files on disk are written into `folder`.
        """
        export = look_up("evaluate.per_image:to_fiftyone")
        return export(self, None if folder is None else Path(folder))

    def _summary(self) -> str:
        about = self.about
        value = "n/a" if self.value is None else f"{self.value:.4f}"
        rule = f", rule {about.settings['rule']}" if about.task == "detect" else ""
        failed = f", {len(self.failed)} failed" if self.failed else ""
        name = f"{about.model.get('name')} on {about.data.get('name')}"
        return f"{name}: {self.metric} {value}, {self.images} images{failed}{rule}"

    def _rows(self) -> list[dict[str, Any]]:
        return [dict(row) for row in self.result["per_class"]]

    def _page(self) -> str:
        return str(look_up("evaluate.page:page")(self, look_up("evaluate.page:pictures")(self)))


def save(evaluation: Evaluation, folder: Path) -> Path:
    """Write the manifest and return its path; the records stay in the cells."""
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
    """The model, card, data, images and rule of the run in a folder; None if it cannot be read."""
    try:
        about = orjson.loads((folder / MANIFEST).read_bytes())["about"]
        model, data = about["model"], about["data"]
        subject = {"sha256": model["sha256"], "card": model["card"], "settings": about["settings"]}
        return {**subject, "source": data["source"], "images": data["images"]}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def open_run(folder: Path) -> Evaluation:
    """The evaluation saved in a run folder, with its records read from the cells next to it."""
    path = folder / MANIFEST if folder.is_dir() else folder
    try:
        plain = orjson.loads(path.read_bytes())
        about = RunInfo(**{**plain["about"], "classes": tuple(plain["about"]["classes"])})
        alignment = Alignment.from_plain(plain["alignment"])
        failed = tuple(FailedImage(**f) for f in plain["failed"])
        # Resolved, because the text of a relative path does not show the folder above it.
        cells = CellSet.from_plain(path.resolve().parent.parent / CELLS, plain["cells"])
        notes, result = tuple(plain["notes"]), plain["result"]
    except FileNotFoundError:
        raise InputError(f"{path}: no such run; expected the folder of a run") from None
    except OSError as problem:
        raise InputError(f"{path}: cannot be read: {problem.strerror}") from problem
    except (KeyError, TypeError, ValueError) as problem:
        raise InputError(f"{path}: expected a holdfast run ({MANIFEST}), got: {problem}") from problem
    images = read_records(cells)
    records = realign(images.records, alignment, about.task)
    run: dict[str, Any] = {"cells": cells, "alignment": alignment, "content": images.content}
    return in_folder(Evaluation(about, records, failed, notes, result, **run), path.resolve().parent)
