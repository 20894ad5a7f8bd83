"""The parts that the pages of all noise suites share."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from holdfast.metrics.points import facing, interval_text, lost_text
from holdfast.report.charts.forest import ForestPoint
from holdfast.report.html import document
from holdfast.report.parts import Alert, Card, Document, Figure, Section, joined, table_figure
from holdfast.report.tables import Table, many


def suite_page(
    suite: Any,
    data: str,
    facts: Mapping[str, object],
    cards: Callable[[Any], Sequence[Card]],
    card: Callable[[Any], Card],
    **parts: Any,
) -> str:
    """A suite as one self-contained HTML file; `parts` are fields of the document.

    `cards` are those of a suite of one model, `card` is that of each of several.
    """
    models = suite.models
    name = joined([model.model for model in models])
    first, *more = facts.items()
    shown = (first, ("models", len(models)), *more, ("date", suite.created))
    page = Document(
        title=f"System noise of {name} on {data}",
        subject=(name, data),
        facts=tuple((name, str(value)) for name, value in shown),
        cards=tuple(cards(models[0]) if len(models) == 1 else map(card, models[:6])),
        command=suite.command,
        kind="system noise",
        **parts,
    )
    return document(page)


def heading(suite: Any, place: int, identifier: str, title: str) -> tuple[str, str]:
    """Identifier and title of a section about one model, which is named if there are several."""
    if len(suite.models) == 1:
        return identifier, title
    return f"{identifier}-{place + 1}", f"{title}: {suite.models[place].model}"


def options_section(suite: Any, place: int, chart: Figure, table: Table, lead: str) -> Section:
    """Every option of a model, as a chart and in a table."""
    calibration = suite.models[place].calibration
    note = f"Integer precisions are calibrated on {calibration}." if calibration else ""
    figures = (chart, table_figure("", table, note, name="Option by option", wide=True))
    return Section(*heading(suite, place, "options", "Option by option"), figures, lead)


def loss_point(name: str, row: Any, items: int, note: str) -> ForestPoint:
    """The points lost of a row with its interval as a dot of a chart."""
    interval = interval_text(*facing(row.points_lost, row.low, row.high))
    text = f"{lost_text(row.points_lost)}, 95% interval {interval}; {row.changed} of {items} changed"
    return ForestPoint(name, row.points_lost, row.low, row.high, note=f"{text}; {note}" if note else text)


def loss_card(title: str, row: Any, note: str) -> Card:
    """The points lost by a row, or gained."""
    number, _, unit = lost_text(row.points_lost or 0.0).partition(" ")
    return Card(f"{unit}, {title}", number, note)


def failure_alerts(suite: Any, item: str) -> list[Alert]:
    """The number of images or clips that failed, if any did."""
    failed = sum(len(model.failed) for model in suite.models)
    text = f"{many(failed, item)} failed and {'is' if failed == 1 else 'are'} not included in the numbers"
    return [Alert(text, "about")] if failed else []
