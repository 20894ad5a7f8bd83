"""Datasets for use from Python: of a path or a name, of pairs in memory, or one sample."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias, cast, get_args

from holdfast.core.dataset import Dataset
from holdfast.core.errors import DataError, InputError, UnknownName
from holdfast.core.model import Task
from holdfast.core.types import Sample
from holdfast.data.memory import dataset_of_pairs, dataset_of_samples
from holdfast.data.open import open_dataset

DataLike: TypeAlias = "str | Path | Dataset | Sample | Iterable[Any]"


def dataset(
    data: DataLike,
    *,
    limit: int | None = None,
    format: str | None = None,  # noqa: A002 (the name of the option)
    split: str | None = None,
    task: Task | None = None,
    classes: Sequence[str] = (),
) -> Dataset:
    """A dataset: of a folder or file in any known format, of "signs" (the embedded scenes), or of pairs.

    Pairs are (image, truth): an image is a path, encoded bytes, an array (h, w, 3) uint8 RGB or a PIL image;
    the truth is {"boxes": (n, 4) xyxy in pixels, "labels": …}, a class name or index, or a mask (h, w).
    `limit` keeps the first images only. `task` (detect, classify, segment, single) chooses where the data
    fits several tasks. `classes` names the classes of pairs.
    """
    if task is not None and task not in get_args(Task):
        raise UnknownName("task", task, get_args(Task))
    if isinstance(data, str | Path):
        if classes:
            raise InputError("classes: only pairs need class names; files state their own")
        return open_dataset(data, task=task, format=format, split=split, images=limit)
    if format is not None or split is not None:
        raise InputError("format and split are for files; this dataset is in memory")
    if limit is not None and limit < 1:
        raise InputError(f"limit: expected 1 or more, got {limit}")
    if isinstance(data, Dataset):
        opened = data
    elif isinstance(data, Sample):
        opened = dataset_of_samples([data], cast(Task, data.task or task or "detect"))
    else:
        if not isinstance(data, Iterable):
            raise InputError(f"data: expected a dataset, a path, a name or pairs, got {type(data).__name__}")
        opened = _of_items(list(data), classes, task)
    if task is not None and opened.task != task:
        opened = _for_task(opened, task)
    return limited(opened, limit)


def limited(data: Dataset, limit: int | None) -> Dataset:
    """The first images of a dataset, with a source that opens the same images again."""
    if limit is None or limit >= len(data):
        return data
    if "data" in data.source and "selection" not in data.source:
        return replace(data.first(limit), source={**data.source, "images": limit})
    return data[:limit]


def _of_items(items: list[Any], classes: Sequence[str], task: Task | None) -> Dataset:
    if items and all(isinstance(item, Sample) for item in items):
        return dataset_of_samples(items, cast(Task, items[0].task or task or "detect"), "samples")
    return dataset_of_pairs(items, classes)


def _for_task(data: Dataset, task: Task) -> Dataset:
    """The dataset for another task, if its files are labelled for that as well."""
    source = data.source
    if "data" in source and "selection" not in source:
        return open_dataset(
            source["data"], task=task, format=source["format"], split=source["split"], images=source["images"]
        )
    if {data.task, task} == {"detect", "single"}:
        return replace(data, task=task)
    raise DataError(
        f"{data.name} is labelled for task {data.task!r}, but the model is of task {task!r}; "
        f"pass task={task!r} to holdfast.dataset()"
    )
