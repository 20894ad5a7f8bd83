"""A histogram of two kinds, one above the line and one below it."""

import math
from dataclasses import dataclass

import numpy as np

from holdfast.core.types import Floats, Ints
from holdfast.report.charts.svg import WIDTH, Scale, axes, drawing, element, empty, label, legend, ticks, tip


@dataclass(frozen=True, eq=False)
class Kind:
    """One of the two kinds: its name, its style class, and its values (n,)."""

    name: str
    style: str
    values: Floats


def histogram(
    above: Kind, below: Kind | None, *, title: str, desc: str = "", x_label: str,
    x_range: tuple[float, float] = (0.0, 1.0), bins: int = 20, line: float | None = None,
    height: float = 300.0, logarithmic: bool = False,
) -> str:  # fmt: skip
    """Counts per bin of the values, of a second kind below the axis; a line marks a threshold."""
    kinds = [above] + ([below] if below else [])
    edges = np.linspace(*x_range, bins + 1)
    counts = [np.histogram(kind.values[np.isfinite(kind.values)], edges)[0] for kind in kinds]
    most = int(max((c.max() for c in counts), default=0))
    top = _grown(most, logarithmic) or 1.0
    x = Scale(*x_range, 54.0, WIDTH - 12.0)
    y = Scale(-top if below else 0.0, top, height - 52.0, 12.0)
    bars = [
        _bars(kind, count, edges, x, y, (-1.0 if i else 1.0), logarithmic)
        for i, (kind, count) in enumerate(zip(kinds, counts, strict=True))
    ]
    marks = _levels(most, logarithmic)
    if below:
        marks = [(-t, text) for t, text in marks[:0:-1]] + marks
        bars.append(element("line", x1=x.start, x2=x.end, y1=y(0), y2=y(0), class_="axis"))
    if line is not None and x_range[0] < line < x_range[1]:
        text = tip(f"threshold {line:g}")
        bars.append(element("line", text, x1=x(line), x2=x(line), y1=y.start, y2=y.end, class_="mean"))
        bars.append(label(x(line) + 5, 24, f"{line:g}", class_="tick"))
    if not most:
        bars.append(empty(x, y))
    name = "count (logarithmic)" if logarithmic else "count"
    chart = drawing(WIDTH, height, title, desc, axes(x, y, x_label, name, y_ticks=marks), *bars)
    return chart + legend([(f"area {kind.style}", f"{kind.name} ({len(kind.values):,})") for kind in kinds])


def _bars(kind: Kind, counts: Ints, edges: Floats, x: Scale, y: Scale, sign: float, logarithmic: bool) -> str:
    drawn = []
    for i in np.flatnonzero(counts).tolist():
        start, end = x(float(edges[i])), x(float(edges[i + 1]))
        level, zero = y(sign * _grown(int(counts[i]), logarithmic)), y(0)
        text = tip(f"{edges[i]:.3g} to {edges[i + 1]:.3g}: {int(counts[i]):,} {kind.name}")
        top, tall = min(level, zero), max(abs(zero - level), 1.0)
        size = {"x": start + 0.75, "y": top, "width": end - start - 1.5, "height": tall}
        drawn.append(element("rect", text, **size, class_=f"area {kind.style}"))
    return "".join(drawn)


def _grown(count: int, logarithmic: bool) -> float:
    """The height of a count; the logarithm is of 1 + count, so that nothing has no height."""
    return math.log10(1 + count) if logarithmic else float(count)


def _levels(most: int, logarithmic: bool) -> list[tuple[float, str]]:
    if logarithmic:
        powers = [10**p for p in range(max(len(str(most)), 1))]
        return [(0.0, "0")] + [(math.log10(1 + p), f"{p:,}") for p in powers if p <= max(most, 1)]
    return [(t, f"{t:,.0f}") for t in ticks(0, max(most, 1), 4) if t == int(t)]
