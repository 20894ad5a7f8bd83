"""The tables of mitigations: train × test, points lost by noise family after each, with and without TENT."""

from collections.abc import Sequence

from holdfast.noise.vision.result import NoiseSuite
from holdfast.noise.vision.tables import family_summaries, family_title, groups_of
from holdfast.report.tables import Cell, Column, Table, table_of
from holdfast.train.mitigate.adapt import FAMILIES, TentLoss, TentResult
from holdfast.train.mitigate.matrix import Matrix
from holdfast.train.run import MixResult

MISSING = "–"
_TABLES = {"resize": "Table 7", "decode": "Tables 8 and 9"}


def mix_table(result: MixResult) -> Table:
    """Accuracy under each choice before and after, the mean and the standard deviation."""
    rows: list[tuple[str, float, float]] = [(line.choice, line.before, line.after) for line in result.lines]
    means, stds = zip(result.spread("before"), result.spread("after"), strict=True)
    rows += [("mean", *means), ("std", *stds)]
    caption = (
        f"Top-1 accuracy in % on {result.tested_on} images of {result.tested} that were not trained on; "
        f"trained for {result.steps} steps on {result.trained_on} images. Points gained: after − before, "
        "higher is better"
    )
    names = ("before", "after", "points gained")
    columns: list[Column | str] = ["decode + resize", *(Column(name, 2) for name in names)]
    return Table(columns, [[*row, row[2] - row[1]] for row in rows], caption)


def matrix_table(matrix: Matrix) -> Table:
    """The paper's layout: one row per training, accuracy in each cell, mean and std."""
    columns: list[Column | str] = ["train \\ test", *(Column(name, 2) for name in matrix.tests)]
    columns += [Column("mean", 2), "std", "95% interval of std", Column("behind best", 2)]
    rows: list[list[Cell]] = []
    for line in matrix.lines:
        interval = f"{line.std_low:.3f} to {line.std_high:.3f}"
        rows.append([line.train, *line.accuracy, line.mean, line.std, interval, matrix.behind(line)])
    seeds = f", mean of {len(matrix.seeds)} seeds" if len(matrix.seeds) > 1 else ""
    caption = (
        f"{matrix.model}, mix training on {matrix.over} (layout of the paper's {_TABLES[matrix.over]}): "
        f"accuracy in % on {matrix.images} images of {matrix.data}{seeds}; each row is trained "
        f"for {matrix.steps} steps on {matrix.trained_on} images. One accuracy has a standard deviation of "
        f"{matrix.binomial:.2f} points; differences within a row have less, because the images are the same. "
        "Behind best: points below the best row, mean over the columns"
    )
    return Table(columns, rows, caption)


def matrix_csv(matrix: Matrix) -> Table:
    """Every number of the matrix, one row per training."""
    shared_columns = ("over", "model", "data", "images", "trained_on", "steps")
    row_columns = ("mean", "mean_low", "mean_high", "std", "std_low", "std_high")
    rows = [
        {
            **{name: getattr(matrix, name) for name in shared_columns},
            "seeds": " ".join(map(str, matrix.seeds)),
            "train": line.train,
            **dict(zip(matrix.tests, line.accuracy, strict=True)),
            **{name: getattr(line, name) for name in row_columns},
            "spread_over_seeds": line.spread,
            "binomial": matrix.binomial,
            "behind_best": matrix.behind(line),
        }
        for line in matrix.lines
    ]
    return table_of(rows)


def families_table(suite: NoiseSuite, model: str) -> Table:
    """The numbers of the paper's Fig. 4: mean (worst) points lost by each family after each mitigation."""
    groups = groups_of(suite)
    columns: list[Column | str] = ["trained with", Column("clean", 2), *map(family_title, groups)]
    rows: list[list[Cell]] = []
    for noise in suite.models:
        summaries = family_summaries(noise, groups)
        drops = [_mean_worst(line.mean, line.worst, line.distinct) for line in summaries]
        combined = noise.combined.points_lost if noise.combined else None
        rows.append([noise.model, 100 * noise.clean, *drops, combined])
    images = max((noise.images for noise in suite.models), default=0)
    caption = (
        f"{model} after each mitigation (numbers of the paper's Fig. 4): points lost, top-1 clean − noisy in "
        f"percentage points, on {images} images of {suite.data}; mean (worst) over the options that differ, "
        "lower is better"
    )
    return Table([*columns, Column("Combined", 2)], rows, caption)


def families_csv(suite: NoiseSuite, model: str) -> Table:
    """The same as numbers, with the number of options of each family that differ."""
    groups = groups_of(suite)
    rows = []
    for noise in suite.models:
        row: dict[str, Cell] = {"model": model, "data": suite.data, "images": noise.images}
        row |= {"trained_with": noise.model, "clean": 100 * noise.clean}
        for group, line in zip(groups, family_summaries(noise, groups), strict=True):
            name = group.lower()
            row |= {f"{name}_points_lost": line.mean, f"{name}_worst_points_lost": line.worst}
            row |= {f"{name}_worst_option": line.option or line.words, f"{name}_options": line.distinct}
        rows.append({**row, "combined_points_lost": noise.combined.points_lost if noise.combined else None})
    return table_of(rows)


def tent_table(results: Sequence[TentResult]) -> Table:
    """The layout of the paper's Table 6, with the accuracy of TENT on clean images."""
    columns: list[Column | str] = ["model", Column("clean", 2), Column("clean in this row", 2)]
    columns += [family_title(name) for name in FAMILIES]
    rows: list[list[Cell]] = []
    for result in results:
        for adapted in (False, True):
            drops = [_of_family(result.of(name), adapted) for name in FAMILIES]
            run = result.clean_adapted if adapted else result.clean
            rows.append([f"{result.model} (w/{'' if adapted else 'o'} TENT)", result.clean, run, *drops])
    images = ", ".join(dict.fromkeys(f"{result.images} images of {result.data}" for result in results))
    caption = (
        f"Points lost with and without TENT (layout of the paper's Table 6) on {images}: clean accuracy "
        "without TENT − noisy accuracy in percentage points, mean (worst) over the options that differ. Rows "
        "with TENT include the points that TENT loses on clean images"
    )
    return Table(columns, rows, caption)


def tent_csv(results: Sequence[TentResult]) -> Table:
    """One row per option: points lost without TENT and with it."""
    columns = ["model", "data", "images", "batch", "rate", "clean", "clean_tent", "family", "option"]
    rows: list[list[Cell]] = []
    for result in results:
        settings, clean = (result.how.batch, result.how.rate), (result.clean, result.clean_adapted)
        for drop in result.drops:
            lost = (drop.family, drop.option, drop.points_lost, drop.points_lost_tent)
            rows.append([result.model, result.data, result.images, *settings, *clean, *lost])
    return Table([*columns, "points_lost", "points_lost_tent"], rows)


def _of_family(drops: Sequence[TentLoss], adapted: bool) -> str:
    values = [drop.points_lost_tent if adapted else drop.points_lost for drop in drops]
    return _mean_worst(sum(values) / len(values), max(values), len(values)) if values else MISSING


def _mean_worst(mean: float | None, worst: float | None, count: int) -> str:
    if mean is None or worst is None:
        return MISSING
    return f"{worst:z.2f}" if count == 1 else f"{mean:z.2f} ({worst:z.2f})"
