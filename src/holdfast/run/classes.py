"""Which class of the model is which class of the data: by name, else by number, never by guess."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from holdfast.core.errors import DataError, UnknownName
from holdfast.core.types import Boxes, Ints
from holdfast.run.records import Failed, Found, Ranked, Record


@dataclass(frozen=True, eq=False)
class Alignment:
    """`names` of the evaluated classes; per class of the model and of the data its place there, or −1."""

    names: tuple[str, ...]
    of_model: Ints
    of_data: Ints
    note: str = ""

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
    model: tuple[str, ...],
    data: tuple[str, ...],
    *,
    common: bool = False,
    renames: Mapping[str, str] | None = None,
) -> Alignment:
    """The classes to evaluate; DataError if some class of the data is unknown to the model.

    Names are compared without case, spaces, hyphens and underscores. `renames` maps names of the data to
    names of the model. With `common` only the classes both know are evaluated.
    """
    renamed = _renamed(data, model, renames or {})
    places = {_plain(name): i for i, name in enumerate(model)}
    found = [places.get(_plain(name), -1) for name in renamed]
    if all(i >= 0 for i in found) or (common and any(i >= 0 for i in found)):
        return _by_name(model, data, found)
    if not renames and len(model) == len(data) and (_numbered(model) or _numbered(data)):
        same = np.arange(len(data))
        named = model if _numbered(data) else data
        return Alignment(named, same, same, "classes matched by number: one side has no names")
    missing = [name for name, i in zip(data, found, strict=True) if i < 0]
    raise DataError(
        f"class mismatch: the data has {len(data)} classes, the model {len(model)}; the model does not know "
        f"{_listed(missing)}. Use --classes common to evaluate the {len(data) - len(missing)} shared ones, "
        f"--map 'data name=model name', or correct the card (the model knows {_listed(list(model))})"
    )


def _by_name(model: tuple[str, ...], data: tuple[str, ...], found: list[int]) -> Alignment:
    kept = [i for i, at in enumerate(found) if at >= 0]
    of_data = np.full(len(data), -1)
    of_data[kept] = np.arange(len(kept))
    of_model = np.full(len(model), -1)
    of_model[[found[i] for i in kept]] = np.arange(len(kept))
    left_out = len(data) - len(kept)
    note = f"{left_out} classes of the data left out: the model does not know them" if left_out else ""
    return Alignment(tuple(data[i] for i in kept), of_model, of_data, note)


def _renamed(data: tuple[str, ...], model: tuple[str, ...], renames: Mapping[str, str]) -> list[str]:
    for old, new in renames.items():
        if old not in data:
            raise UnknownName("class of the data", old, data)
        if new not in model:
            raise UnknownName("class of the model", new, model)
    return [renames.get(name, name) for name in data]


def _plain(name: str) -> str:
    return "".join(c for c in name.casefold() if c not in " -_")


def _numbered(names: tuple[str, ...]) -> bool:
    return all(name.isdigit() for name in names)


def _listed(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def realign(records: Iterable[Record], alignment: Alignment) -> tuple[Record, ...]:
    """The records with the evaluated classes' numbers; failures and what has no such class are left out."""
    return tuple(r for r in (_realigned(record, alignment) for record in records) if r is not None)


def _realigned(record: Record, alignment: Alignment) -> Record | None:
    if isinstance(record, Failed):
        return None
    if isinstance(record, Found):
        t, d = record.truth, record.detections
        wanted, seen = alignment.of_data[t.classes], alignment.of_model[d.classes]
        keep, kept = wanted >= 0, seen >= 0
        truth = Boxes(t.xyxy[keep], wanted[keep], t.crowd[keep], t.difficult[keep], t.areas[keep])
        return replace(record, truth=truth, detections=replace(d.take(kept), classes=seen[kept]))
    if isinstance(record, Ranked):
        if record.label >= len(alignment.of_data):
            raise DataError(
                f"{record.name}: label {record.label}, but the model knows {len(alignment.of_data)} classes"
            )
        label, top = int(alignment.of_data[record.label]), alignment.of_model[record.top]
        return replace(record, label=label, top=top) if label >= 0 else None
    return record
