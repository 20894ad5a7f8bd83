"""Pieces of Markdown, and dataclasses as rows of a table."""

import dataclasses
import inspect
import io
import re
import tokenize
import typing
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

INTRO = Path(__file__).parents[1] / "_intro"
MODULES = re.compile(r"\b(typing|collections\.abc|pathlib|holdfast(\.\w+)*|numpy(\.\w+)*)\.(?=[A-Z_a-z])")
ARRAY = re.compile(r"numpy\.ndarray\[tuple\[[^]]*\], numpy\.dtype\[(?:numpy\.)?\w*\]\]")


def intro(name: str) -> str:
    """The hand-written beginning of a page; empty if there is none."""
    path = INTRO / f"{name}.md"
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def toctree(pages: Sequence[str], depth: int = 1, hidden: bool = False) -> str:
    """A MyST table of contents."""
    lines = ["```{toctree}", f":maxdepth: {depth}", *([":hidden:"] if hidden else []), "", *pages, "```"]
    return "\n".join(lines) + "\n"


def prose(text: str) -> str:
    """A docstring as Markdown: outside `code`, characters with a meaning in Markdown or HTML are escaped."""
    pieces = re.split(r"(`[^`]*`|\n {4}[^\n]*)", inspect.cleandoc(text).replace("``", "`"))
    return "".join(p if i % 2 else re.sub(r"([*<>\[\]|_~$\\])", r"\\\1", p) for i, p in enumerate(pieces))


def cell(text: str) -> str:
    """Text for one cell of a table."""
    return prose(" ".join(str(text).split()))


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; cells are Markdown already."""
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"


def field_table(shape: type, only: Sequence[str] = (), first: str = "field") -> str:
    """The fields of a dataclass: name, type, default, and as meaning the comment on its line."""
    return table((first, "type", "default", "meaning"), field_rows(shape, only))


def field_rows(shape: type, only: Sequence[str] = ()) -> list[tuple[str, str, str, str]]:
    """The rows of `field_table`; private fields are skipped."""
    comments, hints = comments_of(shape), typing.get_type_hints(shape)
    rows = []
    for field in dataclasses.fields(shape):
        if field.name.startswith("_") or (only and field.name not in only):
            continue
        given = field.default is not dataclasses.MISSING
        default = f"`{field.default!r}`" if given else "" if _has_factory(field) else "required"
        kind = f"`{type_text(hints[field.name])}`"
        rows.append((f"`{field.name}`", kind, default, cell(comments.get(field.name, ""))))
    return rows


def _has_factory(field: Any) -> bool:
    return field.default_factory is not dataclasses.MISSING


def comments_of(shape: type) -> dict[str, str]:
    """Field name -> comment at the end of its line, of a class and its bases."""
    found: dict[str, str] = {}
    for base in reversed(shape.__mro__[:-1]):
        name = ""
        source = io.StringIO(inspect.cleandoc(inspect.getsource(base)))
        for token in tokenize.generate_tokens(source.readline):
            if token.type == tokenize.COMMENT and name and not token.line.lstrip().startswith("#"):
                found[name] = token.string.lstrip("# ")
            match = re.match(r"\s*(\w+): ", token.line)
            name = match[1] if match else ""
    return found


def type_text(hint: Any) -> str:
    """A type as a reader writes it; `|` would end a cell of a table."""
    if typing.get_origin(hint) is typing.Literal:
        return " or ".join(map(repr, typing.get_args(hint)))
    text = hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint)
    return short_names(text).replace("NoneType", "None").replace("|", "or")


def short_names(text: str) -> str:
    """Types in the text without their modules, arrays without their parameters."""
    return MODULES.sub("", ARRAY.sub("ndarray", text))
