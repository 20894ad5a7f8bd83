"""Errors of many sizes on one logarithmic axis, each with its interval, beside a line to compare with."""

from __future__ import annotations

import math
from collections.abc import Sequence

from holdfast.report.charts.forest import FOOT, HEAD, ROW, Group, Spot
from holdfast.report.charts.svg import (
    WIDTH,
    Scale,
    drawing,
    element,
    label,
    number,
    shortened,
    tip,
    width_of,
)

_NAME = 26
_LEAST = 1e-8  # anything smaller is drawn at the left edge


def decades(groups: Sequence[Group], line: float, *, title: str, desc: str = "", told: str = "") -> str:
    """The chart; `line` is the value to compare with, `told` its name; rows beyond it are drawn strong."""
    spots = [s for g in groups for s in g.spots]
    numbers = [v for s in spots for v in (s.value, s.low, s.high) if v is not None and v > _LEAST]
    ends = [_power(v) for v in (*numbers, line)]
    low, high = math.floor(min(ends, default=-3.0)), math.ceil(max(ends, default=0.0))
    wide = 2 * WIDTH
    left = min(max([width_of(shortened(s.name, _NAME), 13.0) for s in spots] or [60.0]) + 14, 230)
    x = Scale(low, max(high, low + 1), left, wide - 64.0)
    height = 18.0 + sum(HEAD + ROW * len(g.spots) for g in groups) + FOOT
    drawn = []
    for power in range(low, max(high, low + 1) + 1):
        drawn.append(element("line", x1=x(power), x2=x(power), y1=18, y2=height - FOOT, class_="grid"))
        drawn.append(label(x(power), height - FOOT + 16, f"{10.0**power:g}", class_="tick middle"))
    at = x(_power(line))
    drawn.append(element("line", x1=at, x2=at, y1=18, y2=height - FOOT, class_="mean"))
    far = at > wide / 2
    drawn.append(label(at, 13, told, class_="tick end" if far else "tick"))
    top = 18.0
    for group in groups:
        drawn.append(label(0, top + 17, group.name, class_="name strong head"))
        top += HEAD
        for spot in group.spots:
            drawn.append(_row(spot, top, x, wide, line))
            top += ROW
    return drawing(wide, height, title, desc, *drawn)


def _power(value: float) -> float:
    return math.log10(max(value, _LEAST))


def _row(spot: Spot, top: float, x: Scale, wide: float, line: float) -> str:
    middle = top + ROW / 2
    parts = [
        tip(f"{spot.name}: {spot.note or spot.words}"),
        element("rect", x=0, y=top, width=wide, height=ROW, class_="hit"),
        label(x.start - 10, middle + 4, shortened(spot.name, _NAME), class_="tick end"),
    ]
    if spot.value is None or spot.low is None or spot.high is None:
        parts.append(label(x.start + 8, middle + 4, spot.words, class_="tick quiet"))
        return element("g", *parts, class_="row")
    kind = "loss" if spot.value > line else "open"
    places = [min(max(x(_power(v)), x.start), x.end) for v in (spot.low, spot.value, spot.high)]
    span = f"M{number(places[0])} {number(middle)}H{number(places[2])}"
    parts.append(element("path", d=span, class_=f"span {kind}"))
    parts.append(element("circle", cx=places[1], cy=middle, r=4, class_=f"spot {kind}"))
    parts.append(label(wide - 2, middle + 4, f"{spot.value:.3g}", class_="tick end strong"))
    return element("g", *parts, class_="row")
