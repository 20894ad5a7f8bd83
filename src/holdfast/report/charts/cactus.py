"""A cactus plot: how many instances each tool solves (across), and in how many seconds each (up)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from holdfast.report.charts.lines import Line, line_chart
from holdfast.report.charts.svg import SERIES, WIDTH

LEAST_SECONDS = 0.01  # what takes less is drawn here: a logarithm has no zero


def cactus(times: Mapping[str, Sequence[float]], *, title: str, desc: str = "", wide: bool = False) -> str:
    """The plot of each tool's solving times, the first tool bold; tools beyond six more are drawn grey.

    The n-th point of a line is the n-th smallest time: a line further right solves more, one lower is faster.
    """
    lines = [_line(place, name, seconds) for place, (name, seconds) in enumerate(times.items())]
    every = [max(t, LEAST_SECONDS) for seconds in times.values() for t in seconds]
    low, high = _decades(every)
    most = max((len(seconds) for seconds in times.values()), default=0)
    marks = [(float(power), _shown(power)) for power in range(low, high + 1)]
    return line_chart(
        lines, title=title, desc=desc, x_label="instances solved", y_label="seconds, each",
        x_range=(0.0, float(max(most, 1))), y_range=(float(low), float(high)), y_ticks=marks,
        width=2 * WIDTH if wide else WIDTH,
    )  # fmt: skip


def _line(place: int, name: str, seconds: Sequence[float]) -> Line:
    ordered = np.sort(np.maximum(np.asarray(seconds, np.float64), LEAST_SECONDS))
    count = np.arange(1, len(ordered) + 1, dtype=np.float64)
    return Line(
        name, count, np.log10(ordered), colour=place if 0 < place <= SERIES else 0, bold=place == 0,
        note=f"{len(ordered)} solved",
    )  # fmt: skip


def _decades(seconds: Sequence[float]) -> tuple[int, int]:
    """The powers of ten around all times, at least one decade."""
    if not seconds:
        return 0, 1
    low, high = math.floor(math.log10(min(seconds))), math.ceil(math.log10(max(seconds)))
    return low, max(high, low + 1)


def _shown(power: int) -> str:
    return f"{10**power}" if power >= 0 else f"{10.0**power:.{-power}f}"
