"""The results of several tools brought together: which rows speak of one instance, and who voted what."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from holdfast.core.errors import InputError
from holdfast.verify.vnncomp.judge import Votes
from holdfast.verify.vnncomp.results import COLUMNS, Row, read_rows

# An instance in all tables: category, network, spec, and which of several equal lines it is.
Key: TypeAlias = tuple[str, str, str, int]


@dataclass(frozen=True)
class Entry:
    """One row of one table."""

    row: Row
    table: Path
    ours: bool


@dataclass(frozen=True)
class Tool:
    """A tool and what it said, row by row."""

    name: str
    entries: tuple[Entry, ...]

    @property
    def overhead(self) -> float:
        """The smallest time of a solved instance, which is what starting it costs; 0 if none is solved."""
        solved = (e.row.seconds for e in self.entries if e.row.result in ("holds", "violated"))
        return min(solved, default=0.0)


def read_tools(sources: Sequence[str]) -> list[Tool]:
    """The tools of these tables (path, or name=path), in order; tables of one name and other rows are one.

    Without a name ours are holdfast, others are called as their file, results.csv as its folder.
    """
    found: dict[str, list[Entry]] = {}
    for source in sources:
        given, path = _named(source)
        rows = read_rows(path)
        if not rows:
            raise InputError(f"{path}: expected rows of results, got none")
        ours = is_ours(path)
        name = given or ("holdfast" if ours else _tool_name(path))
        if not given and _overlap(found.get(name, ()), rows):
            name = f"{name} ({path.stem})"
        if _overlap(found.get(name, ()), rows):
            raise InputError(f"{path}: two tables of {name!r} have the same instances; name them NAME=FILE")
        found.setdefault(name, []).extend(Entry(row, path, ours) for row in rows)
    return [Tool(name, tuple(entries)) for name, entries in found.items()]


def is_ours(path: Path) -> bool:
    """Whether the table was written by our runner."""
    with path.open(encoding="utf-8-sig") as stream:
        return stream.readline().strip() == ",".join(COLUMNS)


def _named(source: str) -> tuple[str, Path]:
    name, sign, path = source.partition("=")
    if sign and not Path(source).exists():
        return name.strip(), Path(path)
    return "", Path(source)


def _tool_name(path: Path) -> str:
    return path.resolve().parent.name if path.stem in ("results", "result") else path.stem


def _overlap(entries: Sequence[Entry], rows: Sequence[Row]) -> bool:
    seen = {(e.row.category, e.row.network, e.row.spec) for e in entries}
    return any((row.category, row.network, row.spec) in seen for row in rows)


def aligned(tools: Sequence[Tool]) -> dict[Key, dict[str, Entry]]:
    """What each tool said of each instance, instances in the order in which they first appear.

    Tables name the same file by different paths, so as few last parts of a path are compared as tell the
    instances of every table apart.
    """
    depth = next((d for d in range(1, 9) if all(_tells_apart(tool, d) for tool in tools)), 9)
    found: dict[Key, dict[str, Entry]] = {}
    for tool in tools:
        seen: Counter[tuple[str, str, str]] = Counter()
        for entry in tool.entries:
            names = _names(entry.row, depth)
            found.setdefault((*names, seen[names]), {})[tool.name] = entry
            seen[names] += 1
    return found


def _tells_apart(tool: Tool, depth: int) -> bool:
    """Whether so many parts of the paths tell apart all that the whole paths do."""
    whole = {(e.row.category, e.row.network, e.row.spec) for e in tool.entries}
    return len({_names(e.row, depth) for e in tool.entries}) == len(whole)


def _names(row: Row, depth: int) -> tuple[str, str, str]:
    network, spec = ("/".join(Path(n.removesuffix(".gz")).parts[-depth:]) for n in (row.network, row.spec))
    return re.sub(r"^20\d\d_", "", row.category), network, spec


def read_votes(paths: Sequence[Path]) -> dict[tuple[str, str, str], Votes]:
    """What tools of an earlier competition said, by category (of the csv's folder), network and spec.

    The columns are network, spec, tools_saying_holds, tools_saying_violated.
    """
    found: dict[tuple[str, str, str], Votes] = {}
    for path in paths:
        try:
            rows = list(csv.DictReader(path.read_text("utf-8-sig").splitlines()))
        except (OSError, UnicodeDecodeError, csv.Error) as problem:
            raise InputError(f"{path}: expected a csv of votes, got: {problem}") from None
        for number, row in enumerate(rows, 2):
            names = (path.resolve().parent.name, _base(row.get("network")), _base(row.get("spec")))
            found[names] = Votes(*(_count(row, side, path, number) for side in ("holds", "violated")))
    return found


def votes_on(votes: Mapping[tuple[str, str, str], Votes], key: Key) -> Votes | None:
    """The votes on an instance; None if there are none. The category counts only if any votes are of it."""
    category, *names = key[0], _base(key[1]), _base(key[2])
    if any(known == category for known, _, _ in votes):
        return votes.get((category, names[0], names[1]))
    return next((vote for (_, *others), vote in votes.items() if others == names), None)


def _base(name: str | None) -> str:
    return Path((name or "").removesuffix(".gz")).name


def _count(row: Mapping[str, str], side: str, path: Path, number: int) -> int:
    try:
        return int(row[f"tools_saying_{side}"])
    except (KeyError, TypeError, ValueError):
        raise InputError(
            f"{path}:{number}: expected network,spec,tools_saying_holds,tools_saying_violated, "
            f"got {dict(row)}"
        ) from None
