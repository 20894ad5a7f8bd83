"""An experiment as a table and as a page with links to the pages of its trials."""

import os
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from holdfast.audit import gates
from holdfast.experiment.result import ExperimentResult, TrialResult
from holdfast.report import parts
from holdfast.report.html import document, write_page
from holdfast.report.parts import Alert, Card, Document, Figure, Section, scroll, table_figure
from holdfast.report.tables import MISSING, Cell, Column, Table, many, shown, to_html

LOST = "compared with the model's first evaluation of the same images; noise, attack: with the clean model"


def results(lines: Sequence[TrialResult], caption: str = "") -> Table:
    """The results of an experiment as a table."""
    return Table.of(lines, COLUMNS, caption)


def plan_table(lines: Sequence[TrialResult]) -> Table:
    """The trials that would run."""
    rows: list[list[Cell]] = [
        [line.model, line.data or "–", line.condition, line.do, line.images or None,
         "ready" if line.state == "done" else f"would fail: {line.notes}"]
        for line in lines
    ]  # fmt: skip
    return Table(["model", "dataset", "condition", "do", "images", "status"], rows)


def gates_table(lines: Sequence[TrialResult]) -> Table:
    """Every gate of every audit."""
    rows: list[list[Cell]] = [
        [x.model, x.data, x.condition, *row] for x in lines for row in gates.gates_table(x.gates).rows
    ]
    columns = ["model", "dataset", "condition", "fail if", "measured", "n", "verdict", "reason"]
    return Table(columns, rows, "Gates")


def _metric(line: TrialResult) -> str:
    return "failed" if line.state == "failed" else line.metric


def _interval(line: TrialResult) -> str:
    return "" if line.low is None or line.high is None else f"[{line.low:z.2f}, {line.high:z.2f}]"


COLUMNS: tuple[Column[TrialResult], ...] = (
    Column("model", get=lambda line: line.model),
    Column("dataset", get=lambda line: line.data or "–"),
    Column("condition", get=lambda line: line.condition),
    Column("metric", get=_metric),
    Column("value", 4, get=lambda line: line.value),
    Column("points lost", 2, LOST, get=lambda line: line.points_lost),
    Column("95% interval", note="paired over the same images", get=_interval),
    Column("images", 0, get=lambda line: line.images or None),
    Column("notes", get=lambda line: line.notes),
)


def verdict(result: ExperimentResult) -> str:
    """The experiment in a sentence or two."""
    failed = [line for line in result.results if line.state == "failed"]
    sentences = [f"{len(result.results)} of {result.trials} trials were run"]
    sentences += [f"{len(failed)} failed"] if failed else []
    losing = [line for line in result.results if line.points_lost is not None and line.points_lost > 0]
    if losing:
        worst = max(losing, key=lambda line: line.points_lost or 0.0)
        sentences.append(f"largest loss: {worst.title}, {worst.points_lost:.2f} points of {worst.metric}")
    text = "; ".join(sentences) + "."
    verdicts = [gate for line in result.results for gate in line.gates]
    return f"{text} Gates: {gates.count_verdicts(verdicts)}." if verdicts else text


def next_step(result: ExperimentResult) -> str:
    """What to do next, in one sentence."""
    failed = [line for line in result.results if line.state == "failed"]
    losing = [line for line in result.results if (line.low or 0.0) > 0]
    if failed:
        return f"Fix what failed and run the same command again: {failed[0].title} ({failed[0].notes})."
    if result.broken_gates:
        line, gate = result.broken_gates[0]
        return f"Fix the failed gate {gate.gate.text} of {line.title}."
    if losing:
        worst = max(losing, key=lambda line: line.points_lost or 0.0)
        return f"Open the page of {worst.title}: it loses {worst.points_lost:.2f} points significantly."
    return "No condition loses accuracy significantly; add [gates] to the file to keep it that way."


def _card(line: TrialResult) -> Card:
    """The value of a result with its n, and its AP rule if it has one."""
    rule = line.numbers.get("rule") or line.numbers.get("settings", {}).get("rule")
    basis = f"n = {line.images}" + (f", AP rule {str(rule).partition(':')[0]}" if rule else "")
    return Card(line.model, line.value, f"{line.metric} on {line.data}, {line.condition}; {basis}")


def page(result: ExperimentResult, out: Path) -> str:
    """The experiment as one HTML file for the path `out`: links are relative to its folder."""
    experiment = result.experiment
    first: dict[tuple[str, str], TrialResult] = {}  # the first measured result per model and dataset
    for line in result.results:
        if line.value is not None:
            first.setdefault((line.model, line.data), line)
    data = parts.joined([entry.name for entry in experiment.data]) or "no dataset"
    title = experiment.title or experiment.file.stem
    return document(
        Document(
            title=title,
            subject=(title, data),
            facts=(
                ("models", str(len(experiment.models))),
                ("datasets", str(len(experiment.data))),
                ("conditions", str(len(experiment.conditions))),
                ("time", parts.duration(result.seconds)),
                ("created", result.created.replace("T", " ").replace("+00:00", " UTC")),
            ),
            verdict=verdict(result),
            next_step=next_step(result),
            cards=tuple(map(_card, list(first.values())[:6])),
            command=result.command,
            alerts=_alerts(result),
            sections=_sections(result, out),
            kind="experiment",
            layout="experiment",
        )
    )


def write(result: ExperimentResult, out: Path) -> Path:
    """Write the page and return its path."""
    return write_page(page(result, out), out)


def _alerts(result: ExperimentResult) -> tuple[Alert, ...]:
    failed, broken = len(result.failed), len(result.broken_gates)
    trials = Alert(f"{many(failed, 'trial')} failed or have failed images", "results")
    gates = Alert(f"{many(broken, 'gate')} failed", "gates")
    return (*([trials] if failed else []), *([gates] if broken else []))


def _sections(result: ExperimentResult, out: Path) -> tuple[Section, ...]:
    note = "Points lost are percentage points; a gain is negative. Each condition links to its own page."
    table = Figure("", scroll(_linked(result.results, out), "Results"), note, wide=True)
    sections = [Section("results", "Results", (table,), "One row per model, dataset and condition.")]
    if any(line.gates for line in result.results):
        gates_figure = Figure("", scroll(to_html(gates_table(result.results)), "Gates"), wide=True)
        sections.append(Section("gates", "Gates", (gates_figure,), "Conditions that fail an audit."))
    commands: list[list[Cell]] = [
        [line.title, line.command, round(line.seconds, 1), line.folder] for line in result.results
    ]
    trials = Table(["trial", Column("command", command=True), Column("seconds", 1), "run"], commands)
    figure = table_figure("Trials", trials, name="Trials", wide=True)
    return (*sections, parts.about_section([figure], result.versions))


def _linked(lines: Sequence[TrialResult], out: Path) -> str:
    rows = [
        {
            "model": line.model,
            "data": line.data or "–",
            "condition": line.condition,
            "href": _link(line.page, out),
            "metric": _metric(line),
            "numbers": [
                _number(line.value, 4),
                _number(line.points_lost, 2),
                (_interval(line), "" if line.low is None else repr(line.low)),
                _number(line.images or None, 0),
            ],
            "notes": line.notes,
        }
        for line in lines
    ]
    heads = [(head.name, 4 <= index < 8, head.note) for index, head in enumerate(COLUMNS)]
    return parts.fragment("experiment.html", heads=heads, rows=rows)


def _number(value: float | None, digits: int) -> tuple[str, str]:
    """The displayed text of a number and its sort key."""
    return (MISSING, "") if value is None else (shown(value, digits), repr(value))


def _link(target: str, out: Path) -> str:
    """The address of a page relative to the folder of another; empty without a page."""
    if not target:
        return ""
    relative = os.path.relpath(Path(target).resolve(), out.resolve().parent)
    return quote(relative.replace(os.sep, "/"))
