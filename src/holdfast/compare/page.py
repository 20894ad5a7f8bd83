"""The comparison of two runs: a sentence, a table, one page."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from holdfast.compare.result import POINTS, SAME, Change, Comparison, Stated
from holdfast.report.charts.forest import ForestGroup, ForestPoint, forest
from holdfast.report.html import document, write_page
from holdfast.report.parts import Alert, Card, Document, Figure, Section, table_figure
from holdfast.report.tables import Cell, Column, Table, shown, to_markdown, to_text

MOST = 60  # rows of a chart
_LISTED = 200  # images of a list that are written out
_NOTES = {
    "worse": "more than chance",
    "better": "more than chance",
    "within chance": "the paired interval holds 0",
    "undecided": "differ, and nothing says whether by chance",
}


def text(found: Comparison, *, markdown: bool = False) -> str:
    """The sentence, the table, the lists, what differs and the notes, for a terminal or in Markdown."""
    write = to_markdown if markdown else to_text
    parts = [found.summary]
    moved = [row for row in found.changes if row.verdict != SAME]
    if moved:
        parts.append(write(Table.of(moved, _TERMINAL)))
    same = [row.about.what for row in found.of(SAME)]
    if same and not found.same:
        parts.append(f"the same to the last digit: {_cut(same, 12)}")
    parts += [f"{one.title}: {_cut(one.names, 20)}" for one in found.lists if one.names]
    if any(a != b for _, a, b in found.values):
        parts.append(write(_values_table(found, changed=True)))
    if found.differs:
        parts.append(write(_differs_table(found)))
    notes = [f"{'- ' if markdown else 'note     '}{note}" for note in found.notes]
    return "\n\n".join([*parts, *(["\n".join(notes)] if notes else [])])


def write(found: Comparison, out: Path, command: str = "") -> Path:
    """The path of the written page, there whole or not at all; OutputError if it cannot be written there."""
    return write_page(page(found, command), out, "compare.html")


def page(found: Comparison, command: str = "") -> str:
    """The comparison as one self-contained HTML file."""
    a, b = found.a, found.b
    models = f"{b.model} against {a.model}" if a.model != b.model else f"{b.model} (B against A)"
    data = a.data if a.data == b.data else f"{a.data} and {b.data}"
    dates = ("A made", a.created), ("B made", b.created)
    sections = [*_charts(found), _rows(found), *_lists(found), *_values(found), _about(found)]
    return document(
        Document(
            title=f"{models} on {data}",
            subject=(models, data),
            facts=(("kind", found.kind), ("A", a.path), ("B", b.path), *dates),
            verdict=found.summary,
            cards=tuple(Card(word, len(found.of(word)), note) for word, note in _NOTES.items()),  # type: ignore[arg-type]
            command=command,
            alerts=tuple(Alert(note.rstrip("."), "about") for note in found.notes if "no paired" in note),
            sections=tuple(sections),
            kind="comparison",
        )
    )


def _value(stated: Stated) -> Cell:
    return stated.words if stated.value is None and stated.words else stated.value


def _span(row: Change) -> str:
    return "" if row.low is None or row.high is None else f"[{row.low:+z.2f}, {row.high:+z.2f}]"


def _rests_on(row: Change) -> str:
    """What the verdict rests on, or why a run has no number."""
    sides = (("A", row.before), ("B", row.after))
    return row.basis or "; ".join(f"{which}: {s.words}" for which, s in sides if s.value is None and s.words)


_DIFFERENCE = Column[Change]("B − A", 2, get=lambda row: row.difference)
_LAST = (
    Column[Change]("unit", get=lambda row: row.about.unit),
    Column[Change]("images", get=lambda row: row.images or None),
    Column[Change]("rests on", get=_rests_on),
)
_TERMINAL: tuple[Column[Change], ...] = (
    Column("verdict", get=lambda row: row.verdict),
    Column("what", get=lambda row: f"{'cost of ' if row.about.costs else ''}{row.about.what}"),
    Column("A", 2, get=lambda row: _value(row.before)),
    Column("B", 2, get=lambda row: _value(row.after)),
    _DIFFERENCE,
    Column("paired 95 %", get=_span),
    *_LAST,
)
_COLUMNS: tuple[Column[Change], ...] = (
    Column("what", get=lambda row: row.about.what),
    Column("part", get=lambda row: row.about.group),
    Column("verdict", get=lambda row: row.verdict),
    Column("A", 2, get=lambda row: row.before.value),
    Column("B", 2, get=lambda row: row.after.value),
    _DIFFERENCE,
    Column("from", 2, "lower end of the paired 95 % interval of B − A", get=lambda row: row.low),
    Column("to", 2, "upper end of the paired 95 % interval of B − A", get=lambda row: row.high),
    *_LAST,
)


def _charts(found: Comparison) -> Iterator[Section]:
    """The differences with their paired intervals, and where there are none the two stated ones."""
    paired = [row for row in found.changes if row.low is not None and row.about.unit == POINTS]
    stated = [
        row
        for row in found.changes
        if row.about.costs and row.low is None and row.verdict != SAME
        if None not in (row.before.low, row.before.high, row.after.low, row.after.high)
    ]
    figures = []
    if paired:
        figures.append(Figure("Differences", _paired_chart(paired), _cut_note(len(paired)), wide=True))
    if stated:
        groups = []
        for row in stated[: MOST // 2]:
            both, name = (("A", row.before), ("B", row.after)), row.about.what
            spots = [ForestPoint(which, side.value, side.low, side.high, note=name) for which, side in both]
            groups.append(ForestGroup(f"{name}: {row.verdict}", spots))
        title, unit = "A and B, each with its own 95 % interval", stated[0].about.unit
        note = "No paired interval is at hand: what each run states by itself. " + _cut_note(len(stated), 2)
        chart = forest(groups, title=title, unit=unit)
        figures.append(Figure("A and B, each with its own interval", chart, note, wide=True))
    if figures:
        lead = "Right of the line B is worse. A row is drawn strong if its 95 % interval leaves out 0."
        yield Section("differences", "What became of it", tuple(figures), lead if paired else "")


def _cut_note(rows: int, each: int = 1) -> str:
    return f"The first {MOST // each} of {rows}; all are in the table." if rows > MOST // each else ""


def _paired_chart(rows: Sequence[Change]) -> str:
    spots: dict[str, list[ForestPoint]] = {}
    for row in rows[:MOST]:
        sign = 1.0 if row.about.rise == "is worse" else -1.0  # more is worse, whatever the number is
        low, high = sorted(0.0 + sign * (end or 0.0) for end in (row.low, row.high))
        worse = None if row.difference is None else 0.0 + sign * row.difference
        note = f"{shown(row.before.value, 2)} in A, {shown(row.after.value, 2)} in B: {row.verdict}"
        spots.setdefault(row.about.group, []).append(ForestPoint(row.about.what, worse, low, high, note=note))
    groups = [ForestGroup(*group) for group in spots.items()]
    return forest(groups, title="B − A with paired 95 % intervals", unit="points worse in B")


def _rows(found: Comparison) -> Section:
    if not found.changes:
        return Section("rows", "Every number", (), "The two runs have no number in common.")
    note = "1 point = 0.01. “Undecided”: the numbers differ, and no record at hand says whether by chance."
    table = Table.of(found.changes, _COLUMNS)
    figure = table_figure("", table, note, name="Every number of both runs", wide=True)
    return Section("rows", "Every number", (figure,))


def _lists(found: Comparison) -> Iterator[Section]:
    figures = []
    for one in (one for one in found.lists if one.names):
        table, more = Table(["image"], [[name] for name in one.names[:_LISTED]]), len(one.names) - _LISTED
        note = f"and {more} more, see --json" if more > 0 else ""
        figures.append(table_figure(f"{one.title} ({len(one.names)})", table, note, name=one.title))
    if figures:
        yield Section("images", "Which images changed sides", tuple(figures))


def _values_table(found: Comparison, *, changed: bool = False) -> Table:
    columns: list[Column | str] = ["value for gates", Column("A", -4), Column("B", -4)]
    return Table(columns, [row for row in found.values if row[1] != row[2] or not changed])


def _values(found: Comparison) -> Iterator[Section]:
    if found.values:
        said = "Each run's own, of all images and parts it measured; the tables above pair what both have."
        figure = table_figure("", _values_table(found), said, name="What gates read", wide=True)
        yield Section("values", "What gates read", (figure,))


def _differs_table(found: Comparison) -> Table:
    return Table(["what differs", "A", "B"], found.differs)


def _about(found: Comparison) -> Section:
    runs = Table(
        ["run", "model", "data", "folder", "made", Column("command", command=True)],
        [[n, r.model, r.data, r.path, r.created, r.command] for n, r in (("A", found.a), ("B", found.b))],
    )
    figure = partial(table_figure, wide=True, sortable=False)
    figures = [figure("The two runs", runs)]
    if found.differs:
        name = "What differs between the runs"
        figures.append(figure("What differs between them", _differs_table(found), name=name))
    if found.notes:
        figures.append(figure("Notes", Table(["to be known"], [[note] for note in found.notes])))
    return Section("about", "How they were made", tuple(figures))


def _cut(names: Sequence[str], most: int) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(shown(name) for name in names[:most]) + more
