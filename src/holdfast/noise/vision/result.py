"""The result of a noise suite: one row per option, a summary per family, one or more models."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import UnknownName
from holdfast.core.result import Result
from holdfast.engine.cells import CellSet
from holdfast.engine.manifest import Manifest, folder_of
from holdfast.engine.store import open_store
from holdfast.evaluate.slices import SliceLoss
from holdfast.metrics.points import lost_text
from holdfast.noise.suite import (
    CORRUPTIONS,
    OptionRow,
    Outcome,
    SuiteName,
    common_outcome,
    distinct_rows,
    excludes_zero,
)
from holdfast.noise.vision.corruptions import CorruptionSummary

if TYPE_CHECKING:
    from holdfast.report.tables import Table


HYPOTHETICAL = "hypothetical"  # the outcome of a family of which no measured option is in a product


@dataclass(frozen=True)
class NoiseRow(OptionRow):
    """One option. `points_lost` = clean − noisy in percentage points (1 point = 0.01 of the metric)."""

    family: str
    option: str
    outcome: Outcome
    note: str = ""  # how it was done, or why not
    value: float | None = None  # the metric under the noise, 0 to 1
    points_lost: float | None = None
    low: float | None = None  # paired 95% interval of points_lost
    high: float | None = None
    changed: int | None = None  # images whose prediction changed (see holdfast.evaluate.difference)
    images: int = 0
    same_inputs: int = 0  # of those, images whose input tensor is the clean one bit for bit
    failed: int = 0
    alike: str = ""  # another option of the family with the same inputs on all images
    hypothetical: bool = False  # no product does it: not in means, in Combined or the headline
    slices: tuple[SliceLoss, ...] = field(default=(), repr=False)
    setup: str = field(default="", repr=False)  # the name of its cells in the store next to the run
    skipped: tuple[int, ...] = field(default=(), repr=False)  # places of the clean images it is not tested on

    @property
    def clear(self) -> bool:
        """Whether the loss is significant: the 95% interval does not contain 0."""
        return excludes_zero(self.low, self.high)

    @property
    def loss(self) -> float | None:
        """The points lost."""
        return self.points_lost

    @property
    def harm(self) -> tuple[float, int]:
        """The points lost, then the number of changed images."""
        return self.points_lost or 0.0, self.changed or 0

    @property
    def moves(self) -> bool:
        """Whether it changes the metric or a prediction."""
        return self.outcome == "measured" and bool(self.points_lost or self.changed)


@dataclass(frozen=True)
class FamilySummary:
    """A family of one model: mean and worst points lost over its distinct options, as in the paper."""

    family: str
    mean: float | None
    worst: float | None
    option: str  # the worst option; empty if it changes neither the metric nor a prediction
    distinct: int  # options with inputs or graphs of their own
    words: str = ""  # the outcome if nothing was measured


@dataclass(frozen=True)
class ModelNoise:
    """The noise of one model: its clean metric, every option, and the worst options combined."""

    model: str
    sha256: str
    task: str
    metric: str
    clean: float
    images: int
    rows: tuple[NoiseRow, ...]
    combined: NoiseRow | None
    pipeline: dict[str, str]
    calibration: str = ""
    rule: str = ""
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()  # why the clean predictions may be read wrongly
    failed: tuple[str, ...] = ()
    setup: str = field(default="", repr=False)  # the name of the clean cells
    items: tuple[str, ...] = field(default=(), repr=False)  # the hash of each image
    alignment: dict[str, Any] = field(default_factory=dict, repr=False)  # as Alignment.to_plain has it
    settings: dict[str, Any] = field(default_factory=dict)  # name of the rule, iou, score
    corruptions: CorruptionSummary | None = None
    suite: SuiteName = "default"
    store: str = ""  # of --store; empty: the cells next to the run

    def cells(self, folder: Path, row: NoiseRow | None = None) -> CellSet:
        """The cells of a row's records, or of the clean ones, in this folder unless --store was given."""
        store = open_store(self.store or folder)
        if row is None:
            return CellSet(store, self.setup, self.items)
        skipped = set(row.skipped)
        return CellSet(store, row.setup, tuple(h for n, h in enumerate(self.items) if n not in skipped))

    def of(self, family: str) -> tuple[NoiseRow, ...]:
        """The rows of a family."""
        return tuple(r for r in self.rows if r.family == family)

    @property
    def worst(self) -> NoiseRow | None:
        """The option that loses the most points, of those that change anything; None without one.

        It is an option that some product has, not a hypothetical one, and not a corruption.
        """
        moving = (r for r in self.rows if r.moves and not r.hypothetical and r.family != CORRUPTIONS)
        return max(moving, key=lambda r: r.harm, default=None)


@dataclass(frozen=True, repr=False)
class NoiseSuite(Result):
    """One run of the suite: models on one dataset."""

    data: str
    models: tuple[ModelNoise, ...]
    command: str = ""
    created: str = ""
    seconds: float = 0.0
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def worst(self) -> NoiseRow | None:
        """Of the options that change the metric or a prediction, the one that costs most; else None."""
        worst = (model.worst for model in self.models)
        return max((row for row in worst if row), key=lambda row: row.harm, default=None)

    @property
    def table(self) -> "Table":
        """One row per option; of several models, one row per model and one column per family."""
        from holdfast.noise.vision.tables import models_table, options_table

        if len(self.models) > 1 or self.models[0].suite == "paper":
            return models_table(self)
        return options_table(self.models[0])

    def row(self, label: str, model: str = "") -> NoiseRow:
        """The row of an option such as resize=opencv-nearest, of the first model or the named one."""
        rows = {row.label: row for m in self.models if model in ("", m.model) for row in m.rows}
        if label not in rows:
            raise UnknownName("noise option", label, rows)
        return rows[label]

    def to_dict(self) -> dict[str, Any]:
        """The suite as plain values, as `--json` writes them."""
        return SUITES.to_plain(self)

    def _summary(self) -> str:
        models, worst = ", ".join(m.model for m in self.models), self.worst
        lost = f"{worst.label}: {lost_text(worst.loss or 0.0)}" if worst else "nothing changes"
        count = len(self.models[0].rows)
        return f"{models} on {self.data}: {count} option{'s' if count != 1 else ''}, {lost}"

    def _rows(self) -> list[dict[str, Any]]:
        columns = ("family", "option", "outcome", "value", "low", "high", "changed", "images", "note")
        return [
            {"model": m.model, **{name: getattr(row, name) for name in columns}, "points_lost": row.loss}
            for m in self.models
            for row in (*m.rows, *([m.combined] if m.combined else []))
        ]

    def _page(self) -> str:
        from holdfast.noise.vision.page import page

        return page(self)


def summarize_family(rows: Sequence[NoiseRow], family: str, suite: SuiteName = "default") -> FamilySummary:
    """The summary of a family over the options that products have.

    Options with identical inputs count once, and not at all if they are clean. In the paper's suite every
    option counts, as in the paper's mean.
    """
    every = [r for r in rows if r.family == family]
    own = [r for r in every if not r.hypothetical]
    measured = distinct_rows(own) if suite != "paper" else [r for r in own if r.points_lost is not None]
    if not measured:
        words = HYPOTHETICAL if every and not own else common_outcome(own)
        return FamilySummary(family, None, None, "", distinct=0, words=words)
    worst = max(measured, key=lambda r: r.harm)
    mean = sum(r.points_lost or 0.0 for r in measured) / len(measured)
    return FamilySummary(family, mean, worst.points_lost, worst.option if worst.moves else "", len(measured))


class _NoiseManifest(Manifest[NoiseSuite]):
    """The manifest of a suite, with the line of every family next to the rows."""

    def to_plain(self, result: NoiseSuite) -> dict[str, Any]:
        """The suite as JSON values."""
        plain = super().to_plain(result)
        for model, noise in zip(plain["models"], result.models, strict=True):
            names = dict.fromkeys(r.family for r in noise.rows)
            model["families"] = [
                dataclasses.asdict(summarize_family(noise.rows, name, noise.suite)) for name in names
            ]
        return plain


SUITES = _NoiseManifest("noise.json", "noise", NoiseSuite, "a noise run")
as_plain, save, open_suite = SUITES.to_plain, SUITES.save, SUITES.open


def suite_folder(suite: NoiseSuite, runs: Path) -> Path:
    """Where a suite is saved: by its models, its data and the selected options."""
    models = "-".join(m.model for m in suite.models)
    same = [
        [m.sha256, m.images, m.rule, m.pipeline, m.calibration, [r.label for r in m.rows], m.suite]
        for m in suite.models
    ]
    return folder_of(runs, f"noise-{models}-on-{suite.data}", same)
