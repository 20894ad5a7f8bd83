"""What each difference between training and deployment costs, and how integer precisions are calibrated."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from holdfast.config.options import carry
from holdfast.core.dataset import Dataset
from holdfast.core.errors import InputError, ModelError
from holdfast.core.model import Model
from holdfast.core.pipeline import Pipeline, pipeline_of
from holdfast.data.open import open_dataset
from holdfast.diagnose.dump import like_input, like_output, like_table, read_dump
from holdfast.diagnose.lockstep import StageApart, lockstep
from holdfast.diagnose.options import DiagnoseOptions
from holdfast.engine.progress import progress
from holdfast.engine.records import FailedImage
from holdfast.evaluate.difference import Side, broken, compare, side_of
from holdfast.evaluate.result import CELLS
from holdfast.graph.load import load_model
from holdfast.noise.cli import plan_for
from holdfast.noise.options import CombineOptions
from holdfast.noise.suite import REWRITTEN, Watch, points, spread
from holdfast.noise.vision.choose import build_variant, calibrated, not_for, reserve
from holdfast.noise.vision.run import Prepared, prepare_context, run_variants
from holdfast.noise.vision.show import OnePicture
from holdfast.noise.vision.sweep import CLEAN, SweepResult, Variant
from holdfast.report.tables import Table
from holdfast.stages.deployed import Calibration, DeployedInference
from holdfast.stages.families import NoiseOption, applied, options_of

DEPLOY = "deploy"
PICTURES = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".ppm")
LOOKED_AT = 16  # images of a dataset that are run in lockstep


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


def blame(prepared: Prepared, chosen: Sequence[NoiseOption], watch: Watch) -> Blame:
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


def _variants(prepared: Prepared, chosen: Sequence[NoiseOption]) -> tuple[dict[str, Variant], dict[str, str]]:
    """clean, deploy, each option alone and each left out, by role; and what is to be said of an option."""
    variants = {CLEAN: _clean(prepared, CLEAN)}
    notes: dict[str, str] = {}
    roles = {DEPLOY: list(chosen)}
    for option in chosen:
        roles[f"alone {option.label}"] = [option]
        roles[f"without {option.label}"] = [o for o in chosen if o is not option]
    for role, some in roles.items():
        made = build_variant(prepared.context, some) if some else None
        if role.startswith("alone"):  # how the graph was made is said only if training's is another
            same = made and made.variant and made.variant.pipeline.infer == prepared.context.clean.infer
            notes[some[0].label] = "as in training" if made is None else "" if same else made.note
        if made is None or made.status == "no effect":
            variants[role] = _clean(prepared, role)
        elif made.variant is None:
            raise InputError(f"{' + '.join(o.label for o in some)}: {made.note}")
        else:
            variants[role] = Variant(role, made.variant.pipeline, made.variant.without)
    return variants, notes


def _clean(prepared: Prepared, role: str) -> Variant:
    """Training's system in that role; if it is calibrated, not on the images it was calibrated on."""
    clean, reserved = prepared.context.clean, prepared.context.reserved
    seen = isinstance(clean.infer, DeployedInference) and clean.infer.calibrated
    return Variant(role, clean, reserved.without if seen else frozenset())


def _side(prepared: Prepared, made: SweepResult) -> Side:
    """The records of a finished variant, ready to be compared."""
    if made.problem:
        raise ModelError(f"{made.variant.name}: {made.problem}")
    records = made.read().records
    if all(isinstance(r, FailedImage) for r in records):
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


def calibration_of(model: Model, words: str, *systems: Pipeline) -> Calibrated | None:
    """What was calibrated on and how, of systems that are ready to run; None if none has to be."""
    infers = [s.infer for s in systems if isinstance(s.infer, DeployedInference) and s.infer.calibrated]
    if not infers:
        return None
    images = max(len(infer.calibration.entries) for infer in infers if infer.calibration)
    builds = [infer.built(model) for infer in infers]
    how = ["; ".join(b.how) or ("" if b.changed else "nothing in the graph it could change") for b in builds]
    return Calibrated(images, words, "; ".join(dict.fromkeys(how)))


def diagnose(options: DiagnoseOptions) -> Diagnosis:
    """Run training and deployment beside each other, on a dataset or on one picture with its dumps."""
    dumps = options.input or options.output
    if not (options.deploy or dumps):
        raise InputError("expected --deploy CHOICES, or a dump of the target: --input or --output FILE.npy")
    path = Path(options.data)
    if path.is_file() and path.suffix.lower() in PICTURES:
        return _on_picture(options)
    if dumps:
        raise InputError("a dump is compared on one picture: give the picture it is of, not a dataset")
    plan = plan_for(carry(options, CombineOptions))
    base = plan.plan
    train = _system(pipeline_of(base.model.card), options.train, base.model)
    systems = train, _system(train, options.deploy, base.model)
    prepared = prepare_context(replace(plan, plan=replace(base, pipeline=train)))
    context = prepared.context
    train, deploy = (calibrated(system, context.calibration, context.folder) for system in systems)
    prepared = replace(prepared, context=replace(context, clean=train))
    few = spread(base.dataset.entries, min(LOOKED_AT, len(base.dataset)))
    pictures = ((entry.name, entry.load().data) for entry in few)
    stages = lockstep(base.model, train, deploy, pictures)
    seen = calibration_of(base.model, context.reserved.words, train, deploy)
    costs = blame(prepared, options_of(options.deploy), progress)
    return Diagnosis(stages, costs, calibration=seen)


def _on_picture(options: DiagnoseOptions) -> Diagnosis:
    picture = Path(options.data)
    loaded, data = load_model(options.model, options.card), picture.read_bytes()
    train = _system(pipeline_of(loaded.card), options.train, loaded)
    entry, why = OnePicture(picture.name, data), "give others by --calibration DATA"
    images, words = Calibration((entry,), train), ""
    if options.calibration:
        spare = open_dataset(options.calibration)
        tested = Dataset(picture.name, "picture", loaded.card.task, loaded.card.classes, (entry,))
        reserved = reserve(tested, spare, options.calibration_images)
        why = f"{spare.name} holds no other"
        if reserved.items:
            images, words = Calibration(reserved.items, train, reserved.lack), reserved.words
    words = words or f"1 image, the picture itself ({why})"

    def ready(pipeline: Pipeline) -> Pipeline:
        return calibrated(pipeline, images, options.runs / CELLS / REWRITTEN)

    found = Diagnosis()
    if options.deploy:
        both = ready(train), ready(_system(train, options.deploy, loaded))
        stages = lockstep(loaded, *both, [(picture.name, data)])
        found = Diagnosis(stages, calibration=calibration_of(loaded, words, *both))
    if options.input:
        near = like_input(loaded, train, data, read_dump(options.input))
        found = replace(found, dumps=(like_table(near, "input"),))
    if options.output:
        near = like_output(loaded, train, data, read_dump(options.output), ready)
        seen = found.calibration or Calibrated(len(images.entries), words)
        found = replace(found, dumps=(*found.dumps, like_table(near, "output")), calibration=seen)
    return found


def _system(pipeline: Pipeline, text: str, model: Model) -> Pipeline:
    """The pipeline with the options of a text; InputError if one is not for the task or undoes another."""
    chosen = options_of(text)
    for place, one in enumerate(chosen):
        if unfit := not_for(one, model):
            raise InputError(f"{one.label}: {unfit}")
        for later in chosen[place + 1 :]:
            both = applied(pipeline, (one, later))
            if one.family == later.family and both == applied(pipeline, (later,)):
                raise InputError(f"{one.label} and {later.label}: the second undoes the first; give one")
    return applied(pipeline, chosen)
