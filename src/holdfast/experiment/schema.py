"""The JSON schema of an experiment, from the same fields as its reader."""

from __future__ import annotations

from typing import Any

from holdfast.audit.gates import FAIL_IF, MIN_IMAGES
from holdfast.audit.options import ENOUGH
from holdfast.config.options import fields_of
from holdfast.config.schema import table_schema, value_schema
from holdfast.experiment.plan import DOES, Condition, Experiment, GivenData, GivenModel

DRAFT = "https://json-schema.org/draft/2020-12/schema"


def schema() -> dict[str, Any]:
    """The schema (draft 2020-12) of an experiment's file, with the names that are known here."""
    return {
        "$schema": DRAFT,
        "title": "holdfast experiment",
        "description": "Models × data × conditions, for `holdfast run`.",
        "type": "object",
        "properties": {
            **table_schema(Experiment)["properties"],
            "model": _rows(table_schema(GivenModel), "The models."),
            "data": _rows(
                table_schema(GivenData), "The data; may be missing if every condition is do = 'verify'."
            ),
            "condition": _rows(_condition(), "Each is run for each model on each data."),
            "gates": _gates(),
        },
        "required": ["model", "condition"],
        "additionalProperties": False,
    }


def _rows(items: dict[str, Any], about: str) -> dict[str, Any]:
    return {"type": "array", "minItems": 1, "items": items, "description": about}


def _condition() -> dict[str, Any]:
    """One of several tables, which differ in what is done."""
    shared = {spec.key: spec for spec in fields_of(Condition)}
    several = []
    for does, shape in DOES.items():
        table = table_schema(shape)
        own = {
            "do": {"const": does, "description": shared["do"].option.help},
            "name": value_schema(shared["name"]),
        }
        table["properties"] = {**own, **table["properties"]}
        table["required"] = ["do", *table["required"]]
        table["title"] = does
        several.append(table)
    return {"type": "object", "required": ["do"], "oneOf": several}


def _gates() -> dict[str, Any]:
    """The list, or names with what they must not be."""
    text = {"type": "string", "minLength": 1, "examples": ["noise.map50.drop > 0.02"]}
    several = {"anyOf": [text, {"type": "array", "items": text, "minItems": 1}]}
    least = {
        "type": "integer", "minimum": 1, "default": ENOUGH,
        "description": "A gate whose number rests on fewer images is not decided.",
    }  # fmt: skip
    return {
        "type": "object",
        "properties": {FAIL_IF: several, MIN_IMAGES: least},
        "additionalProperties": {"type": ["string", "object"]},
        "description": "An audit fails if one of these is true of it: see docs/ci.md.",
    }
