"""Model cards: read from and written to TOML, with every problem of a card reported at once."""

import dataclasses
import difflib
import json
import math
import re
import tomllib
import types
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from holdfast.core.errors import CardError, OutputError, UnknownName
from holdfast.core.limits import parse_toml, read_file
from holdfast.core.model import Card, Feed, Head, Input, Task
from holdfast.core.pipeline import LETTERBOXES
from holdfast.core.registry import part
from holdfast.core.types import Size

_COCO = (
    "person|bicycle|car|motorcycle|airplane|bus|train|truck|boat|traffic light|fire hydrant|stop sign|"
    "parking meter|bench|bird|cat|dog|horse|sheep|cow|elephant|bear|zebra|giraffe|backpack|umbrella|handbag|"
    "tie|suitcase|frisbee|skis|snowboard|sports ball|kite|baseball bat|baseball glove|skateboard|surfboard|"
    "tennis racket|bottle|wine glass|cup|fork|knife|spoon|bowl|banana|apple|sandwich|orange|broccoli|carrot|"
    "hot dog|pizza|donut|cake|chair|couch|potted plant|bed|dining table|toilet|tv|laptop|mouse|remote|"
    "keyboard|cell phone|microwave|oven|toaster|sink|refrigerator|book|clock|vase|scissors|teddy bear|"
    "hair drier|toothbrush"
)
_COCO_UNUSED = (0, 12, 26, 29, 30, 45, 66, 68, 69, 71, 83)  # category ids from 0 to 90 that no class has
_VOC = (
    "aeroplane|bicycle|bird|boat|bottle|bus|car|cat|chair|cow|diningtable|dog|horse|motorbike|person|"
    "pottedplant|sheep|sofa|train|tvmonitor"
)
_names = iter(_COCO.split("|"))
BUILT_IN: dict[str, tuple[str, ...]] = {
    "coco80": tuple(_COCO.split("|")),
    # at their COCO category ids, as networks with 91 outputs count them
    "coco91": tuple(f"unused {i}" if i in _COCO_UNUSED else next(_names) for i in range(91)),
    "voc20": tuple(_VOC.split("|")),
    "voc21": ("background", *_VOC.split("|")),
    "cctsdb3": ("mandatory", "prohibitory", "warning"),
}


def numbered(count: int) -> tuple[str, ...]:
    """The names "0", "1", ... of classes nobody named."""
    return tuple(str(i) for i in range(count))


class InvalidField(ValueError):
    """A value of the wrong type; the message names the expected one."""


_hints = lru_cache(maxsize=64)(get_type_hints)


def fit_fields(
    shape: type, table: Mapping[str, Any], where: str, problems: list[str], only: tuple[str, ...] = ()
) -> dict[str, Any]:
    """The values of `table` that fit the fields of `shape` (or `only` some); `problems` gets the others."""
    kinds = {name: kind for name, kind in _hints(shape).items() if not only or name in only}
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key not in kinds:
            near = difflib.get_close_matches(key, kinds, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(kinds)}"
            problems.append(f"{where}{key}: unknown field; {hint}")
            continue
        try:
            values[key] = fit(kinds[key], value)
        except InvalidField as problem:
            problems.append(f"{where}{key}: expected {problem}, got {shortened(value)}")
    for field in dataclasses.fields(shape):
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and field.name in kinds and field.name not in table:
            problems.append(f"{where}{field.name}: missing; give {describe(kinds[field.name])}")
    return values


def shortened(value: Any) -> str:
    """The value's repr, cut to 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def join_problems(problems: list[str]) -> str:
    """One problem as it is, several on a line each."""
    if len(problems) == 1:
        return problems[0]
    return f"{len(problems)} problems:" + "".join(f"\n  {p}" for p in problems)


def describe(kind: Any) -> str:
    """The expected kind in words."""
    origin, inside = get_origin(kind), get_args(kind)
    if kind is Size:
        return "[width, height] in whole pixels"
    if origin is Literal:
        return " or ".join(repr(v) for v in inside)
    if origin is tuple:
        each = describe(inside[0])
        return "a list of " + (each.replace("a list", "lists", 1) if "list" in each else f"{each[2:]}s")
    if origin in (Union, types.UnionType):
        return " or ".join(describe(k) for k in inside if k is not type(None))
    names = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
    return names.get(kind, str(kind))


def fit(kind: Any, value: Any) -> Any:
    """The value as the expected kind (lists become tuples, integers floats); raise InvalidField otherwise."""
    origin, inside = get_origin(kind), get_args(kind)
    if kind is Size:
        numbers = fit(tuple[int, ...], value)
        if len(numbers) == 2 and min(numbers) > 0:
            return Size(*numbers)
    elif origin is Literal:
        if isinstance(value, str | int) and value in inside:
            return value
    elif origin is tuple:
        with suppress(InvalidField):
            if isinstance(value, list | tuple):
                return tuple(fit(inside[0], v) for v in value)
    elif origin in (Union, types.UnionType):
        for choice in inside:
            with suppress(InvalidField):
                return fit(choice, value)
    elif kind is float:
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            return float(value)
    elif isinstance(value, kind) and not (kind is int and isinstance(value, bool)):
        return value
    raise InvalidField(describe(kind))


_SECTIONS = ("input", "head", "thresholds", "trained_with", "feeds")
_THRESHOLDS = ("score", "nms_iou", "max_detections")  # fields of a Card in section [thresholds]
_TRAINED_WITH = ("decode", "resize")  # in section [trained_with]: the stages the model was trained with


@dataclass(frozen=True)
class _Top:
    """The keys outside any section; classes are parsed separately because they have several forms."""

    task: Task
    classes: str | int | tuple[str, ...]


def card_path(model: Path) -> Path | None:
    """The card next to a model: net.toml for net.onnx, else model.toml in its folder; None without one."""
    stem = model.name.removesuffix(".gz").removesuffix(".onnx")
    places = (model.parent / name for name in (f"{stem}.toml", "model.toml"))
    return next((path for path in places if path.is_file()), None)


def read_card(path: Path) -> Card:
    """The card in a TOML file, or a CardError that names the file and every problem in it."""
    try:
        if not path.exists():
            raise CardError(f"{path}: no such card; `holdfast model card NET.onnx` writes one")
        text = read_file(path, error=CardError).decode("utf-8")
    except UnicodeDecodeError as problem:
        raise CardError(f"{path}: expected a readable TOML file, got: {problem}") from None
    try:
        return parse_card(parse_toml(text), path.parent)
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
    tables = {name: document.get(name, {}) for name in _SECTIONS}
    for name, table in tables.items():
        if not isinstance(table, dict):
            problems.append(f"{name}: expected a section [{name}], got {table!r}")
            tables[name] = {}
    number = r"\s*(\d+(?:\.\d+)?)\s*"
    fraction = re.fullmatch(f"{number}/{number}", str(tables["input"].get("scale")))  # such as "1/255"
    if fraction and float(fraction[2]) > 0:
        tables["input"] = {**tables["input"], "scale": float(fraction[1]) / float(fraction[2])}
    size = fit_fields(Input, tables["input"], "input.", problems)
    thresholds = fit_fields(Card, tables["thresholds"], "thresholds.", problems, _THRESHOLDS)
    trained = fit_fields(Card, tables["trained_with"], "trained_with.", problems, _TRAINED_WITH)
    head = _read_head(tables["head"], problems)
    feeds = _read_feeds(tables["feeds"], problems)
    if not problems and head:
        card = Card(values["task"], Input(**size), head, classes, **thresholds, **trained, feeds=feeds)
        problems = contradictions(card)
    if problems:
        raise CardError(join_problems(problems))
    return card


def _read_classes(value: Any, folder: Path, problems: list[str]) -> tuple[str, ...]:
    """The class names: from a list, a count, a built-in list, or a file with one name per line."""
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
            if not (folder / value).resolve().is_relative_to(folder.resolve()):
                raise CardError("outside")
            lines = read_file(folder / value, error=CardError).decode("utf-8").splitlines()
        except (CardError, OSError, UnicodeDecodeError):
            built_in = ", ".join(sorted(BUILT_IN))
            problems.append(f"classes: {value!r} is neither a file next to the card nor one of {built_in}")
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
        shape = part("head", name).facts.get("options")
    except UnknownName as problem:
        problems.append(f"head.name: {problem}")
        return None
    options = {k: _frozen(v) for k, v in table.items() if k != "name"}
    if shape is not None:
        fit_fields(shape, options, "head.", problems)
    return Head(name, options)


def _read_feeds(table: Mapping[str, Any], problems: list[str]) -> dict[str, Feed]:
    """What the inputs other than the image get, by their names."""
    for name, kind in table.items():
        if kind not in get_args(Feed):
            problems.append(f"feeds.{name}: expected {describe(Feed)}, got {shortened(kind)}")
    return dict(table)


def _frozen(value: Any) -> Any:
    return tuple(_frozen(v) for v in value) if isinstance(value, list) else value


def contradictions(card: Card) -> list[str]:
    """Contradictions in a card whose fields all have the right type."""
    expected = part("head", card.head.name).facts.get("task", card.task)
    image = card.input
    short = image.policy == "short-side"
    crops, side, most = short or image.policy in ("crop", "square"), image.short_side, card.max_detections
    checks = [
        (card.task == expected, f"task: head {card.head.name!r} is for task {expected!r}, got {card.task!r}"),
        (card.task in get_args(Task), f"task: expected one of {get_args(Task)}, got {card.task!r}"),
        _per_channel("mean", image),
        _per_channel("std", image),
        (0.0 not in image.std, "input.std: expected numbers other than 0, as the tensor is divided by them"),
        (image.scale != 0, "input.scale: expected a number other than 0"),
        (0 <= image.pad <= 255, f"input.pad: expected 0 to 255, got {image.pad}"),
        (side is None or crops, 'input.short_side: only policies "crop", "square" and "short-side" use it'),
        ((side or 1) >= 1, f"input.short_side: expected at least 1, got {side}"),
        (image.long_side is None or short, 'input.long_side: only policy "short-side" uses it'),
        ((image.long_side or 1) >= 1, f"input.long_side: expected at least 1, got {image.long_side}"),
        (image.multiple == 1 or short, 'input.multiple: only policy "short-side" uses it'),
        (image.multiple >= 1, f"input.multiple: expected at least 1, got {image.multiple}"),
        (0 <= card.score <= 1, f"thresholds.score: expected 0 to 1, got {card.score}"),
        (0 <= card.nms_iou <= 1, f"thresholds.nms_iou: expected 0 to 1, got {card.nms_iou}"),
        (most >= 1, f"thresholds.max_detections: expected 1 or more, got {most}"),
    ]
    return [text for holds, text in checks if not holds]


def _per_channel(name: str, image: Input) -> tuple[bool, str]:
    """Whether a field has a number per channel, three equal ones for grey; and what is wrong otherwise."""
    values = getattr(image, name)
    if image.colour == "grey":
        return len(values) in (1, 3) and len(set(values)) == 1, f"input.{name}: expected 1 number for grey"
    return len(values) == 3, f"input.{name}: expected 3 numbers, one per channel, got {len(values)}"


WIDTH = 100  # lists longer than this are written over several lines


def write_card(card: Card, path: Path, guessed: Sequence[str] = ()) -> None:
    """Write the card as TOML, with the reasons of guesses as comments."""
    try:
        path.write_text(card_text(card, guessed), encoding="utf-8")
    except OSError as problem:
        raise OutputError(f"{path}: the card could not be written: {problem.strerror}") from problem


def card_text(card: Card, guessed: Sequence[str] = ()) -> str:
    """The card as TOML; a guess "colour: bgr, because ..." becomes a comment above its field."""
    reasons: dict[str, list[str]] = {}
    for line in guessed:
        field, _, why = line.partition(": ")
        reasons.setdefault(field, []).append(why or line)
    image = {f.name: getattr(card.input, f.name) for f in fields(card.input)}
    if card.input.policy not in LETTERBOXES:
        image = {k: v for k, v in image.items() if (k, v) not in (("pad", 114), ("place", "centre"))}
    if image["multiple"] == 1:
        del image["multiple"]
    names, count = card.classes, len(card.classes)
    built_in = next((name for name, known in BUILT_IN.items() if known == names), None)
    sections: dict[str, Mapping[str, Any]] = {
        "": {"task": card.task, "classes": built_in or (count if names == numbered(count) else names)},
        "input": {k: v for k, v in image.items() if v is not None},
        "head": {"name": card.head.name, **card.head.options},
        "thresholds": {k: getattr(card, k) for k in _THRESHOLDS},
        "trained_with": {k: getattr(card, k) for k in _TRAINED_WITH},
        **({"feeds": card.feeds} if card.feeds else {}),
    }
    lines: list[str] = []
    for section, table in sections.items():
        lines += ["", f"[{section}]"] if section else []
        for key, value in table.items():
            known = "head" if (section, key) == ("head", "name") else key
            lines += [f"# guess: {why}" for why in reasons.pop(known, ())]
            lines.append(f"{_key(key)} = {toml(value, scale=key == 'scale')}")
    unplaced = [f"# {field}: {why}" for field, whys in reasons.items() for why in whys]
    return "\n".join([*unplaced, *lines]) + "\n"


def _key(name: str) -> str:
    plain = all(c.isascii() and (c.isalnum() or c in "_-") for c in name)
    return name if plain and name else toml(name)


def toml(value: Any, scale: bool = False) -> str:
    """A plain value as TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if scale and value == 1 / 255:
        return '"1/255"'
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(str(k))} = {toml(v)}" for k, v in value.items()) + " }"
    if isinstance(value, Iterable):
        items = [toml(v) for v in value]
        flat = f"[{', '.join(items)}]"
        return flat if len(flat) <= WIDTH else "[\n" + "".join(f"  {i},\n" for i in items) + "]"
    raise TypeError(f"a card cannot hold a {type(value).__name__}")
