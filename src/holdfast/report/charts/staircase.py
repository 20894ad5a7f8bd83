"""A staircase: a number that falls step by step, each step named, with what it took away."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.report.charts.svg import WIDTH, Scale, drawing, element, label, shortened, ticks, tip

_LEFT, _TOP, _BOTTOM, _NAMES = 52.0, 18.0, 250.0, 64.0


@dataclass(frozen=True)
class Stair:
    """A step: its name in two short lines, the number after it, and what its tip says."""

    name: str
    second: str
    value: float
    note: str = ""


def staircase(start: Stair, stairs: Sequence[Stair], *, title: str, desc: str = "", y_label: str = "") -> str:
    """Columns from the number before to the number after each step; the first column is the whole."""
    every = [start, *stairs]
    wide = max(WIDTH * 1.5, 92.0 * len(every) + _LEFT)
    values = [s.value for s in every]
    spread = max(values) - min(values) or 1.0
    y = Scale(min(values) - 0.35 * spread, max(values) + 0.12 * spread, _BOTTOM, _TOP)
    step = (wide - _LEFT - 8) / len(every)
    drawn = []
    for value in ticks(y.low, y.high, 4):
        drawn.append(element("line", x1=_LEFT, x2=wide, y1=y(value), y2=y(value), class_="grid"))
        drawn.append(label(_LEFT - 8, y(value) + 4, f"{value:g}", class_="tick end"))
    if y_label:
        drawn.append(label(_LEFT - 8, _TOP - 6, y_label, class_="name end"))
    before = start.value
    for place, stair in enumerate(every):
        left = _LEFT + 6 + step * place
        drawn.append(_stair(stair, before, place == 0, left, step - 12, y))
        before = stair.value
    return drawing(wide, _BOTTOM + _NAMES, title, desc, *drawn)


def _stair(stair: Stair, before: float, first: bool, left: float, width: float, y: Scale) -> str:
    top, bottom = max(before, stair.value), min(before, stair.value)
    rise = stair.value > before
    kind = "whole" if first else ("gain" if rise else "loss")
    low = y.start if first else y(bottom)
    middle = left + width / 2
    limit = max(8, int(width / 6.4))
    parts = [
        tip(f"{stair.name} {stair.second}: {stair.note}"),
        element(
            "rect", x=left, y=y(top), width=width, height=max(low - y(top), 2.0), rx=3, class_=f"stair {kind}"
        ),
        label(middle, y(top) - 6, f"{stair.value:z.2f}", class_="tick middle strong"),
        label(middle, _BOTTOM + 20, shortened(stair.name, limit), class_="tick middle strong"),
        label(middle, _BOTTOM + 36, shortened(stair.second, limit), class_="tick middle"),
    ]
    if not first:
        change = f"{stair.value - before:+z.2f}"
        parts.append(label(middle, _BOTTOM + 54, change, class_="tick middle"))
    return element("g", *parts, class_="row")
