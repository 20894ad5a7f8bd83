"""A model described: what is in its file, and how holdfast reads it, with the reasons of guesses."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.core.errors import InputError
from holdfast.core.model import Card
from holdfast.graph.inspect import ModelInfo, inspect, rows
from holdfast.graph.load import find_model, load_model


@dataclass(frozen=True)
class Facts:
    """The file's content and its card; without a card that fits, `problem` says why."""

    info: ModelInfo
    card: Card | None
    guessed: tuple[str, ...]
    problem: str


def describe(name_or_path: str | Path, card: Path | None = None) -> Facts:
    """What there is to say of a model; a file that is ONNX is described even if no card fits it."""
    info = inspect(find_model(name_or_path))
    try:
        model = load_model(name_or_path, card)
    except InputError as problem:
        return Facts(info, None, (), str(problem))
    return Facts(info, model.card, model.guessed, "")


def text(facts: Facts) -> str:
    """The facts as plain lines of two columns."""
    lines = rows(facts.info)
    if facts.card is not None:
        image, head = facts.card.input, facts.card.head
        names = facts.card.classes
        shown = ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")
        lines += [
            ("task", f"{facts.card.task}, {len(names)} classes: {shown}"),
            (
                "reads",
                f"{image.size.width}×{image.size.height} {image.colour} {image.layout}, {image.policy}",
            ),
            ("head", head.name),
        ]
    lines += [("guessed", line) for line in facts.guessed]
    lines += [("problem", facts.problem)] if facts.problem else []
    return "\n".join(f"{name:14} {value}" for name, value in lines)


def as_dict(facts: Facts) -> dict[str, Any]:
    """The facts as plain values, for JSON."""
    found = dataclasses.asdict(facts)
    found["info"]["path"] = str(facts.info.path)
    return found
