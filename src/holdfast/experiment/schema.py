"""The JSON schema of an experiment, made from the same slots as its reader."""

from __future__ import annotations

from typing import Any

from holdfast.audit.gates import FAIL_IF, MIN_IMAGES
from holdfast.audit.result import ENOUGH
from holdfast.experiment.fit import bounds
from holdfast.experiment.plan import DOES, Condition, Experiment, GivenData, GivenModel
from holdfast.experiment.slots import Slot, slots_of

DRAFT = "https://json-schema.org/draft/2020-12/schema"


def schema() -> dict[str, Any]:
    """The schema (draft 2020-12) of an experiment's file, with the names that are known here."""
    return {
        "$schema": DRAFT,
        "title": "holdfast experiment",
        "description": "Models × data × conditions, for `holdfast run`.",
        "type": "object",
        "properties": {
            **_properties(Experiment),
            "model": _rows(_table(GivenModel), "The models."),
            "data": _rows(_table(GivenData), "The data; may be missing if every condition is do = 'verify'."),
            "condition": _rows(_condition(), "Each is run for each model on each data."),
            "gates": _gates(),
        },
        "required": ["model", "condition"],
        "additionalProperties": False,
    }


def _rows(items: dict[str, Any], about: str) -> dict[str, Any]:
    return {"type": "array", "minItems": 1, "items": items, "description": about}


def _table(shape: type) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": _properties(shape),
        "required": [key for key, slot in slots_of(shape).items() if slot.required],
        "additionalProperties": False,
    }


def _condition() -> dict[str, Any]:
    """One of several tables, told apart by what is done."""
    shared = slots_of(Condition)
    several = []
    for does, shape in DOES.items():
        table = _table(shape)
        own = {"do": {"const": does, "description": shared["do"].takes.about}, "name": _value(shared["name"])}
        table["properties"] = {**own, **table["properties"]}
        table["required"] = ["do", *table["required"]]
        table["title"] = does
        several.append(table)
    return {"type": "object", "required": ["do"], "oneOf": several}


def _gates() -> dict[str, Any]:
    """The list, or names with what they must not be."""
    text = {"type": "string", "minLength": 1, "examples": ["noise.map50.drop > 0.02"]}
    several = {"anyOf": [text, {"type": "array", "items": text, "minItems": 1}]}
    about = "An audit fails if one of these is true of it: see docs/ci.md."
    more = {"type": ["string", "object"]}
    least = {
        "type": "integer", "minimum": 1, "default": ENOUGH,
        "description": "A gate whose number rests on fewer images is not decided.",
    }  # fmt: skip
    return {
        "type": "object",
        "properties": {FAIL_IF: several, MIN_IMAGES: least},
        "additionalProperties": more,
        "description": about,
    }


def _properties(shape: type) -> dict[str, Any]:
    return {key: _value(slot) for key, slot in slots_of(shape).items()}


def _value(slot: Slot) -> dict[str, Any]:
    one = _single(slot)
    if slot.many:
        one = {"anyOf": [one, {"type": "array", "items": one, "minItems": 1, "uniqueItems": True}]}
    one["description"] = slot.takes.about
    if slot.default not in (None, "", ()):
        one["default"] = slot.default
    return one


def _single(slot: Slot) -> dict[str, Any]:
    if slot.kind is bool:
        return {"type": "boolean"}
    if slot.kind in (int, float):
        least, most = bounds(slot)
        limits = {"minimum": least, "maximum": most}
        kept = {key: value for key, value in limits.items() if value is not None}
        return {"type": "integer" if slot.kind is int else "number", **kept}
    if slot.kind is dict:
        return {"type": "object", "additionalProperties": {"type": "string", "minLength": 1}}
    allowed = slot.allowed()
    if allowed:
        return {"type": "string", "enum": list(allowed)}
    found: dict[str, Any] = {"type": "string", "minLength": 1}
    if slot.takes.form:
        found["pattern"] = f"^(?:{slot.takes.form})$"
    if slot.takes.example:
        found["examples"] = [slot.takes.example]
    return found
