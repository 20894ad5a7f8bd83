"""Line charts: thin lines for many classes, colours for the named ones, one bold line; cactus plots."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from holdfast.core.types import Floats
from holdfast.report.charts import svg
from holdfast.report.charts.svg import WIDTH, Scale, axes, drawing, element, empty, legend, number, tip

HEIGHT = 400.0


@dataclass(frozen=True, eq=False)
class ChartLine:
    """x and y (n,); `colour` 1 … 6 and a legend entry for a named line, 0 for one among many."""

    name: str
    x: Floats
    y: Floats
    colour: int = 0
    bold: bool = False
    note: str = ""

    @property
    def kind(self) -> str:
        """The style class of the line."""
        return "bold" if self.bold else f"c{(self.colour - 1) % svg.SERIES + 1}" if self.colour else "quiet"


def line_chart(
    lines: Sequence[ChartLine], *, title: str, desc: str = "", x_label: str, y_label: str,
    x_range: tuple[float, float] = (0.0, 1.0), y_range: tuple[float, float] = (0.0, 1.0),
    width: float = WIDTH, y_ticks: Sequence[tuple[float, str]] | None = None,
) -> str:  # fmt: skip
    """The chart with its legend below; lines without a finite point are skipped."""
    x = Scale(*x_range, 54.0, width - 12.0)
    y = Scale(*y_range, HEIGHT - 52.0, 12.0)
    # the many first, so that named lines and the bold one lie on top
    ordered = sorted(lines, key=lambda line: (line.bold, line.colour > 0))
    drawn = [_path(line, x, y) for line in ordered]
    if not any(drawn):
        drawn.append(empty(x, y))
    chart = drawing(width, HEIGHT, title, desc, axes(x, y, x_label, y_label, y_ticks=y_ticks), *drawn)
    named = sorted((line for line in lines if line.bold or line.colour), key=lambda line: not line.bold)
    entries = [(line.kind, f"{line.name}{f' ({line.note})' if line.note else ''}") for line in named]
    many = sum(line.kind == "quiet" for line in lines)
    if many:
        entries.append(("quiet", f"{many} other{'' if many == 1 else 's'}"))
    return chart + (legend(entries) if entries else "")


def thinned(x: Floats, y: Floats, bins: int = 150) -> tuple[Floats, Floats]:
    """The points that can be seen: in each of `bins` strips of x the first, last, lowest and highest."""
    if len(x) <= 4 * bins:
        return x, y
    strip = np.clip((x * bins).astype(np.int64), 0, bins)
    start = np.flatnonzero(np.r_[True, strip[1:] != strip[:-1]])
    keep: set[int] = set()
    for first, last in zip(start.tolist(), [*start[1:].tolist(), len(x)], strict=True):
        part = y[first:last]
        keep |= {first, last - 1, first + int(part.argmin()), first + int(part.argmax())}
    chosen = np.array(sorted(keep))
    return x[chosen], y[chosen]


def _path(line: ChartLine, x: Scale, y: Scale) -> str:
    """The line as a path, broken where a value is missing; a lone point becomes a dot."""
    path = ""
    for known, points in groupby(
        zip(line.x.tolist(), line.y.tolist(), strict=True), lambda point: bool(np.isfinite(point).all())
    ):
        places = [f"{number(round(x(across), 1))} {number(round(y(up), 1))}" for across, up in points]
        if known:  # a sub-path of zero length is drawn as a dot by round caps
            path += "M" + "L".join(places) + ("h0" if len(places) == 1 else "")
    name = tip(f"{line.name}{f': {line.note}' if line.note else ''}")
    return element("path", name, d=path, class_=f"line {line.kind}") if path else ""


LEAST_SECONDS = 0.01  # what takes less is drawn here: a logarithm has no zero


def cactus(times: Mapping[str, Sequence[float]], *, title: str, desc: str = "", wide: bool = False) -> str:
    """The plot of each tool's solving times, the first tool bold; tools beyond six more are drawn grey.

    The n-th point of a line is the n-th smallest time: a line further right solves more, one lower is faster.
    """
    lines = []
    for place, (name, seconds) in enumerate(times.items()):
        ordered = np.sort(np.maximum(np.asarray(seconds, np.float64), LEAST_SECONDS))
        count = np.arange(1, len(ordered) + 1, dtype=np.float64)
        colour, note = place if 0 < place <= svg.SERIES else 0, f"{len(ordered)} solved"
        lines.append(ChartLine(name, count, np.log10(ordered), colour, bold=place == 0, note=note))
    drawn = [max(t, LEAST_SECONDS) for seconds in times.values() for t in seconds] or [1.0]
    low = math.floor(math.log10(min(drawn)))
    high = max(math.ceil(math.log10(max(drawn))), low + 1)
    most = max((len(seconds) for seconds in times.values()), default=0)
    marks = [(float(p), f"{10.0**p:.{max(-p, 0)}f}") for p in range(low, high + 1)]
    return line_chart(
        lines, title=title, desc=desc, x_label="instances solved", y_label="seconds, each",
        x_range=(0.0, float(max(most, 1))), y_range=(float(low), float(high)), y_ticks=marks,
        width=2 * WIDTH if wide else WIDTH,
    )  # fmt: skip
