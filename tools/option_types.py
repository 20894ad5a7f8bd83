"""Write the types of the keywords of the Python API, from the options that declare them.

    PYTHONPATH=src:tools python -m option_types

writes src/holdfast/api/option_types.pyi, which only type checkers and editors read.
"""

import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from holdfast.api import certified, contest, functions, patchbench
from holdfast.config.options import FieldSpec

HEAD = '''"""Types of the keywords of the public functions. Written by tools/option_types.py: do not edit."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, Required, TypedDict

from holdfast.api.data import DataLike
from holdfast.core.model import Card
'''
STUB = Path(functions.__file__).with_name("option_types.pyi")
# Keywords that also take an object in place of its path, and the functions in which they do.
OBJECTS = {
    "card": ("Card", {"Evaluate", "Noise", "Diagnose", "Attack", "Audit", "Certify"}),
    "calibration": ("DataLike", {"Noise", "Audit", "Certify"}),
}


def stub() -> str:
    """The text of the stub file: one TypedDict per public function with options."""
    modules: list[tuple[str, ModuleType]] = [
        ("", functions), ("", certified), ("Contest", contest), ("Patchbench", patchbench),
    ]  # fmt: skip
    found = [
        typed_dict(f"{prefix}{name.title()}", function)
        for prefix, module in modules
        for name, function in vars(module).items()
        if hasattr(function, "option_fields")
    ]
    return "\n\n".join([HEAD, *found])


def typed_dict(name: str, function: Callable[..., Any]) -> str:
    """The keywords of a function that are not parameters of its overloads."""
    named = {key for one in typing.get_overloads(function) for key in one.__annotations__}
    fields = [spec for key, spec in function.option_fields.items() if key not in named]  # type: ignore[attr-defined]
    return f"class {name}Keywords(TypedDict, total=False):\n" + "".join(line(name, spec) for spec in fields)


def line(function: str, spec: FieldSpec) -> str:
    """One keyword with its type."""
    kind, functions_with = OBJECTS.get(spec.name, ("", set()))
    text = " | ".join(types_of(spec, kind if function in functions_with else ""))
    return f"    {spec.name}: {f'Required[{text}]' if spec.required else text}\n"


def types_of(spec: FieldSpec, other: str) -> Iterator[str]:
    """What a keyword accepts: paths also as text, several values as any sequence, and another type."""
    one = (
        "str | Path"
        if spec.kind is Path
        else "Mapping[str, str]"
        if spec.kind is dict
        else spec.kind.__name__
    )
    if spec.choices:
        one = f"Literal[{', '.join(map(repr, spec.choices))}]"
    if other:
        one += f" | {other}"
    yield one
    if spec.many:
        yield f"Sequence[{one}]"
    if spec.optional:
        yield "None"


if __name__ == "__main__":
    STUB.write_text(stub())
