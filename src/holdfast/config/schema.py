"""The JSON schema of a TOML table, from the same fields as its reader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from holdfast.config.options import FieldSpec, Options, fields_of


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
    one = _single(spec)
    if spec.many:
        one = {"anyOf": [one, {"type": "array", "items": one, "minItems": 1, "uniqueItems": True}]}
    one["description"] = spec.option.help
    if spec.default not in (None, "", (), {}):
        one["default"] = str(spec.default) if isinstance(spec.default, Path) else spec.default
    return one


def _single(spec: FieldSpec) -> dict[str, Any]:
    if spec.kind is bool:
        return {"type": "boolean"}
    if spec.kind in (int, float):
        limits = {"minimum": spec.option.least, "maximum": spec.most}
        kept = {key: value for key, value in limits.items() if value is not None}
        return {"type": "integer" if spec.kind is int else "number", **kept}
    if spec.kind is dict:
        return {"type": "object", "additionalProperties": {"type": "string", "minLength": 1}}
    if names := spec.names():
        return {"type": "string", "enum": list(names)}
    examples = {"examples": [spec.option.example]} if spec.option.example else {}
    return {"type": "string", "minLength": 1, **examples}
