"""On which line of a TOML file a value stands: tomllib reads values but does not say where they were.

The text has been read by tomllib before, so it is valid; the scan here only follows its structure.
"""

import contextlib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

Path: TypeAlias = tuple[str | int, ...]  # ("condition", 2, "do"): keys, and places in arrays

_TOKEN = re.compile(
    r"""
    \#[^\n]*
    | \"{3}(?:[^\\]|\\.)*?\"{3,5}(?!\") | '{3}.*?'{3,5}(?!') | "(?:[^"\\\n]|\\.)*" | '[^'\n]*'
    | [\[\]{}=,.\n]
    | [^\s\[\]{}=,.\#"']+
    """,
    re.DOTALL | re.VERBOSE,
)


def line_of(lines: Mapping[Path, int], path: Path) -> int:
    """The line of the value at a path, else that of the nearest table around it; 0 if none is known."""
    return next((lines[path[:end]] for end in range(len(path), 0, -1) if path[:end] in lines), 0)


def lines_of(text: str) -> dict[Path, int]:
    """The line, from 1, of every table header, key and array item of a valid TOML text."""
    tokens, line = [], 1
    for token in _TOKEN.findall(text.replace("\r\n", "\n")):
        tokens.append((token, line))
        line += token.count("\n")
    scan = _Scan([one for one in reversed(tokens) if one[0][0] != "#"])
    # What was located so far is right; the rest is named by the table around it.
    with contextlib.suppress(ValueError, IndexError, RecursionError):
        scan.document()
    return scan.lines


@dataclass
class _Scan:
    """A walk through the tokens, each with its line; the next one is the last of the list."""

    tokens: list[tuple[str, int]]
    lines: dict[Path, int] = field(default_factory=dict)
    arrays: dict[Path, int] = field(default_factory=dict)  # arrays of tables: how many so far

    def document(self) -> None:
        table: Path = ()
        while sign := self.ahead():
            if sign == "[":
                table = self.header()
            else:
                self.pair(table)

    def header(self) -> Path:
        line = self.tokens[-1][1]
        several = self.tokens[-2][0] == "["
        del self.tokens[-1 - several :]
        keys = self.keys()
        del self.tokens[-1 - several :]
        path: Path = ()
        for key in keys[:-1]:
            path = self.resolved((*path, key))
        name = (*path, keys[-1])
        if several:
            self.arrays[name] = self.arrays.get(name, -1) + 1
            self.lines.setdefault(name, line)
        path = self.resolved(name)
        self.lines.setdefault(path, line)
        return path

    def resolved(self, path: Path) -> Path:
        """The path; an array of tables stands for its last table."""
        return (*path, self.arrays[path]) if path in self.arrays else path

    def pair(self, path: Path) -> None:
        line = self.tokens[-1][1]
        for key in self.keys():
            path = (*path, key)
            self.lines.setdefault(path, line)
        self.expect("=")
        self.value(path)

    def value(self, path: Path) -> None:
        sign = self.ahead()
        if sign in ("[", "{"):
            self.several(path, "]" if sign == "[" else "}")
            return
        while self.tokens and self.tokens[-1][0] not in (",", "]", "}", "\n"):
            self.tokens.pop()

    def several(self, path: Path, end: str) -> None:
        """The items of an array, or the pairs of an inline table."""
        self.tokens.pop()
        number = 0
        while self.ahead() != end:
            if end == "]":
                self.lines[(*path, number)] = self.tokens[-1][1]
                self.value((*path, number))
                number += 1
            else:
                self.pair(path)
            if self.ahead() != end:
                self.expect(",")
        self.tokens.pop()

    def keys(self) -> tuple[str, ...]:
        """The parts of a dotted key."""
        keys: list[str] = []
        while not keys or self.tokens[-1][0] == ".":
            if keys:
                self.tokens.pop()
            key = self.tokens.pop()[0]
            keys.append(next(iter(tomllib.loads(f"{key} = 0"))))  # quotes are taken off
        return tuple(keys)

    def expect(self, sign: str) -> None:
        if self.tokens.pop()[0] != sign:
            raise ValueError(f"expected {sign}")

    def ahead(self) -> str:
        """The next token behind line ends; empty at the end."""
        while self.tokens and self.tokens[-1][0] == "\n":
            self.tokens.pop()
        return self.tokens[-1][0] if self.tokens else ""
