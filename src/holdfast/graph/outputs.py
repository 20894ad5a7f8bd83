"""What heads share on the way in: options, the output tensors they ask for, the errors of a wrong card."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from holdfast.core.errors import CardError
from holdfast.core.model import Card
from holdfast.core.types import Tensor
from holdfast.graph.fields import fit_fields

T = TypeVar("T")


def options_of(shape: type[T], card: Card) -> T:
    """The card's head options as the dataclass `shape`, or a CardError that names every wrong one."""
    problems: list[str] = []
    values = fit_fields(shape, card.head.options, "head.", problems)
    if problems:
        raise wrong(card, "; ".join(problems))
    return shape(**values)


def wrong(card: Card, what: str) -> CardError:
    """The error of a card that does not fit its model, naming the head."""
    return CardError(f"head {card.head.name!r}: {what}")


def shapes(raw: Mapping[str, Tensor]) -> str:
    """The outputs with their shapes, for messages."""
    return ", ".join(f"{name!r} {value.shape}" for name, value in raw.items())


def named(raw: Mapping[str, Any], names: Sequence[str], card: Card) -> dict[str, Tensor]:
    """The outputs of those names in that order, or all when none are named; one image's worth each."""
    for name in names:
        if name not in raw:
            raise wrong(card, f"no output is named {name!r}; the model has {shapes(raw)}")
    return {name: raw[name] for name in (names or raw)}


def single(raw: Mapping[str, Tensor], names: Sequence[str], card: Card) -> tuple[str, Tensor]:
    """The one output that is named, or the only one there is."""
    chosen = named(raw, names, card)
    if len(chosen) != 1:
        raise wrong(
            card,
            f"expected one output, got {len(chosen)}: {shapes(chosen)}; "
            'name it in the card: outputs = ["..."]',
        )
    return next(iter(chosen.items()))


def one_image(name: str, value: Tensor, card: Card) -> Tensor:
    """The tensor without its first axis, which must count one image."""
    if value.ndim < 2 or value.shape[0] != 1:
        raise wrong(card, f"output {name!r}: expected a batch of one image, got shape {value.shape}")
    return np.asarray(value[0])
