"""Scores of results by the rules of a year: points, percent of the best, contradictions, wrong answers."""

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from holdfast.core.errors import InputError
from holdfast.verify.vnncomp.results import ResultRow, header, read_rows
from holdfast.verify.vnncomp.rules import Rules, Ruling, ToolAnswer, Votes, judge, percent, scored_seconds
from holdfast.verify.vnncomp.witnesses import graded, library_of

# An instance in all tables: category, network, spec, and which of several equal lines it is.
Key: TypeAlias = tuple[str, str, str, int]
Names: TypeAlias = tuple[str, str, str]  # category, network, spec
Paths: TypeAlias = Sequence[Path]
UNSCORED = ("test",)  # benchmarks excluded from the total


@dataclass(frozen=True)
class TableEntry:
    """One row of one table."""

    row: ResultRow
    table: Path
    ours: bool


def read_tools(sources: Sequence[str]) -> dict[str, list[TableEntry]]:
    """The tools of these tables (path, or name=path), in order; tables of one name and other rows are one.

    Without a name, our tables are "holdfast"; others have the name of their file, results.csv of its folder.
    """
    tables: dict[str, list[TableEntry]] = {}
    for source in sources:
        explicit, sign, after = source.partition("=")
        named = bool(sign) and not Path(source).exists()
        explicit, path = (explicit.strip(), Path(after)) if named else ("", Path(source))
        rows = read_rows(path)
        if not rows:
            raise InputError(f"{path}: expected rows of results, got none")
        ours = path.read_text("utf-8-sig").startswith(header())
        usual = path.resolve().parent.name if path.stem in ("results", "result") else path.stem
        name = explicit or ("holdfast" if ours else usual)
        names = {_names(row) for row in rows}
        if not explicit and not names.isdisjoint(_names(e.row) for e in tables.get(name, ())):
            name = f"{name} ({path.stem})"
        if not names.isdisjoint(_names(e.row) for e in tables.get(name, ())):
            raise InputError(f"{path}: two tables of {name!r} have the same instances; name them NAME=FILE")
        tables.setdefault(name, []).extend(TableEntry(row, path, ours) for row in rows)
    return tables


def _names(row: ResultRow) -> Names:
    return row.category, row.network, row.spec


def aligned(tools: Mapping[str, Sequence[TableEntry]]) -> dict[Key, dict[str, TableEntry]]:
    """The answer of each tool for each instance, in the order of first appearance.

    Tables name the same file by different paths. Compare the smallest number of trailing path components that
    distinguishes the instances of every table.
    """

    def tells_apart(depth: int) -> bool:
        tables = [[e.row for e in entries] for entries in tools.values()]
        return all(len({_key_names(r, depth) for r in rows}) == len({*map(_names, rows)}) for rows in tables)

    depth = next(filter(tells_apart, range(1, 9)), 9)
    by_instance: dict[Key, dict[str, TableEntry]] = {}
    for tool, entries in tools.items():
        counts: Counter[Names] = Counter()
        for entry in entries:
            names = _key_names(entry.row, depth)
            by_instance.setdefault((*names, counts[names]), {})[tool] = entry
            counts[names] += 1
    return by_instance


def _key_names(row: ResultRow, depth: int) -> Names:
    network, spec = ("/".join(Path(n.removesuffix(".gz")).parts[-depth:]) for n in (row.network, row.spec))
    return re.sub(r"^20\d\d_", "", row.category), network, spec


def read_votes(paths: Sequence[Path]) -> dict[Names, Votes]:
    """The answers of tools of an earlier competition, by category (of the csv's folder), network and spec.

    The columns are network, spec, tools_saying_holds, tools_saying_violated.
    """
    by_instance: dict[Names, Votes] = {}
    for path in paths:
        try:
            rows = list(csv.DictReader(path.read_text("utf-8-sig").splitlines()))
        except (OSError, UnicodeDecodeError, csv.Error) as problem:
            raise InputError(f"{path}: expected a csv of votes, got: {problem}") from None
        for number, row in enumerate(rows, 2):
            names = (path.resolve().parent.name, _base(row.get("network")), _base(row.get("spec")))
            try:
                by_instance[names] = Votes(int(row["tools_saying_holds"]), int(row["tools_saying_violated"]))
            except (KeyError, TypeError, ValueError):
                form = "network,spec,tools_saying_holds,tools_saying_violated"
                raise InputError(f"{path}:{number}: expected {form}, got {dict(row)}") from None
    return by_instance


def votes_on(votes: Mapping[Names, Votes], key: Key) -> Votes | None:
    """The votes on an instance; None if there are none. The category matters only if it has votes."""
    category, *names = key[0], _base(key[1]), _base(key[2])
    if any(voted == category for voted, _, _ in votes):
        return votes.get((category, names[0], names[1]))
    return next((vote for (_, *others), vote in votes.items() if others == names), None)


def _base(name: str | None) -> str:
    return Path((name or "").removesuffix(".gz")).name


@dataclass(frozen=True)
class JudgedInstance:
    """One instance: the answer of each tool, and the ruling."""

    category: str
    network: str
    spec: str
    answers: Mapping[str, ToolAnswer]
    ruling: Ruling
    votes: Votes | None = None

    @property
    def names(self) -> dict[str, str]:
        """The category and the files, as the tables name them."""
        return {"category": self.category, "network": self.network, "spec": self.spec}

    @property
    def name(self) -> str:
        """Network and specification without folders and endings."""
        return f"{Path(self.network).stem} {Path(self.spec).stem}"


@dataclass(frozen=True)
class ToolScore:
    """One tool on one benchmark; `seconds` is the mean over what it solved, `cpu_seconds` the sum of all."""

    category: str
    tool: str
    instances: int
    solved: int
    holds: int
    violated: int
    wrong: int
    undecided: int
    seconds: float | None
    cpu_seconds: float | None
    points: int
    percent: float


@dataclass(frozen=True)
class Scoreboard:
    """All results, judged; `totals` are the sums of percents by tool."""

    rules: Rules
    tools: tuple[str, ...]
    instances: tuple[JudgedInstance, ...]
    lines: tuple[ToolScore, ...]
    totals: Mapping[str, float]
    skipped: int  # instances that only other tools ran

    @property
    def categories(self) -> tuple[str, ...]:
        """The benchmarks, in the order in which they appear."""
        return tuple(dict.fromkeys(one.category for one in self.instances))


def score(
    sources: Sequence[str], rules: Rules, votes: Paths = (), benchmarks: Paths = (), *, every: bool = False
) -> Scoreboard:
    """The score of these tables, the first one's instances (with `every` also those only others have).

    Counterexamples are replayed if the files are found: in `benchmarks`, at the paths of our run, or nearby.
    """
    tools = read_tools(sources)
    library = library_of([entries[0].table for entries in tools.values()], benchmarks)
    counted, names = read_votes(votes), tuple(tools)
    overheads = {  # the smallest time of a solved instance estimates the start-up time of a tool
        name: min((e.row.seconds for e in entries if e.row.result in ("holds", "violated")), default=0.0)
        for name, entries in tools.items()
    }
    by_instance = aligned(tools)
    instances = []
    for key, entries in by_instance.items():
        if not every and names[0] not in entries:
            continue
        answers: dict[str, ToolAnswer] = {}
        for tool, entry in entries.items():
            row = entry.row
            grade = graded(rules, row, entry.table, library, ours=entry.ours)
            seconds = scored_seconds(rules, row.seconds, overheads[tool])
            answers[tool] = ToolAnswer(tool, row.result, seconds, *grade, cpu_seconds=row.cpu_seconds)
        row, earlier = next(iter(entries.values())).row, votes_on(counted, key)
        ruling = judge(rules, list(answers.values()), earlier)
        instances.append(JudgedInstance(key[0], row.network, row.spec, answers, ruling, earlier))
    lines = tuple(_lines(names, instances))
    scored = [line for line in lines if line.category not in UNSCORED]
    totals = {name: sum(line.percent for line in scored if line.tool == name) for name in names}
    skipped = len(by_instance) - len(instances)
    return Scoreboard(rules, names, tuple(instances), lines, totals, skipped)


def _lines(tools: Sequence[str], instances: Sequence[JudgedInstance]) -> Iterator[ToolScore]:
    for category in dict.fromkeys(one.category for one in instances):
        here = [one for one in instances if one.category == category]
        points = {tool: sum(one.ruling.points.get(tool, 0) for one in here) for tool in tools}
        best = max(points.values(), default=0)
        for tool in tools:
            answers = [(one.answers[tool], one.ruling.standing[tool]) for one in here if tool in one.answers]
            if not answers:
                continue
            right = [s for s, standing in answers if standing == "right"]
            holds = sum(s.status == "holds" for s in right)
            standings = [standing for _, standing in answers]
            yield ToolScore(
                category,
                tool,
                instances=len(here),
                solved=len(right),
                holds=holds,
                violated=len(right) - holds,
                wrong=standings.count("wrong"),
                undecided=standings.count("open"),
                seconds=sum(s.seconds for s in right) / len(right) if right else None,
                cpu_seconds=_sum(s.cpu_seconds for s, _ in answers),
                points=points[tool],
                percent=percent(points[tool], best),
            )


def _sum(values: Iterable[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    return sum(present) if present else None


def overall(result: Scoreboard, tool: str) -> ToolScore:
    """A tool on all benchmarks together; `percent` is the sum, so that each benchmark counts the same."""
    own = [line for line in result.lines if line.tool == tool]
    solved = sum(line.solved for line in own)
    spent = sum(line.seconds * line.solved for line in own if line.seconds is not None)
    counted = ("instances", "solved", "holds", "violated", "wrong", "undecided", "points")
    return ToolScore(
        category="all",
        tool=tool,
        seconds=spent / solved if solved else None,
        cpu_seconds=_sum(line.cpu_seconds for line in own),
        percent=result.totals[tool],
        **{name: sum(getattr(line, name) for line in own) for name in counted},
    )
