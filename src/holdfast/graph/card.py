"""Model cards: read from and written to TOML, with every problem of a card told at once."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from holdfast.core.errors import CardError, UnknownName
from holdfast.core.model import Card, Head, Input, Task
from holdfast.core.registry import Part, part
from holdfast.graph.classes import BUILT_IN, numbered
from holdfast.graph.fields import fit_fields, join_problems

_SECTIONS = ("input", "head", "thresholds", "trained_with")


@dataclass(frozen=True)
class _Top:
    """The keys outside any section; classes are read apart as they come in several forms."""

    task: Task
    classes: str | int | tuple[str, ...]


@dataclass(frozen=True)
class _Thresholds:
    """Section [thresholds]."""

    score: float = Card.score
    nms_iou: float = Card.nms_iou
    max_detections: int = Card.max_detections


@dataclass(frozen=True)
class _TrainedWith:
    """Section [trained_with]: the stages the model was trained with."""

    decode: str = Card.decode
    resize: str = Card.resize


def card_path(model: Path) -> Path | None:
    """The card beside a model: net.toml for net.onnx, else model.toml in its folder; None without one."""
    stem = model.name.removesuffix(".gz").removesuffix(".onnx")
    for name in (f"{stem}.toml", "model.toml"):
        if (model.parent / name).is_file():
            return model.parent / name
    return None


def read_card(path: Path) -> Card:
    """The card in a TOML file, or a CardError that names the file and every problem in it."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise CardError(f"{path}: no such card; `holdfast model card NET.onnx` writes one") from None
    except (OSError, UnicodeDecodeError) as problem:
        raise CardError(f"{path}: expected a readable TOML file, got: {problem}") from None
    try:
        return parse_card(tomllib.loads(text), path.parent)
    except tomllib.TOMLDecodeError as problem:
        raise CardError(f"{path}: expected TOML, got: {problem}") from None
    except CardError as problem:
        raise CardError(f"{path}: {problem}") from None


def parse_card(document: Mapping[str, Any], folder: Path) -> Card:
    """The card in a parsed TOML document; files it names are looked for in `folder`."""
    problems: list[str] = []
    top = {k: v for k, v in document.items() if k not in _SECTIONS}
    values = fit_fields(_Top, top, "", problems)
    classes = _read_classes(values.get("classes"), folder, problems)
    tables = {name: _section(document, name, problems) for name in _SECTIONS}
    size = fit_fields(Input, _with_fraction(tables["input"]), "input.", problems)
    thresholds = fit_fields(_Thresholds, tables["thresholds"], "thresholds.", problems)
    trained = fit_fields(_TrainedWith, tables["trained_with"], "trained_with.", problems)
    head = _read_head(tables["head"], problems)
    if not problems and head:
        card = Card(values["task"], Input(**size), head, classes, **thresholds, **trained)
        problems = contradictions(card)
        if not problems:
            return card
    raise CardError(join_problems(problems))


def _section(document: Mapping[str, Any], name: str, problems: list[str]) -> Mapping[str, Any]:
    table = document.get(name, {})
    if isinstance(table, dict):
        return table
    problems.append(f"{name}: expected a section [{name}], got {table!r}")
    return {}


def _with_fraction(table: Mapping[str, Any]) -> dict[str, Any]:
    """The table with a scale such as "1/255" as a number."""
    form = r"\s*(\d+(?:\.\d+)?)\s*/\s*(\d+(?:\.\d+)?)\s*"
    found = re.fullmatch(form, str(table.get("scale")))
    if found and float(found[2]) > 0:
        return {**table, "scale": float(found[1]) / float(found[2])}
    return dict(table)


def _read_classes(value: Any, folder: Path, problems: list[str]) -> tuple[str, ...]:
    """The class names: from a list, a count, a built-in list, or a file with a name a line."""
    if value is None:
        return ()
    if isinstance(value, int):
        names = numbered(max(value, 0))
    elif isinstance(value, tuple):
        names = value
    elif value in BUILT_IN:
        names = BUILT_IN[value]
    else:
        try:
            lines = (folder / value).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError):
            known = ", ".join(sorted(BUILT_IN))
            problems.append(f"classes: {value!r} is no file beside the card and none of {known}")
            return ()
        names = tuple(line.strip() for line in lines if line.strip())
    twice = sorted({n for n in names if names.count(n) > 1}) if len(names) <= 2000 else []
    if twice:
        problems.append(f"classes: {twice[0]!r} is named more than once; give every class its own name")
    if not names:
        problems.append("classes: expected at least one class")
    return names


def _read_head(table: Mapping[str, Any], problems: list[str]) -> Head | None:
    name = table.get("name")
    if not isinstance(name, str):
        problems.append(f'head.name: expected the name of a head, e.g. "yolov3", got {name!r}')
        return None
    try:
        known: Part = part("head", name)
    except UnknownName as problem:
        problems.append(f"head.name: {problem}")
        return None
    options = {k: _frozen(v) for k, v in table.items() if k != "name"}
    shape = known.facts.get("options")
    if shape is not None:
        fit_fields(shape, options, "head.", problems)
    return Head(name, options)


def _frozen(value: Any) -> Any:
    return tuple(_frozen(v) for v in value) if isinstance(value, list) else value


def contradictions(card: Card) -> list[str]:
    """What is wrong with a card whose every field is of the right type."""
    wanted = part("head", card.head.name).facts.get("task", card.task)
    image = card.input
    checks = [
        (card.task == wanted, f"task: head {card.head.name!r} is for task {wanted!r}, got {card.task!r}"),
        (card.task in get_args(Task), f"task: expected one of {get_args(Task)}, got {card.task!r}"),
        (len(image.mean) == 3, f"input.mean: expected 3 numbers, one per channel, got {len(image.mean)}"),
        (len(image.std) == 3, f"input.std: expected 3 numbers, one per channel, got {len(image.std)}"),
        (0.0 not in image.std, "input.std: expected numbers other than 0, as the tensor is divided by them"),
        (image.scale != 0, "input.scale: expected a number other than 0"),
        (0 <= image.pad <= 255, f"input.pad: expected 0 to 255, got {image.pad}"),
        (
            image.short_side is None or image.policy in ("crop", "square"),
            'input.short_side: only policies "crop" and "square" use it',
        ),
        ((image.short_side or 1) >= 1, f"input.short_side: expected at least 1, got {image.short_side}"),
        (0 <= card.score <= 1, f"thresholds.score: expected 0 to 1, got {card.score}"),
        (0 <= card.nms_iou <= 1, f"thresholds.nms_iou: expected 0 to 1, got {card.nms_iou}"),
        (
            card.max_detections >= 1,
            f"thresholds.max_detections: expected 1 or more, got {card.max_detections}",
        ),
    ]
    return [text for holds, text in checks if not holds]
