"""Maps of positions as a page: the picture, the unsafe positions over it, the output at every position."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from holdfast.patchbench.drawings import cells_of, scale_bar
from holdfast.patchbench.run import WORDS, Kind, Mapped, Result, Shown, rows_of
from holdfast.report.html import document, write_page
from holdfast.report.parts import Alert, Card, Document, Figure, Section, duration, scroll
from holdfast.report.tables import Column, Table, grouped, to_html

MOST = 60  # pictures drawn; the table has all
_PLACE = "Column, row of the patch's top left pixel; in brackets the position inputs."
_VERDICTS = {True: "unsafe (sat)", False: "robust (unsat)"}
_LEAD = (
    "Every position of the patch was run, none was sampled. Orange marks the positions (the centre of the "
    "patch) at which the output is unsafe; the ring is the patch where the output is smallest. The worst "
    "pictures come first."
)


def table_of(result: Result) -> Table:
    """Every map in a line."""
    columns: list[Column[tuple[Mapped, Shown]]] = [
        Column("picture", get=lambda row: row[0].name),
        Column("target", get=lambda row: row[0].label),
        Column("what", get=lambda row: WORDS[row[1].kind]),
        Column("clean", get=lambda row: row[1].map.clean, digits=4),
        Column("minimum", get=lambda row: row[1].map.minimum, digits=4),
        Column("at x, y", get=lambda row: _place(row[1]), note=_PLACE),
        Column("unsafe positions", get=lambda row: _unsafe(row[1])),
        Column("robust area %", get=lambda row: 100 * row[1].map.robust, digits=2),
        Column("verdict", get=lambda row: _VERDICTS[row[1].map.status == "violated"]),
    ]
    return Table.of(rows_of(result), columns)


def _place(shown: Shown) -> str:
    row, column = shown.map.where
    x, y = f"{shown.map.columns[column]:g}", f"{shown.map.rows[row]:g}"
    return f"{x}, {y}" if shown.over else f"({y}, {x})"


def _unsafe(shown: Shown) -> str:
    return f"{int(shown.map.unsafe.sum()):,} of {shown.map.outputs.size:,}"


def summary(result: Result, kind: Kind) -> str:
    """One kind of map over all pictures in a sentence."""
    maps = result.of(kind)
    sat = sum(found.status == "violated" for found in maps)
    area = 100 * sum(found.robust for found in maps) / len(maps)
    unsat = len(maps) - sat
    return (
        f"{WORDS[kind].capitalize()}: {sat} of {len(maps)} unsafe at some position (sat), {unsat} robust at "
        f"every one (unsat); robust area {area:.2f} %."
    )


def rule_of(result: Result) -> str:
    """Which outputs are unsafe and what the output is, in words; empty without a map."""
    bars = list(dict.fromkeys(str(shown.map.bar) for _, shown in rows_of(result)))
    if not bars:
        return ""
    replayed = sum(shown.map.replayed for _, shown in rows_of(result))
    gap = max(shown.map.difference for _, shown in rows_of(result))
    return (
        f"output = iou(prediction, target) × [class equal]; {' / '.join(bars)}. {grouped(replayed)} "
        "positions, among them all near the threshold and the smallest output, were run one by one in ONNX "
        f"Runtime on the user's file; largest difference from the fast way {gap:.1e}."
    )


def sections(result: Result) -> list[Section]:
    """The maps as sections of a page: drawn, worst first, and in a table."""
    worst = sorted((one for one in result.pictures if one.maps), key=_rank)
    figures = [_figure(one) for one in worst[:MOST]]
    threshold = next((shown.map.bar.threshold for _, shown in rows_of(result)), 0.5)
    legend = Figure("", scale_bar(threshold), "The colours of all maps.", wide=True)
    drawn = Section("positions", "Patch positions", (legend, *figures), _LEAD)
    table = scroll(to_html(table_of(result)), "Positions in numbers")
    trouble = "; ".join(f"{one.name}: {one.trouble}" for one in result.pictures if one.trouble)
    numbers = Section("positions-numbers", "Positions in numbers", (Figure("", table, trouble, wide=True),))
    return [drawn, numbers] if figures else [numbers]


def _rank(one: Mapped) -> tuple[float, float, str]:
    last = one.maps[-1].map
    return last.robust, last.minimum, one.name


def _figure(one: Mapped) -> Figure:
    said = []
    for shown in one.maps:
        found = shown.map
        row, column = found.where
        at = (
            f"x {found.columns[column]:g}, y {found.rows[row]:g}"
            if shown.over
            else f"position ({found.rows[row]:g}, {found.columns[column]:g})"
        )
        unsafe = f"{int(found.unsafe.sum()):,} of {found.outputs.size:,} unsafe"
        said.append(
            f"{WORDS[shown.kind].capitalize()}: robust area {100 * found.robust:.2f} %, {unsafe}, "
            f"minimum {found.minimum:.4f} at {at}, clean {found.clean:.4f}"
        )
    odd = next((shown for shown in one.maps if shown.kind == "file"), None)
    if odd is not None:
        said.append(f"What the file's position input changes: {odd.words}")
    return Figure(f"{one.name}, {one.label}", cells_of(one), ". ".join(said) + ".", wide=True)


def write(result: Result, out: Path, command: str) -> Path:
    """Write the page, whole or not at all, and return its path; raise OutputError if that is not possible."""
    return write_page(document(page(result, command)), out, "positions.html")


def page(result: Result, command: str = "") -> Document:
    """The whole page of an evaluation of positions."""
    count = sum(shown.map.outputs.size for _, shown in rows_of(result))
    without = sum(1 for one in result.pictures if one.trouble and not one.maps)
    alerts = [Alert(f"{without} pictures have no map", "positions-numbers")] if without else []
    if result.of("file"):
        said = "The file's position input does not place the patch as described; both are shown"
        alerts.append(Alert(said, "positions"))
    facts = (
        ("pictures", str(len(result.pictures))),
        ("patch", result.content),
        ("positions", grouped(count)),
        ("time", duration(result.seconds)),
    )
    return Document(
        title=f"Patch positions of {result.subject}",
        subject=(result.subject, result.source),
        facts=facts,
        verdict=" ".join(summary(result, kind) for kind in result.kinds) or "No map could be made.",
        cards=tuple(card for kind in result.kinds for card in _cards(result, kind)),
        minor=tuple(Card("note", note) for note in result.notes),
        rule=rule_of(result),
        command=command,
        alerts=tuple(alerts),
        sections=tuple(sections(result)),
        kind="patch positions",
    )


def _cards(result: Result, kind: Kind) -> Sequence[Card]:
    maps, words = result.of(kind), WORDS[kind]
    return (
        Card(
            "robust area",
            sum(found.robust for found in maps) / len(maps),
            f"share of safe positions, {words}",
            4,
        ),
        Card(
            "unsafe pictures", sum(found.status == "violated" for found in maps), f"of {len(maps)}, {words}"
        ),
        Card("smallest output", min(found.minimum for found in maps), words, 4),
    )
