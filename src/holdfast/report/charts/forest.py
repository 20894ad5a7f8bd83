"""Numbers with their intervals, one per row, in groups: around zero, or over decades of sizes."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

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
    spots: Sequence[ForestPoint]


def forest(groups: Sequence[ForestGroup], *, title: str, desc: str = "", unit: str = "points lost") -> str:
    """The plot around zero, drawn twice, for wide screens and for phones; the style shows the one that fits.

    A row whose interval excludes zero is drawn strong, the others quiet.
    """
    drawn = [_broad(groups, title, desc, unit), _slim(groups, title, desc, unit)]
    return f'<div class="forest">{"".join(drawn)}</div>'


def _broad(groups: Sequence[ForestGroup], title: str, desc: str, unit: str) -> str:
    """Names at the left, numbers at the right, intervals between them."""
    wide = 2 * svg.WIDTH
    x = _scale(groups, _name_width(groups), wide - 64.0)

    def row(spot: ForestPoint, top: float) -> str:
        middle = top + ROW / 2
        words = label(x(0) + 8, middle + 4, spot.words, class_="tick quiet")
        name = label(x.start - 10, middle + 4, shortened(spot.name, _NAME), class_="tick end")
        parts = _marks(spot, x, middle) or [words]
        return _row(spot, top, wide, ROW, [name, *parts, *_number(spot, wide, middle + 4)])

    return _plot(groups, x, wide, unit, lambda spot: ROW, row, title, desc)


def _slim(groups: Sequence[ForestGroup], title: str, desc: str, unit: str) -> str:
    """Name and number above the interval, which has the whole width."""
    x = _scale(groups, 6.0, svg.WIDTH - 6.0)

    def high(spot: ForestPoint) -> float:
        return SLIM if spot.interval else ROW

    def row(spot: ForestPoint, top: float) -> str:
        name = label(0, top + 16, shortened(spot.name, _NAME + 6), class_="tick")
        words = [label(svg.WIDTH - 2, top + 16, spot.words, class_="tick quiet end")] if spot.words else []
        parts = [*_number(spot, svg.WIDTH, top + 16), *_marks(spot, x, top + 27)] or words
        return _row(spot, top, svg.WIDTH, high(spot), [name, *parts])

    return _plot(groups, x, svg.WIDTH, unit, high, row, title, desc, "slim")


def _scale(groups: Sequence[ForestGroup], start: float, end: float) -> Scale:
    numbers = [v for g in groups for s in g.spots for v in (s.value, s.low, s.high) if v is not None]
    low, high = min([0.0, *numbers]), max([0.0, *numbers])
    room = (high - low) * 0.06 or 1.0
    return Scale(low - room, high + room, start, end)


def _plot(
    groups: Sequence[ForestGroup], x: Scale, wide: float, unit: str, high: Callable[[ForestPoint], float],
    row: Callable[[ForestPoint, float], str], title: str, desc: str, kind: str = "",
) -> str:  # fmt: skip
    """Grid, axis, and the rows of all groups below one another."""
    height = sum(HEAD + sum(map(high, g.spots)) for g in groups) + FOOT
    at = ticks(x.low, x.high)
    drawn = [element("line", x1=x(t), x2=x(t), y1=TOP, y2=height - FOOT, class_="grid") for t in at]
    drawn += [label(x(t), height - FOOT + 16, f"{t:g}", class_="tick middle") for t in at]
    drawn.append(element("line", x1=x(0), x2=x(0), y1=TOP, y2=height - FOOT, class_="axis"))
    drawn.append(label(wide - 2, 14, unit, class_="tick end"))
    return drawing(wide, height, title, desc, *drawn, *_rows(groups, 4.0, high, row), kind=kind)


def decades(groups: Sequence[ForestGroup], line: float, *, title: str, desc: str = "", told: str = "") -> str:
    """The plot on a logarithmic axis; `line` is the value to compare with, `told` its name.

    Rows beyond the line are drawn strong.
    """
    numbers = [v for g in groups for s in g.spots for v in (s.value, s.low, s.high) if v and v > _LEAST]
    ends = [_power(v) for v in (*numbers, line)]
    low, high = math.floor(min(ends)), max(math.ceil(max(ends)), math.floor(min(ends)) + 1)
    wide = 2 * svg.WIDTH
    x = Scale(low, high, _name_width(groups), wide - 64.0)
    height = 18.0 + sum(HEAD + ROW * len(g.spots) for g in groups) + FOOT
    drawn = []
    for power in range(low, high + 1):
        drawn.append(element("line", x1=x(power), x2=x(power), y1=18, y2=height - FOOT, class_="grid"))
        drawn.append(label(x(power), height - FOOT + 16, f"{10.0**power:g}", class_="tick middle"))
    at = x(_power(line))
    drawn.append(element("line", x1=at, x2=at, y1=18, y2=height - FOOT, class_="mean"))
    drawn.append(label(at, 13, told, class_="tick end" if at > wide / 2 else "tick"))

    def row(spot: ForestPoint, top: float) -> str:
        middle = top + ROW / 2
        parts = [label(x.start - 10, middle + 4, shortened(spot.name, _NAME), class_="tick end")]
        if spot.interval is None:
            parts.append(label(x.start + 8, middle + 4, spot.words, class_="tick quiet"))
        else:
            value = spot.interval[1]
            places = [min(max(x(_power(v)), x.start), x.end) for v in spot.interval]
            parts += _interval(places, middle, "loss" if value > line else "open")
            parts.append(label(wide - 2, middle + 4, f"{value:.3g}", class_="tick end strong"))
        return _row(spot, top, wide, ROW, parts)

    return drawing(wide, height, title, desc, *drawn, *_rows(groups, 18.0, lambda spot: ROW, row))


def _power(value: float) -> float:
    return math.log10(max(value, _LEAST))


def _name_width(groups: Sequence[ForestGroup]) -> float:
    names = [width_of(shortened(s.name, _NAME), 13.0) for g in groups for s in g.spots]
    return min(max(names or [60.0]) + 14, 230)


def _rows(
    groups: Sequence[ForestGroup],
    top: float,
    high: Callable[[ForestPoint], float],
    row: Callable[[ForestPoint, float], str],
) -> list[str]:
    """The headings and rows of all groups, from `top` downwards."""
    drawn = []
    for group in groups:
        drawn.append(label(0, top + 17, group.name, class_="name strong head"))
        top += HEAD
        for spot in group.spots:
            drawn.append(row(spot, top))
            top += high(spot)
    return drawn


def _row(spot: ForestPoint, top: float, wide: float, high: float, parts: Sequence[str]) -> str:
    """The parts of a row with their tip, which a pointer anywhere on the row shows."""
    hit = element("rect", x=0, y=top, width=wide, height=high, class_="hit")
    return element("g", tip(f"{spot.name}: {spot.note or spot.words}"), hit, *parts, class_="row")


def _number(spot: ForestPoint, wide: float, y: float) -> list[str]:
    """The number at the right end, if there is one."""
    if spot.interval is None:
        return []
    return [label(wide - 2, y, f"{spot.value:z.2f}", class_="tick end strong")]


def _marks(spot: ForestPoint, x: Scale, y: float) -> list[str]:
    """Dot and interval, if there is a number."""
    if spot.interval is None:
        return []
    low, value, high = spot.interval
    clear = low > 0 or high < 0
    kind = ("loss" if value > 0 else "gain") if clear else "open"
    return _interval([x(low), x(value), x(high)], y, kind)


def _interval(places: Sequence[float], y: float, kind: str) -> list[str]:
    """A line from the first to the last place, and a dot at the middle one."""
    span = f"M{number(places[0])} {number(y)}H{number(places[2])}"
    return [
        element("path", d=span, class_=f"span {kind}"),
        element("circle", cx=places[1], cy=y, r=4, class_=f"spot {kind}"),
    ]
