"""Points lost by a deployment and by each of its differences from the training pipeline."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from holdfast.core.errors import InputError, ModelError
from holdfast.engine.records import FailedImage
from holdfast.evaluate.difference import ScoredRun, broken_images, compare, scored_run
from holdfast.metrics.points import points
from holdfast.noise.suite import Watch
from holdfast.noise.vision.choose import build_variant
from holdfast.noise.vision.run import PreparedNoise, run_variants
from holdfast.noise.vision.sweep import CLEAN, SweepResult, Variant
from holdfast.stages.deployed import DeployedInference
from holdfast.stages.families import NoiseOption

DEPLOY = "deploy"


@dataclass(frozen=True)
class DifferenceLoss:
    """One difference: points lost by it alone, and points recovered if only it is fixed."""

    label: str
    points_lost: float
    low: float
    high: float
    points_recovered: float
    recovered_low: float
    recovered_high: float
    changed: int
    note: str = ""


@dataclass(frozen=True)
class DeploymentLoss:
    """Points lost by the deployment as a whole and by each difference, and the images it broke."""

    metric: str
    task: str
    rule: str
    images: int
    train: float
    deploy: float
    points_lost: float
    low: float
    high: float
    changed: int
    differences: tuple[DifferenceLoss, ...]
    broken: tuple[str, ...]  # images that were correct and are wrong


def measure_losses(prepared: PreparedNoise, chosen: Sequence[NoiseOption], watch: Watch) -> DeploymentLoss:
    """Points lost by the deployment and by each of its differences, on all images of the dataset."""
    sides, notes = run_sides(prepared, chosen, watch)
    whole = compare(sides[CLEAN], sides[DEPLOY], replicates=prepared.noise.replicates)
    shares = tuple(_difference_loss(prepared, o.label, sides, notes.get(o.label, "")) for o in chosen)
    lost = whole.points_lost
    return DeploymentLoss(
        metric=whole.metric,
        task=prepared.noise.plan.model.card.task,
        rule=whole.rule,
        images=whole.images,
        train=whole.before,
        deploy=whole.after,
        points_lost=lost.estimate,
        low=lost.low,
        high=lost.high,
        changed=whole.changed,
        differences=shares,
        broken=broken_images(sides[CLEAN], sides[DEPLOY]),
    )


def run_sides(
    prepared: PreparedNoise, chosen: Sequence[NoiseOption], watch: Watch
) -> tuple[dict[str, ScoredRun], dict[str, str]]:
    """Training, deployment, each difference alone and all but each, by role; and a note per difference."""
    variants, notes = _variants(prepared, chosen)
    what = f"diagnose {prepared.noise.plan.model.name}"
    made = run_variants(prepared, tuple(variants.values()), watch, what)
    return {role: _side(prepared, made[variant.name]) for role, variant in variants.items()}, notes


def _variants(
    prepared: PreparedNoise, chosen: Sequence[NoiseOption]
) -> tuple[dict[str, Variant], dict[str, str]]:
    """clean, deploy, each option alone and all but each option, by role; and a note on each option."""
    variants = {CLEAN: _clean(prepared, CLEAN)}
    notes: dict[str, str] = {}
    roles = {DEPLOY: list(chosen)}
    for option in chosen:
        roles[f"alone {option.label}"] = [option]
        roles[f"without {option.label}"] = [o for o in chosen if o is not option]
    for role, some in roles.items():
        made = build_variant(prepared.context, some) if some else None
        if role.startswith("alone"):  # how the graph was made is noted only if it differs from training
            same = made and made.variant and made.variant.pipeline.infer == prepared.context.clean.infer
            notes[some[0].label] = "same as training" if made is None else "" if same else made.note
        if made is None or made.status == "no effect":
            variants[role] = _clean(prepared, role)
        elif made.variant is None:
            raise InputError(f"{' + '.join(o.label for o in some)}: {made.note}")
        else:
            variants[role] = Variant(role, made.variant.pipeline, made.variant.without)
    return variants, notes


def _clean(prepared: PreparedNoise, role: str) -> Variant:
    """The training pipeline in that role; if it is calibrated, without its calibration images."""
    clean, reserved = prepared.context.clean, prepared.context.reserved
    seen = isinstance(clean.infer, DeployedInference) and clean.infer.calibrated
    return Variant(role, clean, reserved.without if seen else frozenset())


def _side(prepared: PreparedNoise, made: SweepResult) -> ScoredRun:
    """The records of a finished variant, ready to be compared."""
    if made.problem:
        raise ModelError(f"{made.variant.name}: {made.problem}")
    records = made.read().records
    if all(isinstance(r, FailedImage) for r in records):
        raise ModelError(f"{made.variant.name}: every image failed; first {records[0]}")
    return scored_run(prepared.noise.plan, prepared.alignment, records)


def _difference_loss(
    prepared: PreparedNoise, label: str, sides: Mapping[str, ScoredRun], note: str
) -> DifferenceLoss:
    replicates = prepared.noise.replicates
    alone = compare(sides[CLEAN], sides[f"alone {label}"], replicates=replicates)
    back = compare(sides[DEPLOY], sides[f"without {label}"], replicates=replicates)
    return DifferenceLoss(
        label=label,
        points_lost=alone.points_lost.estimate,
        low=alone.points_lost.low,
        high=alone.points_lost.high,
        points_recovered=points(back.interval.estimate),
        recovered_low=points(back.interval.low),
        recovered_high=points(back.interval.high),
        changed=alone.changed,
        note=note,
    )
