"""On which line of a TOML file a value stands: tomllib reads values but does not say where they were.

The text has been read by tomllib before, so it is valid; the scan here only follows its structure.
"""

from __future__ import annotations

import contextlib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

Path: TypeAlias = tuple[str | int, ...]  # ("condition", 2, "do"): keys, and places in arrays

_BLANK = re.compile(r"(?:[ \t\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_SCALAR = re.compile(r"[^,\]}#\n]+")
_STRINGS = (  # the long ones first: """ also begins with "
    re.compile(r'"""(?:[^\\]|\\.)*?"{3,5}(?!")', re.DOTALL),
    re.compile(r"'''.*?'{3,5}(?!')", re.DOTALL),
    re.compile(r'"(?:[^"\\\n]|\\.)*"'),
    re.compile(r"'[^'\n]*'"),
)


def line_of(lines: Mapping[Path, int], path: Path) -> int:
    """The line of the value at a path, else that of the nearest table around it; 0 if none is known."""
    return next((lines[path[:end]] for end in range(len(path), 0, -1) if path[:end] in lines), 0)


def lines_of(text: str) -> dict[Path, int]:
    """The line, from 1, of every table header, key and array item of a valid TOML text."""
    scan = _Scan(text.replace("\r\n", "\n"))
    # What was found so far is right; the rest is named by the table around it.
    with contextlib.suppress(_Lost, RecursionError, tomllib.TOMLDecodeError):
        scan.document()
    return scan.found


class _Lost(Exception):
    """The text is not what was expected here."""


@dataclass
class _Scan:
    """A walk through the text; `place` is where it stands."""

    text: str
    place: int = 0
    counted: int = 0  # the line ends before `seen`
    seen: int = 0
    found: dict[Path, int] = field(default_factory=dict)
    arrays: dict[Path, int] = field(default_factory=dict)  # arrays of tables: how many so far

    def document(self) -> None:
        table: Path = ()
        while True:
            self.take(_BLANK)
            if self.place >= len(self.text):
                return
            if self.at("["):
                table = self.header()
            else:
                self.pair(table)

    def header(self) -> Path:
        line = self.line()
        several = self.at("[[")
        self.place += 1 + several
        keys = self.keys()
        self.expect("]]" if several else "]")
        inside = self.resolved(keys[:-1])
        if not several:
            path = self.resolved(keys)
        else:
            name = (*inside, keys[-1])
            self.arrays[name] = self.arrays.get(name, -1) + 1
            self.found.setdefault(name, line)
            path = (*name, self.arrays[name])
        self.found.setdefault(path, line)
        return path

    def resolved(self, keys: tuple[str, ...]) -> Path:
        """The path of a header: a key that is an array of tables stands for its last table."""
        path: Path = ()
        for key in keys:
            path = (*path, key)
            if path in self.arrays:
                path = (*path, self.arrays[path])
        return path

    def pair(self, table: Path) -> None:
        line = self.line()
        path = table
        for key in self.keys():
            path = (*path, key)
            self.found.setdefault(path, line)
        self.expect("=")
        self.value(path)

    def value(self, path: Path) -> None:
        self.take(_BLANK)
        if self.at("["):
            self.items(path)
        elif self.at("{"):
            self.inline(path)
        elif not any(self.take(form) for form in _STRINGS) and not self.take(_SCALAR):
            raise _Lost

    def items(self, path: Path) -> None:
        self.place += 1
        number = 0
        while True:
            self.take(_BLANK)
            if self.at("]"):
                self.place += 1
                return
            self.found[(*path, number)] = self.line()
            self.value((*path, number))
            number += 1
            self.comma("]")

    def inline(self, path: Path) -> None:
        self.place += 1
        while True:
            self.take(_BLANK)
            if self.at("}"):
                self.place += 1
                return
            self.pair(path)
            self.comma("}")

    def comma(self, end: str) -> None:
        self.take(_BLANK)
        if self.at(","):
            self.place += 1
        elif not self.at(end):
            raise _Lost

    def keys(self) -> tuple[str, ...]:
        """The parts of a dotted key."""
        keys = [self.key()]
        while True:
            self.take(_SPACE)
            if not self.at("."):
                return tuple(keys)
            self.place += 1
            keys.append(self.key())

    def key(self) -> str:
        self.take(_SPACE)
        bare = self.take(_BARE)
        if bare:
            return bare
        quoted = self.take(_STRINGS[2]) or self.take(_STRINGS[3])
        if not quoted:
            raise _Lost
        return next(iter(tomllib.loads(f"{quoted} = 0")))

    def expect(self, sign: str) -> None:
        self.take(_SPACE)
        if not self.at(sign):
            raise _Lost
        self.place += len(sign)

    def at(self, sign: str) -> bool:
        return self.text.startswith(sign, self.place)

    def take(self, form: re.Pattern[str]) -> str:
        found = form.match(self.text, self.place)
        if found is None:
            return ""
        self.place = found.end()
        return found[0]

    def line(self) -> int:
        self.counted += self.text.count("\n", self.seen, self.place)
        self.seen = self.place
        return self.counted + 1
