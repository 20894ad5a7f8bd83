"""A heat map that is a table: numbers in every field, read by people, screen readers and spreadsheets."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.report.parts import fragment

EDGES = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75)  # shares lost at which the next colour begins: h0 … h7
DENSE = 6  # columns up to which marks are written out


@dataclass(frozen=True)
class Head:
    """A row's or a column's heading: a small word over it, its name, and what it means in a few words."""

    name: str
    over: str = ""
    words: str = ""


@dataclass(frozen=True)
class Mark:
    """A sign in a field, such as ▲ or 4/5, and its words, which are always read aloud."""

    sign: str
    words: str
    kind: str = ""


@dataclass(frozen=True)
class Field:
    """A number as text, the share lost that colours it (None: no number there), its marks and its tip."""

    text: str
    lost: float | None
    marks: tuple[Mark, ...] = ()
    note: str = ""

    @property
    def step(self) -> str:
        """The class of its colour."""
        return "none" if self.lost is None else f"h{bisect_right(EDGES, self.lost)}"


def heat(
    rows: Sequence[Head], columns: Sequence[Head], fields: Sequence[Sequence[Field]], *, corner: str,
    caption: str,
) -> str:  # fmt: skip
    """The table; with many columns marks are shown as signs alone, with their words unseen."""
    dense = len(columns) > DENSE
    named = list(zip(rows, fields, strict=True))
    return fragment("heat.html", rows=named, columns=columns, corner=corner, caption=caption, dense=dense)


def scale(unit: str) -> str:
    """What the colours mean: the shares lost at which each begins."""
    steps = [f"< {_percent(EDGES[0])}", *(f"≥ {_percent(low)}" for low in EDGES)]
    return fragment("scale.html", steps=steps, unit=unit)


def _percent(share: float) -> str:
    return f"{100 * share:g} %"
