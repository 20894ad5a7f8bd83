"""A patch at every position of one picture: batches, replays of what decides, and the map of outputs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from holdfast.core.types import Bools, Floats, Ints, Tensor
from holdfast.patchbench.positions.batches import Batches, Values, in_batches

NEAR = 1e-3  # outputs this near the threshold, and class scores this near each other, are run again
WRONG = 1e-4  # if a batch is off by more anywhere, no batch is believed
_SAMPLES = 16  # positions that are run again in any case
# Raw outputs (n, m) each -> the map's outputs (n,), and where they are doubtful.
Read = Callable[[list[Tensor]], tuple[Floats, Bools]]


@dataclass(frozen=True)
class SafetyRule:
    """Which outputs are unsafe: those up to the threshold, or, if `strict`, those below it."""

    threshold: float = 0.5
    strict: bool = False

    def unsafe(self, outputs: Floats) -> Bools:
        """Where an output is unsafe; one that is no number is."""
        safe = outputs >= self.threshold if self.strict else outputs > self.threshold
        return np.asarray(~safe)

    def __str__(self) -> str:
        return f"unsafe where output {'<' if self.strict else '≤'} {self.threshold:g}"


@dataclass(frozen=True, eq=False)
class PositionMap:
    """The output iou × equal for every position of the patch's top left corner, (rows, columns).

    `rows` and `columns` are the positions along both directions. `replayed` of them were run one by one on
    the user's file, and their outputs are those; `difference` is the largest by which the fast way was off.
    """

    outputs: Floats
    rows: Floats
    columns: Floats
    bar: SafetyRule
    clean: float
    unchanged: int  # positions at which the picture stays as it is
    replayed: int
    difference: float
    how: str

    @property
    def unsafe(self) -> Bools:
        """Where (rows, columns) the output is unsafe."""
        return self.bar.unsafe(self.outputs)

    @property
    def robust(self) -> float:
        """The share of positions that are safe: the robust area."""
        return float(1.0 - self.unsafe.mean())

    @property
    def where(self) -> tuple[int, int]:
        """Row and column, as places in the map, of the smallest output; the first of equal ones."""
        flat = int(np.argmin(np.where(np.isnan(self.outputs), -np.inf, self.outputs)))
        return divmod(flat, len(self.columns))

    @property
    def worst(self) -> tuple[float, float]:
        """The row and the column of the smallest output."""
        row, column = self.where
        return float(self.rows[row]), float(self.columns[column])

    @property
    def minimum(self) -> float:
        """The smallest output."""
        return float(self.outputs[self.where])

    @property
    def status(self) -> str:
        """The verdict over all positions: violated (sat) if any is unsafe, else holds (unsat)."""
        return "violated" if self.unsafe.any() else "holds"


@dataclass(frozen=True, eq=False)
class ReplayedMap:
    """The outputs (n,), how many of them were run one by one, and how far off the batches were there."""

    outputs: Floats
    replayed: int
    difference: float
    how: str  # "batches", or "one by one" if those are not believed


def settle(
    outputs: Floats, doubtful: Bools, bar: SafetyRule, replay: Callable[[int], float], batched: bool = True
) -> ReplayedMap:
    """Check the outputs (n,) of batches; `replay` gives one of them by running the user's file.

    Run again are those near the threshold, those that are `doubtful` (a class nearly tied), the smallest, and
    a sample. If one that is not doubtful is off, all are run again.
    """
    how = "batches" if batched else "one by one"
    if not len(outputs):
        return ReplayedMap(outputs, 0, 0.0, how)
    again = doubtful | ~np.isfinite(outputs) | (np.abs(outputs - bar.threshold) <= NEAR)
    again[np.argmin(np.where(np.isnan(outputs), np.inf, outputs))] = True
    again[np.linspace(0, len(outputs) - 1, min(_SAMPLES, len(outputs))).astype(np.int64)] = True
    final = outputs.copy()
    places = np.flatnonzero(again)
    final[places] = [replay(int(i)) for i in places]
    known = again & ~doubtful & np.isfinite(outputs)
    if not (np.abs(final - outputs)[known] <= WRONG).all():
        rest = np.flatnonzero(~again)
        final[rest] = [replay(int(i)) for i in rest]
        again[:], how = True, "one by one"
    difference = float(np.nanmax(np.abs(final - outputs)[again], initial=0.0))
    return ReplayedMap(final, int(again.sum()), difference, how)


def ties(scores: Floats) -> Bools:
    """For each row of class scores (n, k) whether the two highest are nearly equal."""
    if scores.ndim != 2 or scores.shape[1] < 2:
        return np.zeros(len(scores), np.bool_)
    best = np.partition(scores, -2, axis=1)[:, -2:]
    scale = np.maximum(np.abs(best).max(axis=1), 1.0)
    return np.asarray(~(best[:, 1] - best[:, 0] > NEAR * scale))


def pasted(clean: Tensor, content: Tensor, spots: Ints, last: bool = False) -> Tensor:
    """Lay a patch over a picture (1, …), once for each position (n, 2) of its top left corner; (n, …).

    The patch is (c, k, k), or (k, k, c) if channels are `last`. Where it is masked the picture shows through.
    """
    made = np.repeat(clean, len(spots), axis=0)
    height, width = content.shape[:2] if last else content.shape[1:]
    hidden, data = np.ma.getmaskarray(content), np.ma.getdata(content)
    for picture, (row, column) in zip(made, spots.tolist(), strict=True):
        square = slice(row, row + height), slice(column, column + width)
        there = (*square, slice(None)) if last else (slice(None), *square)
        picture[there] = np.where(hidden, picture[there], data)
    return made


def changing(clean: Tensor, content: Tensor, last: bool = False) -> Bools:
    """For every position (rows, columns) of the patch whether it changes the picture."""
    if last:
        clean, content = clean.transpose(0, 3, 1, 2), content.transpose(2, 0, 1)
    views = np.lib.stride_tricks.sliding_window_view(clean[0], content.shape[1:], (1, 2))
    data, seen = np.ma.getdata(content), ~np.ma.getmaskarray(content)
    differs = (views != data[:, np.newaxis, np.newaxis]) & seen[:, np.newaxis, np.newaxis]
    return np.asarray(differs.any(axis=(0, 3, 4)))


def sweep(
    batches: Batches, clean: Tensor, content: Tensor, read: Read, replay: Callable[[Tensor], float], *,
    bar: SafetyRule, other_inputs: Values | None = None, last: bool = False, jobs: int = 1,
) -> PositionMap:  # fmt: skip
    """Map a patch at every position of a picture (1, …).

    Both must be normalised. Positions at which the patch changes nothing have the output of the clean
    picture. `replay` gives the output of one picture (1, …) by the user's file.
    """
    changed = changing(clean, content, last)
    spots = np.argwhere(changed)

    def run(number: Sequence[int]) -> list[Tensor]:
        return batches.run(pasted(clean, content, spots[number], last), other_inputs or {})

    def run_again(number: int) -> float:
        return replay(pasted(clean, content, spots[[number]], last))

    outputs, doubtful = np.zeros(0), np.zeros(0, np.bool_)
    if len(spots):
        outputs, doubtful = read(in_batches(run, range(len(spots)), jobs))
    before = replay(clean)
    settled = settle(outputs, doubtful, bar, run_again, batches.many is not None)
    whole: Floats = np.full(changed.shape, before)
    whole[changed] = settled.outputs
    rows, columns = (np.arange(float(size)) for size in whole.shape)
    facts = vars(settled) | {"outputs": whole, "unchanged": int((~changed).sum())}
    return PositionMap(rows=rows, columns=columns, bar=bar, clean=before, **facts)
