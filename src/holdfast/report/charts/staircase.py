"""A staircase: a number that falls step by step, each step named, with what it took away."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.report.charts.svg import WIDTH, Scale, drawing, element, label, shortened, ticks, tip

_LEFT, _TOP, _BOTTOM, _NAMES, _LINE = 52.0, 18.0, 250.0, 64.0, 16.0


@dataclass(frozen=True)
class Stair:
    """A step: its name in two short lines, the number after it, what it changed, and what its tip says.

    `change` is given and not taken from the step before, which may be measured on other images; `images`
    says so in a few words below it.
    """

    name: str
    second: str
    value: float
    change: float = 0.0
    note: str = ""
    images: str = ""


def staircase(start: Stair, stairs: Sequence[Stair], *, title: str, desc: str = "", y_label: str = "") -> str:
    """Columns as high as what each step changed, to the number after it; the first column is the whole."""
    every = [start, *stairs]
    wide = max(WIDTH * 1.5, 92.0 * len(every) + _LEFT)
    values = [v for s in every for v in (s.value, s.value - s.change)]
    spread = max(values) - min(values) or 1.0
    y = Scale(min(values) - 0.35 * spread, max(values) + 0.12 * spread, _BOTTOM, _TOP)
    step = (wide - _LEFT - 8) / len(every)
    drawn = []
    for value in ticks(y.low, y.high, 4):
        drawn.append(element("line", x1=_LEFT, x2=wide, y1=y(value), y2=y(value), class_="grid"))
        drawn.append(label(_LEFT - 8, y(value) + 4, f"{value:g}", class_="tick end"))
    if y_label:
        drawn.append(label(_LEFT - 8, _TOP - 6, y_label, class_="name end"))
    for place, stair in enumerate(every):
        left = _LEFT + 6 + step * place
        drawn.append(_stair(stair, place == 0, left, step - 12, y))
    names = _NAMES + (_LINE if any(s.images for s in every) else 0.0)
    return drawing(wide, _BOTTOM + names, title, desc, *drawn)


def _stair(stair: Stair, first: bool, left: float, width: float, y: Scale) -> str:
    before = stair.value - stair.change
    top, bottom = max(before, stair.value), min(before, stair.value)
    kind = "whole" if first else ("gain" if stair.change > 0 else "loss")
    low = y.start if first else y(bottom)
    middle = left + width / 2
    limit = max(8, int(width / 6.4))
    parts = [
        tip(f"{stair.name} {stair.second}: {stair.note}" if stair.note else stair.name),
        element(
            "rect", x=left, y=y(top), width=width, height=max(low - y(top), 2.0), rx=3, class_=f"stair {kind}"
        ),
        label(middle, y(top) - 6, f"{stair.value:z.2f}", class_="tick middle strong"),
        label(middle, _BOTTOM + 20, shortened(stair.name, limit), class_="tick middle strong"),
        label(middle, _BOTTOM + 36, shortened(stair.second, limit), class_="tick middle"),
    ]
    if not first:
        parts.append(label(middle, _BOTTOM + 54, f"{stair.change:+z.2f}", class_="tick middle"))
    if stair.images:
        words = shortened(stair.images, limit)
        parts.append(label(middle, _BOTTOM + 54 + _LINE, words, class_="tick middle"))
    return element("g", *parts, class_="row")
