"""The sandwich of a threat as a bar: proven to hold, neither, shown to break, in images."""

from __future__ import annotations

import html

from holdfast.report.charts.svg import element, tip

_HEIGHT = 26.0
_ROOM = 0.24  # of the bar; a part that is smaller has its number but not its word
_SIGNS = {"proven": "✓", "unknown": "?", "broken": "✕"}


def sandwich(proven: int, unknown: int, broken: int, name: str) -> str:
    """A bar of three parts, each with its count; lengths are percent, so it fits any width undistorted."""
    total = proven + unknown + broken
    parts, left = [], 0.0
    for kind, count in (("proven", proven), ("unknown", unknown), ("broken", broken)):
        share = count / total if total else 0.0
        if count:
            parts.append(_part(kind, count, left, share))
        left += share
    told = f"{name}: {proven} proven, {unknown} unknown, {broken} broken of {total}"
    return element("svg", tip(told), *parts, class_="sandwich", width="100%", height=_HEIGHT, role="img")


def _part(kind: str, count: int, left: float, share: float) -> str:
    said = f"{_SIGNS[kind]} {count} {kind}" if share >= _ROOM else str(count)
    return element(
        "g",
        tip(f"{count} {kind}"),
        element(
            "rect", x=_percent(left), y=1, width=_percent(share), height=_HEIGHT - 2, rx=4,
            class_=f"part {kind}",
        ),
        _words(_percent(left + share / 2), said, kind),
    )  # fmt: skip


def _words(x: str, text: str, kind: str) -> str:
    """The words in the middle of a part."""
    return element("text", html.escape(text), x=x, y=_HEIGHT / 2 + 4.5, class_=f"middle {kind}")


def _percent(share: float) -> str:
    return f"{100 * share:.3f}".rstrip("0").rstrip(".") + "%"
