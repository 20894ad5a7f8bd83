"""A forest plot: one number a row with its interval, in groups, about a line at zero."""

from __future__ import annotations

from collections.abc import Sequence
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
    """The plot; a row whose interval leaves out zero is drawn strong, the others quiet."""
    spots = [s for g in groups for s in g.spots]
    numbers = [v for s in spots for v in (s.value, s.low, s.high) if v is not None]
    low, high = min([0.0, *numbers]), max([0.0, *numbers])
    room = (high - low) * 0.06 or 1.0
    wide = 2 * WIDTH
    left = min(max([width_of(shortened(s.name, _NAME), 13.0) for s in spots] or [60.0]) + 14, 230)
    x = Scale(low - room, high + room, left, wide - 64.0)
    height = sum(HEAD + ROW * len(g.spots) for g in groups) + FOOT
    drawn = [
        element("line", x1=x(t), x2=x(t), y1=TOP, y2=height - FOOT, class_="grid")
        for t in ticks(x.low, x.high)
    ]
    drawn += [label(x(t), height - FOOT + 16, f"{t:g}", class_="tick middle") for t in ticks(x.low, x.high)]
    drawn.append(element("line", x1=x(0), x2=x(0), y1=TOP, y2=height - FOOT, class_="axis"))
    drawn.append(label(wide - 2, 14, unit, class_="tick end"))
    top = 4.0
    for group in groups:
        drawn.append(label(0, top + 17, group.name, class_="name strong head"))
        top += HEAD
        for spot in group.spots:
            drawn.append(_row(spot, top, x, wide))
            top += ROW
    return drawing(wide, height, title, desc, *drawn)


def _row(spot: Spot, top: float, x: Scale, wide: float) -> str:
    middle = top + ROW / 2
    parts = [
        tip(f"{spot.name}: {spot.note or spot.words}"),
        element("rect", x=0, y=top, width=wide, height=ROW, class_="hit"),
        label(x.start - 10, middle + 4, shortened(spot.name, _NAME), class_="tick end"),
    ]
    if spot.value is None or spot.low is None or spot.high is None:
        parts.append(label(x(0) + 8, middle + 4, spot.words, class_="tick quiet"))
        return element("g", *parts, class_="row")
    clear = spot.low > 0 or spot.high < 0
    kind = ("loss" if spot.value > 0 else "gain") if clear else "open"
    span = f"M{number(x(spot.low))} {number(middle)}H{number(x(spot.high))}"
    parts.append(element("path", d=span, class_=f"span {kind}"))
    parts.append(element("circle", cx=x(spot.value), cy=middle, r=4, class_=f"spot {kind}"))
    parts.append(label(wide - 2, middle + 4, f"{spot.value:.2f}", class_="tick end strong"))
    return element("g", *parts, class_="row")
