"""The fields of an options class as inputs of a web form, read back from what is sent, and as JSON schema."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
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
    default = "" if spec.default is None or spec.kind is dict else str(spec.default)
    if spec.many:
        default = "\n".join(map(str, spec.default))
    elif spec.kind is bool:
        default = "on" if spec.default else ""
    kind = "lines" if spec.repeats else "select" if spec.choices else kinds.get(spec.kind, "text")
    return Input(
        name=spec.key,
        kind=kind,
        label=spec.key.replace("-", " ").capitalize(),
        hint=spec.option.help,
        value=given.get(spec.key, default),
        required=spec.required,
        choices=spec.choices,
        least=spec.option.least if number else None,
        most=spec.option.most if number else None,
        step="any" if spec.kind is float else "",
        example=spec.option.example,
    )


def values_of(shape: type[Options], names: tuple[str, ...], given: Mapping[str, str]) -> dict[str, Any]:
    """The values of the named fields that a form sends; raise InputError for one that is not accepted."""
    values: dict[str, Any] = {}
    for spec in (spec for spec in fields_of(shape) if spec.name in names):
        text = given.get(spec.key, "").strip()
        try:
            if spec.kind is bool:
                values[spec.name] = bool(text)
            elif text:
                lines = text.splitlines() if spec.repeats else [text]
                values[spec.name] = spec.parse([line.strip() for line in lines if line.strip()])
        except InvalidValue as problem:
            raise InputError(f"{spec.key}: {problem}") from None
    return values


def table_schema(shape: type[Options]) -> dict[str, Any]:
    """The schema of a table with the keys of an options class."""
    specs = fields_of(shape)
    return {
        "type": "object",
        "properties": {spec.key: value_schema(spec) for spec in specs},
        "required": [spec.key for spec in specs if spec.required],
        "additionalProperties": False,
    }


def value_schema(spec: FieldSpec) -> dict[str, Any]:
    """The schema of one key."""
    schema = _single(spec)
    if spec.many:
        schema = {"anyOf": [schema, {"type": "array", "items": schema, "minItems": 1, "uniqueItems": True}]}
    schema["description"] = spec.option.help
    if spec.default not in (None, "", (), {}):
        schema["default"] = str(spec.default) if isinstance(spec.default, Path) else spec.default
    return schema


def _single(spec: FieldSpec) -> dict[str, Any]:
    if spec.kind is bool:
        return {"type": "boolean"}
    if spec.kind in (int, float):
        limits = {"minimum": spec.option.least, "maximum": spec.most}
        bounds = {key: value for key, value in limits.items() if value is not None}
        return {"type": "integer" if spec.kind is int else "number", **bounds}
    if spec.kind is dict:
        return {"type": "object", "additionalProperties": {"type": "string", "minLength": 1}}
    if names := spec.names():
        return {"type": "string", "enum": list(names)}
    examples = {"examples": [spec.option.example]} if spec.option.example else {}
    return {"type": "string", "minLength": 1, **examples}
