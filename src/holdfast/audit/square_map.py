"""The map of a black square over one image: its grid, the score at every position, and the answer."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from holdfast.audit.result import Answer, Proof
from holdfast.core.errors import InputError
from holdfast.core.patch import Patch, Position
from holdfast.core.types import Bools, Boxes, Floats, Ints, Label, Size

THREAT, ENGINE = "square", "enumeration"
FEWEST = 4  # positions: the corners of the image
_PLAIN = ("threshold", "clean", "seconds", "note")  # fields that JSON can hold


@dataclass(frozen=True)
class Grid:
    """A square of `side` pixels at every `step`-th column and row, and at the last of both."""

    side: int
    step: int

    def __post_init__(self) -> None:
        if min(self.side, self.step) < 1:
            raise InputError(
                f"Grid: expected a side and a step of 1 or more, got {self.side} and {self.step}"
            )


def grid_for(size: Size, share: float = 0.1, most: int = 400) -> Grid:
    """The grid of a square whose side is a share of the shorter side, with the smallest step for `most`."""
    if not 0.0 < share <= 1.0:
        raise InputError(f"square: expected a share of the shorter side above 0 and up to 1, got {share:g}")
    if most < FEWEST:
        raise InputError(f"square: expected at least {FEWEST} positions, one in each corner, got {most}")
    side = max(1, round(share * min(size)))
    low, high = 1, max(1, max(size) - side)  # at `high` only the ends are left
    while low < high:
        middle = (low + high) // 2
        if math.prod(len(_starts(length, Grid(side, middle))) for length in size) <= most:
            high = middle
        else:
            low = middle + 1
    return Grid(side, low)


def _starts(length: int, grid: Grid) -> Ints:
    """The first pixels along one side: every step, and the last at which the square is inside."""
    last = length - grid.side
    if last < 0:
        raise InputError(f"square: expected a side up to {length} pixels, got {grid.side}")
    starts = np.arange(0, last + 1, grid.step, dtype=np.int64)
    return starts if starts[-1] == last else np.append(starts, last)


def axes(size: Size, grid: Grid) -> tuple[Ints, Ints]:
    """The columns and the rows of the square's top left corner."""
    return _starts(size.width, grid), _starts(size.height, grid)


def places(size: Size, grid: Grid) -> Ints:
    """Column and row of the square's top left corner at every position (n, 2), row by row."""
    columns, rows = axes(size, grid)
    return np.stack([np.tile(columns, len(rows)), np.repeat(rows, len(columns))], axis=1)


def black(grid: Grid, column: int, row: int) -> Patch:
    """The black square at one position."""
    shape = grid.side, grid.side
    return Patch(np.zeros((*shape, 3), np.uint8), np.ones(shape, bool), Position(column, row))


@dataclass(frozen=True, eq=False)
class SquareMap:
    """The scores of an image's targets at every position of the square.

    `scores` (rows, columns): for detectors the lowest best score over the targets, 0 where one is hidden; for
    classifiers the score of the true class minus the best other. NaN where it could not be
    computed. A score below `threshold` is unsafe; the worst unsafe one was replayed from the image's bytes.
    """

    image: str
    size: Size
    grid: Grid
    scores: Floats
    threshold: float
    targets: Boxes | Label  # by the model's class numbers
    clean: float  # without a square
    seconds: float
    note: str = ""

    def __post_init__(self) -> None:
        columns, rows = axes(self.size, self.grid)
        shape = len(rows), len(columns)
        if self.scores.shape != shape:
            raise InputError(f"SquareMap.scores: expected {shape}, got {self.scores.shape}")

    @property
    def unsafe(self) -> Bools:
        """Where (rows, columns) a target is hidden."""
        return np.asarray(self.scores < self.threshold)  # NaN is not: that position is undecided

    @property
    def tried(self) -> int:
        """The number of positions with a score."""
        return int(np.count_nonzero(~np.isnan(self.scores)))

    @property
    def answer(self) -> Answer:
        """`violated` if a position is unsafe, `holds` only if every position has a score."""
        if self.unsafe.any():
            return "violated"
        return "holds" if self.tried == self.scores.size > 0 else "unknown"

    @property
    def least(self) -> float | None:
        """The smallest score; None if no position has one."""
        return float(np.nanmin(self.scores)) if self.tried else None

    @property
    def where(self) -> tuple[int, int] | None:
        """Column and row of the worst position; of equal ones the one with the worst neighbours."""
        if not self.tried:
            return None
        ties = self.scores == np.nanmin(self.scores)
        row, column = divmod(int(np.argmin(np.where(ties, _around(self.scores), np.inf))), ties.shape[1])
        columns, rows = axes(self.size, self.grid)
        return int(columns[column]), int(rows[row])

    @property
    def tightest(self) -> Ints:
        """All positions (n, 2), column and row, the worst first; undecided ones come before all others."""
        flat = np.nan_to_num(self.scores.ravel(), nan=-np.inf)
        order = np.lexsort((_around(self.scores).ravel(), flat))
        return places(self.size, self.grid)[order]


def _around(scores: Floats) -> Floats:
    """The mean over each position and its neighbours: lowest in the middle of an unsafe region."""
    known = np.isfinite(scores)
    value, weight = (np.pad(v, 1) for v in (np.where(known, scores, 0.0), known.astype(np.float64)))
    rows, columns = scores.shape
    near = [(slice(r, r + rows), slice(c, c + columns)) for r in range(3) for c in range(3)]
    total, count = (np.sum([grid[part] for part in near], axis=0) for grid in (value, weight))
    return np.asarray(total / np.maximum(count, 1.0))


def proofs_of(maps: Sequence[SquareMap], command: str = "") -> tuple[Proof, ...]:
    """The answer of every map, exact for the finite set of positions."""
    return tuple(
        Proof(
            THREAT,
            m.image,
            m.answer,
            ENGINE,
            m.seconds,
            members=m.scores.size,
            tried=m.tried,
            unsafe=int(m.unsafe.sum()),
            margin=None if m.least is None else m.least - m.threshold,
            where=m.where,
            note=m.note,
            command=command,
        )
        for m in maps
    )


def worst_squares(maps: Sequence[SquareMap]) -> dict[str, Patch]:
    """The black square at the worst position of each image: the threat replayed under deployments."""
    return {m.image: black(m.grid, *m.where) for m in maps if m.where is not None}


def describe_square(maps: Sequence[SquareMap]) -> str:
    """The square in words: its side and its number of positions, as ranges if images differ in size."""
    if not maps:
        return "a black square"
    counts = ([m.grid.side for m in maps], [m.scores.size for m in maps])
    side, many = (" to ".join(map(str, sorted({min(values), max(values)}))) for values in counts)
    return f"a black square with a side of {side} pixels at {many} positions"


def to_plain(square_map: SquareMap) -> dict[str, Any]:
    """The map as JSON values, without the image's name."""
    grid, targets = square_map.grid, square_map.targets
    if isinstance(targets, Label):
        truth: Any = targets.index
    else:
        truth = [targets.xyxy.tolist(), targets.classes.tolist()]
    return {
        **{name: getattr(square_map, name) for name in _PLAIN},
        "size": list(square_map.size),
        "grid": [grid.side, grid.step],
        "scores": [[None if math.isnan(v) else v for v in row] for row in square_map.scores.tolist()],
        "targets": truth,
    }


def from_plain(image: str, plain: dict[str, Any]) -> SquareMap:
    """The map that `to_plain` wrote."""
    targets = plain["targets"]
    return SquareMap(
        image,
        Size(*plain["size"]),
        Grid(*plain["grid"]),
        np.array(plain["scores"], np.float64),
        targets=Boxes(*targets) if isinstance(targets, list) else Label(targets),
        **{name: plain[name] for name in _PLAIN},
    )
