"""A score of VNN-COMP results as tables, as plain values, and as one page with cactus plots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.report.charts.lines import cactus
from holdfast.report.html import document, write_page
from holdfast.report.parts import Alert, Card, Document, Figure, Section, scroll
from holdfast.report.tables import Cell, Column, Table, to_html
from holdfast.verify.vnncomp.score import UNSCORED, Judged, Line, Score, overall

_PLOTS = 24  # benchmarks that get a plot of their own
_READING = (
    "Each line is a tool; its n-th point is the n-th smallest time of an instance it solved. "
    "Further right is more solved, lower is faster."
)


def disagreements(made: Score) -> list[tuple[Judged, str]]:
    """Each instance on which tools, counterexamples or earlier votes disagree, and what is the case."""
    told = []
    for one in made.instances:
        parts = [*_contradiction(one), *_unshown(one), *_against_votes(one)]
        if parts:
            told.append((one, "; ".join(parts)))
    return told


def _contradiction(one: Judged) -> list[str]:
    if not one.ruling.contradicted:
        return []
    who = {
        answer: ", ".join(s.tool for s in one.said.values() if s.status == answer)
        for answer in ("holds", "violated")
    }
    proven = ", ".join(s.tool for s in one.said.values() if s.status == "violated" and s.grade == "valid")
    truth = (
        f"violated is right: the counterexample of {proven} replays"
        if proven
        else f"{one.ruling.truth or 'neither'} counts: {one.ruling.reason}"
    )
    return [f"holds: {who['holds']}; violated: {who['violated']}; {truth}"]


def _unshown(one: Judged) -> list[str]:
    """Violations that cannot be shown."""
    bad = [s for s in one.said.values() if s.status == "violated" and s.grade in ("invalid", "missing")]
    return [f"{s.tool} says violated, but: {one.why.get(s.tool, s.grade)}" for s in bad]


def _against_votes(one: Judged) -> list[str]:
    majority = one.votes.majority if one.votes else None
    if one.votes is None or majority is None:
        return []
    other = "violated" if majority == "holds" else "holds"
    against = [s for s in one.said.values() if s.status == other]
    counts = f"{one.votes.holds} earlier tools say holds, {one.votes.violated} violated"
    shown = {"valid": " with a counterexample that replays"}
    return [f"{s.tool} says {other}{shown.get(s.grade, '')}, but {counts}" for s in against]


def as_json(made: Score) -> dict[str, Any]:
    """The score as plain values, for a script to read."""
    return {
        "rules": made.rules.name,
        "rule": made.rules.says,
        "tools": list(made.tools),
        "totals": dict(made.totals),
        "benchmarks": [vars(line) for line in made.lines],
        "disagreements": [
            {"category": one.category, "network": one.network, "spec": one.spec, "what": what}
            for one, what in disagreements(made)
        ],
        "instances": [_plain(one) for one in made.instances],
    }


def _plain(one: Judged) -> dict[str, Any]:
    return {
        "category": one.category,
        "network": one.network,
        "spec": one.spec,
        "truth": one.ruling.truth,
        "reason": one.ruling.reason,
        "tools": {
            name: {
                "result": said.status,
                "seconds": said.seconds,
                "witness": said.grade if said.status == "violated" else None,
                "standing": one.ruling.standing[name],
                "points": one.ruling.points[name],
            }
            for name, said in one.said.items()
        },
    }


def benchmark_table(made: Score) -> Table:
    """One row a benchmark and tool, then each tool's sum of percents."""
    columns: list[Column | str] = [  # in the order of the fields of a `Line`
        "benchmark",
        "tool",
        Column("of"),
        Column("solved", note="answers that count as right"),
        "holds",
        "violated",
        Column("wrong", note="answers that count as wrong, each with a penalty"),
        Column("open", note="contradicted, and nobody can show who is right"),
        Column("mean s", 2, "mean time of what was solved"),
        Column("CPU s", 1, "sum over all instances"),
        Column("points", note="by the rules above"),
        Column("score", 1, "percent of the best tool's points"),
    ]
    lines = list(made.lines)
    if len(made.categories) > 1:
        lines += [overall(made, tool) for tool in made.tools]
    return Table(columns, [list(vars(line).values()) for line in lines], made.rules.says)


def disagreement_table(made: Score) -> Table:
    """One row for each instance on which tools, counterexamples or earlier votes disagree."""
    rows = [[one.category, one.name, what] for one, what in disagreements(made)]
    return Table(["benchmark", "instance", "what is the case"], rows)


def instance_table(made: Score) -> Table:
    """One row an instance: the truth, and of each tool its answer, its time and whether that is right."""
    columns: list[Column | str] = ["instance", "benchmark", "truth"]
    for tool in made.tools:
        columns += [tool, Column(f"{tool} s", 2)]
    rows = []
    for one in made.instances:
        row: list[Cell] = [one.name, one.category, one.ruling.truth or "?"]
        for tool in made.tools:
            row += [_answer(one, tool), one.said[tool].seconds if tool in one.said else None]
        rows.append(row)
    return Table(columns, rows)


def _answer(one: Judged, tool: str) -> str:
    if tool not in one.said:
        return "–"
    mark = {"wrong": " (wrong)", "open": " (open)"}.get(one.ruling.standing[tool], "")
    return f"{one.said[tool].status}{mark}"


def write(made: Score, out: Path, command: str = "") -> Path:
    """Write the page, whole or not at all, and return its path; raise OutputError if that is not possible."""
    return write_page(page(made, command), out, "vnncomp.html")


def page(made: Score, command: str = "") -> str:
    """The score as one self-contained HTML file."""
    first = made.tools[0]
    own = overall(made, first)
    others = len(made.tools) - 1
    with_others = f" and {others} other tool{'s' if others > 1 else ''}" if others else ""
    found = disagreement_table(made)
    return document(
        Document(
            title=f"{first} on {', '.join(made.categories)}",
            subject=(f"{first}{with_others}", ", ".join(made.categories)),
            facts=(
                ("instances", str(own.instances)),
                ("benchmarks", str(len(made.categories))),
                ("tools", str(len(made.tools))),
                ("rules", f"VNN-COMP {made.rules.name}"),
            ),
            verdict=_verdict(own),
            cards=(
                Card("solved", own.solved, f"of {own.instances} instances, answered in time and right"),
                Card("holds", own.holds, "proven: no input of the set violates the property"),
                Card("violated", own.violated, "an input that violates it was found"),
                Card("wrong", own.wrong, "answers shown to be wrong, or that cannot be shown to be right"),
                Card("mean seconds", own.seconds, "of what was solved", 2),
                Card("score", own.percent, "sum over benchmarks of the percent of the best tool", 1),
            ),
            minor=(),
            rule=made.rules.says,
            command=command,
            alerts=_alerts(made, len(found.rows)),
            sections=tuple(_sections(made, found)),
            kind="VNN-COMP",
        )
    )


def _verdict(own: Line) -> str:
    told = f"{own.wrong} of its answers count as wrong" if own.wrong else "none of its answers is wrong"
    return f"{own.tool} solves {own.solved} of {own.instances} instances; {told}."


def _alerts(made: Score, found: int) -> tuple[Alert, ...]:
    alerts = []
    if found:
        things = "instance" if found == 1 else "instances"
        alerts.append(Alert(f"{found} {things} on which not all agree", "disagreements"))
    said = [s for one in made.instances for s in one.said.values() if s.status == "violated"]
    unseen = sum(s.grade == "unchecked" for s in said)
    if unseen:
        alerts.append(Alert(f"{unseen} of {len(said)} counterexamples could not be checked", "instances"))
    if made.left_out:
        alerts.append(
            Alert(f"{made.left_out} instances that only other tools ran are left out", "benchmarks")
        )
    return tuple(alerts)


def _sections(made: Score, found: Table) -> list[Section]:
    sections = [Section("cactus", "Solved over time", tuple(_plots(made)), _READING), _benchmarks(made)]
    if found.rows:
        body = scroll(to_html(found), "Disagreements")
        lead = "Where tools, counterexamples replayed in ONNX Runtime, or earlier votes do not agree."
        sections.append(Section("disagreements", "Disagreements", (Figure("", body, wide=True),), lead))
    body = scroll(to_html(instance_table(made)), "Instance by instance")
    note = "Click a heading to sort. Truth: what counts by the rules; ? where nobody knows."
    sections.append(Section("instances", "Instance by instance", (Figure("", body, note, wide=True),)))
    return sections


def _benchmarks(made: Score) -> Section:
    table = benchmark_table(made)
    body = scroll(to_html(Table(table.columns, table.rows)), "Benchmarks")
    left = [name for name in made.categories if name in UNSCORED]
    note = f"{', '.join(left)} counts for nothing in the sum." if left else ""
    return Section("benchmarks", "Benchmark by benchmark", (Figure("", body, note, wide=True),))


def _plots(made: Score) -> list[Figure]:
    """The plot of all instances, and one a benchmark if there are several."""
    figures = []
    several = len(made.categories) > 1
    if several:
        plot = cactus(_times(made, made.instances), title="All benchmarks", desc=_READING, wide=True)
        figures.append(Figure("All benchmarks", plot, wide=True))
    for category in made.categories[:_PLOTS]:
        here = [one for one in made.instances if one.category == category]
        plot = cactus(_times(made, here), title=category, desc=_READING, wide=not several)
        figures.append(Figure(category, plot, wide=not several))
    return figures


def _times(made: Score, instances: Sequence[Judged]) -> Mapping[str, list[float]]:
    return {
        tool: [
            one.said[tool].seconds
            for one in instances
            if tool in one.said and one.ruling.standing[tool] == "right"
        ]
        for tool in made.tools
    }
