"""Keyword arguments of the public functions: the fields of a command's options, and nothing else."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, get_type_hints

from holdfast.config.options import Options, fields_of, nearest
from holdfast.core.errors import InputError
from holdfast.evaluate.options import ExecutionOptions

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T", bound=Options)
EXECUTION = tuple(spec.name for spec in fields_of(ExecutionOptions))
# What only makes sense where text is printed, and what to use instead.
TERMINAL_ONLY: Mapping[str, str] = {
    "csv": "use result.save('table.csv')",
    "markdown": "use result.to_pandas().to_markdown()",
    "latex": "use result.to_pandas().to_latex()",
    "explain": "use holdfast evaluate --explain",
    "class_": "use holdfast evaluate --explain",
    "against": "use holdfast.compare(before, after)",
    "dry_run": "use holdfast noise --dry-run",
    "check": "use holdfast verify --check",
    "all_classes": "use result.per_class",
    "top": "use result.per_class",
}
# Commands whose function has an option of such a name, because there it is not about printing.
EXCEPTIONS = {"contest score": ("csv", "dry_run")}


def fields(shape: type[Options], *positional: str) -> dict[str, Any]:
    """The fields of an options class that are keywords of its function, by name."""
    hidden = {*positional, *TERMINAL_ONLY}.difference(EXCEPTIONS.get(shape.command, ()))
    return {spec.name: spec for spec in fields_of(shape) if spec.name not in hidden}


def keywords(shape: type[Options], *positional: str) -> Callable[[F], F]:
    """Give a function the signature and the documentation of the options that its keywords are.

    `positional` are the fields that the function takes as its own parameters.
    """

    def decorate(function: F) -> F:
        offered, hints = fields(shape, *positional), get_type_hints(shape)
        own = inspect.signature(function)
        parameters = [p for p in own.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
        kind = inspect.Parameter.KEYWORD_ONLY
        for name, spec in offered.items():
            default = inspect.Parameter.empty if spec.required else spec.default
            parameters.append(inspect.Parameter(name, kind, default=default, annotation=hints[name]))

        @functools.wraps(function)
        def call(*args: Any, **given: Any) -> Any:
            where = {name: given[name] for name in EXECUTION if name in given and name in offered}
            with ExecutionOptions(**where).context():
                return function(*args, **given)

        call.option_fields = offered  # type: ignore[attr-defined]  # read by tools/option_types.py
        call.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
        lines = "\n".join(f"    {name}: {spec.option.help}" for name, spec in offered.items())
        call.__doc__ = f"{inspect.cleandoc(function.__doc__ or '')}\n\nKeyword arguments:\n{lines}\n"
        return call  # type: ignore[return-value]

    return decorate


def build_options(shape: type[T], given: Mapping[str, Any], function: str, **known: Any) -> T:
    """The options of a call; `known` are fields that the function sets itself.

    Raise InputError for a keyword that is no field, with the nearest one that is.
    """
    offered = fields(shape, *known)
    for name in given:
        if name in offered:
            continue
        if name in TERMINAL_ONLY and any(spec.name == name for spec in fields_of(shape)):
            raise InputError(f"{function}(): {name!r} is for the command line only; {TERMINAL_ONLY[name]}")
        raise InputError(f"{function}(): unknown keyword {name!r}{nearest(name, offered)}")
    missing = [name for name, spec in offered.items() if spec.required and name not in given]
    if missing:
        raise InputError(f"{function}(): expected the keyword {missing[0]!r}")
    if "jobs" in offered and "jobs" not in given and offered["jobs"].kind is int:
        given = {**given, "jobs": 1}  # worker processes only where they are asked for
    try:
        return shape(**{**given, **known})
    except InputError as problem:
        raise InputError(f"{function}(): {problem}") from None
