"""What common corruptions cost: mPC and rPC, and the mean over severities of each corruption.

C. Michaelis et al., "Benchmarking Robustness in Object Detection: Autonomous Driving when Winter is Coming",
2019: the mean performance under corruption is mPC = 1/Nc Σ_c 1/Ns Σ_s P(c, s), over Nc corruptions and Ns
severities, and the relative performance is rPC = mPC / P(clean).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from holdfast.core.types import Floats
from holdfast.metrics.intervals import interval_of, paired
from holdfast.metrics.points import interval_text, points
from holdfast.noise.suite import CORRUPTIONS
from holdfast.report.charts.forest import ForestGroup, ForestPoint, forest
from holdfast.report.parts import Card, Figure, Section, table_figure
from holdfast.report.tables import Column, Table, many

if TYPE_CHECKING:
    from holdfast.noise.vision.result import ModelNoise, NoiseRow

SOURCE = "Hendrycks and Dietterich, ICLR 2019; mPC and rPC of Michaelis et al., 2019"


@dataclass(frozen=True)
class CorruptionLoss:
    """The points lost to one corruption: the mean over its severities with the paired 95% interval."""

    name: str
    points_lost: float
    low: float
    high: float
    severities: tuple[int, ...]


@dataclass(frozen=True)
class CorruptionSummary:
    """mPC and rPC with their 95% intervals, 0 to 1, and the loss of each corruption."""

    mpc: float
    mpc_low: float
    mpc_high: float
    rpc: float
    rpc_low: float
    rpc_high: float
    losses: tuple[CorruptionLoss, ...]
    images: int


def split_name(option: str) -> tuple[str, int]:
    """Corruption and severity of an option such as fog-3."""
    name, _, severity = option.rpartition("-")
    return name, int(severity)


def summarize(clean: Floats, corrupted: Mapping[str, Floats], images: int) -> CorruptionSummary:
    """The summary from the metric of the clean images and of each option, and of the same draws of them.

    `clean` and each value of `corrupted` are (1 + replicates,), as `bootstrap_values` returns them.
    """
    by_name: dict[str, dict[int, Floats]] = {}
    for option, values in corrupted.items():
        name, severity = split_name(option)
        by_name.setdefault(name, {})[severity] = values
    means = {name: np.mean(list(values.values()), axis=0) for name, values in by_name.items()}
    losses = []
    for name, mean in means.items():
        lost = paired(mean, clean)
        ends = points(lost.estimate), points(lost.low), points(lost.high)
        losses.append(CorruptionLoss(name, *ends, tuple(sorted(by_name[name]))))
    overall = np.mean(list(means.values()), axis=0)
    ratio = np.divide(overall, clean, out=np.full_like(overall, np.nan), where=clean > 0)
    mpc, rpc = interval_of(overall), interval_of(ratio, within=(0.0, np.inf))
    both = mpc.estimate, mpc.low, mpc.high, rpc.estimate, rpc.low, rpc.high
    return CorruptionSummary(*both, losses=tuple(losses), images=images)


def corruption_text(model: ModelNoise, metric: str) -> str:
    """MPC and rPC in a sentence."""
    summary = model.corruptions
    if summary is None:
        return ""
    count = sum(len(loss.severities) for loss in summary.losses)
    mpc = interval_text(100 * summary.mpc_low, 100 * summary.mpc_high)
    rpc = interval_text(100 * summary.rpc_low, 100 * summary.rpc_high)
    corruptions = many(len(summary.losses), "corruption")
    return (
        f"mPC (mean {metric} over {corruptions}, {many(count, 'option')}) {100 * summary.mpc:.2f}, "
        f"95% interval {mpc}; rPC (mPC / clean) {100 * summary.rpc:.1f}%, 95% interval {rpc}; "
        f"n = {summary.images}"
    )


def corruption_table(model: ModelNoise, metric: str) -> Table:
    """One row per corruption: points lost at each severity, their mean and its interval."""
    lost = {row.option: row.points_lost for row in model.of(CORRUPTIONS)}
    losses = model.corruptions.losses if model.corruptions else ()

    def at(severity: int) -> Column[CorruptionLoss]:
        return Column(str(severity), 2, get=lambda loss: lost.get(f"{loss.name}-{severity}"))

    columns: list[Column[CorruptionLoss]] = [
        Column("corruption", get=lambda loss: loss.name),
        *map(at, range(1, 6)),
        Column("mean", 2, get=lambda loss: loss.points_lost),
        Column("95% interval", get=lambda loss: interval_text(loss.low, loss.high)),
    ]
    caption = (
        f"{model.model}: points lost to common corruptions by severity, {metric}, n = {model.images}. "
        f"{corruption_text(model, metric)}. {SOURCE}"
    )
    return Table.of(losses, columns, caption)


def corruption_section(model: ModelNoise, metric: str, heading: tuple[str, str]) -> Section:
    """Corruptions next to the worst system option of every family, in one chart, and the table."""
    systems = [_worst(rows) for rows in _by_family(model).values()]
    losses = model.corruptions.losses if model.corruptions else ()
    groups = [
        ForestGroup("System noise, worst option", [_system_point(row) for row in systems if row]),
        ForestGroup("Common corruptions, mean over severities", [_point(loss) for loss in losses]),
    ]
    note = "Each line shows the paired 95% interval over images. Grey: not significant."
    chart = forest([g for g in groups if g.points], title=f"Points lost, {metric}", desc=note)
    figures = (
        Figure(f"System noise and common corruptions, {metric}, n = {model.images}", chart, note, wide=True),
        table_figure("", corruption_table(model, metric), name="Common corruptions", wide=True),
    )
    return Section(*heading, figures, f"{corruption_text(model, metric)}.")


def corruption_cards(model: ModelNoise, metric: str) -> list[Card]:
    """MPC and rPC as headline numbers."""
    summary = model.corruptions
    if summary is None:
        return []
    mpc = interval_text(100 * summary.mpc_low, 100 * summary.mpc_high)
    rpc = interval_text(100 * summary.rpc_low, 100 * summary.rpc_high)
    return [
        Card(f"mPC, mean {metric}", 100 * summary.mpc, f"95% interval {mpc}", 2, summary.images),
        Card("rPC, % of clean", 100 * summary.rpc, f"95% interval {rpc}", 1, summary.images),
    ]


def _by_family(model: ModelNoise) -> dict[str, list[NoiseRow]]:
    families: dict[str, list[NoiseRow]] = {}
    for row in model.rows:
        if row.family != CORRUPTIONS and row.outcome == "measured" and not row.hypothetical:
            families.setdefault(row.family, []).append(row)
    return families


def _worst(rows: list[NoiseRow]) -> NoiseRow | None:
    return max((row for row in rows if row.points_lost is not None), key=lambda row: row.harm, default=None)


def _system_point(row: NoiseRow) -> ForestPoint:
    return ForestPoint(row.label, row.points_lost, row.low, row.high, note=f"n = {row.images}")


def _point(loss: CorruptionLoss) -> ForestPoint:
    severities = ", ".join(map(str, loss.severities))
    return ForestPoint(loss.name, loss.points_lost, loss.low, loss.high, note=f"severities {severities}")
