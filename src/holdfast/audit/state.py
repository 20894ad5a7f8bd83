"""The state of a running audit, and the result it ends with."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.attack.options import AttackOptions
from holdfast.attack.result import AttackResult
from holdfast.audit import result as results
from holdfast.audit.attack_levels import LevelResult
from holdfast.audit.options import AuditedOptions
from holdfast.audit.plan import AuditPlan
from holdfast.audit.result import (
    Audit,
    Clean,
    ImageRobustness,
    NoiseResult,
    Part,
    Proof,
    Recheck,
    RobustnessBounds,
)
from holdfast.audit.specs import SpecVerdict
from holdfast.audit.square_map import THREAT, SquareMap, describe_square
from holdfast.config.options import carry
from holdfast.config.parser import command_line
from holdfast.core.pipeline import Pipeline, pipeline_of
from holdfast.core.sources import versions
from holdfast.core.targets import OWN_STAGES, PRODUCTS
from holdfast.engine.manifest import now
from holdfast.engine.pipelines import SHARD
from holdfast.evaluate.difference import ScoredRun, bootstrap_values
from holdfast.evaluate.result import Evaluation
from holdfast.evaluate.run import EvaluationPlan
from holdfast.evaluate.score import Settings
from holdfast.metrics.intervals import interval_of
from holdfast.noise.vision.combine import Combination
from holdfast.noise.vision.result import ModelNoise, NoiseRow, NoiseSuite
from holdfast.noise.vision.run import PreparedNoise
from holdfast.stages.families import families, options

TITLES = {"AP": "mAP@.5:.95", "top1": "top-1", "mIoU": "mean IoU", "iou_equal": "IoU × equal"}


@dataclass(frozen=True)
class PartOutcome:
    """The outcome of a part: its images, what it skipped, and whether it applies to this model."""

    images: int
    skipped: str = ""
    applies: bool = True


@dataclass
class AuditState:
    """The results of the parts so far; the page is written from it."""

    plan: AuditPlan
    evaluation: Evaluation | None = None
    suite: NoiseSuite | None = None
    prepared: PreparedNoise | None = None
    combination: Combination | None = None
    outcome: AttackResult | None = None
    levels: tuple[LevelResult, ...] = ()
    patch: LevelResult | None = None
    patched: AttackResult | None = None  # the attack with the patch
    maps: tuple[SquareMap, ...] = ()
    spec_verdicts: tuple[SpecVerdict, ...] = ()
    proofs: tuple[Proof, ...] = ()
    rechecks: tuple[Recheck, ...] = ()
    matrix: results.Matrix = field(default_factory=results.Matrix)
    parts: list[Part] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    runs: dict[str, str] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)  # planned images of noise, attack and square
    places: int = 0  # planned positions of the square; 0: not planned yet
    shard: int = SHARD  # images per cell: few where a model is slow, so that a part can stop soon
    seconds_an_image: float = 0.05
    audit: Audit | None = None

    @property
    def result(self) -> Audit:
        """The result of an audit that has ended."""
        if self.audit is None:
            raise RuntimeError("the audit has not ended")
        return self.audit

    @property
    def attacks(self) -> tuple[LevelResult, ...]:
        """The attack with the patch, then those at each pixel budget."""
        return (*([self.patch] if self.patch else []), *self.levels)

    @property
    def noise(self) -> ModelNoise | None:
        """The noise results of the model; None if noise was not measured."""
        return self.suite.models[0] if self.suite else None

    @property
    def pipeline(self) -> Pipeline:
        """The training pipeline."""
        return self.plan.plan.pipeline or pipeline_of(self.plan.plan.model.card)

    def repeat_line(self, part: str, first: int | None = None) -> str:
        """The command that reproduces a part on its planned images; `first`: threats on this many only."""
        few = {n: c if n == "noise" else min(c, first or c) for n, c in self.counts.items()}
        return self._line(part, {f"{name}_images": count for name, count in few.items()})

    def patch_line(self) -> str:
        """The command that makes the patches of the audit."""
        options, level = self.plan.options, self.patch.level if self.patch else None
        if level is None:
            raise RuntimeError("there is no patch")
        others = {
            "pixels": AttackOptions.pixels,
            "deployment": level.deployments,
            "images": self.counts["attack"],
        }
        return command_line(carry(options, AttackOptions, out=Path("patches"), **others))

    def full_line(self, part: str) -> str:
        """The command that runs a part without a time limit, on all images."""
        return self._line(part, {"noise_images": None, "attack_images": None, "square_images": None})

    def _line(self, part: str, counts: Mapping[str, int | None]) -> str:
        options = self.plan.options
        others = {"only": (part,), "budget": "none", "places": self.places or options.places}
        return command_line(carry(options, AuditedOptions, **others, **counts))


def audit_of(state: AuditState, seconds: float) -> Audit:
    """The result: every number with the command that reproduces it."""
    plan, model = state.plan.plan, state.plan.plan.model
    if state.evaluation is None:
        raise RuntimeError("an audit has an evaluation")
    calibration = state.noise.calibration if state.noise else ""
    calibrated = [f"integer precisions are calibrated on {calibration}"] if calibration else []
    about = {
        "name": model.name, "path": str(model.path), "sha256": model.sha256, "task": model.card.task,
        "classes": len(model.card.classes), "guessed": list(model.guessed),
        "pipeline": state.pipeline.describe(),
    }  # fmt: skip
    noise = [_noise_result(state, row) for row in state.noise.rows] if state.noise else []
    return Audit(
        about,
        data={"name": plan.dataset.name, "images": len(plan.dataset), "source": dict(plan.source)},
        clean=_clean(state, state.evaluation),
        noises=tuple(noise),
        combined=_noise_result(state, state.noise.combined) if state.noise and state.noise.combined else None,
        target=_noise_target(state),
        attacks=tuple(result.level for result in state.levels),
        patch=state.patch.level if state.patch else None,
        proofs=state.proofs,
        rechecks=state.rechecks,
        bounds=tuple(robustness_bounds(state.proofs, state.maps, state.attacks)),
        matrix=state.matrix,
        parts=tuple(state.parts),
        notes=tuple(dict.fromkeys([*state.evaluation.notes, *state.notes, *calibrated])),
        failed=tuple(map(str, state.evaluation.failed)),
        runs=state.runs,
        command=plan.command,
        created=now(),
        seconds=round(seconds, 3),
        budget=state.plan.options.budget_seconds,
        versions=versions(),
    )


def _noise_target(state: AuditState) -> results.NoiseTarget | None:
    target, task = state.plan.options.target, state.plan.plan.model.card.task
    if target is None:
        return None
    made = [o.label for f in families() for o in options(f) if target in o.targets and task in o.tasks]
    return results.NoiseTarget(PRODUCTS[target], tuple(made), OWN_STAGES[target])


def _clean(state: AuditState, evaluation: Evaluation) -> Clean:
    plan = state.plan.plan
    side = side_of_evaluation(evaluation, plan.settings)
    names, replicates = [r.name for r in side.records], state.plan.replicates
    interval = interval_of(bootstrap_values(side, names, replicates=replicates))
    metric, title = metric_of(side.metric, plan.settings.iou)
    others = {k: float(v) for k, v in evaluation.result["metrics"].items() if isinstance(v, int | float)}
    at = evaluation.result.get("at_score", {})
    others |= {k: float(at[k]) for k in ("precision", "recall", "f1") if isinstance(at.get(k), int | float)}
    command = state.plan.evaluate_line(evaluation.about.data["images"])
    images = len(evaluation.records)
    return Clean(
        metric,
        title,
        side.value,
        interval.low,
        interval.high,
        images=images,
        rule=side.rule,
        others=others,
        command=command,
    )


def side_of_evaluation(evaluation: Evaluation, settings: Settings) -> ScoredRun:
    """The evaluation as one side of a comparison: its records are numbered already."""
    return ScoredRun(evaluation.records, evaluation.about.task, evaluation.about.classes, settings)


def gate_metric(plan: EvaluationPlan) -> str:
    """The name gates know the plan's main metric by."""
    return metric_of(ScoredRun((), plan.model.card.task, (), plan.settings).metric, plan.settings.iou)[0]


def metric_of(name: str, iou: float) -> tuple[str, str]:
    """The metric's name in gates and for people: map50 and mAP@.5."""
    if name == "mAP":
        return f"map{100 * iou:g}", f"mAP@{iou:g}".replace("@0.", "@.")
    return {"AP": "map", "mIoU": "miou"}.get(name, name), TITLES.get(name, name)


def _noise_result(state: AuditState, row: NoiseRow) -> NoiseResult:
    count = len(state.prepared.noise.plan.dataset) if state.prepared else 1
    label = row.option if row.family == "combined" else row.label
    only = () if row.family == "combined" else (label,)  # combined needs the whole suite
    command = state.plan.noise_line(count or 1, only=only)
    points = (row.points_lost, row.low, row.high)
    lost, low, high = (None if value is None or math.isnan(value) else value for value in points)
    return NoiseResult(
        label,
        row.family,
        row.outcome,
        lost,
        low,
        high=high,
        changed=row.changed,
        images=row.images,
        note=row.note,
        command=command,
        value=None if row.value is None or math.isnan(row.value) else row.value,
        hypothetical=row.hypothetical,
    )


def robustness_bounds(
    proofs: Sequence[Proof], maps: Sequence[SquareMap], levels: Sequence[LevelResult]
) -> Iterator[RobustnessBounds]:
    """The bounds under the square, and those under each attack.

    The threats use different criteria, which their words state: the square breaks an image when it hides one
    detected object, the attack when it hides all of them. Neither implies the other.
    """
    squares = [p for p in proofs if p.threat == THREAT]
    if squares:
        engine = squares[0].engine
        images = tuple(ImageRobustness(p.image, p.answer == "holds", p.answer == "violated") for p in squares)
        words = f"{describe_square(maps) if maps else ''} (broken: one detected object is hidden)"
        yield RobustnessBounds(THREAT, words, engine, engine, images)
    for result in levels:
        level = result.level
        images = tuple(
            ImageRobustness(a.name, False, a.left == 0 if a.stickers else a.success)
            for a in result.attempts
            if a.targets
        )
        words = f"{level.words} (broken: every detected object is hidden)"
        yield RobustnessBounds(level.threat, words, "", level.engine, images)
