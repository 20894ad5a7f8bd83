"""Results scored by the rules of a year: points, percent of the best, contradictions, who is wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.verify.vnncomp.judge import Grade, Ruling, Said, Votes, judge
from holdfast.verify.vnncomp.rules import Rules, percent, scored_seconds
from holdfast.verify.vnncomp.tables import Entry, Key, Tool, aligned, read_tools, read_votes, votes_on
from holdfast.verify.vnncomp.witnesses import Library, graded, library_of

UNSCORED = ("test",)  # benchmarks that count for nothing in the sum of all


@dataclass(frozen=True)
class Judged:
    """One instance: what each tool said of it, how its counterexample was graded, and the ruling."""

    category: str
    network: str
    spec: str
    said: Mapping[str, Said]
    why: Mapping[str, str]  # of tools whose counterexample is not valid: the reason
    ruling: Ruling
    votes: Votes | None = None

    @property
    def name(self) -> str:
        """Network and specification without folders and endings."""
        return f"{Path(self.network).stem} {Path(self.spec).stem}"


@dataclass(frozen=True)
class Line:
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
class Score:
    """All benchmarks of the first tool's results, judged; `totals` are the sums of percents by tool."""

    rules: Rules
    tools: tuple[str, ...]
    instances: tuple[Judged, ...]
    lines: tuple[Line, ...]
    totals: Mapping[str, float]
    left_out: int  # instances only others have

    @property
    def categories(self) -> tuple[str, ...]:
        """The benchmarks, in the order in which they appear."""
        return tuple(dict.fromkeys(one.category for one in self.instances))


def score(
    sources: Sequence[str],
    rules: Rules,
    votes: Sequence[Path] = (),
    benchmarks: Sequence[Path] = (),
    *,
    every: bool = False,
) -> Score:
    """The score of these tables, the first one's instances (with `every` also those only others have).

    Counterexamples are replayed where the benchmark's files are found: in `benchmarks`, where our own run
    found them, or near the tables.
    """
    tools = read_tools(sources)
    library = library_of([e.table for tool in tools for e in tool.entries[:1]], benchmarks)
    counted = read_votes(votes)
    found = aligned(tools)
    first = tools[0].name
    kept = {key: said for key, said in found.items() if every or first in said}
    instances = tuple(_judged(rules, tools, key, said, counted, library) for key, said in kept.items())
    lines = tuple(_lines(tools, instances, kept))
    totals = {tool.name: sum(_counted(lines, tool.name)) for tool in tools}
    return Score(rules, tuple(t.name for t in tools), instances, lines, totals, len(found) - len(kept))


def _judged(
    rules: Rules,
    tools: Sequence[Tool],
    key: Key,
    entries: Mapping[str, Entry],
    counted: Mapping[tuple[str, str, str], Votes],
    library: Library,
) -> Judged:
    said: dict[str, Said] = {}
    why: dict[str, str] = {}
    for tool in tools:
        entry = entries.get(tool.name)
        if entry is None:
            continue
        level: Grade = "unchecked"
        if entry.row.result == "violated":
            level, reason = graded(rules, entry.row, entry.table, library, ours=entry.ours)
            why |= {tool.name: reason} if reason else {}
        seconds = scored_seconds(rules, entry.row.seconds, tool.overhead)
        said[tool.name] = Said(tool.name, entry.row.result, seconds, level)
    voted = votes_on(counted, key)
    row = next(iter(entries.values())).row
    ruling = judge(rules, list(said.values()), voted)
    return Judged(key[0], row.network, row.spec, said, why, ruling, voted)


def _lines(
    tools: Sequence[Tool], instances: Sequence[Judged], kept: Mapping[Key, Mapping[str, Entry]]
) -> list[Line]:
    made = []
    entries = list(kept.values())
    for category in dict.fromkeys(one.category for one in instances):
        places = [i for i, one in enumerate(instances) if one.category == category]
        here = [instances[i] for i in places]
        points = {t.name: sum(one.ruling.points.get(t.name, 0) for one in here) for t in tools}
        best = max(points.values(), default=0)
        for tool in tools:
            rows = [entries[i][tool.name].row for i in places if tool.name in entries[i]]
            if rows:
                cpu = [row.cpu_seconds for row in rows if row.cpu_seconds is not None]
                spent = sum(cpu) if cpu else None
                made.append(_line(tool.name, category, here, points[tool.name], best, spent))
    return made


def _line(
    tool: str, category: str, here: Sequence[Judged], points: int, best: int, cpu: float | None
) -> Line:
    said = [(one, one.said[tool]) for one in here if tool in one.said]
    right = [s for one, s in said if one.ruling.standing[tool] == "right"]
    holds = sum(s.status == "holds" for s in right)
    standings = [one.ruling.standing[tool] for one, _ in said]
    return Line(
        category,
        tool,
        instances=len(here),
        solved=len(right),
        holds=holds,
        violated=len(right) - holds,
        wrong=standings.count("wrong"),
        undecided=standings.count("open"),
        seconds=sum(s.seconds for s in right) / len(right) if right else None,
        cpu_seconds=cpu,
        points=points,
        percent=percent(points, best),
    )


def _counted(lines: Sequence[Line], tool: str) -> list[float]:
    return [line.percent for line in lines if line.tool == tool and line.category not in UNSCORED]


def overall(made: Score, tool: str) -> Line:
    """A tool on all benchmarks together; `percent` is the sum, so that each benchmark counts the same."""
    own = [line for line in made.lines if line.tool == tool]
    solved = sum(line.solved for line in own)
    spent = sum(line.seconds * line.solved for line in own if line.seconds is not None)
    cpu = [line.cpu_seconds for line in own if line.cpu_seconds is not None]
    return Line(
        "all",
        tool,
        instances=sum(line.instances for line in own),
        solved=solved,
        holds=sum(line.holds for line in own),
        violated=sum(line.violated for line in own),
        wrong=sum(line.wrong for line in own),
        undecided=sum(line.undecided for line in own),
        seconds=spent / solved if solved else None,
        cpu_seconds=sum(cpu) if cpu else None,
        points=sum(line.points for line in own),
        percent=made.totals[tool],
    )
