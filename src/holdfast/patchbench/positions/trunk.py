"""The network behind the patch: from the picture as a tensor to what it says, for many pictures at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from holdfast.core.types import Bools, Ints, Tensor
from holdfast.graph.inspect import condense
from holdfast.graph.wire import WireGraph, write_part
from holdfast.patchbench.positions.batch import NotBatched, batched
from holdfast.verify.replay import session_of

BATCH = 32  # pictures at once: more do not fit the cache, and are slower
SAME = 1e-4  # outputs farther apart than this are not the same network's


@dataclass(frozen=True, eq=False)
class Trunk:
    """A part of a graph from the picture (1, c, h, w) or (1, h, w, c) to its outputs.

    `alone` runs it as it is, `many` (None if there is none, and `why`) takes any number of pictures at once.
    Both also take the values of `told`, the same for all pictures.
    """

    graph: WireGraph
    source: str
    shape: tuple[int, ...]
    outputs: tuple[str, ...]
    told: tuple[str, ...]
    last: bool  # the channels are the last axis
    dtype: Any
    alone: Any
    many: Any = None
    why: str = ""

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns of the picture."""
        return (self.shape[1], self.shape[2]) if self.last else (self.shape[2], self.shape[3])

    def run(self, pictures: Tensor, told: Mapping[str, Tensor]) -> list[Tensor]:
        """The outputs of pictures (b, …), each flat, (b, m)."""
        if self.many is not None:
            return flat(feed(self.many, self.source, pictures, told), len(pictures))
        rows = [flat(self.alone_run(picture[None], told), 1) for picture in pictures]
        return [np.concatenate(values) for values in zip(*rows, strict=True)]

    def alone_run(self, picture: Tensor, told: Mapping[str, Tensor]) -> list[Tensor]:
        """The outputs of one picture (1, …) by the part as it is in the file."""
        return feed(self.alone, self.source, picture, told)


def open_trunk(
    graph: WireGraph, source: str, example: Tensor, outputs: Sequence[str],
    told: Mapping[str, Tensor] | None = None, last: bool = False,
) -> Trunk:  # fmt: skip
    """The part of the graph from `source` (an example of it, a batch of one) on, rewritten for many.

    If that cannot be done, or gives other answers than the part as it is, pictures are run one by one.
    """
    told = told or {}
    part = write_part(graph, {source: example, **told}, outputs, {})
    alone = session_of(part)
    names = tuple(value.name for value in alone.get_inputs() if value.name != source)
    made = Trunk(graph, source, example.shape, tuple(outputs), names, last, example.dtype, alone)
    try:
        many = session_of(batched(part))
        dark = (example * example.dtype.type(0.5)).astype(example.dtype)
        pair = np.concatenate([example, dark])
        if not alike(made.run(pair, told), flat(feed(many, source, pair, told), 2)):
            raise NotBatched("two pictures at once give other answers than each alone")
    except NotBatched as problem:
        return replace(made, why=str(problem))
    except Exception as problem:  # noqa: BLE001 - onnxruntime's errors have no common class
        return replace(made, why=f"onnxruntime: {condense(problem, 200)}")
    return replace(made, many=many)


def feed(session: Any, name: str, pictures: Tensor, told: Mapping[str, Tensor]) -> list[Tensor]:
    """The outputs of a session for these pictures and what it is told besides, as far as it reads that."""
    wanted = {value.name for value in session.get_inputs()}
    given = {name: pictures, **{n: v for n, v in told.items() if n in wanted}}
    return [np.atleast_1d(value) for value in session.run(None, given)]


def flat(outputs: Sequence[Tensor], count: int) -> list[Tensor]:
    """Outputs of so many pictures, each as (count, m)."""
    return [value.reshape(count, -1) for value in outputs]


def alike(first: Sequence[Tensor], second: Sequence[Tensor]) -> bool:
    """Whether two rows of outputs are those of one network."""
    return all(
        a.shape == b.shape and np.allclose(a, b, rtol=SAME, atol=SAME, equal_nan=True)
        for a, b in zip(first, second, strict=True)
    )


def square_of(content: Tensor, last: bool) -> tuple[int, int]:
    """Rows and columns of a patch (c, k, k), or (k, k, c) if the channels are last."""
    return (content.shape[0], content.shape[1]) if last else (content.shape[1], content.shape[2])


def over(under: Tensor, content: Tensor) -> Tensor:
    """What is seen of a patch on what lies under it: where a masked array is masked, it is seen through."""
    return np.where(np.ma.getmaskarray(content), under, np.ma.getdata(content))


def pasted(trunk: Trunk, clean: Tensor, content: Tensor, spots: Ints) -> Tensor:
    """The picture (1, …) with the patch on it, once for each position (n, 2) of its top left corner."""
    made = np.repeat(clean, len(spots), axis=0)
    height, width = square_of(content, trunk.last)
    for picture, (row, column) in zip(made, spots.tolist(), strict=True):
        square = slice(row, row + height), slice(column, column + width)
        there = (*square, slice(None)) if trunk.last else (slice(None), *square)
        picture[there] = over(picture[there], content)
    return made


def changing(trunk: Trunk, clean: Tensor, content: Tensor) -> Bools:
    """For every position (rows, columns) of the patch whether it changes the picture at all."""
    axes = (1, 2) if trunk.last else (2, 3)
    size = square_of(content, trunk.last)
    views = np.lib.stride_tricks.sliding_window_view(clean, size, axes)[0]
    data, seen = np.ma.getdata(content), ~np.ma.getmaskarray(content)
    if trunk.last:  # (rows, columns, c, k, k)
        differs = (views != np.moveaxis(data, 2, 0)) & np.moveaxis(seen, 2, 0)
        return np.asarray(differs.any(axis=(2, 3, 4)))
    return np.asarray(((views != data[:, None, None]) & seen[:, None, None]).any(axis=(0, 3, 4)))


def shares(spots: Ints, size: int = BATCH) -> Iterator[Ints]:
    """The positions in shares of one batch."""
    for begin in range(0, len(spots), size):
        yield spots[begin : begin + size]
