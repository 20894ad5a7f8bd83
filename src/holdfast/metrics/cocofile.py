"""COCO files: truth and predictions as tables, checked as a whole, every fault named.

Ids may be any integers, 0 included: they become indices in rising order and are never used as flags.
(pycocotools marks a match by the id of the annotation, so that there an annotation of id 0 is never found.)
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.core.errors import DataError
from holdfast.core.types import Bools, Ints
from holdfast.metrics.records import (
    Problems,
    boxes,
    collector_paused,
    integers,
    numbers,
    objects,
    parse_json,
    read_bytes,
    records_of,
)
from holdfast.metrics.tables import DetectionTable, TruthTable


@dataclass(frozen=True, eq=False)
class TruthFile:
    """A truth file: the table, and the ids and names its indices stand for, in rising order of id."""

    path: Path
    table: TruthTable
    image_ids: Ints
    category_ids: Ints
    image_names: tuple[str, ...]
    class_names: tuple[str, ...]

    @property
    def images(self) -> int:
        """How many images there are, those without boxes included."""
        return len(self.image_ids)

    @property
    def classes(self) -> int:
        """How many classes there are, those without boxes included."""
        return len(self.category_ids)


def read_truth(path: str | Path) -> TruthFile:
    """The truth of a COCO JSON file with `images`, `categories` and `annotations`."""
    path = Path(path)
    with collector_paused():
        content = parse_json(path, read_bytes(path))
        if not isinstance(content, dict):
            hint = " (is this the predictions file?)" if isinstance(content, list) else ""
            raise DataError(
                f"{path}: expected an object with images, categories and annotations, "
                f"got {_kind(content)}{hint}"
            )
        problems = Problems(path)
        images, image_ids = _identified(content, "images", problems)
        categories, category_ids = _identified(content, "categories", problems)
        table = _truth_table(content, image_ids, category_ids, problems)
        problems.raise_if_any()
        if table is None:  # unreachable: every None has noted a problem
            raise DataError(f"{path}: annotations could not be read")
        image_order, category_order = np.argsort(image_ids), np.argsort(category_ids)
        return TruthFile(
            path=path,
            table=table,
            image_ids=image_ids[image_order],
            category_ids=category_ids[category_order],
            image_names=tuple(str(images[i].get("file_name", images[i]["id"])) for i in image_order.tolist()),
            class_names=tuple(str(categories[i].get("name", categories[i]["id"])) for i in category_order),
        )


def read_predictions(path: str | Path, truth: TruthFile) -> DetectionTable:
    """The detections of a COCO result file, a list of {image_id, category_id, bbox, score}."""
    path = Path(path)
    with collector_paused():
        content = parse_json(path, read_bytes(path))
        if not isinstance(content, list):
            hint = " (is this the truth file?)" if isinstance(content, dict) and "images" in content else ""
            raise DataError(
                f"{path}: expected a list of objects with image_id, category_id, bbox and score, "
                f"got {_kind(content)}{hint}"
            )
        problems = Problems(path)
        records = objects(content, "", problems)
        image = _indices(records, "image_id", "", truth.image_ids, "images", problems)
        category = _indices(records, "category_id", "", truth.category_ids, "categories", problems)
        xywh = boxes(records, "", problems)
        score = numbers(records, "score", "", problems)
        problems.raise_if_any()
        if image is None or category is None or xywh is None or score is None:
            raise DataError(f"{path}: predictions could not be read")
        return DetectionTable(image, category, xywh, score)


def _truth_table(
    content: dict[str, Any], image_ids: Ints, category_ids: Ints, problems: Problems
) -> TruthTable | None:
    where = "annotations"
    records = records_of(content, where, problems)
    image = _indices(records, "image_id", where, np.sort(image_ids), "images", problems)
    category = _indices(records, "category_id", where, np.sort(category_ids), "categories", problems)
    xywh = boxes(records, where, problems)
    zero = np.zeros(len(records))
    area = numbers(records, "area", where, problems, zero if xywh is None else xywh[:, 2] * xywh[:, 3])
    crowd = _flags(records, "iscrowd", where, problems)
    difficult = _flags(records, "difficult", where, problems)
    if any("id" in record for record in records):
        ids = integers(records, "id", where, problems)
        if ids is not None:
            _unique(ids, where, problems)
    if image is None or category is None or xywh is None or area is None:
        return None
    return TruthTable(image, category, xywh, area, crowd, difficult)


def _identified(content: dict[str, Any], key: str, problems: Problems) -> tuple[list[dict[str, Any]], Ints]:
    """The records under a key and their ids, which must be unique."""
    records = records_of(content, key, problems)
    ids = integers(records, "id", key, problems)
    if ids is None:
        return [], np.zeros(0, dtype=np.int64)
    _unique(ids, key, problems)
    return records, ids


def _unique(ids: Ints, where: str, problems: Problems) -> None:
    rising = np.sort(ids)
    if bool((rising[1:] > rising[:-1]).all()):  # np.unique takes 30 ms to import what it needs
        return
    _, first = np.unique(ids, return_index=True)
    for index in np.setdiff1d(np.arange(len(ids)), first).tolist():
        problems.add(f"{where}[{index}].id", "an id of its own", int(ids[index]))


def _indices(
    records: list[dict[str, Any]], key: str, where: str, known: Ints, kind: str, problems: Problems
) -> Ints | None:
    """The places of the ids of a column among the known ones, which are in rising order."""
    ids = integers(records, key, where, problems)
    if ids is None:
        return None
    place = np.searchsorted(known, ids)
    place[place == len(known)] = 0
    unknown = known[place] != ids if len(known) else np.ones(len(ids), dtype=bool)
    for index in np.flatnonzero(unknown).tolist():
        problems.add(f"{where}[{index}].{key}", f"an id of the truth's {kind}", int(ids[index]))
    return place


def _flags(records: list[dict[str, Any]], key: str, where: str, problems: Problems) -> Bools:
    """The column of yes or no `key`, no where the key is absent."""
    values = [record.get(key, 0) for record in records]
    if not set(map(type, values)) <= {int, bool}:
        for index, value in enumerate(values):
            if type(value) not in (int, bool):
                problems.add(f"{where}[{index}].{key}", "0 or 1", value)
        return np.zeros(len(records), dtype=bool)
    return np.array(values, dtype=bool)


def _kind(value: object) -> str:
    if isinstance(value, dict):
        return "an object"
    return "a list" if isinstance(value, list) else repr(value)[:80]
