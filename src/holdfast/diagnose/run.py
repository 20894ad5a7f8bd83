"""What each difference between training and deployment costs, and how integer precisions are calibrated."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from holdfast.config.options import carry
from holdfast.core.dataset import Dataset
from holdfast.core.errors import InputError, ModelError
from holdfast.core.model import Model
from holdfast.core.pipeline import Pipeline, pipeline_of
from holdfast.core.result import Result
from holdfast.data.open import open_dataset
from holdfast.diagnose.dump import like_input, like_output, like_table, read_dump
from holdfast.diagnose.lockstep import StageApart, lockstep
from holdfast.diagnose.options import DiagnoseOptions
from holdfast.engine.manifest import to_plain
from holdfast.engine.records import Failed
from holdfast.evaluate.difference import Side, broken, compare, side_of
from holdfast.evaluate.result import CELLS
from holdfast.evaluate.run import Plan
from holdfast.graph.load import load_model
from holdfast.noise.cli import plan_for
from holdfast.noise.options import CombineOptions
from holdfast.noise.suite import REWRITTEN, Watch, points, spread, unwatched
from holdfast.noise.vision.choose import build_variant, calibrated, not_for, reserve
from holdfast.noise.vision.run import Prepared, prepare_context, run_variants
from holdfast.noise.vision.show import OnePicture
from holdfast.noise.vision.sweep import CLEAN, SweepResult, Variant
from holdfast.report.tables import Table
from holdfast.stages.deployed import Calibration, Deployed
from holdfast.stages.families import Option, applied, options_of

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


@dataclass(frozen=True, repr=False)
class Diagnosis(Result):
    """A diagnosis; what was not asked for is empty."""

    stages: tuple[StageApart, ...] = ()
    blame: Blame | None = None
    dumps: tuple[Table, ...] = ()
    calibration: Calibrated | None = None

    @property
    def verdict(self) -> str:
        """The diagnosis in one to three sentences."""
        from holdfast.diagnose.page import words

        said = words(self)
        for table in self.dumps if "dump" not in said else ():
            _, choices, exact, largest, *_ = table.rows[0]
            how = "exactly" if exact else f"with a largest difference of {largest}"
            said += f" The dump of the target is reproduced by {choices} {how}."
        return said.strip()

    def to_dict(self) -> dict[str, Any]:
        """The diagnosis as plain values, as `--json` writes them."""
        dumps = [{"columns": [c.name for c in t.heads], "rows": t.rows} for t in self.dumps]
        return {"holdfast": 1, "kind": "diagnose", **to_plain(self), "dumps": dumps}

    def _summary(self) -> str:
        return self.verdict

    def _rows(self) -> list[dict[str, Any]]:
        if self.blame is not None:
            return [asdict(share) for share in self.blame.shares]
        if self.stages:
            return [asdict(stage) for stage in self.stages]
        names = [column.name or "rank" for column in self.dumps[0].heads] if self.dumps else []
        return [dict(zip(names, row, strict=True)) for table in self.dumps for row in table.rows]

    def _page(self) -> str:
        from holdfast.diagnose.page import page

        return page(self)


def calibration_of(model: Model, words: str, *systems: Pipeline) -> Calibrated | None:
    """What was calibrated on and how, of systems that are ready to run; None if none has to be."""
    infers = [s.infer for s in systems if isinstance(s.infer, Deployed) and s.infer.calibrated]
    if not infers:
        return None
    images = max(len(infer.calibration.entries) for infer in infers if infer.calibration)
    builds = [infer.built(model) for infer in infers]
    how = ["; ".join(b.how) or ("" if b.changed else "nothing in the graph it could change") for b in builds]
    return Calibrated(images, words, "; ".join(dict.fromkeys(how)))


def diagnose(
    options: DiagnoseOptions, watch: Watch = unwatched, subject: Plan | tuple[Model, OnePicture] | None = None
) -> Diagnosis:
    """Run training and deployment next to each other, on a dataset or on one image with its dumps.

    `subject` is the plan of an evaluation, or a model and one image, if they are opened already.
    """
    dumps = options.input or options.output
    if not (options.deploy or dumps):
        raise InputError("expected --deploy CHOICES, or a dump of the target: --input or --output FILE.npy")
    path = Path(options.data)
    if subject is None and path.is_file() and path.suffix.lower() in PICTURES:
        subject = load_model(options.model, options.card), OnePicture(path.name, path.read_bytes())
    if isinstance(subject, tuple):
        return _on_picture(options, *subject)
    if dumps:
        raise InputError("a dump is compared on one picture: give the picture it is of, not a dataset")
    noise = plan_for(carry(options, CombineOptions), subject)
    base = noise.plan
    train = _system(pipeline_of(base.model.card), options.train, base.model)
    systems = train, _system(train, options.deploy, base.model)
    prepared = prepare_context(replace(noise, plan=replace(base, pipeline=train)))
    context = prepared.context
    train, deploy = (calibrated(system, context.calibration, context.folder) for system in systems)
    prepared = replace(prepared, context=replace(context, clean=train))
    few = spread(base.dataset.entries, min(LOOKED_AT, len(base.dataset)))
    pictures = ((entry.name, entry.load().data) for entry in few)
    stages = lockstep(base.model, train, deploy, pictures)
    seen = calibration_of(base.model, context.reserved.words, train, deploy)
    costs = blame(prepared, options_of(options.deploy), watch)
    return Diagnosis(stages, costs, calibration=seen)


def _on_picture(options: DiagnoseOptions, loaded: Model, entry: OnePicture) -> Diagnosis:
    data, why = entry.data, "give others by --calibration DATA"
    train = _system(pipeline_of(loaded.card), options.train, loaded)
    images, words = Calibration((entry,), train), ""
    if options.calibration:
        spare = open_dataset(options.calibration)
        tested = Dataset(entry.name, "picture", loaded.card.task, loaded.card.classes, (entry,))
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
        stages = lockstep(loaded, *both, [(entry.name, data)])
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
