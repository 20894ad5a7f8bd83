"""The comparison of two runs: a sentence, a table, one page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from holdfast.compare.result import POINTS, Change, Comparison, Stated
from holdfast.core.errors import OutputError
from holdfast.engine.store import write_atomic
from holdfast.report.charts.forest import Group, Spot, forest
from holdfast.report.html import document
from holdfast.report.parts import Alert, Card, Document, Figure, Section, scroll
from holdfast.report.tables import Cell, Column, Table, shown, to_html, to_markdown, to_text

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
    moved = [row for row in found.changes if row.verdict != "same to the last digit"]
    if moved:
        parts.append(write(_terminal_table(moved)))
    same = [row.about.what for row in found.of("same to the last digit")]
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
    if out.is_dir():
        raise OutputError(f"{out}: is a folder; give the name of the page, such as {out / 'compare.html'}")
    write_atomic(out, page(found, command).encode())
    return out


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
            minor=(),
            rule="",
            command=command,
            alerts=tuple(Alert(note.rstrip("."), "about") for note in found.notes if "no paired" in note),
            sections=tuple(sections),
            kind="comparison",
        )
    )


def _terminal_table(changes: Sequence[Change]) -> Table:
    columns: list[Column | str] = [
        "verdict", "what", Column("A", 2), Column("B", 2), Column("B − A", 2), "paired 95 %", "unit",
        "images", "rests on",
    ]  # fmt: skip
    rows: list[list[Cell]] = [
        [
            row.verdict, f"cost of {row.about.what}" if row.about.costs else row.about.what,
            _value(row.before), _value(row.after), row.difference, _span(row), row.about.unit,
            row.images or None, row.basis or _words(row),
        ]
        for row in changes
    ]  # fmt: skip
    return Table(columns, rows)


def _table(rows: Sequence[Change]) -> Table:
    columns: list[Column | str] = [
        "what", "part", "verdict", Column("A", 2), Column("B", 2), Column("B − A", 2),
        Column("from", 2, "lower end of the paired 95 % interval of B − A"),
        Column("to", 2, "upper end of the paired 95 % interval of B − A"), "unit", "images", "rests on",
    ]  # fmt: skip
    cells: list[list[Cell]] = [
        [
            row.about.what, row.about.group, row.verdict, row.before.value, row.after.value, row.difference,
            row.low, row.high, row.about.unit, row.images or None, row.basis or _words(row),
        ]
        for row in rows
    ]  # fmt: skip
    return Table(columns, cells)


def _value(stated: Stated) -> Cell:
    return stated.words if stated.value is None and stated.words else stated.value


def _words(row: Change) -> str:
    """Why a row has no number, from either run."""
    sides = (("A", row.before), ("B", row.after))
    return "; ".join(f"{which}: {s.words}" for which, s in sides if s.value is None and s.words)


def _span(row: Change) -> str:
    return "" if row.low is None or row.high is None else f"[{row.low:+z.2f}, {row.high:+z.2f}]"


def _charts(found: Comparison) -> Iterator[Section]:
    """The differences with their paired intervals, and where there are none the two stated ones."""
    paired = [row for row in found.changes if row.low is not None and row.about.unit == POINTS]
    stated = [row for row in found.changes if row.about.costs and _own_intervals(row)]
    figures = []
    if paired:
        figures.append(Figure("Differences", _paired_chart(paired), _cut_note(len(paired)), wide=True))
    if stated:
        note = "No paired interval is at hand: what each run states by itself. " + _cut_note(len(stated), 2)
        figures.append(Figure("A and B, each with its own interval", _stated_chart(stated), note, wide=True))
    if figures:
        lead = "Right of the line B is worse. A row is drawn strong if its 95 % interval leaves out 0."
        yield Section("differences", "What became of it", tuple(figures), lead if paired else "")


def _own_intervals(row: Change) -> bool:
    """Whether there is no paired interval, but one of each run by itself, and they are not the same."""
    ends = (row.before.low, row.before.high, row.after.low, row.after.high)
    return row.low is None and None not in ends and row.verdict != "same to the last digit"


def _cut_note(rows: int, each: int = 1) -> str:
    return f"The first {MOST // each} of {rows}; all are in the table." if rows > MOST // each else ""


def _paired_chart(rows: Sequence[Change]) -> str:
    groups = dict.fromkeys(row.about.group for row in rows[:MOST])
    drawn = [Group(name, [_spot(row) for row in rows[:MOST] if row.about.group == name]) for name in groups]
    return forest(drawn, title="B − A with paired 95 % intervals", unit="points worse in B")


def _spot(row: Change) -> Spot:
    ends = [row.low or 0.0, row.high or 0.0]
    low, high = ends if row.about.rise == "is worse" else [0.0 - end for end in reversed(ends)]
    note = f"{shown(row.before.value, 2)} in A, {shown(row.after.value, 2)} in B: {row.verdict}"
    return Spot(row.about.what, row.worsening, low, high, note=note)


def _stated_chart(rows: Sequence[Change]) -> str:
    groups = []
    for row in rows[: MOST // 2]:
        sides = [
            Spot(which, s.value, s.low, s.high, note=row.about.what)
            for which, s in (("A", row.before), ("B", row.after))
        ]
        groups.append(Group(f"{row.about.what}: {row.verdict}", sides))
    return forest(groups, title="A and B, each with its own 95 % interval", unit=rows[0].about.unit)


def _rows(found: Comparison) -> Section:
    if not found.changes:
        return Section("rows", "Every number", (), "The two runs have no number in common.")
    body = scroll(to_html(_table(found.changes)), "Every number of both runs")
    note = "1 point = 0.01. “Undecided”: the numbers differ, and no record at hand says whether by chance."
    return Section("rows", "Every number", (Figure("", body, note, wide=True),))


def _lists(found: Comparison) -> Iterator[Section]:
    figures = []
    for one in (one for one in found.lists if one.names):
        rows, more = [[name] for name in one.names[:_LISTED]], len(one.names) - _LISTED
        body = scroll(to_html(Table(["image"], rows)), one.title)
        note = f"and {more} more, see --json" if more > 0 else ""
        figures.append(Figure(f"{one.title} ({len(one.names)})", body, note))
    if figures:
        yield Section("images", "Which images changed sides", tuple(figures))


def _values_table(found: Comparison, *, changed: bool = False) -> Table:
    columns: list[Column | str] = ["value for gates", Column("A", -4), Column("B", -4)]
    rows = [[name, a, b] for name, a, b in found.values if a != b or not changed]
    return Table(columns, rows)


def _values(found: Comparison) -> Iterator[Section]:
    if found.values:
        body = scroll(to_html(_values_table(found)), "What gates read")
        said = "Each run's own, of all images and parts it measured; the tables above pair what both have."
        yield Section("values", "What gates read", (Figure("", body, said, wide=True),))


def _differs_table(found: Comparison) -> Table:
    return Table(["what differs", "A", "B"], [list(row) for row in found.differs])


def _about(found: Comparison) -> Section:
    runs = Table(
        ["run", "model", "data", "folder", "made", Column("command", command=True)],
        [[n, r.model, r.data, r.path, r.created, r.command] for n, r in (("A", found.a), ("B", found.b))],
    )
    figures = [Figure("The two runs", scroll(to_html(runs, sortable=False), "The two runs"), wide=True)]
    if found.differs:
        body = scroll(to_html(_differs_table(found), sortable=False), "What differs between the runs")
        figures.append(Figure("What differs between them", body, wide=True))
    if found.notes:
        body = to_html(Table(["to be known"], [[note] for note in found.notes]), sortable=False)
        figures.append(Figure("Notes", scroll(body, "Notes"), wide=True))
    return Section("about", "How they were made", tuple(figures))


def _cut(names: Sequence[str], most: int) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(shown(name) for name in names[:most]) + more
