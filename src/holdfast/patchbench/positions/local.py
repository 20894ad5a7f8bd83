"""A patch followed through the first layers on crops: only what it can change is computed again.

A patch of a few pixels changes a few cells of the first maps. For each position the first layers are run on a
crop around it, what comes out is laid over the clean map, and so on, until the crop would be the whole map.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from holdfast.core.types import Ints, Tensor
from holdfast.graph.wire import WireGraph, write_part
from holdfast.patchbench.positions.batch import NotBatched, batched
from holdfast.patchbench.positions.levels import Level, plan_of
from holdfast.patchbench.positions.trunk import Trunk, alike, feed, flat, over, pasted
from holdfast.verify.replay import session_of

_PROBES = 3  # positions along each direction at which crops and whole maps are compared


@dataclass(frozen=True, eq=False)
class Step:
    """A level and its session."""

    level: Level
    session: Any


@dataclass(frozen=True, eq=False)
class Crops:
    """A network made ready to follow patches of one size: its levels, and the rest behind them."""

    trunk: Trunk
    patch: tuple[int, int]
    steps: tuple[Step, ...]
    entry: str
    maps: Any  # gives the clean maps at which the levels end
    rest: Any


@dataclass(frozen=True, eq=False)
class Followed:
    """Crops opened on one picture and one patch; `starts` are all crops of each level's clean map."""

    crops: Crops
    content: Tensor
    under: Tensor  # what lies under the patch at each position, (rows, columns, c, k, k): a view
    starts: tuple[Tensor, ...]  # (rows, columns, c, h, w): views
    whole: Tensor  # the clean map at the entry of the rest, (1, c, h, w)
    told: Mapping[str, Tensor]

    def run(self, spots: Ints) -> list[Tensor]:
        """The outputs for these positions (n, 2) of the patch's top left corner."""
        changed, at = over(self.under[spots[:, 0], spots[:, 1]], self.content), spots
        across = spots[:, 0], spots[:, 1]
        for step, starts in zip(self.crops.steps, self.starts, strict=True):
            spans = step.level.rows, step.level.columns
            begin = np.stack([span.crop[i] for span, i in zip(spans, across, strict=True)], axis=1)
            crops = starts[begin[:, 0], begin[:, 1]]
            lay(crops, changed, at - begin)
            (found,) = feed(step.session, step.level.source, crops, self.told)
            inside = np.stack([span.inside[i] for span, i in zip(spans, across, strict=True)], axis=1)
            changed = cut(found, inside, (spans[0].size, spans[1].size))
            at = np.stack([span.window[i] for span, i in zip(spans, across, strict=True)], axis=1)
        maps = np.repeat(self.whole, len(spots), axis=0)
        lay(maps, changed, at)
        return flat(feed(self.crops.rest, self.crops.entry, maps, self.told), len(spots))


def open_crops(trunk: Trunk, patch: tuple[int, int], told: Mapping[str, Tensor]) -> Crops | None:
    """A network made ready for patches of so many rows and columns; None if crops do not pay."""
    if trunk.many is None or trunk.last or trunk.dtype != np.float32:
        return None
    graph, source, example = trunk.graph, trunk.source, np.zeros(trunk.shape, np.float32)
    shapes = shapes_of(graph, write_part(graph, {source: example, **told}, trunk.outputs, {}))
    plan = plan_of(graph, source, trunk.outputs, shapes, patch)
    if not plan.levels:
        return None

    def part(name: str, size: tuple[int, ...], outputs: tuple[str, ...]) -> bytes:
        return write_part(graph, {name: np.zeros(size, np.float32), **told}, outputs, {})

    steps = []
    try:
        for level in plan.levels:
            size = 1, shapes[level.source][1], level.rows.wide, level.columns.wide
            steps.append(Step(level, session_of(batched(part(level.source, size, (level.target,))))))
        rest = session_of(batched(part(plan.entry, shapes[plan.entry], trunk.outputs)))
    except NotBatched:
        return None
    names = tuple(level.target for level in plan.levels)
    return Crops(trunk, patch, tuple(steps), plan.entry, session_of(part(source, trunk.shape, names)), rest)


def follow(crops: Crops, clean: Tensor, content: Tensor, told: Mapping[str, Tensor]) -> Followed | None:
    """The crops of one picture (1, c, h, w) and patch (c, k, k); None if a trial shows they are not right."""
    maps = [clean, *feed(crops.maps, crops.trunk.source, clean, told)]
    starts = []
    for step, whole in zip(crops.steps, maps, strict=False):
        starts.append(_windows(whole, (step.level.rows.wide, step.level.columns.wide)))
    made = Followed(crops, content, _windows(clean, crops.patch), tuple(starts), maps[-1], told)
    ends = [size - part for size, part in zip(crops.trunk.size, crops.patch, strict=True)]
    lines = [np.linspace(0, end, _PROBES).astype(np.int64) for end in ends]
    spots = np.stack(np.meshgrid(*lines, indexing="ij"), axis=-1).reshape(-1, 2)
    plain = crops.trunk.run(pasted(crops.trunk, clean, content, spots), told)
    return made if alike(made.run(spots), plain) else None


def _windows(whole: Tensor, size: tuple[int, int]) -> Tensor:
    """All windows of a map (1, c, h, w), as a view (rows, columns, c, *size)."""
    return np.moveaxis(np.lib.stride_tricks.sliding_window_view(whole[0], size, (1, 2)), 0, 2)


def lay(maps: Tensor, windows: Tensor, at: Ints) -> None:
    """Nothing is returned: each window (n, c, h, w) is laid over its map at its row and column (n, 2)."""
    height, width = windows.shape[2:]
    for (row, column), those in _groups(at):
        maps[those, :, row : row + height, column : column + width] = windows[those]


def cut(maps: Tensor, at: Ints, size: tuple[int, int]) -> Tensor:
    """A window of this size from each map (n, c, h, w), at its row and column (n, 2)."""
    made = np.empty((*maps.shape[:2], *size), maps.dtype)
    for (row, column), those in _groups(at):
        made[those] = maps[those, :, row : row + size[0], column : column + size[1]]
    return made


def _groups(at: Ints) -> list[tuple[tuple[int, int], list[int]]]:
    """The different places, each with the numbers of those that share it: few in a row of positions."""
    found: dict[tuple[int, int], list[int]] = {}
    for number, (row, column) in enumerate(at.tolist()):
        found.setdefault((row, column), []).append(number)
    return list(found.items())


def shapes_of(graph: WireGraph, part: bytes) -> dict[str, tuple[int, ...]]:
    """The shapes of a part's tensors and of the graph's weights, as far as they are known."""
    import onnx

    seen = onnx.shape_inference.infer_shapes(onnx.load_from_string(part), data_prop=True).graph
    shapes = {weight.name: weight.dims for weight in graph.weights.values()}
    for value in (*seen.value_info, *seen.input, *seen.output):
        dims = value.type.tensor_type.shape.dim
        if all(d.HasField("dim_value") for d in dims):
            shapes[value.name] = tuple(int(d.dim_value) for d in dims)
    for node in seen.node:
        if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value":
            shapes[node.output[0]] = tuple(node.attribute[0].t.dims)
    return shapes
