"""A forest plot: one number a row with its interval, in groups, about a line at zero."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from holdfast.report.charts.svg import (
    WIDTH,
    Scale,
    drawing,
    element,
    label,
    number,
    shortened,
    ticks,
    tip,
    width_of,
)

ROW, HEAD, FOOT = 22.0, 26.0, 30.0
SLIM = 42.0  # a row where the name lies above its interval
TOP = 20.0  # where lines begin: below the unit's name
_NAME = 26  # signs of a row's name; the whole name is in the tip


@dataclass(frozen=True)
class Spot:
    """A row: its number with the interval (None: words instead), and what its tip says."""

    name: str
    value: float | None
    low: float | None = None
    high: float | None = None
    words: str = ""  # beside the row when there is no number
    note: str = ""


@dataclass(frozen=True)
class Group:
    """Rows under a heading."""

    name: str
    spots: Sequence[Spot]


def forest(groups: Sequence[Group], *, title: str, desc: str = "", unit: str = "points lost") -> str:
    """The plot, drawn twice: as wide as a desk's page, and for a phone; the style shows the one that fits.

    A row whose interval leaves out zero is drawn strong, the others quiet.
    """
    drawn = [_broad(groups, title, desc, unit), _slim(groups, title, desc, unit)]
    return f'<div class="forest">{"".join(drawn)}</div>'


def _broad(groups: Sequence[Group], title: str, desc: str, unit: str) -> str:
    """Names at the left, numbers at the right, intervals between them."""
    spots = [s for g in groups for s in g.spots]
    wide = 2 * WIDTH
    left = min(max([width_of(shortened(s.name, _NAME), 13.0) for s in spots] or [60.0]) + 14, 230)
    x = _scale(spots, left, wide - 64.0)

    def row(spot: Spot, top: float) -> str:
        middle = top + ROW / 2
        words = label(x(0) + 8, middle + 4, spot.words, class_="tick quiet")
        name = label(x.start - 10, middle + 4, shortened(spot.name, _NAME), class_="tick end")
        parts = _marks(spot, x, middle) or [words]
        return _row(spot, top, wide, ROW, [name, *parts, *_number(spot, wide, middle + 4)])

    return _plot(groups, x, wide, unit, lambda spot: ROW, row, title, desc)


def _slim(groups: Sequence[Group], title: str, desc: str, unit: str) -> str:
    """Name and number above the interval, which has the whole width."""
    x = _scale([s for g in groups for s in g.spots], 6.0, WIDTH - 6.0)

    def high(spot: Spot) -> float:
        return SLIM if _measured(spot) else ROW

    def row(spot: Spot, top: float) -> str:
        name = label(0, top + 16, shortened(spot.name, _NAME + 6), class_="tick")
        words = [label(WIDTH - 2, top + 16, spot.words, class_="tick quiet end")] if spot.words else []
        parts = [*_number(spot, WIDTH, top + 16), *_marks(spot, x, top + 27)] or words
        return _row(spot, top, WIDTH, high(spot), [name, *parts])

    return _plot(groups, x, WIDTH, unit, high, row, title, desc, "slim")


def _scale(spots: Sequence[Spot], start: float, end: float) -> Scale:
    numbers = [v for s in spots for v in (s.value, s.low, s.high) if v is not None]
    low, high = min([0.0, *numbers]), max([0.0, *numbers])
    room = (high - low) * 0.06 or 1.0
    return Scale(low - room, high + room, start, end)


def _plot(
    groups: Sequence[Group], x: Scale, wide: float, unit: str, high: Callable[[Spot], float],
    row: Callable[[Spot, float], str], title: str, desc: str, kind: str = "",
) -> str:  # fmt: skip
    """Grid, axis, and the rows of all groups below one another."""
    height = sum(HEAD + sum(map(high, g.spots)) for g in groups) + FOOT
    at = ticks(x.low, x.high)
    drawn = [element("line", x1=x(t), x2=x(t), y1=TOP, y2=height - FOOT, class_="grid") for t in at]
    drawn += [label(x(t), height - FOOT + 16, f"{t:g}", class_="tick middle") for t in at]
    drawn.append(element("line", x1=x(0), x2=x(0), y1=TOP, y2=height - FOOT, class_="axis"))
    drawn.append(label(wide - 2, 14, unit, class_="tick end"))
    top = 4.0
    for group in groups:
        drawn.append(label(0, top + 17, group.name, class_="name strong head"))
        top += HEAD
        for spot in group.spots:
            drawn.append(row(spot, top))
            top += high(spot)
    return drawing(wide, height, title, desc, *drawn, kind=kind)


def _measured(spot: Spot) -> bool:
    return None not in (spot.value, spot.low, spot.high)


def _row(spot: Spot, top: float, wide: float, high: float, parts: Sequence[str]) -> str:
    """The parts with what a pointer on them is told."""
    told = tip(f"{spot.name}: {spot.note or spot.words}")
    hit = element("rect", x=0, y=top, width=wide, height=high, class_="hit")
    return element("g", told, hit, *parts, class_="row")


def _number(spot: Spot, wide: float, y: float) -> list[str]:
    """The number at the right end; nothing if there is none."""
    if spot.value is None or not _measured(spot):
        return []
    return [label(wide - 2, y, f"{spot.value:z.2f}", class_="tick end strong")]


def _marks(spot: Spot, x: Scale, y: float) -> list[str]:
    """Dot and interval; nothing if there is no number."""
    if spot.value is None or spot.low is None or spot.high is None:
        return []
    clear = spot.low > 0 or spot.high < 0
    kind = ("loss" if spot.value > 0 else "gain") if clear else "open"
    span = f"M{number(x(spot.low))} {number(y)}H{number(x(spot.high))}"
    return [
        element("path", d=span, class_=f"span {kind}"),
        element("circle", cx=x(spot.value), cy=y, r=4, class_=f"spot {kind}"),
    ]
