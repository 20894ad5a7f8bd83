"""The inputs of a web form, from the fields of an options class, and options from what a form sends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.config.options import FieldSpec, InvalidValue, Options, fields_of
from holdfast.core.errors import InputError


@dataclass(frozen=True)
class Input:
    """One input of a form."""

    name: str
    kind: str  # text, number, checkbox, select or lines
    label: str
    hint: str
    value: str
    required: bool
    choices: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    step: str = ""
    example: str = ""


def inputs_of(shape: type[Options], names: tuple[str, ...], given: Mapping[str, str]) -> list[Input]:
    """The inputs of the named fields, filled with what is given and with the defaults."""
    specs = {spec.name: spec for spec in fields_of(shape)}
    return [_input(specs[name], given) for name in names]


def _input(spec: FieldSpec, given: Mapping[str, str]) -> Input:
    number = spec.kind in (int, float) and not spec.many
    kinds = {bool: "checkbox", int: "number", float: "number"}
    kind = "lines" if spec.repeats else "select" if spec.choices else kinds.get(spec.kind, "text")
    return Input(
        name=spec.key,
        kind=kind,
        label=spec.key.replace("-", " ").capitalize(),
        hint=spec.option.help,
        value=given.get(spec.key, default_text(spec)),
        required=spec.required,
        choices=spec.choices,
        least=spec.option.least if number else None,
        most=spec.option.most if number else None,
        step="any" if spec.kind is float else "",
        example=spec.option.example,
    )


def default_text(spec: FieldSpec) -> str:
    """The default as a form shows it; several values are one per line."""
    if spec.default is None or spec.kind is dict:
        return ""
    if spec.many:
        return "\n".join(map(str, spec.default))
    return ("on" if spec.default else "") if spec.kind is bool else str(spec.default)


def values_of(shape: type[Options], names: tuple[str, ...], given: Mapping[str, str]) -> dict[str, Any]:
    """The values of the named fields that a form sends; raise InputError for one that is not accepted."""
    found: dict[str, Any] = {}
    for spec in fields_of(shape):
        if spec.name not in names:
            continue
        text = given.get(spec.key, "").strip()
        try:
            if spec.kind is bool:
                found[spec.name] = bool(text)
            elif text:
                lines = text.splitlines() if spec.repeats else [text]
                found[spec.name] = spec.parse([line.strip() for line in lines if line.strip()])
        except InvalidValue as problem:
            raise InputError(f"{spec.key}: {problem}") from None
    return found
