"""Tables of a TOML file checked against the fields of a dataclass, all problems at once."""

from __future__ import annotations

import dataclasses
import difflib
import math
import types
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from holdfast.core.types import Size


class Unfit(ValueError):
    """A value that is not of the wanted kind; the message says what was expected."""


def fit_fields(shape: type, table: Mapping[str, Any], where: str, problems: list[str]) -> dict[str, Any]:
    """The values of `table` that fit the fields of the dataclass `shape`; the rest is told in `problems`."""
    wanted = _hints(shape)
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key not in wanted:
            problems.append(f"{where}{key}: unknown field; {_near(key, list(wanted))}")
            continue
        try:
            values[key] = fit(wanted[key], value)
        except Unfit as problem:
            problems.append(f"{where}{key}: expected {problem}, got {shortened(value)}")
    for field in dataclasses.fields(shape):
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and field.name not in table:
            problems.append(f"{where}{field.name}: missing; give {describe(wanted[field.name])}")
    return values


@lru_cache(maxsize=64)
def _hints(shape: type) -> dict[str, Any]:
    return get_type_hints(shape)


def _near(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"


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
    """The wanted kind in words."""
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
    """The value as the wanted kind (lists become tuples, whole numbers floats), or Unfit."""
    origin, inside = get_origin(kind), get_args(kind)
    if kind is Size:
        numbers = fit(tuple[int, ...], value)
        if len(numbers) == 2 and min(numbers) > 0:
            return Size(*numbers)
    elif origin is Literal:
        if isinstance(value, str | int) and value in inside:
            return value
    elif origin is tuple:
        if isinstance(value, list | tuple):
            return tuple(_inside(kind, inside[0], v) for v in value)
    elif origin in (Union, types.UnionType):
        return _fit_any(kind, inside, value)
    elif kind is float:
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            return float(value)
    elif isinstance(value, kind) and not (kind is int and isinstance(value, bool)):
        return value
    raise Unfit(describe(kind))


def _inside(outer: Any, kind: Any, value: Any) -> Any:
    try:
        return fit(kind, value)
    except Unfit:
        raise Unfit(describe(outer)) from None


def _fit_any(kind: Any, inside: tuple[Any, ...], value: Any) -> Any:
    for choice in inside:
        if choice is type(None):
            if value is None:
                return None
            continue
        try:
            return fit(choice, value)
        except Unfit:
            continue
    raise Unfit(describe(kind))
