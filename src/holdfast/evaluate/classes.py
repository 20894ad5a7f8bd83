"""Which class of the model corresponds to which class of the dataset: by name, else by number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from holdfast.core.errors import DataError, UnknownName
from holdfast.core.model import Task
from holdfast.core.types import Boxes, Ints, plain_name
from holdfast.engine.records import ClassificationRecord, DetectionRecord, FailedImage, Record


@dataclass(frozen=True, eq=False)
class Alignment:
    """`names` of the evaluated classes; per class of the model and of the data its place there, or −1."""

    names: tuple[str, ...]
    of_model: Ints
    of_data: Ints
    note: str = ""

    def places(self) -> tuple[int, ...]:
        """For each class of the data its place among the model's."""
        return tuple(int(np.flatnonzero(self.of_model == place)[0]) for place in self.of_data)

    def to_plain(self) -> dict[str, Any]:
        """The alignment as JSON values."""
        places = {"of_model": self.of_model.tolist(), "of_data": self.of_data.tolist()}
        return {"names": list(self.names), **places, "note": self.note}

    @staticmethod
    def from_plain(plain: dict[str, Any]) -> Alignment:
        """The alignment that `to_plain` wrote."""
        of_model, of_data = (np.array(plain[k], np.int64) for k in ("of_model", "of_data"))
        return Alignment(tuple(plain["names"]), of_model, of_data, plain["note"])


def align(
    model: tuple[str, ...], data: tuple[str, ...], *, common: bool = False, renames: Mapping[str, str] = {}
) -> Alignment:
    """The classes to evaluate; DataError if some class of the data is unknown to the model.

    Names are compared without case, spaces, hyphens and underscores. `renames` maps names of the data to
    names of the model; several mapped to one are evaluated as that one. With `common` only the classes both
    know are evaluated.
    """
    for old, new in renames.items():
        if old not in data:
            raise UnknownName("class of the dataset", old, data)
        if new not in model:
            raise UnknownName("class of the model", new, model)
    found = _places([renames.get(name, name) for name in data], model)
    if all(i >= 0 for i in found) or (common and any(i >= 0 for i in found)):
        return _by_name(model, data, found)
    if not renames and len(model) == len(data) and (_has_numbers_only(model) or _has_numbers_only(data)):
        same = np.arange(len(data))
        named = model if _has_numbers_only(data) else data
        return Alignment(named, same, same, "classes matched by number: model or dataset has no class names")
    missing = [name for name, i in zip(data, found, strict=True) if i < 0]
    shared = len(data) - len(missing)
    common_ones = f"--classes common to evaluate the {shared} common classes, " if shared else ""
    raise DataError(
        f"class mismatch: the dataset has {len(data)} classes, the model {len(model)}; the model does not "
        f"have {_join_names(missing)}. Use {common_ones}--map 'data name=model name', or correct the card "
        f"(the model has {_join_names(list(model))})"
    )


def _places(names: list[str], model: tuple[str, ...]) -> list[int]:
    """Per name its place in the model, exactly or else in plain letters if only one is meant; else −1."""
    exact = {name: i for i, name in enumerate(model)}
    plain: dict[str, list[int]] = {}
    for i, name in enumerate(model):
        plain.setdefault(plain_name(name), []).append(i)
    alike = [plain.get(plain_name(name), []) for name in names]
    return [exact.get(name, at[0] if len(at) == 1 else -1) for name, at in zip(names, alike, strict=True)]


def _by_name(model: tuple[str, ...], data: tuple[str, ...], found: list[int]) -> Alignment:
    kept = list(dict.fromkeys(at for at in found if at >= 0))  # places in the model, in the data's order
    of_model = np.full(len(model), -1)
    of_model[kept] = np.arange(len(kept))
    of_data = np.array([of_model[at] if at >= 0 else -1 for at in found], np.int64)
    times, last = Counter(found), {at: i for i, at in enumerate(found)}
    names = tuple(data[last[at]] if times[at] == 1 else model[at] for at in kept)
    skipped, joined = times[-1], [model[at] for at in kept if times[at] > 1]
    notes = [f"skipped {skipped} classes of the dataset that the model does not have"] if skipped else []
    if joined:
        notes.append(f"several classes of the dataset map to one class of the model: {_join_names(joined)}")
    return Alignment(names, of_model, of_data, "; ".join(notes))


def _has_numbers_only(names: tuple[str, ...]) -> bool:
    return all(name.isdigit() for name in names)


def _join_names(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def realign(records: Iterable[Record], alignment: Alignment, task: Task = "detect") -> tuple[Record, ...]:
    """The records with the numbers of the evaluated classes, without failures and other classes."""
    found = (_realign_record(record, alignment) for record in records)
    kept = tuple(record for record in found if record is not None)
    if task != "single":
        return kept
    # An image whose only object is of a skipped class does not count.
    return tuple(r for r in kept if not (isinstance(r, DetectionRecord) and len(r.truth) == 0))


def _realign_record(record: Record, alignment: Alignment) -> Record | None:
    if isinstance(record, FailedImage):
        return None
    if isinstance(record, DetectionRecord):
        t, d = record.truth, record.detections
        _check(record.name, t.classes, alignment.of_data, "the dataset")
        _check(record.name, d.classes, alignment.of_model, "the model")
        wanted, seen = alignment.of_data[t.classes], alignment.of_model[d.classes]
        keep, kept = wanted >= 0, seen >= 0
        truth = Boxes(t.xyxy[keep], wanted[keep], t.crowd[keep], t.difficult[keep], t.areas[keep])
        return replace(record, truth=truth, detections=replace(d.take(kept), classes=seen[kept]))
    if isinstance(record, ClassificationRecord):
        _check(record.name, np.array([record.label]), alignment.of_data, "the dataset")
        label, top = int(alignment.of_data[record.label]), alignment.of_model[record.top]
        return replace(record, label=label, top=top) if label >= 0 else None
    return record


def _check(name: str, classes: Ints, places: Ints, whose: str) -> None:
    """Raise DataError if a class is out of range."""
    if classes.size and not 0 <= classes.min() <= classes.max() < len(places):
        wrong = classes[(classes < 0) | (classes >= len(places))][0]
        raise DataError(f"{name}: got class {wrong} of {whose}, expected 0 to {len(places) - 1}")
