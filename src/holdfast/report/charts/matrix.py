"""Heat maps with their numbers: a matrix of counts as SVG, and the shares lost as an HTML table."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from holdfast.core.types import Floats, Ints
from holdfast.report.charts.svg import drawing, element, label, shortened, tip, width_of
from holdfast.report.parts import fragment

_NAME = 24  # characters of a name; the whole name is in the tip of each cell
_GAP = 8.0  # between the classes and what is no class


@dataclass(frozen=True)
class _Layout:
    left: float
    top: float
    side: float
    classes: int  # rows and columns from here on are set apart

    def x(self, column: float) -> float:
        return self.left + column * self.side + (_GAP if column >= self.classes else 0.0)

    def y(self, row: float) -> float:
        return self.top + row * self.side + (_GAP if row >= self.classes else 0.0)


def matrix_chart(
    counts: Ints, rows: Sequence[str], columns: Sequence[str], *, title: str, desc: str = "",
    classes: int | None = None, shares: bool = False,
) -> str:  # fmt: skip
    """The heat map, (rows, columns); a cell's colour is its share of its row, as is its number with `shares`.

    The first `classes` rows and columns (default: all) are the same classes in the same order: on that
    diagonal the colour is that of what is right, elsewhere of what is wrong. Empty cells stay blank.
    """
    count = max(len(rows), len(columns))
    side = 56.0 if count <= 8 else 42.0 if count <= 15 else 34.0 if count <= 40 else 26.0
    left = max((width_of(shortened(n, _NAME)) for n in rows), default=0) + 16
    top = max((width_of(shortened(n, _NAME)) for n in columns), default=0) * 0.71 + 24
    at = _Layout(left, top, side, min(len(rows), len(columns)) if classes is None else classes)
    share = np.asarray(counts / np.maximum(counts.sum(axis=1, keepdims=True), 1), np.float64)
    cells = [
        _cell(counts, share, (i, j), f"{rows[i]} → {columns[j]}", at, shares)
        for i, j in np.argwhere(counts > 0).tolist()
    ]
    size = at.x(len(columns)) + top * 0.9, at.y(len(rows)) + 2
    parts = [_grid(at, len(rows), len(columns)), *cells, *_names(at, rows, columns)]
    return drawing(*size, title, desc, *parts, fixed=True)


def _names(at: _Layout, rows: Sequence[str], columns: Sequence[str]) -> list[str]:
    names = []
    for i, name in enumerate(rows):
        middle = at.y(i) + at.side / 2 + 4
        names.append(label(at.left - 8, middle, shortened(name, _NAME), class_="tick end strong"))
    for j, name in enumerate(columns):
        x, y = at.x(j) + at.side / 2, at.top - 8
        turn = f"rotate(-45 {x:.1f} {y:.1f})"
        names.append(label(x, y, shortened(name, _NAME), class_="tick strong", transform=turn))
    return names


def _grid(at: _Layout, rows: int, columns: int) -> str:
    """The lines of up to four blocks: classes by classes, and what is set apart."""
    spans = [
        [(low, high) for low, high in ((0, min(n, at.classes)), (at.classes, n)) if high > low]
        for n in (rows, columns)
    ]
    lines = []
    for (first, last), (start, end) in product(*spans):
        wide, tall, x, y = (end - start) * at.side, (last - first) * at.side, at.x(start), at.y(first)
        lines += [f"M{x:g} {y + k * at.side:g}h{wide:g}" for k in range(last - first + 1)]
        lines += [f"M{x + k * at.side:g} {y:g}v{tall:g}" for k in range(end - start + 1)]
    return element("path", d="".join(lines), class_="grid") if lines else ""


def _cell(counts: Ints, share: Floats, place: tuple[int, int], names: str, at: _Layout, shares: bool) -> str:
    value, part = int(counts[place]), float(share[place])
    x, y, side = at.x(place[1]), at.y(place[0]), at.side
    kind = "right" if place[0] == place[1] < at.classes else "wrong"
    strength = round(0.12 + 0.88 * part**0.5, 2)  # the root keeps a share of a few percent visible
    size = {"width": side - 2, "height": side - 2}
    box = element("rect", x=x + 1, y=y + 1, **size, rx=3, class_=f"heat {kind}", fill_opacity=strength)
    text = f"{part * 100:.0f}" if shares else short_count(value)
    small = " small" if side < 30 or len(text) > 3 else ""
    on = " on" if strength > 0.7 else ""
    number = label(x + side / 2, y + side / 2 + 4, text, class_=f"tick middle cell{small}{on}")
    return element("g", tip(f"{names}: {value:,} ({part:.1%})"), box, number)


def short_count(value: int) -> str:
    """A count in at most four signs: 9999, 12k, 3.4M."""
    if value < 10_000:
        return str(value)
    for size, unit in ((10**3, "k"), (10**6, "M"), (10**9, "G"), (10**12, "T")):
        scaled = value / size
        if scaled < 999.5:  # else it would round to 1000
            return f"{scaled:.1f}{unit}" if scaled < 9.95 else f"{scaled:.0f}{unit}"
    return f"{value:.0e}"


EDGES = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75)  # shares lost at which the next colour begins: h0 … h7
DENSE = 6  # columns up to which marks are written out


@dataclass(frozen=True)
class MatrixHead:
    """A row's or a column's heading: a small word over it, its name, and what it means in a few words."""

    name: str
    over: str = ""
    words: str = ""


@dataclass(frozen=True)
class CellMark:
    """A sign in a field, such as ▲ or 4/5, and its words, which are always read aloud."""

    sign: str
    words: str
    kind: str = ""


@dataclass(frozen=True)
class HeatCell:
    """A number as text, the share lost that colours it (None: no number there), its marks and its tip."""

    text: str
    lost: float | None
    marks: tuple[CellMark, ...] = ()
    note: str = ""

    @property
    def step(self) -> str:
        """The class of its colour."""
        return "none" if self.lost is None else f"h{bisect_right(EDGES, self.lost)}"


def heat(
    rows: Sequence[MatrixHead], columns: Sequence[MatrixHead], fields: Sequence[Sequence[HeatCell]], *,
    corner: str, caption: str,
) -> str:  # fmt: skip
    """The table of the shares lost, with a number in every field."""
    dense = len(columns) > DENSE  # marks are shown as signs alone; screen readers still read their words
    named = list(zip(rows, fields, strict=True))
    return fragment("heat.html", rows=named, columns=columns, corner=corner, caption=caption, dense=dense)


def scale(unit: str) -> str:
    """What the colours mean: the shares lost at which each begins."""
    steps = [f"< {100 * EDGES[0]:g} %", *(f"≥ {100 * low:g} %" for low in EDGES)]
    return fragment("scale.html", steps=steps, unit=unit)
