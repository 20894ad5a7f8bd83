"""What each difference between training and deployment costs, and how integer precisions are calibrated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from holdfast.core.dataset import Dataset, Entry
from holdfast.core.errors import InputError, ModelError
from holdfast.core.model import Model
from holdfast.core.pipeline import Pipeline
from holdfast.diagnose.lockstep import StageApart
from holdfast.engine.records import Failed
from holdfast.evaluate.difference import Side, broken, compare, side_of
from holdfast.noise.suite import Watch, points
from holdfast.noise.vision.choose import ImageCandidate, build_variant, reserve
from holdfast.noise.vision.run import Prepared, run_variants
from holdfast.noise.vision.sweep import CLEAN, SweepResult, Variant
from holdfast.report.tables import Table
from holdfast.stages.deployed import Calibration, Deployed
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
        metric=whole.metric,
        images=whole.images,
        train=whole.before,
        deploy=whole.after,
        drop=points(-interval.estimate),
        low=points(-interval.high),
        high=points(-interval.low),
        changed=whole.changed,
        shares=shares,
        broken=broken(sides[CLEAN], sides[DEPLOY]),
    )


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
    records = made.read().records
    if all(isinstance(r, Failed) for r in records):
        raise ModelError(f"{made.variant.name}: every image failed; first {records[0]}")
    return side_of(prepared.noise.plan, prepared.alignment, records)


def _share(prepared: Prepared, label: str, sides: Mapping[str, Side], note: str) -> Share:
    replicates = prepared.noise.replicates
    alone = compare(sides[CLEAN], sides[f"alone {label}"], replicates=replicates)
    back = compare(sides[DEPLOY], sides[f"without {label}"], replicates=replicates)
    return Share(
        label=label,
        alone=points(-alone.interval.estimate),
        alone_low=points(-alone.interval.high),
        alone_high=points(-alone.interval.low),
        mended=points(back.interval.estimate),
        mended_low=points(back.interval.low),
        mended_high=points(back.interval.high),
        changed=alone.changed,
        note=note,
    )


@dataclass(frozen=True)
class Calibrated:
    """How many images integer precisions were calibrated on, in words which, and by what method."""

    images: int
    on: str
    how: str = ""


@dataclass(frozen=True)
class Diagnosis:
    """A diagnosis; what was not asked for is empty."""

    stages: tuple[StageApart, ...] = ()
    blame: Blame | None = None
    dumps: tuple[Table, ...] = ()
    calibration: Calibrated | None = None


def for_picture(
    model: Model, picture: Entry, spare: Dataset | None, train: Pipeline, images: int
) -> tuple[Calibration, str]:
    """Images of `spare` other than the picture, or the picture itself if there is none; and the words."""
    why = "give others by --calibration DATA"
    if spare is not None:
        tested = Dataset(picture.name, "picture", model.card.task, model.card.classes, (picture,))
        reserved = reserve(tested, spare, images)
        if reserved.items:
            return Calibration(reserved.items, train, reserved.lack), reserved.words
        why = f"{spare.name} holds no other"
    return Calibration((picture,), train), f"1 image, the picture itself ({why})"


def calibration_of(model: Model, words: str, *systems: Pipeline) -> Calibrated | None:
    """What was calibrated on and how, of systems that are ready to run; None if none has to be."""
    infers = [s.infer for s in systems if isinstance(s.infer, Deployed) and s.infer.calibrated]
    if not infers:
        return None
    images = max(len(infer.calibration.entries) for infer in infers if infer.calibration)
    builds = [infer.built(model) for infer in infers]
    how = ["; ".join(b.how) or ("" if b.changed else "nothing in the graph it could change") for b in builds]
    return Calibrated(images, words, "; ".join(dict.fromkeys(how)))
