"""A score of VNN-COMP results as tables: benchmark by benchmark, instance by instance, disagreements."""

from __future__ import annotations

from functools import partial

from holdfast.report.tables import Column, Table
from holdfast.verify.vnncomp.findings import disagreements
from holdfast.verify.vnncomp.score import Judged, Line, Score, overall


def benchmark_table(made: Score) -> Table:
    """One row a benchmark and tool, then each tool's sum of percents."""
    lines = list(made.lines)
    if len(made.categories) > 1:
        lines += [overall(made, tool) for tool in made.tools]
    columns: list[Column[Line]] = [
        Column("benchmark", get=lambda line: line.category),
        Column("tool", get=lambda line: line.tool),
        Column("of", get=lambda line: line.instances),
        Column("solved", get=lambda line: line.solved, note="answers that count as right"),
        Column("holds", get=lambda line: line.holds),
        Column("violated", get=lambda line: line.violated),
        Column("wrong", get=lambda line: line.wrong, note="answers that count as wrong, each with a penalty"),
        Column(
            "open", get=lambda line: line.undecided, note="contradicted, and nobody can show who is right"
        ),
        Column("mean s", get=lambda line: line.seconds, digits=2, note="mean time of what was solved"),
        Column("CPU s", get=lambda line: line.cpu_seconds, digits=1, note="sum over all instances"),
        Column("points", get=lambda line: line.points, note="by the rules above"),
        Column("score", get=lambda line: line.percent, digits=1, note="percent of the best tool's points"),
    ]
    return Table.of(lines, columns, made.rules.says)


def disagreement_table(made: Score) -> Table:
    """One row for each instance on which tools, counterexamples or earlier votes disagree."""
    rows = [[one.category, one.name, what] for one, what in disagreements(made)]
    return Table(["benchmark", "instance", "what is the case"], rows)


def instance_table(made: Score) -> Table:
    """One row an instance: the truth, and of each tool its answer, its time and whether that is right."""
    columns: list[Column[Judged]] = [
        Column("instance", get=lambda one: one.name),
        Column("benchmark", get=lambda one: one.category),
        Column("truth", get=lambda one: one.ruling.truth or "?"),
    ]
    for tool in made.tools:
        columns.append(Column(tool, get=partial(_answer, tool)))
        columns.append(Column(f"{tool} s", get=partial(_seconds, tool), digits=2))
    return Table.of(made.instances, columns)


def _seconds(tool: str, one: Judged) -> float | None:
    return one.said[tool].seconds if tool in one.said else None


def _answer(tool: str, one: Judged) -> str:
    if tool not in one.said:
        return "–"
    mark = {"wrong": " (wrong)", "open": " (open)"}.get(one.ruling.standing[tool], "")
    return f"{one.said[tool].status}{mark}"
