"""An experiment as a table and as a page with links to the pages of its pieces."""

import os
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from holdfast.audit import gates
from holdfast.experiment.result import Findings, Line
from holdfast.report import parts
from holdfast.report.html import document, write_page
from holdfast.report.parts import Alert, Card, Document, Figure, Section, scroll, table_figure
from holdfast.report.tables import MISSING, Cell, Column, Table, shown, to_html

DELTA = "to the model's first evaluation of the same images; noise, attack: to the clean model"


def results(lines: Sequence[Line], caption: str = "") -> Table:
    """The lines of an experiment as a table."""
    return Table.of(lines, COLUMNS, caption)


def plan_table(lines: Sequence[Line]) -> Table:
    """What would be run."""
    rows: list[list[Cell]] = [
        [line.model, line.data or "none needed", line.condition, line.do, line.images or None,
         "ready" if line.state == "done" else f"would fail: {line.words}"]
        for line in lines
    ]  # fmt: skip
    return Table(["model", "data", "condition", "do", "images", ""], rows)


def gates_table(lines: Sequence[Line]) -> Table:
    """Every gate of every audit."""
    rows: list[list[Cell]] = [
        [x.model, x.data, x.condition, *row] for x in lines for row in gates.gates_table(x.gates).rows
    ]
    columns: list[Column | str] = ["model", "data", "condition", "fail if", "got", "n", "verdict", "reason"]
    return Table(columns, rows, "Gates")


def _metric(line: Line) -> str:
    return "failed" if line.state == "failed" else line.metric


def _interval(line: Line) -> str:
    return "" if line.low is None or line.high is None else f"[{line.low:+z.4f}, {line.high:+z.4f}]"


COLUMNS: tuple[Column[Line], ...] = (
    Column("model", get=lambda line: line.model),
    Column("data", get=lambda line: line.data or "none needed"),
    Column("condition", get=lambda line: line.condition),
    Column("metric", get=_metric),
    Column("value", 4, get=lambda line: line.value),
    Column("Δ", 4, DELTA, get=lambda line: None if line.delta is None else f"{line.delta:+z.4f}"),
    Column("95 % interval", note="paired: the same images are drawn for both", get=_interval),
    Column("images", 0, get=lambda line: line.images or None),
    Column("what else", get=lambda line: line.words),
)


def verdict(found: Findings) -> str:
    """The experiment in a sentence or two."""
    failed = [line for line in found.lines if line.state == "failed"]
    said = [f"{len(found.lines)} of {found.pieces} pieces of work were run"]
    said += [f"{len(failed)} of them failed"] if failed else []
    worst = min((x for x in found.lines if x.delta is not None), key=lambda x: x.delta or 0.0, default=None)
    if worst is not None and (worst.delta or 0.0) < 0:
        said.append(f"most is lost by {worst.title} (Δ {worst.metric} {worst.delta:+z.4f})")
    text = "; ".join(said) + "."
    judged = [one for line in found.lines for one in line.gates]
    return f"{text} Gates: {gates.count_verdicts(judged)}." if judged else text


def page(found: Findings, out: Path) -> str:
    """The experiment as one HTML file that lies at `out`: links are relative to its folder."""
    experiment = found.experiment
    first: dict[tuple[str, str], Line] = {}  # measured, of every model on every data
    for line in found.lines:
        if line.value is not None:
            first.setdefault((line.model, line.data), line)
    data = parts.joined([one.name for one in experiment.data]) or "no data"
    return document(
        Document(
            title=experiment.title or experiment.file.stem,
            subject=(experiment.title or experiment.file.stem, data),
            facts=(
                ("models", str(len(experiment.models))),
                ("data sets", str(len(experiment.data))),
                ("conditions", str(len(experiment.conditions))),
                ("time", parts.duration(found.seconds)),
                ("made", found.created.replace("T", " ").replace("+00:00", " UTC")),
            ),
            verdict=verdict(found),
            cards=tuple(
                Card(line.model, line.value, f"{line.metric} on {line.data}, {line.condition}")
                for line in list(first.values())[:6]
            ),
            command=found.command,
            alerts=_alerts(found),
            sections=_sections(found, out),
            kind="experiment",
            layout="experiment",
        )
    )


def write(found: Findings, out: Path) -> Path:
    """The path of the written page."""
    return write_page(page(found, out), out)


def _alerts(found: Findings) -> tuple[Alert, ...]:
    failed, broken = len(found.failed), len(found.broken_gates)
    pieces = f"{failed} piece{'s' if failed > 1 else ''} of work failed, wholly or in some images"
    fallen = f"{broken} gate{'s' if broken > 1 else ''} failed"
    return (*([Alert(pieces, "results")] if failed else []), *([Alert(fallen, "gates")] if broken else []))


def _sections(found: Findings, out: Path) -> tuple[Section, ...]:
    note = "Δ is of the metric, 0 to 1: negative is a loss. A link leads to the page of its piece."
    table = Figure("", scroll(_linked(found.lines, out), "Results"), note, wide=True)
    sections = [Section("results", "Results", (table,), "Every condition for every model on every data.")]
    if any(line.gates for line in found.lines):
        judged = Figure("", scroll(to_html(gates_table(found.lines)), "Gates"), wide=True)
        sections.append(Section("gates", "Gates", (judged,), "What every audit must keep."))
    commands: list[list[Cell]] = [
        [line.title, line.command, round(line.seconds, 1), line.folder] for line in found.lines
    ]
    again = Table(["piece", Column("again", command=True), Column("seconds", 1), "its run"], commands)
    figure = table_figure("Every piece", again, name="Pieces", wide=True)
    return (*sections, parts.about_section([figure], found.versions))


def _linked(lines: Sequence[Line], out: Path) -> str:
    """The table of results, each condition with a link to its own page."""
    rows = [
        {
            "model": line.model,
            "data": line.data or "none needed",
            "condition": line.condition,
            "href": _relative(line.page, out),
            "metric": _metric(line),
            "numbers": [
                _number(line.value, 4),
                _number(line.delta, 4, True),
                (_interval(line), "" if line.low is None else repr(line.low)),
                _number(line.images or None, 0),
            ],
            "words": line.words,
        }
        for line in lines
    ]
    heads = [(head.name, 4 <= place < 8, head.note) for place, head in enumerate(COLUMNS)]
    return parts.fragment("experiment.html", heads=heads, rows=rows)


def _number(value: float | None, digits: int, signed: bool = False) -> tuple[str, str]:
    """A number as it is read and as it is sorted."""
    if value is None:
        return MISSING, ""
    return (f"{value:+z.{digits}f}" if signed else shown(value, digits)), repr(value)


def _relative(target: str, out: Path) -> str:
    """The address of a page from the folder of another; empty without one."""
    if not target:
        return ""
    way = os.path.relpath(Path(target).resolve(), out.resolve().parent)
    return quote(way.replace(os.sep, "/"))
