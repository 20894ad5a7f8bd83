"""The comparison of two runs as text and as a page."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from holdfast.compare.result import POINTS, SAME, Change, Comparison, StatedNumber
from holdfast.metrics.points import interval_text
from holdfast.report.charts.forest import ForestGroup, ForestPoint, forest
from holdfast.report.html import document, write_page
from holdfast.report.parts import Alert, Card, Document, Figure, Section, table_figure
from holdfast.report.tables import Cell, Column, Table, shown, to_markdown, to_text

MOST = 60  # rows of a chart
_LISTED = 200  # images of a list that are written out
_NOTES = {
    "worse": "significant",
    "better": "significant",
    "not significant": "the paired 95% interval contains 0",
    "undecided": "different, without a paired interval",
}


def text(comparison: Comparison, *, markdown: bool = False) -> str:
    """The summary, the table, the lists, what differs and the notes, for a terminal or in Markdown."""
    write = to_markdown if markdown else to_text
    parts = [f"{comparison.summary} {comparison.next_step}".strip()]
    different = [row for row in comparison.changes if row.verdict != SAME]
    if different:
        parts.append(write(Table.of(different, _TERMINAL)))
    same = [row.about.what for row in comparison.of(SAME)]
    if same and not comparison.same:
        parts.append(f"identical: {_join_names(same, 12)}")
    listed = [images for images in comparison.lists if images.names]
    parts += [f"{images.title}: {_join_names(images.names, 20)}" for images in listed]
    if any(a != b for _, a, b in comparison.values):
        parts.append(write(_values_table(comparison, changed=True)))
    if comparison.differs:
        parts.append(write(_differs_table(comparison)))
    notes = [f"{'- ' if markdown else 'note     '}{note}" for note in comparison.notes]
    return "\n\n".join([*parts, *(["\n".join(notes)] if notes else [])])


def write(comparison: Comparison, out: Path, command: str = "") -> Path:
    """Write the page, whole or not at all, and return its path."""
    return write_page(page(comparison, command), out, "compare.html")


def page(comparison: Comparison, command: str = "") -> str:
    """The comparison as one self-contained HTML file."""
    a, b = comparison.a, comparison.b
    models = f"{b.model} against {a.model}" if a.model != b.model else f"{b.model} (B against A)"
    data = a.data if a.data == b.data else f"{a.data} and {b.data}"
    dates = ("date of A", a.created), ("date of B", b.created)
    sections = [
        *_difference_sections(comparison), _numbers_section(comparison), *_image_section(comparison),
        *_gate_section(comparison), _setup_section(comparison),
    ]  # fmt: skip
    without = [note for note in comparison.notes if "no paired" in note]
    return document(
        Document(
            title=f"{models} on {data}",
            subject=(models, data),
            facts=(("kind", comparison.kind), ("A", a.path), ("B", b.path), *dates),
            verdict=f"{comparison.summary} {comparison.next_step}".strip(),
            cards=tuple(Card(word, len(comparison.of(word)), note) for word, note in _NOTES.items()),  # type: ignore[arg-type]
            rule=comparison.rule,
            command=command,
            alerts=tuple(Alert(note.rstrip("."), "about") for note in without),
            sections=tuple(sections),
            kind="comparison",
        )
    )


def _value(stated: StatedNumber) -> Cell:
    return stated.words if stated.value is None and stated.words else stated.value


def _basis(row: Change) -> str:
    """What the verdict is based on, or why a run has no number."""
    sides = (("A", row.before), ("B", row.after))
    return row.basis or "; ".join(f"{which}: {s.words}" for which, s in sides if s.value is None and s.words)


def _name(row: Change) -> str:
    lost = row.about.costs and row.about.unit == POINTS
    return f"points lost to {row.about.what}" if lost else row.about.what


_DIFFERENCE = Column[Change]("B − A", 2, get=lambda row: row.difference)
_LAST = (
    Column[Change]("unit", get=lambda row: row.about.unit),
    Column[Change]("images", get=lambda row: row.images or None),
    Column[Change]("basis", get=_basis),
)
_TERMINAL: tuple[Column[Change], ...] = (
    Column("B is", get=lambda row: row.reading),
    Column("number", get=_name),
    Column("A", 2, get=lambda row: _value(row.before)),
    Column("B", 2, get=lambda row: _value(row.after)),
    _DIFFERENCE,
    Column("paired 95% interval", get=lambda row: interval_text(row.low, row.high)),
    *_LAST,
)
_COLUMNS: tuple[Column[Change], ...] = (
    Column("number", get=_name),
    Column("part", get=lambda row: row.about.group),
    Column("B is", get=lambda row: row.reading),
    Column("A", 2, get=lambda row: row.before.value),
    Column("B", 2, get=lambda row: row.after.value),
    _DIFFERENCE,
    Column("from", 2, "lower end of the paired 95% interval of B − A", get=lambda row: row.low),
    Column("to", 2, "upper end of the paired 95% interval of B − A", get=lambda row: row.high),
    *_LAST,
)


def _difference_sections(comparison: Comparison) -> Iterator[Section]:
    """The differences with their paired intervals, and where there are none the two stated ones."""
    paired = [row for row in comparison.changes if row.low is not None and row.about.unit == POINTS]
    stated = [
        row
        for row in comparison.changes
        if row.about.costs
        and row.low is None
        and row.verdict != SAME
        and None not in (row.before.low, row.before.high, row.after.low, row.after.high)
    ]
    figures = []
    if paired:
        figures.append(Figure("", _paired_chart(paired), _cut_note(len(paired)), wide=True))
    if stated:
        groups = []
        for row in stated[: MOST // 2]:
            both, name = (("A", row.before), ("B", row.after)), row.about.what
            points = [ForestPoint(which, side.value, side.low, side.high, note=name) for which, side in both]
            groups.append(ForestGroup(f"{name}: {row.verdict}", points))
        title, unit = "A and B, each with its own 95% interval", stated[0].about.unit
        note = "There is no paired interval; these are the intervals of each run. "
        chart = forest(groups, title=title, unit="points lost" if unit == POINTS else unit)
        figures.append(Figure(title, chart, note + _cut_note(len(stated), 2), wide=True))
    if figures:
        lead = (
            "Points by which B is worse than A: right of the line B is worse, left of it better. Coloured: "
            "significant. Grey: not significant (the 95% interval contains 0)."
        )
        yield Section("differences", "Differences", tuple(figures), lead if paired else "")


def _cut_note(rows: int, each: int = 1) -> str:
    return f"The first {MOST // each} of {rows}; all are in the table." if rows > MOST // each else ""


def _paired_chart(rows: Sequence[Change]) -> str:
    points: dict[str, list[ForestPoint]] = {}
    for row in rows[:MOST]:
        sign = 1.0 if row.about.rise == "is worse" else -1.0  # more is worse, whatever the number is
        low, high = sorted(0.0 + sign * (end or 0.0) for end in (row.low, row.high))
        worse = None if row.difference is None else 0.0 + sign * row.difference
        note = f"{shown(row.before.value, 2)} in A, {shown(row.after.value, 2)} in B: {row.reading}"
        point = ForestPoint(row.about.what, worse, low, high, note=note)
        points.setdefault(row.about.group, []).append(point)
    groups = [ForestGroup(*group) for group in points.items()]
    return forest(groups, title="Points worse in B with paired 95% intervals", unit="points worse in B")


def _numbers_section(comparison: Comparison) -> Section:
    if not comparison.changes:
        return Section("rows", "All numbers", (), "The two runs have no number in common.")
    note = "1 percentage point = 0.01. Undecided: the numbers differ, and there is no paired interval."
    table = Table.of(comparison.changes, _COLUMNS)
    figure = table_figure("", table, note, name="All numbers of both runs", wide=True)
    return Section("rows", "All numbers", (figure,))


def _image_section(comparison: Comparison) -> Iterator[Section]:
    figures = []
    for title, names in ((images.title, images.names) for images in comparison.lists if images.names):
        table, more = Table(["image"], [[name] for name in names[:_LISTED]]), len(names) - _LISTED
        note = f"{more} more in --json" if more > 0 else ""
        figures.append(table_figure(f"{title} ({len(names)})", table, note, name=title))
    if figures:
        yield Section("images", "Images that changed", tuple(figures))


def _values_table(comparison: Comparison, *, changed: bool = False) -> Table:
    columns: list[Column | str] = ["gate value", Column("A", -4), Column("B", -4)]
    return Table(columns, [row for row in comparison.values if row[1] != row[2] or not changed])


def _gate_section(comparison: Comparison) -> Iterator[Section]:
    if comparison.values:
        note = "Each run's values on all images it measured; the tables above compare common images only."
        figure = table_figure("", _values_table(comparison), note, name="Gate values", wide=True)
        yield Section("values", "Gate values", (figure,))


def _differs_table(comparison: Comparison) -> Table:
    return Table(["difference", "A", "B"], comparison.differs)


def _setup_section(comparison: Comparison) -> Section:
    both = (("A", comparison.a), ("B", comparison.b))
    runs = Table(
        ["run", "model", "data", "folder", "date", Column("command", command=True)],
        [[n, r.model, r.data, r.path, r.created, r.command] for n, r in both],
    )
    figure = partial(table_figure, wide=True, sortable=False)
    figures = [figure("The two runs", runs)]
    if comparison.differs:
        figures.append(figure("Differences in setup", _differs_table(comparison)))
    if comparison.notes:
        figures.append(figure("Notes", Table(["note"], [[note] for note in comparison.notes])))
    return Section("about", "Setup of the runs", tuple(figures))


def _join_names(names: Sequence[str], most: int) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(shown(name) for name in names[:most]) + more
