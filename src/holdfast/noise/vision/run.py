"""The noise suite of one model: every option alone, then the worst of each family combined; estimates."""

from __future__ import annotations

import contextlib
import functools
import math
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from holdfast.core import fingerprint
from holdfast.core.dataset import Dataset
from holdfast.core.errors import BudgetSpent, DataError, ImageError, InputError
from holdfast.core.model import Task
from holdfast.core.pipeline import Noise, pipeline_of
from holdfast.core.types import Floats
from holdfast.engine.execution import current
from holdfast.engine.pipelines import read_records
from holdfast.engine.records import FailedImage, to_plain
from holdfast.engine.store import to_json
from holdfast.evaluate.classes import Alignment, output_warnings, realign
from holdfast.evaluate.difference import ScoredRun, bootstrap_values, compare, scored_run
from holdfast.evaluate.per_image import RecordSet
from holdfast.evaluate.result import CELLS
from holdfast.evaluate.run import EvaluationPlan, alignment_of, settings_plain
from holdfast.evaluate.score import Settings
from holdfast.evaluate.slices import slice_losses
from holdfast.noise import suite
from holdfast.noise.suite import Watch
from holdfast.noise.vision import choose, sweep
from holdfast.noise.vision.corruptions import summarize
from holdfast.noise.vision.result import ModelNoise, NoiseRow, NoiseSuite
from holdfast.noise.vision.sweep import CLEAN, SweepResult, Variant
from holdfast.stages.deployed import Calibration, DeployedInference
from holdfast.stages.families import NoiseOption
from holdfast.stages.runtime.files import file_option

SAMPLE = 6  # images an estimate runs: enough to time, few enough to wait for
OWN = "own"  # the family of noises passed as functions
IDENTICAL = "all predictions are identical"
NOT_COMBINED = ("runtime", suite.CORRUPTIONS)  # not part of Combined: the paper's table has none of them
PREFERRED = ("int8-minmax", "offset")  # what Combined takes of a family whose options lose equally much


@dataclass(frozen=True)
class NoisePlan:
    """The clean evaluation, the noise options, and the calibration images of integer precisions."""

    plan: EvaluationPlan
    selection: suite.NoiseSelection = field(default_factory=suite.NoiseSelection)
    calibration_data: Dataset | None = None  # None: some of the tested images, which are then skipped
    calibration_images: int = suite.CALIBRATION_ITEMS
    replicates: int = 1000
    own: Mapping[str, Noise] = field(default_factory=dict)  # the user's noise functions by name
    files: tuple[NoiseOption, ...] = ()  # converted files of the model


def with_file(noise: NoisePlan, path: Path | None, models: int = 1) -> NoisePlan:
    """The plan with a row for a converted file of the model, if one is given."""
    if path is None:
        return noise
    if models != 1:
        raise InputError(f"--deploy-model: expected one model, which {path} was converted from, got {models}")
    return replace(noise, files=(file_option(path),))


@dataclass(frozen=True)
class PreparedNoise:
    """A plan with all variants built: graphs are rewritten, integer precisions calibrated."""

    noise: NoisePlan
    context: choose.SuiteContext
    alignment: Alignment
    candidates: tuple[choose.ImageCandidate, ...] = ()

    @property
    def options(self) -> dict[str, NoiseOption]:
        """The options of the suite by their labels."""
        return {candidate.option.label: candidate.option for candidate in self.candidates}

    @property
    def variants(self) -> tuple[Variant, ...]:
        """The clean variant and all variants that are measured alone."""
        alone = [a.variant for a in self.candidates if a.variant is not None]
        return (Variant(CLEAN, self.context.clean), *alone)

    def first(self, count: int) -> PreparedNoise:
        """The same on the first images; calibration images do not change."""
        dataset = self.noise.plan.dataset
        return self if count >= len(dataset) else self._with(dataset=dataset.first(count))

    def within(self, until: float) -> PreparedNoise:
        """The same with another deadline (of time.monotonic)."""
        return self._with(until=until)

    def _with(self, **changes: Any) -> PreparedNoise:
        plan = replace(self.noise.plan, **changes)
        return replace(self, noise=replace(self.noise, plan=plan))


def prepare(noise: NoisePlan) -> PreparedNoise:
    """The variants of the suite; graphs are rewritten and integer precisions calibrated here."""
    bare = prepare_context(noise)
    options = [NoiseOption(OWN, name, function) for name, function in noise.own.items()]
    own = [choose.build_variant(bare.context, [option]) for option in options]
    only_own = noise.selection == suite.NoiseSelection((OWN,))
    named = [] if only_own else choose.select_options(bare.context, noise.selection)
    files = [choose.build_variant(bare.context, [option]) for option in noise.files]
    named = choose.in_table_order((*named, *filter(None, files)))
    return replace(bare, candidates=(*named, *filter(None, own)))


def prepare_context(noise: NoisePlan) -> PreparedNoise:
    """The context that all variants share, without variants."""
    plan = noise.plan
    clean = plan.pipeline or pipeline_of(plan.model.card)
    reserved = choose.reserve(plan.dataset, noise.calibration_data, noise.calibration_images)
    calibration = Calibration(reserved.items, clean, reserved.lack)
    folder = plan.runs / CELLS / suite.REWRITTEN
    clean = choose.with_calibration(clean, calibration, folder)  # as its variants have it: to be compared
    context = choose.SuiteContext(plan.model, clean, reserved, calibration, folder)
    return PreparedNoise(noise, context, alignment_of(plan))


def measure(prepared: PreparedNoise, watch: Watch = suite.no_progress, together: bool = True) -> ModelNoise:
    """The noise of the model, with the worst options combined if `together` and if there is time left."""
    plan = prepared.noise.plan
    results = run_variants(prepared, prepared.variants, watch, f"noise {plan.model.name}", partial=0.8)
    prepared = prepared.first(results[CLEAN].images)
    builder = _RowBuilder(prepared, results[CLEAN])
    rows = tuple(builder.row(candidate, results) for candidate in prepared.candidates)
    chosen = worst_options(rows, prepared.options, prepared.noise.selection.suite) if together else []
    worst = choose.build_variant(prepared.context, chosen) if len(chosen) > 1 else None
    combined = None
    if worst is not None:
        with contextlib.suppress(BudgetSpent):
            if worst.variant:
                results = run_variants(prepared, (worst.variant,), watch, f"combined {plan.model.name}")
            name = worst.variant.name if worst.variant else worst.note
            combined = replace(builder.row(worst, results), family="combined", option=name, note="")
    return builder.summary(rows, combined)


def run_variants(
    prepared: PreparedNoise, variants: tuple[Variant, ...], watch: Watch, what: str, partial: float = 0.0
) -> dict[str, SweepResult]:
    """The variants run on all images; with `partial`, on those finished in that share of the time left."""
    plan = prepared.noise.plan
    whole = sweep_plan(plan, plan.dataset, variants)
    if partial and plan.until < math.inf:
        now = time.monotonic()
        whole = replace(whole, until=now + partial * (plan.until - now), partial=True)
    with watch(what, sweep.steps(whole)) as progress:
        return sweep.sweep(whole, progress)


def sweep_plan(plan: EvaluationPlan, dataset: Dataset, variants: tuple[Variant, ...]) -> sweep.SweepPlan:
    """These variants of the plan's model on a dataset, run as the plan says."""
    return sweep.SweepPlan(**{**vars(plan), "dataset": dataset, "variants": variants})


class _RowBuilder:
    """The clean side, against which every variant is compared."""

    def __init__(self, prepared: PreparedNoise, clean: SweepResult) -> None:
        if clean.problem:
            raise DataError(clean.problem)
        self.prepared, self.result, self.cells = prepared, clean, clean.read()
        records = self.cells.records
        if all(isinstance(r, FailedImage) for r in records):
            raise DataError(f"none of the {len(records)} images could be evaluated; first {records[0]}")
        self.clean = scored_run(prepared.noise.plan, prepared.alignment, records)
        self.predictions = _predictions_hash(self.clean)
        self.corrupted: dict[str, Floats] = {}  # the metric and its draws under each corruption
        self.variants: dict[str, str] = {}  # the first option of each family, inputs and stages

    @functools.cached_property
    def jpeg(self) -> bool:
        """Whether there is a JPEG among some of the images, evenly spread."""
        entries = self.prepared.noise.plan.dataset.entries
        for entry in entries[:: max(1, len(entries) // 20)]:
            with contextlib.suppress(ImageError):
                if entry.load().data.startswith(b"\xff\xd8"):
                    return True
        return False

    def row(self, candidate: choose.ImageCandidate, results: Mapping[str, SweepResult]) -> NoiseRow:
        """The row of an option from its finished cells."""
        row, note = self._row(candidate, results), candidate.note
        if note.startswith(choose.IN_PLACE) and row.note != note:
            row = replace(row, note=f"{note}; {row.note}")
        return replace(row, hypothetical=candidate.option.hypothetical)

    def _row(self, candidate: choose.ImageCandidate, results: Mapping[str, SweepResult]) -> NoiseRow:
        name, family, variant = candidate.option.name, candidate.option.family, candidate.variant
        if variant is None:
            status = "impossible" if candidate.status == "measured" else candidate.status
            return NoiseRow(family, name, status, candidate.note)
        result, context = results[variant.name], self.prepared.context
        if result.problem:
            return NoiseRow(family, name, "impossible", choose.reason_of(result.problem, context.model))
        cells = result.read()
        same, common = sweep.same_inputs(self.cells.inputs, cells.inputs)
        reasons = [r.reason for r in cells.records if isinstance(r, FailedImage)]
        failed = len(reasons)
        if common == 0 or failed == len(cells.records):
            why = f"every image failed: {next(iter(reasons), 'no image could be run')}"
            return NoiseRow(family, name, "impossible", why, failed=failed)
        plan = self.prepared.noise.plan
        after = scored_run(plan, self.prepared.alignment, cells.records)
        difference = compare(self.clean, after, replicates=self.prepared.noise.replicates)
        lost = difference.points_lost
        if family == suite.CORRUPTIONS and difference.images == self.clean.images:
            self.corrupted[name] = self._draws(after)
        pipeline, clean = variant.pipeline, context.clean
        identical = same == common and (pipeline.infer, pipeline.post) == (clean.infer, clean.post)
        kind = fingerprint.of([family, cells.inputs, pipeline.infer, pipeline.post])
        # A product's option is not a repetition of a hypothetical one.
        known = self.variants.get if candidate.option.hypothetical else self.variants.setdefault
        alike = known(kind, name)
        still = not identical and _predictions_hash(after) == self.predictions
        return NoiseRow(
            family,
            name,
            "identical" if identical else "no effect" if still else "measured",
            IDENTICAL if still else self._note(candidate, identical),
            value=difference.after,
            points_lost=lost.estimate,
            low=lost.low,
            high=lost.high,
            changed=difference.changed,
            images=difference.images,
            same_inputs=same,
            failed=failed,
            alike=alike if alike != name and not identical else "",
            slices=slice_losses(self.clean, after, plan.slices, self.prepared.noise.replicates),
            setup=result.cells.setup if result.cells else "",
            skipped=tuple(n for n, e in enumerate(plan.dataset.entries) if e.name in variant.without),
        )

    def _draws(self, side: ScoredRun) -> Floats:
        names = [record.name for record in self.clean.records]
        return bootstrap_values(side, names, replicates=self.prepared.noise.replicates)

    def _note(self, candidate: choose.ImageCandidate, identical: bool) -> str:
        if not identical:
            return candidate.note
        if candidate.option.family == "decode" and not self.jpeg:
            return "no image is a JPEG, and this decoder gives the same pixels for all of them"
        alike = candidate.option.alike
        return f"bit-identical on all images{f' ({alike})' if alike else ''}"

    def summary(self, rows: tuple[NoiseRow, ...], combined: NoiseRow | None) -> ModelNoise:
        """The model with all its rows."""
        plan, context, cells = self.prepared.noise.plan, self.prepared.context, self.result.cells
        alignment, records = self.prepared.alignment, self.cells.records
        infers = [variant.pipeline.infer for variant in self.prepared.variants]
        corruptions = None
        if self.corrupted:
            corruptions = summarize(self._draws(self.clean), self.corrupted, self.clean.images)
        calibrated = any(isinstance(infer, DeployedInference) and infer.calibrated for infer in infers)
        return ModelNoise(
            model=plan.model.name,
            sha256=plan.model.sha256,
            task=plan.model.card.task,
            metric=self.clean.metric,
            clean=self.clean.value,
            images=self.clean.images,
            rows=rows,
            combined=combined,
            pipeline=context.clean.describe(),
            calibration=context.reserved.words if calibrated else "",
            rule=self.clean.rule,
            notes=tuple(self.cells.notes),
            warnings=output_warnings(plan.model, plan.dataset, context.clean, records, alignment),
            failed=tuple(str(r) for r in records if isinstance(r, FailedImage)),
            setup=cells.setup if cells else "",
            items=cells.items if cells else (),
            alignment=alignment.to_plain(),
            settings=settings_plain(plan.settings),
            corruptions=corruptions,
            suite=self.prepared.noise.selection.suite,
            store=current().store,
        )


def _predictions_hash(side: ScoredRun) -> str:
    return fingerprint.of_bytes(to_json([to_plain(record) for record in side.records]))


def record_sets(suite: NoiseSuite, runs: Path, *, clean: bool = True) -> Iterator[RecordSet]:
    """The records of every option that was run, read from the cells; the column `option` names it."""
    for model in suite.models:
        alignment, settings = Alignment.from_plain(model.alignment), Settings.from_plain(model.settings)
        task = cast(Task, model.task)
        rows: dict[str, NoiseRow | None] = {CLEAN: None} if clean else {}
        rows |= {row.label: row for row in model.rows if row.setup}
        if model.combined is not None and model.combined.setup:
            rows["combined"] = model.combined
        labels = {"model": model.model} if len(suite.models) > 1 else {}
        for option, row in rows.items():
            records = realign(read_records(model.cells(runs / CELLS, row)).records, alignment, task)
            yield RecordSet(records, task, alignment.names, settings, {**labels, "option": option})


def worst_options(
    rows: Sequence[NoiseRow], known: Mapping[str, NoiseOption], name: suite.SuiteName = "default"
) -> list[NoiseOption]:
    """The option of each family that loses the most points, as Combined has it; of equals int8 and offset.

    Runtimes, corruptions and hypothetical options are not part of it. The paper's suite combines all
    families, also those whose options alone change no prediction.
    """
    outcomes = ("measured", "no effect") if name == "paper" else ("measured",)
    measured = (r for r in rows if r.outcome in outcomes and r.points_lost is not None)
    combined = [r for r in measured if r.family not in NOT_COMBINED and not r.hypothetical]
    order = {family: place for place, family in enumerate(dict.fromkeys(r.family for r in combined))}
    combined.sort(key=lambda r: (order[r.family], r.option not in PREFERRED))
    return [known[row.label] for row in suite.worst_per_group(combined, lambda row: row.family)]


def estimate(noise: NoisePlan) -> suite.Estimate:
    """The estimate, from a few images; rewritten graphs are stored with the run if it has begun."""
    plan = noise.plan
    with tempfile.TemporaryDirectory(prefix="holdfast-estimate-") as name:
        folder = Path(name)
        runs = plan.runs if (plan.runs / CELLS).is_dir() else folder / "runs"
        prepared = prepare(replace(noise, plan=replace(plan, runs=runs)))
        variants = prepared.variants
        whole = sweep_plan(plan, plan.dataset, variants)
        untimed = suite.Estimate(
            model=plan.model.name,
            items=len(plan.dataset),
            variants=len(variants),
            cells=sweep.steps(whole),
            missing=sweep.unfinished(whole),
            skipped=suite.skipped_options(prepared.candidates),
        )
        if untimed.missing == 0:
            return untimed
        few = suite.spread(plan.dataset.entries, min(SAMPLE, len(plan.dataset)))
        sample = sweep.SweepPlan(plan.model, replace(plan.dataset, entries=few), variants=variants)
        sweep.sweep(replace(sample, dataset=sample.dataset.first(1), runs=folder / "warm"))
        timed = replace(sample, runs=folder / "timed")
        return suite.extrapolate(untimed, len(few), timed.runs, lambda: sweep.sweep(timed))
