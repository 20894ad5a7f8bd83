"""A score of VNN-COMP results as tables, as plain values, and as one page with cactus plots."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.report.charts.lines import cactus
from holdfast.report.html import document, write_page
from holdfast.report.parts import Alert, Card, Document, Figure, Section, scroll
from holdfast.report.tables import Cell, Column, Table, many, to_html
from holdfast.verify.vnncomp.rules import ToolAnswer
from holdfast.verify.vnncomp.score import UNSCORED, JudgedInstance, Scoreboard, overall

_PLOTS = 24  # benchmarks that get a plot of their own
_READING = (
    "One line per tool; its n-th point is the n-th shortest time of the instances it solved. "
    "Further right: more solved. Lower: faster."
)


def disagreements(result: Scoreboard) -> list[tuple[JudgedInstance, str]]:
    """Each instance on which tools, counterexamples or earlier votes disagree, with a description."""
    described = [(one, "; ".join(_disagreements(one))) for one in result.instances]
    return [(one, what) for one, what in described if what]


def _disagreements(one: JudgedInstance) -> Iterator[str]:
    answers = one.answers.values()
    holds, violated = ([s for s in answers if s.status == answer] for answer in ("holds", "violated"))
    if one.ruling.contradicted:
        truth = f"{one.ruling.truth or 'neither'} counts: {one.ruling.reason}"
        proven = [s for s in violated if s.grade == "valid"]
        if proven:
            truth = f"violated is right: the counterexample of {_tools(proven)} replays"
        yield f"holds: {_tools(holds)}; violated: {_tools(violated)}; {truth}"
    for s in violated:
        if s.grade in ("invalid", "missing"):
            yield f"{s.tool} reports violated, but: {s.why or s.grade}"
    if one.votes is not None and one.votes.majority is not None:
        counts = f"{one.votes.holds} earlier tools report holds, {one.votes.violated} violated"
        for s in violated if one.votes.majority == "holds" else holds:
            evidence = " with a counterexample that replays" if s.grade == "valid" else ""
            yield f"{s.tool} reports {s.status}{evidence}, but {counts}"


def _tools(answers: Iterable[ToolAnswer]) -> str:
    return ", ".join(s.tool for s in answers)


def as_json(result: Scoreboard) -> dict[str, Any]:
    """The score as plain values, for JSON."""
    return {
        "rules": result.rules.name,
        "rule": result.rules.says,
        "tools": list(result.tools),
        "totals": dict(result.totals),
        "benchmarks": [vars(line) for line in result.lines],
        "disagreements": [one.names | {"what": what} for one, what in disagreements(result)],
        "instances": [
            one.names
            | {"truth": one.ruling.truth, "reason": one.ruling.reason}
            | {"tools": {tool: _plain(one, answer) for tool, answer in one.answers.items()}}
            for one in result.instances
        ],
    }


def _plain(one: JudgedInstance, answer: ToolAnswer) -> dict[str, Any]:
    return {
        "result": answer.status,
        "seconds": answer.seconds,
        "witness": answer.grade if answer.status == "violated" else None,
        "standing": one.ruling.standing[answer.tool],
        "points": one.ruling.points[answer.tool],
    }


def benchmark_table(result: Scoreboard) -> Table:
    """One row per benchmark and tool, then each tool's sum of percents."""
    columns: list[Column | str] = [  # in the order of the fields of a `Line`
        "benchmark",
        "tool",
        Column("of"),
        Column("solved", note="answers that count as correct"),
        "holds",
        "violated",
        Column("wrong", note="answers that count as incorrect, each with a penalty"),
        Column("open", note="contradictory answers without proof for either"),
        Column("mean s", 2, "mean time of the solved instances"),
        Column("CPU s", 1, "sum over all instances"),
        Column("points", note="by the rules above"),
        Column("score", 1, "percent of the best tool's points"),
    ]
    lines = list(result.lines)
    if len(result.categories) > 1:
        lines += [overall(result, tool) for tool in result.tools]
    return Table(columns, [list(vars(line).values()) for line in lines], result.rules.says)


def disagreement_table(result: Scoreboard) -> Table:
    """One row for each instance on which tools, counterexamples or earlier votes disagree."""
    rows = [[one.category, one.name, what] for one, what in disagreements(result)]
    return Table(["benchmark", "instance", "explanation"], rows)


def instance_table(result: Scoreboard) -> Table:
    """One row per instance: the truth, and the answer, time and standing of each tool."""
    columns: list[Column | str] = ["instance", "benchmark", "truth"]
    for tool in result.tools:
        columns += [tool, Column(f"{tool} s", 2)]
    rows = []
    for one in result.instances:
        row: list[Cell] = [one.name, one.category, one.ruling.truth or "?"]
        for tool in result.tools:
            if tool in one.answers:
                standing = one.ruling.standing[tool]
                mark = f" ({standing})" if standing in ("wrong", "open") else ""
                row += [f"{one.answers[tool].status}{mark}", one.answers[tool].seconds]
            else:
                row += ["–", None]
        rows.append(row)
    return Table(columns, rows)


def write(result: Scoreboard, out: Path, command: str = "") -> Path:
    """Write the page atomically and return its path; raise OutputError if that fails."""
    return write_page(page(result, command), out, "vnncomp.html")


def page(result: Scoreboard, command: str = "") -> str:
    """The score as one self-contained HTML file."""
    first = result.tools[0]
    own = overall(result, first)
    others = len(result.tools) - 1
    with_others = f" and {many(others, 'other tool')}" if others else ""
    wrong = f"{own.wrong} of its answers count as" if own.wrong else "none of its answers is"
    table = disagreement_table(result)
    return document(
        Document(
            title=f"{first} on {', '.join(result.categories)}",
            subject=(f"{first}{with_others}", ", ".join(result.categories)),
            facts=(
                ("instances", str(own.instances)),
                ("benchmarks", str(len(result.categories))),
                ("tools", str(len(result.tools))),
                ("rules", f"VNN-COMP {result.rules.name}"),
            ),
            verdict=f"{first} solves {own.solved} of {own.instances} instances; {wrong} incorrect.",
            cards=(
                Card("solved", own.solved, f"of {own.instances} instances, answered correctly and in time"),
                Card("holds", own.holds, "proven: no input violates the property"),
                Card("violated", own.violated, "a counterexample was found"),
                Card("wrong", own.wrong, "answers that are incorrect, or not shown to be correct"),
                Card("mean seconds", own.seconds, "of what was solved", 2),
                Card("score", own.percent, "sum over benchmarks, each in percent of the best tool", 1),
            ),
            rule=result.rules.says,
            command=command,
            alerts=tuple(_alerts(result, len(table.rows))),
            sections=tuple(_sections(result, table)),
            kind="VNN-COMP",
        )
    )


def _alerts(result: Scoreboard, count: int) -> Iterator[Alert]:
    if count:
        yield Alert(f"{many(count, 'instance')} with disagreement", "disagreements")
    grades = [s.grade for one in result.instances for s in one.answers.values() if s.status == "violated"]
    unchecked = grades.count("unchecked")
    if unchecked:
        yield Alert(f"{unchecked} of {len(grades)} counterexamples could not be checked", "instances")
    if result.skipped:
        yield Alert(f"{result.skipped} instances that only other tools ran are skipped", "benchmarks")


def _sections(result: Scoreboard, conflicts: Table) -> Iterator[Section]:
    yield Section("cactus", "Solved over time", tuple(_plots(result)), _READING)
    table = benchmark_table(result)
    unscored = [name for name in result.categories if name in UNSCORED]
    yield _table_section(
        "benchmarks",
        "Benchmark by benchmark",
        Table(table.columns, table.rows),
        label="Benchmarks",
        note=f"{', '.join(unscored)} does not count in the sum." if unscored else "",
    )
    if conflicts.rows:
        lead = (
            "Instances on which tools, counterexamples replayed in ONNX Runtime, or earlier votes disagree."
        )
        yield _table_section("disagreements", "Disagreements", conflicts, lead=lead)
    note = "Click a heading to sort. Truth: the verdict by the rules; ? if unknown."
    yield _table_section("instances", "Instance by instance", instance_table(result), note=note)


def _table_section(
    identifier: str, title: str, table: Table, *, label: str = "", note: str = "", lead: str = ""
) -> Section:
    body = scroll(to_html(table), label or title)
    return Section(identifier, title, (Figure("", body, note, wide=True),), lead)


def _plots(result: Scoreboard) -> Iterator[Figure]:
    """The plot of all instances, and one per benchmark if there are several."""
    several = len(result.categories) > 1
    if several:
        plot = cactus(_times(result, result.instances), title="All benchmarks", desc=_READING, wide=True)
        yield Figure("All benchmarks", plot, wide=True)
    for category in result.categories[:_PLOTS]:
        here = [one for one in result.instances if one.category == category]
        plot = cactus(_times(result, here), title=category, desc=_READING, wide=not several)
        yield Figure(category, plot, wide=not several)


def _times(result: Scoreboard, instances: Sequence[JudgedInstance]) -> Mapping[str, list[float]]:
    times: dict[str, list[float]] = {tool: [] for tool in result.tools}
    for one in instances:
        for tool, answer in one.answers.items():
            if one.ruling.standing[tool] == "right":
                times[tool].append(answer.seconds)
    return times
