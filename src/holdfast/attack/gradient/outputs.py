"""Outputs picked as the numpy heads pick them: they sort out places, the tensors follow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from holdfast.core.model import Card
from holdfast.core.types import Ints
from holdfast.graph.candidates import single


def places(raw: Mapping[str, Tensor]) -> dict[str, Ints]:
    """For every output the places (1, ...) of its numbers in the row that `joined` makes of an image."""
    found, start = {}, 0
    for name, value in raw.items():
        count = int(np.prod(value.shape[1:]))
        found[name] = np.arange(start, start + count).reshape(1, *value.shape[1:])
        start += count
    return found


def joined(raw: Mapping[str, Tensor]) -> Tensor:
    """All outputs of each image in one row (b, n)."""
    return torch.cat([value.flatten(1) for value in raw.values()], dim=1)


def taken(rows: Tensor, index: Ints) -> Tensor:
    """The numbers (b, ...) of the rows at these places (...)."""
    return rows[:, torch.from_numpy(np.ascontiguousarray(index, np.int64))]


def only(raw: Mapping[str, Tensor], names: Sequence[str], card: Card) -> tuple[str, Tensor]:
    """The one output that is named, or the only one there is, with the numpy heads' error otherwise."""
    name, _ = single(places(raw), names, card)
    return name, raw[name]


def constant(values: object, like: Tensor) -> Tensor:
    """An array as a tensor of the same type and device."""
    return torch.as_tensor(np.asarray(values), dtype=like.dtype, device=like.device)


def from_centres(centres: Tensor, sides: Tensor) -> Tensor:
    """Boxes (..., 4) xyxy from centres (..., 2) and sides (..., 2)."""
    return torch.cat([centres - 0.5 * sides, centres + 0.5 * sides], dim=-1)
