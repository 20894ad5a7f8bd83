"""What is taken for what: the matrix, and the most frequent mistakes as a list."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from holdfast.core.types import Ints
from holdfast.report.charts.matrix import matrix_chart
from holdfast.report.parts import Figure, Section, scroll
from holdfast.report.tables import Column, Table, to_html

MOST_CLASSES = 100  # a larger matrix is cut to the classes with the most errors
_MOST_PAIRS = 12


def confusion_section(
    counts: Ints, classes: Sequence[str], *, lead: str, unit: str, extra: tuple[str, str] = ("", ""),
    shares: bool = False,
) -> Section:  # fmt: skip
    """Matrix and list of a table of true class (row) against answer (column).

    `extra` names a last row and a last column that are no class, where the table has them.
    """
    kept, note = _kept(counts, len(classes))
    places = [kept + ([len(classes)] if name else []) for name in extra]
    rows, columns = ([classes[i] for i in kept] + ([name] if name else []) for name in extra)
    title = "Confusion matrix"
    chart = matrix_chart(
        counts[np.ix_(*places)],
        rows,
        columns,
        title=title,
        desc=f"{len(rows)} rows (truth) by {len(columns)} columns (answer), in {unit}.",
        classes=len(kept),
        shares=shares,
    )
    numbers = "percent of the row" if shares else unit
    reading = f"Rows: what is true. Columns: what was said. Numbers: {numbers}. Colour: share of the row."
    wide = len(columns) > 7  # a small one leaves room for the list beside it
    matrix = Figure(title, scroll(chart, title), f"{reading} {note}".strip(), wide)
    pairs = _pairs(counts, classes, unit, wide)
    return Section("confusion", "What is taken for what", (matrix, *pairs), lead)


def _kept(counts: Ints, classes: int) -> tuple[list[int], str]:
    """The classes that are drawn: those that occur, and of many those with the most errors."""
    true, said = counts[:classes].sum(axis=1), counts[:, :classes].sum(axis=0)
    wrong = true + said - 2 * np.diagonal(counts)[:classes]
    seen = np.flatnonzero(true + said > 0)
    chosen = np.sort(seen[np.argsort(-wrong[seen], kind="stable")[:MOST_CLASSES]])
    notes = []
    if len(chosen) < len(seen):
        notes.append(f"Only the {MOST_CLASSES} classes with the most errors are drawn.")
    if len(seen) < classes:
        absent = classes - len(seen)
        notes.append(f"{absent} classes that occur neither in the truth nor in the answers are left out.")
    return chosen.tolist(), " ".join(notes)


def _pairs(counts: Ints, classes: Sequence[str], unit: str, wide: bool) -> tuple[Figure, ...]:
    """The most frequent mistakes between two classes, if there are any."""
    n = len(classes)
    inner = counts[:n, :n].copy()
    np.fill_diagonal(inner, 0)
    whole = counts[:n].sum(axis=1)
    best = [divmod(int(k), n) for k in np.argsort(-inner, axis=None, kind="stable")[:_MOST_PAIRS]]
    pairs = [(i, j) for i, j in best if inner[i, j]]
    if not pairs:
        return ()
    title = "Most frequent confusions"
    columns: list[Column[tuple[int, int]]] = [
        Column("true", get=lambda pair: classes[pair[0]]),
        Column("taken for", get=lambda pair: classes[pair[1]]),
        Column(unit, get=lambda pair: inner[pair]),
        Column(
            "share", get=lambda pair: inner[pair] / whole[pair[0]], note=f"of the {unit} of the true class"
        ),
    ]
    body = to_html(Table.of(pairs, columns))
    return (Figure(title, scroll(body, title), wide=wide),)
