"""Which heads an attack can see through: the candidates function of a card, or what to do without one."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from holdfast.core.errors import InputError, MissingExtra
from holdfast.core.model import Card
from holdfast.core.registry import lookup, names, part


def candidates_of(card: Card) -> Callable[..., Any]:
    """The function (raw outputs, card) -> Candidates of the card's head, or InputError that says why none."""
    if find_spec("torch") is None:
        raise MissingExtra("an attack by gradient (without it: --black-box)", "torch", "torch")
    if not differentiable(card.head.name):
        raise InputError(_why(card))
    return lookup("candidates", card.head.name)


def differentiable(head: str) -> bool:
    """Whether the candidates of that head can be had with a gradient."""
    return head in names("candidates")


def _why(card: Card) -> str:
    head = part("head", card.head.name)
    if head.facts.get("task") not in ("detect", "single", None):
        return f"head {head.name!r}: expected a detector to attack, got a model for task {card.task!r}"
    if not head.facts.get("nms", True):
        return (
            f"head {head.name!r}: the graph itself suppresses boxes, which no gradient passes; "
            "attack it from its predictions alone: --black-box"
        )
    return (
        f"head {head.name!r}: no candidates with a gradient are known for it; attack it with --black-box, "
        f'or register them: @stage("candidates", "{head.name}")'
    )
