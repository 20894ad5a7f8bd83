"""The train × test matrix of the paper's Tables 7 to 9, and noise after each mitigation (its Fig. 4)."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from holdfast.core import fingerprint
from holdfast.core.dataset import Dataset
from holdfast.core.errors import InputError
from holdfast.core.model import Model
from holdfast.core.types import Floats
from holdfast.evaluate.run import EvaluationPlan
from holdfast.noise.suite import NoiseSelection, Watch, no_progress
from holdfast.noise.vision.result import NoiseSuite
from holdfast.noise.vision.run import NoisePlan, measure, prepare
from holdfast.train.mitigate.rows import MIX, Over, choice_of
from holdfast.train.mitigate.training import TrainedModels, Training, correct_predictions, pictures_for
from holdfast.train.pictures import Say

REPLICATES: Final = 1000
ALLOWED: Final = 0.5  # maximum loss of the mean by mix training in points, as claimed in the paper
FAMILIES: Final = ("decode", "resize", "colour", "precision", "ceil")


@dataclass(frozen=True)
class MatrixRow:
    """A row: accuracy in percent by test, their mean and sample standard deviation, averaged over seeds.

    The 95% intervals are bootstrap intervals over test images (the same draws for all cells); `spread` is the
    standard deviation of the mean over seeds, None with one seed.
    """

    train: str
    accuracy: tuple[float, ...]
    mean: float
    std: float
    std_low: float
    std_high: float
    mean_low: float
    mean_high: float
    spread: float | None = None


@dataclass(frozen=True)
class Matrix:
    """One row per training, one column per test, on the same images."""

    over: Over
    model: str
    data: str
    images: int
    tests: tuple[str, ...]
    lines: tuple[MatrixRow, ...]
    seeds: tuple[int, ...]
    trained_on: int = 0
    steps: int = 0
    binomial: float = 0.0  # standard deviation of one accuracy due to the number of images, in points

    def line(self, train: str) -> MatrixRow:
        """The row of that name."""
        for line in self.lines:
            if line.train == train:
                return line
        raise InputError(f"no row {train!r} in this matrix; expected one of {', '.join(self.rows)}")

    def behind(self, line: MatrixRow) -> float:
        """The points by which a row is below the best row of each column, mean over the columns."""
        best = np.max([other.accuracy for other in self.lines], axis=0)
        return float(np.mean(best - np.array(line.accuracy)))

    @property
    def rows(self) -> tuple[str, ...]:
        """The names of the rows."""
        return tuple(line.train for line in self.lines)


def matrix(
    training: Training, tested: Dataset, over: Over, models: TrainedModels, tests: Sequence[str], say: Say
) -> Matrix:
    """The matrix of trained rows by tests; cached tests are not run again."""
    choices = [choice_of(training.model, over, name) for name in tests]
    pictures = pictures_for(training, tested, choices, say)
    indices = [pictures.place(choice) for choice in choices]
    key = fingerprint.of([pictures.key, indices])
    pictures = dataclasses.replace(pictures, images=pictures.images[indices], choices=tuple(choices), key=key)
    rows: dict[str, dict[int, Model]] = {}
    for job, model in models.items():
        rows.setdefault(job.row.name, {})[job.seed] = model
    lines = []
    for name, by_seed in rows.items():
        correct = [correct_predictions(model, pictures, training.folder) for model in by_seed.values()]
        lines.append(matrix_row(name, np.stack(correct)))
        say(f"{name}: mean accuracy {lines[-1].mean:.2f}%, std {lines[-1].std:.3f}")
    share = float(np.mean([line.mean for line in lines])) / 100
    seeds = tuple(dict.fromkeys(job.seed for job in models))
    return Matrix(
        over=over,
        model=training.model.name,
        data=tested.name,
        images=len(pictures),
        tests=tuple(tests),
        lines=tuple(lines),
        seeds=seeds,
        trained_on=len(training.data),
        steps=training.steps,
        binomial=100 * float(np.sqrt(share * (1 - share) / len(pictures))),
    )


def matrix_row(name: str, hits: NDArray[np.bool_], replicates: int = REPLICATES) -> MatrixRow:
    """The row from correct predictions (seeds, tests, n)."""
    accuracies = 100 * hits.mean(2)
    replicated = _bootstrap(hits, replicates)
    stds, means = _std(replicated), replicated.mean((1, 2))
    std_low, std_high = np.quantile(stds, (0.025, 0.975))
    mean_low, mean_high = np.quantile(means, (0.025, 0.975))
    return MatrixRow(
        train=name,
        accuracy=tuple(float(a) for a in accuracies.mean(0)),
        mean=float(accuracies.mean()),
        std=float(_std(accuracies[None])[0]),
        std_low=float(std_low),
        std_high=float(std_high),
        mean_low=float(mean_low),
        mean_high=float(mean_high),
        spread=float(accuracies.mean(1).std(ddof=1)) if len(accuracies) > 1 else None,
    )


def _std(accuracy: Floats) -> Floats:
    """The sample standard deviation over tests, averaged over seeds, of accuracies (draws, seeds, tests)."""
    if accuracy.shape[2] < 2:
        return np.zeros(len(accuracy))
    deviation: Floats = accuracy.std(axis=2, ddof=1).mean(1)
    return deviation


def _bootstrap(hits: NDArray[np.bool_], replicates: int) -> Floats:
    """Accuracies in percent (replicates, seeds, tests) on images drawn with replacement."""
    seeds, tests, count = hits.shape
    rng = np.random.default_rng(0)
    counts = rng.multinomial(count, np.full(count, 1 / count), replicates).astype(np.float32)
    flat = hits.reshape(seeds * tests, count).astype(np.float32)
    accuracies = (100 * (counts @ flat.T) / count).reshape(replicates, seeds, tests)
    return np.asarray(accuracies, np.float64)


def verdict(result: Matrix) -> str:
    """Whether mix training reproduces the paper, in a sentence: lowest std, at most 0.5 points lost."""
    mix = result.line(MIX)
    others = [line for line in result.lines if line.train != MIX]
    steadiest = min(others, key=lambda line: line.std)
    best = max(others, key=lambda line: line.mean)
    loss = best.mean - mix.mean
    if mix.std == steadiest.std:
        first = f"mix and {steadiest.train} both have the lowest std, {mix.std:.3f}"
    elif mix.std < steadiest.std:
        first = f"mix has the lowest std, {mix.std:.3f} (next: {steadiest.train}, {steadiest.std:.3f})"
    else:
        first = f"mix does not have the lowest std: {mix.std:.3f}, {steadiest.train} has {steadiest.std:.3f}"
    limit = "" if loss <= ALLOWED else f", more than {ALLOWED}"
    nearest = min(others, key=result.behind)
    return (
        f"{first}; its mean is {loss:z.2f} points lost against the best row, {best.train}{limit}. On average "
        f"it is {result.behind(mix):.2f} points behind the best row of each column, {nearest.train} "
        f"{result.behind(nearest):.2f}."
    )


def as_plain(result: Matrix) -> dict[str, Any]:
    """The matrix as JSON values, with the verdict if it has a row of mix training."""
    verdict_entry = {"verdict": verdict(result)} if MIX in result.rows else {}
    behind = {line.train: result.behind(line) for line in result.lines}
    return {"holdfast": 1, "kind": "matrix", **dataclasses.asdict(result), "behind": behind, **verdict_entry}


def families(
    training: Training, models: TrainedModels, data: Dataset, runs: Path, over: tuple[str, ...] = FAMILIES,
    watch: Watch = no_progress,
) -> NoiseSuite:  # fmt: skip
    """The noise suite of the model after each training; cached cells are not run again.

    Integer precisions are calibrated on training images.
    """
    suites = []
    for job, model in models.items():
        named = dataclasses.replace(model, name=job.row.name)
        plan = EvaluationPlan(named, data, runs=runs, jobs=training.jobs)
        suites.append(measure(prepare(NoisePlan(plan, NoiseSelection(over), training.data)), watch))
    return NoiseSuite(data.name, tuple(suites))
