"""The plan of a map: through which tensors the change is followed on crops, and how large those are."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from holdfast.core.types import Ints
from holdfast.graph.wire import WireGraph
from holdfast.patchbench.positions.reach import Reach, Shapes, passages, reaches

# What it costs to move a number between arrays, in multiplications of a filter; measured, not fine.
_MOVE = 25.0
_LEVEL = 60_000.0  # a further session to run, for one position


@dataclass(frozen=True, eq=False)
class Span:
    """One direction of a level, for every position of the patch along it.

    The crop of `wide` cells begins at `crop`; in what comes out of it `size` cells from `inside` on are
    right, and belong at `window` of the whole map.
    """

    wide: int
    crop: Ints
    size: int
    inside: Ints
    window: Ints


@dataclass(frozen=True, eq=False)
class Level:
    """A part of the graph run on crops: from one tensor to the next, rows and columns."""

    source: str
    target: str
    rows: Span
    columns: Span


@dataclass(frozen=True, eq=False)
class Plan:
    """The levels in order; then the whole map of `entry`, changed where they say, is run to the outputs."""

    levels: tuple[Level, ...]
    entry: str


def plan_of(
    graph: WireGraph, source: str, outputs: Sequence[str], shapes: Shapes, patch: tuple[int, int]
) -> Plan:
    """The plan with the least work for a patch of these rows and columns; without levels if none pays."""
    cuts = _cuts(graph, source, outputs, shapes)
    best, least = Plan((), source), _work(graph, source, outputs, shapes)
    for count in (1, 2, 3):
        for chosen in itertools.combinations(cuts, count):
            made = _levels(graph, (source, *chosen), shapes, patch)
            if made is None:
                continue
            cost = sum(_cost(graph, level, shapes) for level in made)
            cost += _work(graph, chosen[-1], outputs, shapes) + _MOVE * np.prod(shapes[chosen[-1]])
            if cost < 0.97 * least:
                best, least = Plan(tuple(made), chosen[-1]), cost
    return best


def _cuts(graph: WireGraph, source: str, outputs: Sequence[str], shapes: Shapes) -> list[str]:
    """The tensors at which a level may end: single ones, as maps of cells, one of each size."""
    known = reaches(graph, source, outputs, shapes)
    found: dict[tuple[int, ...], str] = {}
    for name in passages(graph, source, outputs)[1:]:
        if name in known and len(shapes[name]) == 4 and min(shapes[name][2:]) > 2:
            found.setdefault((*shapes[name][1:], known[name].stride), name)
    return list(found.values())[:8]


def _levels(
    graph: WireGraph, names: Sequence[str], shapes: Shapes, patch: tuple[int, int]
) -> list[Level] | None:
    """The levels through these tensors; None if one cannot be cut into crops, or would not be smaller."""
    height, width = shapes[names[0]][2:]
    rows, columns = np.arange(height - patch[0] + 1), np.arange(width - patch[1] + 1)
    changed = [(rows, patch[0]), (columns, patch[1])]
    levels = []
    for source, target in itertools.pairwise(names):
        reach = reaches(graph, source, [target], shapes).get(target)
        if reach is None:
            return None
        spans = [
            _span(begin, size, shapes[source][2 + i], shapes[target][2 + i], reach)
            for i, (begin, size) in enumerate(changed)
        ]
        down, across = spans
        if down is None or across is None:
            return None
        levels.append(Level(source, target, down, across))
        changed = [(down.window, down.size), (across.window, across.size)]
    return levels


def _span(begin: Ints, size: int, cells: int, after: int, reach: Reach) -> Span | None:
    """One direction: from changed cells (begin … begin + size − 1) of `cells` to those of `after`."""
    step = reach.stride
    if cells % step or cells // step != after:
        return None  # crops would not lie on the same grid
    first = np.maximum(-(-(begin - reach.after) // step), 0)
    last = np.minimum((begin + size - 1 + reach.before) // step, after - 1)
    count = max(int((last - first).max()) + 1, 1)
    window = np.clip(first, 0, after - count)
    needed = step - 1 + step * (count - 1) + reach.before + reach.after + 1
    wide = min(-(-needed // step) * step, cells)
    crop = np.clip((step * window - reach.before) // step * step, 0, cells - wide)
    return Span(wide, crop, count, window - crop // step, window)


def _cost(graph: WireGraph, level: Level, shapes: Shapes) -> float:
    part = level.rows.wide * level.columns.wide / np.prod(shapes[level.source][2:])
    work = _work(graph, level.source, [level.target], shapes) * part
    moved = shapes[level.source][1] * level.rows.wide * level.columns.wide
    moved += 2 * shapes[level.target][1] * level.rows.size * level.columns.size
    return float(work + _MOVE * moved + _LEVEL)


def _work(graph: WireGraph, source: str, outputs: Sequence[str], shapes: Shapes) -> float:
    """About how many multiplications the nodes from the source on take; what is no filter counts a little."""
    total = 0.0
    for node in graph.needed(outputs, [source]):
        made = float(np.prod(shapes.get(node.outputs[0], (0,))))
        kernel = shapes.get(node.inputs[1], ()) if len(node.inputs) > 1 else ()
        if node.operator == "Conv" and kernel:
            each = float(np.prod(kernel[1:]))
            total += made * (each if kernel[1] > 1 else 4 * each)  # one channel at a time is slower
        elif node.operator.endswith("Pool"):
            total += made * 4 * float(np.prod(node.attributes.get("kernel_shape", (1,))))
        else:
            total += made
    return total
