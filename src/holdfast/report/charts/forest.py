"""Numbers with their intervals, one per row, in groups: around zero, or over decades of sizes."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from holdfast.report.charts import svg
from holdfast.report.charts.svg import Scale, drawing, element, label, number, shortened, ticks, tip, width_of

ROW, HEAD, FOOT = 22.0, 26.0, 30.0
SLIM = 42.0  # height of a row whose name is above its interval
TOP = 20.0  # where lines begin: below the unit's name
_NAME = 26  # characters of a row's name; the whole name is in the tip
_LEAST = 1e-8  # smaller values are drawn at the left edge of a logarithmic axis


@dataclass(frozen=True)
class ForestPoint:
    """A row: its number with the interval (None: words instead), and the text of its tip."""

    name: str
    value: float | None
    low: float | None = None
    high: float | None = None
    words: str = ""  # in the row when there is no number
    note: str = ""

    @property
    def interval(self) -> tuple[float, float, float] | None:
        """Low end, value and high end; None if one is missing."""
        if self.value is None or self.low is None or self.high is None:
            return None
        return self.low, self.value, self.high


@dataclass(frozen=True)
class ForestGroup:
    """Rows under a heading."""

    name: str
    points: Sequence[ForestPoint]


# From a row and its top: its height and what is drawn in it.
RowDrawing: TypeAlias = Callable[[ForestPoint, float], tuple[float, list[str]]]


def forest(groups: Sequence[ForestGroup], *, title: str, desc: str = "", unit: str = "points lost") -> str:
    """The plot around zero, drawn twice, for wide screens and for phones; the style shows the one that fits.

    A row whose interval excludes zero is drawn strong, the others quiet.
    """
    drawn = [_plot(groups, slim, title, desc, unit) for slim in (False, True)]
    return f'<div class="forest">{"".join(drawn)}</div>'


def _plot(groups: Sequence[ForestGroup], slim: bool, title: str, desc: str, unit: str) -> str:
    numbers = [v for g in groups for p in g.points for v in (p.value, p.low, p.high) if v is not None]
    low, high = min([0.0, *numbers]), max([0.0, *numbers])
    room = (high - low) * 0.06 or 1.0
    wide = svg.WIDTH if slim else 2 * svg.WIDTH
    ends = (6.0, wide - 6.0) if slim else (_name_width(groups), wide - 64.0)
    x = Scale(low - room, high + room, *ends)
    rows, bottom = _rows(groups, 4.0, wide, partial(_slim_row if slim else _broad_row, x, wide))
    foot, at = bottom - 4.0, ticks(x.low, x.high)
    drawn = [element("line", x1=x(t), x2=x(t), y1=TOP, y2=foot, class_="grid") for t in at]
    drawn += [label(x(t), foot + 16, f"{t:g}", class_="tick middle") for t in at]
    drawn.append(element("line", x1=x(0), x2=x(0), y1=TOP, y2=foot, class_="axis"))
    drawn.append(label(wide - 2, 14, unit, class_="tick end"))
    return drawing(wide, foot + FOOT, title, desc, *drawn, *rows, kind="slim" if slim else "")


def _broad_row(x: Scale, wide: float, point: ForestPoint, top: float) -> tuple[float, list[str]]:
    """The name at the left, the number at the right, the interval between them."""
    middle = top + ROW / 2
    name = label(x.start - 10, middle + 4, shortened(point.name, _NAME), class_="tick end")
    if point.interval is None:
        return ROW, [name, label(x(0) + 8, middle + 4, point.words, class_="tick quiet")]
    return ROW, [name, *_marks(point.interval, x, middle), _number(point, wide, middle + 4)]


def _slim_row(x: Scale, wide: float, point: ForestPoint, top: float) -> tuple[float, list[str]]:
    """Name and number above the interval, which has the whole width."""
    name = label(0, top + 16, shortened(point.name, _NAME + 6), class_="tick")
    if point.interval is None:
        words = [label(wide - 2, top + 16, point.words, class_="tick quiet end")] if point.words else []
        return ROW, [name, *words]
    return SLIM, [name, _number(point, wide, top + 16), *_marks(point.interval, x, top + 27)]


def _number(point: ForestPoint, wide: float, y: float) -> str:
    return label(wide - 2, y, f"{point.value:z.2f}", class_="tick end strong")


def _marks(interval: tuple[float, float, float], x: Scale, y: float) -> list[str]:
    low, value, high = interval
    kind = "open" if low <= 0 <= high else "loss" if value > 0 else "gain"
    return _interval([x(low), x(value), x(high)], y, kind)


def decades(groups: Sequence[ForestGroup], line: float, line_name: str, *, title: str, desc: str = "") -> str:
    """The plot on a logarithmic axis; rows beyond the line, a value to compare with, are drawn strong."""
    numbers = [v for g in groups for p in g.points for v in (p.value, p.low, p.high) if v and v > _LEAST]
    ends = [_power(v) for v in (*numbers, line)]
    low, high = math.floor(min(ends)), max(math.ceil(max(ends)), math.floor(min(ends)) + 1)
    wide = 2 * svg.WIDTH
    x = Scale(low, high, _name_width(groups), wide - 64.0)

    def row(point: ForestPoint, top: float) -> tuple[float, list[str]]:
        middle = top + ROW / 2
        name = label(x.start - 10, middle + 4, shortened(point.name, _NAME), class_="tick end")
        if point.interval is None:
            return ROW, [name, label(x.start + 8, middle + 4, point.words, class_="tick quiet")]
        value = point.interval[1]
        places = [min(max(x(_power(v)), x.start), x.end) for v in point.interval]
        number = label(wide - 2, middle + 4, f"{value:.3g}", class_="tick end strong")
        return ROW, [name, *_interval(places, middle, "loss" if value > line else "open"), number]

    rows, foot = _rows(groups, 18.0, wide, row)
    drawn = []
    for power in range(low, high + 1):
        drawn.append(element("line", x1=x(power), x2=x(power), y1=18, y2=foot, class_="grid"))
        drawn.append(label(x(power), foot + 16, f"{10.0**power:g}", class_="tick middle"))
    at = x(_power(line))
    drawn.append(element("line", x1=at, x2=at, y1=18, y2=foot, class_="mean"))
    drawn.append(label(at, 13, line_name, class_="tick end" if at > wide / 2 else "tick"))
    return drawing(wide, foot + FOOT, title, desc, *drawn, *rows)


def _power(value: float) -> float:
    return math.log10(max(value, _LEAST))


def _name_width(groups: Sequence[ForestGroup]) -> float:
    names = [width_of(shortened(p.name, _NAME), 13.0) for g in groups for p in g.points]
    return min(max(names or [60.0]) + 14, 230)


def _rows(groups: Sequence[ForestGroup], top: float, wide: float, row: RowDrawing) -> tuple[list[str], float]:
    """The headings and rows of all groups from `top` downwards, and where they end."""
    drawn = []
    for group in groups:
        drawn.append(label(0, top + 17, group.name, class_="name strong head"))
        top += HEAD
        for point in group.points:
            height, parts = row(point, top)
            area = element("rect", x=0, y=top, width=wide, height=height, class_="hit")  # shows the tip
            name = tip(f"{point.name}: {point.note or point.words}")
            drawn.append(element("g", name, area, *parts, class_="row"))
            top += height
    return drawn, top


def _interval(places: Sequence[float], y: float, kind: str) -> list[str]:
    """A line from the first to the last place, and a dot at the middle one."""
    span = f"M{number(places[0])} {number(y)}H{number(places[2])}"
    dot = element("circle", cx=places[1], cy=y, r=4, class_=f"spot {kind}")
    return [element("path", d=span, class_=f"span {kind}"), dot]
