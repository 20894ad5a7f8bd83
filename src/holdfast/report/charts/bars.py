"""Bars: one number per row, the parts of a whole per row, and a number that falls step by step."""

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.report.charts import svg
from holdfast.report.charts.svg import Scale, drawing, element, label, legend, shortened, ticks, tip, width_of

ROW, BAR = 24.0, 14.0
_NAME = 18  # characters of a row's name; the whole name is in the tip


@dataclass(frozen=True)
class Bar:
    """A row's name and number (None or NaN: n/a), and a note for its tip."""

    name: str
    value: float | None
    note: str = ""


def bar_chart(bars: Sequence[Bar], *, title: str, desc: str = "", mean: float | None = None) -> str:
    """Horizontal bars from 0 to 1, in the order given, each with its number; a line at the mean."""
    left = _name_width([bar.name for bar in bars])
    height = ROW * max(len(bars), 1) + 8
    x = Scale(0.0, 1.0, left, svg.WIDTH - 52.0)
    rows = [_row(bar, 4 + ROW * i, x) for i, bar in enumerate(bars)]
    if not bars:
        rows.append(label(svg.WIDTH / 2, 18, "nothing to show", class_="name middle"))
    if mean is not None and math.isfinite(mean):
        name = tip(f"mean {mean:.3f}")
        rows.append(element("line", name, x1=x(mean), x2=x(mean), y1=2, y2=height - 2, class_="mean"))
    return drawing(svg.WIDTH, height, title, desc, *rows)


def _row(bar: Bar, top: float, x: Scale) -> str:
    middle = top + ROW / 2 + 4
    known = bar.value is not None and math.isfinite(bar.value)
    value = bar.value if bar.value is not None and known else 0.0
    shown = f"{value:.3f}" if known else "n/a"
    end = min(max(x(value), x.start), x.end)
    ends = [("track", x.end)] + ([("bar", end)] if known else [])
    parts = [
        tip(f"{bar.name}: {shown}{f'; {bar.note}' if bar.note else ''}"),
        element("rect", x=0, y=top, width=svg.WIDTH, height=ROW, class_="hit"),
        label(x.start - 8, middle, shortened(bar.name, _NAME), class_="tick end strong"),
        *(
            element("rect", x=x.start, y=top + 5, width=e - x.start, height=BAR, rx=3, class_=k)
            for k, e in ends
        ),
        label(svg.WIDTH - 2, middle, shown, class_="tick end"),
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
    x = Scale(0.0, 1.0, left, svg.WIDTH - 4.0)
    rows = [_stack(stack, kinds, 2 + 40.0 * i, x) for i, stack in enumerate(stacks)]
    if not stacks:
        rows.append(label(svg.WIDTH / 2, 18, "nothing to show", class_="name middle"))
    entries = [(f"area {kind}", name) for kind, name in kinds]
    return drawing(svg.WIDTH, height, title, desc, *rows) + legend(entries)


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
        size = {"width": max(end - start - 1, 1), "height": 28}
        box = element("rect", x=start, y=top + 6, **size, rx=3, class_=f"area {kind}")
        text = f"{part:,}"
        fits = end - start > width_of(text, 16.0) + 4
        inside = label((start + end) / 2, top + 24, text, class_=f"tick middle on {kind}") if fits else ""
        row.append(element("g", tip(f"{stack.name}: {part:,} {name} ({share:.1%})"), box, inside))
    return "".join(row)


def _name_width(names: Sequence[str]) -> float:
    # At the size that narrow screens use.
    longest = max((width_of(shortened(name, _NAME), 14.5) for name in names), default=0.0)
    return min(max(longest + 12, 48), 190)


_LEFT, _TOP, _BOTTOM, _NAMES, _LINE = 52.0, 18.0, 250.0, 64.0, 16.0


@dataclass(frozen=True)
class WaterfallStep:
    """A step: its name in two short lines, the number after it, what it changed, and what its tip says."""

    name: str
    second: str
    value: float
    change: float = 0.0  # not the difference to the step before, which may be measured on other images
    note: str = ""
    images: str = ""  # which images, in a few words below it


def staircase(steps: Sequence[WaterfallStep], *, title: str, desc: str = "", y_label: str = "") -> str:
    """Columns as high as what each step changed, to the number after it; the first step is the whole."""
    wide = max(svg.WIDTH * 1.5, 92.0 * len(steps) + _LEFT)
    values = [v for s in steps for v in (s.value, s.value - s.change)]
    spread = max(values) - min(values) or 1.0
    y = Scale(min(values) - 0.35 * spread, max(values) + 0.12 * spread, _BOTTOM, _TOP)
    width = (wide - _LEFT - 8) / len(steps)
    drawn = []
    for value in ticks(y.low, y.high, 4):
        drawn.append(element("line", x1=_LEFT, x2=wide, y1=y(value), y2=y(value), class_="grid"))
        drawn.append(label(_LEFT - 8, y(value) + 4, f"{value:g}", class_="tick end"))
    if y_label:
        drawn.append(label(_LEFT - 8, _TOP - 6, y_label, class_="name end"))
    columns = [_column(s, i == 0, _LEFT + 6 + width * i, width - 12, y) for i, s in enumerate(steps)]
    names = _NAMES + (_LINE if any(s.images for s in steps) else 0.0)
    return drawing(wide, _BOTTOM + names, title, desc, *drawn, *columns)


def _column(step: WaterfallStep, first: bool, left: float, width: float, y: Scale) -> str:
    before = step.value - step.change
    top, low = y(max(before, step.value)), y.start if first else y(min(before, step.value))
    kind = "whole" if first else ("gain" if step.change > 0 else "loss")
    middle, limit = left + width / 2, max(8, int(width / 6.4))
    size = {"width": width, "height": max(low - top, 2.0)}
    parts = [
        tip(f"{step.name} {step.second}: {step.note}" if step.note else step.name),
        element("rect", x=left, y=top, **size, rx=3, class_=f"stair {kind}"),
        label(middle, top - 6, f"{step.value:z.2f}", class_="tick middle strong"),
        label(middle, _BOTTOM + 20, shortened(step.name, limit), class_="tick middle strong"),
        label(middle, _BOTTOM + 36, shortened(step.second, limit), class_="tick middle"),
    ]
    if not first:
        parts.append(label(middle, _BOTTOM + 54, f"{step.change:+z.2f}", class_="tick middle"))
    if step.images:
        words = shortened(step.images, limit)
        parts.append(label(middle, _BOTTOM + 54 + _LINE, words, class_="tick middle"))
    return element("g", *parts, class_="row")


_HEIGHT = 26.0
_ROOM = 0.24  # of the bar; a part that is smaller has its number but not its word
_SIGNS = {"certified": "✓", "unknown": "?", "broken": "✕"}


def bounds_bar(certified: int, unknown: int, broken: int, name: str) -> str:
    """A bar of three parts, each with its count; lengths are percent, so it fits any width undistorted."""
    total = certified + unknown + broken
    parts, left = [], 0.0
    for kind, count in (("certified", certified), ("unknown", unknown), ("broken", broken)):
        if count:
            parts.append(_part(kind, count, left, count / total))
            left += count / total
    summary = f"{name}: {certified} certified, {unknown} unknown, {broken} broken of {total}"
    return element("svg", tip(summary), *parts, class_="bounds", width="100%", height=_HEIGHT, role="img")


def _part(kind: str, count: int, left: float, share: float) -> str:
    words = f"{_SIGNS[kind]} {count} {kind}" if share >= _ROOM else str(count)
    start, middle, width = map(_css_percent, (left, left + share / 2, share))
    bar = element("rect", x=start, y=1, width=width, height=_HEIGHT - 2, rx=4, class_=f"part {kind}")
    text = element("text", html.escape(words), x=middle, y=_HEIGHT / 2 + 4.5, class_=f"middle {kind}")
    return element("g", tip(f"{count} {kind}"), bar, text)


def _css_percent(share: float) -> str:
    return f"{100 * share:.3f}".rstrip("0").rstrip(".") + "%"
