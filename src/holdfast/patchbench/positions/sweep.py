"""A patch at every position of one picture: batched runs, replays of decisive positions, output maps."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from holdfast.core.types import Bools, Floats, Ints, Tensor
from holdfast.patchbench.positions.batches import Batches, Values, in_batches

NEAR = 1e-3  # outputs this close to the threshold, and class scores this close to each other, are replayed
WRONG = 1e-4  # if any batched output is off by more, all positions are replayed
_SAMPLES = 16  # positions that are always replayed
# Raw outputs (n, m) each -> the map's outputs (n,), and where they are doubtful.
Read = Callable[[list[Tensor]], tuple[Floats, Bools]]


@dataclass(frozen=True)
class SafetyRule:
    """Which outputs are unsafe: those up to the threshold, or, if `strict`, those below it."""

    threshold: float = 0.5
    strict: bool = False

    def unsafe(self, outputs: Floats) -> Bools:
        """Where an output is unsafe; NaN is unsafe."""
        safe = outputs >= self.threshold if self.strict else outputs > self.threshold
        return np.asarray(~safe)

    def __str__(self) -> str:
        return f"unsafe where output {'<' if self.strict else '≤'} {self.threshold:g}"


@dataclass(frozen=True, eq=False)
class PositionMap:
    """The output iou × equal for every position of the patch's top left corner, (rows, columns).

    `rows` and `columns` are the positions along both directions. `replayed` of them were run one by one on
    the user's file, which gives their outputs; `difference` is the largest difference from the batched run.
    """

    outputs: Floats
    rows: Floats
    columns: Floats
    bar: SafetyRule
    clean: float
    unchanged: int  # positions at which the patch does not change the picture
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
        """Row and column index of the smallest output; the first of equal ones."""
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
    """The outputs (n,), how many of them were replayed, and the largest difference from the batches."""

    outputs: Floats
    replayed: int
    difference: float
    how: str  # "batches", or "one by one" if batches are not reliable


def confirm(
    outputs: Floats, doubtful: Bools, bar: SafetyRule, replay: Callable[[int], float], batched: bool = True
) -> ReplayedMap:
    """Confirm the outputs (n,) of batches; `replay` computes one of them with the user's file.

    Outputs near the threshold, `doubtful` ones (a class nearly tied), the smallest, and a sample are
    replayed. If one that is not doubtful differs, all are replayed.
    """
    how = "batches" if batched else "one by one"
    if not len(outputs):
        return ReplayedMap(outputs, 0, 0.0, how)
    selected = doubtful | ~np.isfinite(outputs) | (np.abs(outputs - bar.threshold) <= NEAR)
    selected[np.argmin(np.where(np.isnan(outputs), np.inf, outputs))] = True
    selected[np.linspace(0, len(outputs) - 1, min(_SAMPLES, len(outputs))).astype(np.int64)] = True
    final = outputs.copy()
    indices = np.flatnonzero(selected)
    final[indices] = [replay(int(i)) for i in indices]
    known = selected & ~doubtful & np.isfinite(outputs)
    if not (np.abs(final - outputs)[known] <= WRONG).all():
        rest = np.flatnonzero(~selected)
        final[rest] = [replay(int(i)) for i in rest]
        selected[:], how = True, "one by one"
    difference = float(np.nanmax(np.abs(final - outputs)[selected], initial=0.0))
    return ReplayedMap(final, int(selected.sum()), difference, how)


def ties(scores: Floats) -> Bools:
    """Per row of class scores (n, k): whether the two highest are nearly equal."""
    if scores.ndim != 2 or scores.shape[1] < 2:
        return np.zeros(len(scores), np.bool_)
    best = np.partition(scores, -2, axis=1)[:, -2:]
    scale = np.maximum(np.abs(best).max(axis=1), 1.0)
    return np.asarray(~(best[:, 1] - best[:, 0] > NEAR * scale))


def pasted(clean: Tensor, content: Tensor, spots: Ints, last: bool = False) -> Tensor:
    """Copies (n, …) of a picture (1, …) with a patch at each position (n, 2) of its top left corner.

    The patch is (c, k, k), or (k, k, c) if channels are `last`. Where it is masked the picture is visible.
    """
    copies = np.repeat(clean, len(spots), axis=0)
    height, width = content.shape[:2] if last else content.shape[1:]
    hidden, data = np.ma.getmaskarray(content), np.ma.getdata(content)
    for picture, (row, column) in zip(copies, spots.tolist(), strict=True):
        square = slice(row, row + height), slice(column, column + width)
        region = (*square, slice(None)) if last else (slice(None), *square)
        picture[region] = np.where(hidden, picture[region], data)
    return copies


def changing(clean: Tensor, content: Tensor, last: bool = False) -> Bools:
    """Per position (rows, columns) of the patch: whether it changes the picture."""
    if last:
        clean, content = clean.transpose(0, 3, 1, 2), content.transpose(2, 0, 1)
    views = np.lib.stride_tricks.sliding_window_view(clean[0], content.shape[1:], (1, 2))
    data, visible = np.ma.getdata(content), ~np.ma.getmaskarray(content)
    differs = (views != data[:, np.newaxis, np.newaxis]) & visible[:, np.newaxis, np.newaxis]
    return np.asarray(differs.any(axis=(0, 3, 4)))


def sweep(
    batches: Batches, clean: Tensor, content: Tensor, read: Read, replay: Callable[[Tensor], float], *,
    bar: SafetyRule, other_inputs: Values | None = None, last: bool = False, jobs: int = 1,
) -> PositionMap:  # fmt: skip
    """Map a patch at every position of a picture (1, …).

    Both must be normalised. Positions at which the patch changes nothing have the output of the clean
    picture. `replay` computes the output of one picture (1, …) with the user's file.
    """
    changed = changing(clean, content, last)
    spots = np.argwhere(changed)

    def run(number: Sequence[int]) -> list[Tensor]:
        return batches.run(pasted(clean, content, spots[number], last), other_inputs or {})

    def replay_at(number: int) -> float:
        return replay(pasted(clean, content, spots[[number]], last))

    outputs, doubtful = np.zeros(0), np.zeros(0, np.bool_)
    if len(spots):
        outputs, doubtful = read(in_batches(run, range(len(spots)), jobs))
    before = replay(clean)
    confirmed = confirm(outputs, doubtful, bar, replay_at, batches.many is not None)
    outputs_map: Floats = np.full(changed.shape, before)
    outputs_map[changed] = confirmed.outputs
    rows, columns = (np.arange(float(size)) for size in outputs_map.shape)
    facts = vars(confirmed) | {"outputs": outputs_map, "unchanged": int((~changed).sum())}
    return PositionMap(rows=rows, columns=columns, bar=bar, clean=before, **facts)
