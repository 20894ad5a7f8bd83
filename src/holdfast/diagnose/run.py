"""What each difference between training and deployment costs: alone, and if it alone were mended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from holdfast.core.errors import InputError, ModelError
from holdfast.engine.records import Failed
from holdfast.evaluate.difference import Side, broken, compare, side_of
from holdfast.noise.suite import Watch, points
from holdfast.noise.vision.choose import ImageCandidate, build_variant
from holdfast.noise.vision.run import Prepared, run_variants
from holdfast.noise.vision.sweep import CLEAN, SweepResult, Variant
from holdfast.stages.deployed import Deployed
from holdfast.stages.families import Option

DEPLOY = "deploy"


@dataclass(frozen=True)
class Share:
    """One difference: points it costs alone, and points that come back if it alone is undone."""

    label: str
    alone: float
    alone_low: float
    alone_high: float
    mended: float
    mended_low: float
    mended_high: float
    changed: int
    note: str = ""


@dataclass(frozen=True)
class Blame:
    """What deployment costs in all (points of the metric), each difference's part, and what it broke."""

    metric: str
    images: int
    train: float
    deploy: float
    drop: float
    low: float
    high: float
    changed: int
    shares: tuple[Share, ...]
    broken: tuple[str, ...]  # images that were right and are wrong


def blame(prepared: Prepared, chosen: Sequence[Option], watch: Watch) -> Blame:
    """The cost of deployment and of each of its differences, on all images of the data set."""
    variants, notes = _variants(prepared, chosen)
    what = f"diagnose {prepared.noise.plan.model.name}"
    made = run_variants(prepared, tuple(variants.values()), watch, what)
    sides = {role: _side(prepared, made[variant.name]) for role, variant in variants.items()}
    whole = compare(sides[CLEAN], sides[DEPLOY], replicates=prepared.noise.replicates)
    shares = tuple(_share(prepared, o.label, sides, notes.get(o.label, "")) for o in chosen)
    interval = whole.interval
    return Blame(
        whole.metric, whole.images, whole.before, whole.after, points(-interval.estimate),
        points(-interval.high), points(-interval.low), whole.changed, shares,
        broken(sides[CLEAN], sides[DEPLOY]),
    )  # fmt: skip


def _variants(prepared: Prepared, chosen: Sequence[Option]) -> tuple[dict[str, Variant], dict[str, str]]:
    """clean, deploy, each option alone and each left out, by role; and what is to be said of an option."""
    variants = {CLEAN: _clean(prepared, CLEAN)}
    notes: dict[str, str] = {}
    roles = {DEPLOY: list(chosen)}
    for option in chosen:
        roles[f"alone {option.label}"] = [option]
        roles[f"without {option.label}"] = [o for o in chosen if o is not option]
    for role, some in roles.items():
        made = build_variant(prepared.context, some) if some else None
        if role.startswith("alone"):
            notes[some[0].label] = _note(prepared, made)
        if made is None or made.status == "no effect":
            variants[role] = _clean(prepared, role)
        elif made.variant is None:
            raise InputError(f"{' + '.join(o.label for o in some)}: {made.note}")
        else:
            variants[role] = Variant(role, made.variant.pipeline, made.variant.without)
    return variants, notes


def _note(prepared: Prepared, made: ImageCandidate | None) -> str:
    """What is to be said of an option alone; how the graph was made only if training's is another."""
    if made is None:
        return "as in training"
    same = made.variant is not None and made.variant.pipeline.infer == prepared.context.clean.infer
    return "" if same else made.note


def _clean(prepared: Prepared, role: str) -> Variant:
    """Training's system in that role; if it is calibrated, not on the images it was calibrated on."""
    clean, reserved = prepared.context.clean, prepared.context.reserved
    seen = isinstance(clean.infer, Deployed) and clean.infer.calibrated
    return Variant(role, clean, reserved.without if seen else frozenset())


def _side(prepared: Prepared, made: SweepResult) -> Side:
    """The records of a finished variant, ready to be compared."""
    if made.problem:
        raise ModelError(f"{made.variant.name}: {made.problem}")
    cells = made.read()
    failed = [r for r in cells.records if isinstance(r, Failed)]
    if len(failed) == len(cells.records):
        raise ModelError(f"{made.variant.name}: every image failed; first {failed[0]}")
    return side_of(prepared.noise.plan, prepared.alignment, cells.records)


def _share(prepared: Prepared, label: str, sides: Mapping[str, Side], note: str) -> Share:
    replicates = prepared.noise.replicates
    alone = compare(sides[CLEAN], sides[f"alone {label}"], replicates=replicates)
    back = compare(sides[DEPLOY], sides[f"without {label}"], replicates=replicates)
    return Share(
        label, points(-alone.interval.estimate), points(-alone.interval.high), points(-alone.interval.low),
        points(back.interval.estimate), points(back.interval.low), points(back.interval.high),
        alone.changed, note,
    )  # fmt: skip
