"""Bars: one number a row, or the parts of a whole a row."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.report.charts.svg import WIDTH, Scale, drawing, element, label, legend, shortened, tip, width_of

ROW, BAR = 24.0, 14.0
_NAME = 18  # signs of a row's name; the whole name is in the tip


@dataclass(frozen=True)
class Bar:
    """A row's name and number (None or NaN: n/a), and what its tip says beside them."""

    name: str
    value: float | None
    note: str = ""


def bar_chart(
    bars: Sequence[Bar],
    *,
    title: str,
    desc: str = "",
    mean: float | None = None,
) -> str:
    """Horizontal bars from 0 to 1, in the order given, each with its number; a line at the mean."""
    left = _name_width([bar.name for bar in bars])
    height = ROW * max(len(bars), 1) + 8
    x = Scale(0.0, 1.0, left, WIDTH - 52.0)
    rows = [_row(bar, 4 + ROW * i, x) for i, bar in enumerate(bars)]
    if not bars:
        rows.append(label(WIDTH / 2, 18, "nothing to show", class_="name middle"))
    if mean is not None and math.isfinite(mean):
        told = tip(f"mean {mean:.3f}")
        rows.append(element("line", told, x1=x(mean), x2=x(mean), y1=2, y2=height - 2, class_="mean"))
    return drawing(WIDTH, height, title, desc, *rows)


def _row(bar: Bar, top: float, x: Scale) -> str:
    middle = top + ROW / 2 + 4
    known = bar.value is not None and math.isfinite(bar.value)
    value = bar.value if bar.value is not None and known else 0.0
    shown = f"{value:.3f}" if known else "n/a"
    end = min(max(x(value), x.start), x.end)
    parts = [
        tip(f"{bar.name}: {shown}{f'; {bar.note}' if bar.note else ''}"),
        element("rect", x=0, y=top, width=WIDTH, height=ROW, class_="hit"),
        label(x.start - 8, middle, shortened(bar.name, _NAME), class_="tick end strong"),
        element("rect", x=x.start, y=top + 5, width=x.end - x.start, height=BAR, rx=3, class_="track"),
        element("rect", x=x.start, y=top + 5, width=end - x.start, height=BAR, rx=3, class_="bar")
        if known
        else "",
        label(WIDTH - 2, middle, shown, class_="tick end"),
    ]
    return element("g", *parts, class_="row")


@dataclass(frozen=True)
class Stack:
    """A row's name and the counts of its parts."""

    name: str
    parts: Sequence[int]


def stacked_chart(
    stacks: Sequence[Stack], kinds: Sequence[tuple[str, str]], *, title: str, desc: str = ""
) -> str:
    """Each row's parts as shares of the row; `kinds` are (style class, name) of the parts, for the legend."""
    left = _name_width([stack.name for stack in stacks])
    height = 40.0 * max(len(stacks), 1) + 4
    x = Scale(0.0, 1.0, left, WIDTH - 4.0)
    rows = [_stack(stack, kinds, 2 + 40.0 * i, x) for i, stack in enumerate(stacks)]
    if not stacks:
        rows.append(label(WIDTH / 2, 18, "nothing to show", class_="name middle"))
    return drawing(WIDTH, height, title, desc, *rows) + legend(
        [(f"area {kind}", name) for kind, name in kinds]
    )


def _stack(stack: Stack, kinds: Sequence[tuple[str, str]], top: float, x: Scale) -> str:
    total = sum(stack.parts)
    row = [label(x.start - 8, top + 24, shortened(stack.name, _NAME), class_="tick end strong")]
    if not total:
        return "".join([*row, label(x.start, top + 24, "n/a", class_="tick")])
    at = 0.0
    for part, (kind, name) in zip(stack.parts, kinds, strict=True):
        share = part / total
        start, end = x(at), x(at + share)
        at += share
        if not part:
            continue
        box = element(
            "rect", x=start, y=top + 6, width=max(end - start - 1, 1), height=28, rx=3, class_=f"area {kind}"
        )
        text = f"{part:,}"
        fits = end - start > width_of(text, 16.0) + 4
        inside = label((start + end) / 2, top + 24, text, class_=f"tick middle on {kind}") if fits else ""
        row.append(element("g", tip(f"{stack.name}: {part:,} {name} ({share:.1%})"), box, inside))
    return "".join(row)


def _name_width(names: Sequence[str]) -> float:
    """Room for the longest name at the size narrow screens use."""
    longest = max((width_of(shortened(name, _NAME), 14.5) for name in names), default=0.0)
    return min(max(longest + 12, 48), 190)
