"""A score of VNN-COMP results as tables: benchmark by benchmark, instance by instance, disagreements."""

from __future__ import annotations

from holdfast.report.tables import Cell, Column, Table
from holdfast.verify.vnncomp.findings import disagreements
from holdfast.verify.vnncomp.score import Judged, Score, overall


def benchmark_table(made: Score) -> Table:
    """One row a benchmark and tool, then each tool's sum of percents."""
    columns: list[Column | str] = [
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
    rows = [
        [
            line.category, line.tool, line.instances, line.solved, line.holds, line.violated, line.wrong,
            line.undecided, line.seconds, line.cpu_seconds, line.points, line.percent,
        ]
        for line in lines
    ]  # fmt: skip
    return Table(columns, rows, made.rules.says)


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
