"""A diagnosis: of differences between training and deployment, or of what a target fed or predicted."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from holdfast.config.options import carry
from holdfast.core.dataset import Dataset
from holdfast.core.errors import InputError
from holdfast.core.model import Model
from holdfast.core.pipeline import Pipeline, pipeline_of
from holdfast.core.result import Result
from holdfast.data.open import open_dataset
from holdfast.diagnose.dump import match_output, match_table, read_dump
from holdfast.diagnose.layers import LayerDiagnosis, diagnose_layers
from holdfast.diagnose.losses import DeploymentLoss, measure_losses
from holdfast.diagnose.options import DiagnoseOptions
from holdfast.diagnose.predicted import PredictionDiagnosis, category_classes, read_predictions
from holdfast.diagnose.predictions import MOST_IMAGES, diagnose_predictions
from holdfast.diagnose.stages import StageDifference, compare_stages
from holdfast.diagnose.target import InputDiagnosis, diagnose_input
from holdfast.diagnose.unlabelled import FORMAT, DeploymentAgreement, measure_agreement, open_unlabelled
from holdfast.engine.manifest import to_plain
from holdfast.evaluate.options import EvaluationOptions
from holdfast.evaluate.result import CELLS
from holdfast.evaluate.run import EvaluationPlan, evaluation_plan
from holdfast.graph.load import load_model
from holdfast.noise.cli import plan_for
from holdfast.noise.options import CombineOptions
from holdfast.noise.suite import REWRITTEN, Watch, no_progress, spread
from holdfast.noise.vision.choose import reserve, task_mismatch, with_calibration
from holdfast.noise.vision.run import prepare_context
from holdfast.noise.vision.show import SingleImage
from holdfast.report.tables import Table
from holdfast.stages.deployed import Calibration, DeployedInference
from holdfast.stages.families import NoiseOption, applied, options_of
from holdfast.stages.runtime.files import file_option

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".ppm")
LAYER_IMAGES = 4  # images of a dataset on which layers are compared
MOST_DUMPS = 8  # dumps of a folder that are used
COMPARED_IMAGES = 16  # images of a dataset that are run in lockstep


@dataclass(frozen=True)
class CalibrationInfo:
    """The calibration images of integer precisions, and the method."""

    images: int
    on: str
    how: str = ""


@dataclass(frozen=True, repr=False)
class Diagnosis(Result):
    """A diagnosis; parts that were not requested are empty."""

    stages: tuple[StageDifference, ...] = ()
    loss: DeploymentLoss | None = None
    agreement: DeploymentAgreement | None = None  # on images without labels, in place of the loss
    input: InputDiagnosis | None = None
    predictions: PredictionDiagnosis | None = None
    layers: LayerDiagnosis | None = None
    dumps: tuple[Table, ...] = ()
    calibration: CalibrationInfo | None = None

    @property
    def verdict(self) -> str:
        """The diagnosis in one to three sentences."""
        from holdfast.diagnose.page import summary

        text = summary(self)
        for table in self.dumps:
            _, choices, exact, largest, *_ = table.rows[0]
            found = f"The dump of the target is reproduced exactly by {choices}."
            near = f"No option reproduces the dump; the closest is {choices}, largest difference {largest}."
            text = f"{found if exact else near} {text}"
        return text.strip()

    def to_dict(self) -> dict[str, Any]:
        """The diagnosis as plain values, as `--json` writes them."""
        dumps = [{"columns": [c.name for c in t.heads], "rows": t.rows} for t in self.dumps]
        fed = self.input.to_dict() if self.input else None
        predicted = self.predictions.to_dict() if self.predictions else None
        layers = self.layers.to_dict() if self.layers else None
        plain = to_plain(replace(self, input=None, predictions=None, layers=None))
        parts = {"input": fed, "predictions": predicted, "layers": layers, "dumps": dumps}
        return {"holdfast": 1, "kind": "diagnose", **plain, **parts}

    def _summary(self) -> str:
        return self.verdict

    def _rows(self) -> list[dict[str, Any]]:
        if self.loss is not None:
            return [asdict(one) for one in self.loss.differences]
        if self.agreement is not None:
            return [asdict(one) for one in self.agreement.differences]
        target = self.input or self.predictions
        if target is not None:
            return [asdict(cause) for cause in target.causes]
        if self.layers is not None:
            return [asdict(layer) for layer in self.layers.layers]
        if self.stages:
            return [asdict(stage) for stage in self.stages]
        names = [column.name or "rank" for column in self.dumps[0].heads] if self.dumps else []
        return [dict(zip(names, row, strict=True)) for table in self.dumps for row in table.rows]

    def _page(self) -> str:
        from holdfast.diagnose.page import page

        return page(self)


def calibration_of(model: Model, words: str, *systems: Pipeline) -> CalibrationInfo | None:
    """The calibration of pipelines that are ready to run; None if none is calibrated."""
    infers = [s.infer for s in systems if isinstance(s.infer, DeployedInference) and s.infer.calibrated]
    if not infers:
        return None
    images = max(len(infer.calibration.entries) for infer in infers if infer.calibration)
    builds = [infer.built(model) for infer in infers]
    unchanged = "the graph has nothing that this precision changes"
    how = ["; ".join(b.how) or ("" if b.changed else unchanged) for b in builds]
    return CalibrationInfo(images, words, "; ".join(dict.fromkeys(how)))


def diagnose(
    options: DiagnoseOptions,
    watch: Watch = no_progress,
    subject: EvaluationPlan | tuple[Model, SingleImage] | None = None,
) -> Diagnosis:
    """Compare training pipeline and deployment, on a dataset or on one image with dumps of the target.

    `subject` is the plan of an evaluation, or a model and one image, if they are opened already.
    """
    _check(options)
    path = Path(options.data)
    if subject is None and path.is_file() and path.suffix.lower() in IMAGE_SUFFIXES:
        subject = load_model(options.model, options.card), SingleImage(path.name, path.read_bytes())
    if subject is None and path.is_dir():
        subject = _unlabelled_plan(options, path)
    if isinstance(subject, tuple):
        return _diagnose_image(options, *subject)
    if options.output or (options.input and (options.deploy or options.deploy_model or options.predictions)):
        raise InputError("expected the image of the dump instead of a dataset")
    if options.input:
        return _diagnose_inputs(options, subject)
    if options.predictions:
        base = plan_for(carry(options, CombineOptions), subject).plan
        return _diagnose_predictions(options, base.model, base.dataset)
    plan = plan_for(carry(options, CombineOptions), subject)
    base = plan.plan
    train = _pipeline_of(pipeline_of(base.model.card), options_of(options.train), base.model)
    systems = train, _pipeline_of(train, _deployment(options), base.model)
    prepared = prepare_context(replace(plan, plan=replace(base, pipeline=train)))
    context = prepared.context
    train, deploy = (with_calibration(system, context.calibration, context.folder) for system in systems)
    prepared = replace(prepared, context=replace(context, clean=train))
    few = spread(base.dataset.entries, min(COMPARED_IMAGES, len(base.dataset)))
    pictures = ((entry.name, entry.load().data) for entry in few)
    stages = compare_stages(base.model, train, deploy, pictures)
    seen = calibration_of(base.model, context.reserved.words, train, deploy)
    if options.layers:
        data = [entry.load().data for entry in few[:LAYER_IMAGES]]
        layers = diagnose_layers(base.model, train, deploy, data, options.deploy)
        return Diagnosis(stages, layers=layers, calibration=seen)
    if base.dataset.format == FORMAT:
        agreement = measure_agreement(prepared, _deployment(options), watch)
        return Diagnosis(stages, agreement=agreement, calibration=seen)
    costs = measure_losses(prepared, _deployment(options), watch)
    return Diagnosis(stages, costs, calibration=seen)


def _unlabelled_plan(options: DiagnoseOptions, folder: Path) -> EvaluationPlan | None:
    """The plan of a folder of images without labels; None if the folder is a dataset."""
    model = load_model(options.model, options.card)
    dataset = None if options.format else open_unlabelled(folder, model, options.images)
    return evaluation_plan(carry(options, EvaluationOptions), model, dataset) if dataset is not None else None


def _diagnose_predictions(options: DiagnoseOptions, model: Model, dataset: Dataset) -> Diagnosis:
    """The diagnosis of the predictions of a target on the images of a dataset."""
    path = options.predictions or Path()
    found = read_predictions(path, dataset)
    entries = [(e.name, e.load().data) for e in dataset.entries if e.name in found][:MOST_IMAGES]
    train = _pipeline_of(pipeline_of(model.card), options_of(options.train), model)
    classes = category_classes(path, dataset, model.card.classes)
    return Diagnosis(predictions=diagnose_predictions(model, entries, found, classes=classes, train=train))


def _diagnose_inputs(options: DiagnoseOptions, subject: EvaluationPlan | None) -> Diagnosis:
    """The diagnosis of a folder of dumps, which have the names of the dataset's images."""
    plan = plan_for(carry(options, CombineOptions), subject).plan
    folder = Path(options.input or "")
    if not folder.is_dir():
        raise InputError(f"--input: expected a folder of .npy files for a dataset, got {folder}")
    pairs = [(e, folder / f"{Path(e.name).stem}.npy") for e in plan.dataset.entries]
    pairs = [pair for pair in pairs if pair[1].is_file()]
    if not pairs:
        first = Path(plan.dataset.entries[0].name).stem
        raise InputError(f"{folder}: expected .npy files named after the images, such as {first}.npy")
    pairs = list(spread(pairs, min(MOST_DUMPS, len(pairs))))
    train = _pipeline_of(pipeline_of(plan.model.card), options_of(options.train), plan.model)
    images, dumps = [entry.load().data for entry, _ in pairs], [read_dump(path) for _, path in pairs]
    found = diagnose_input(plan.model, images, dumps, train, train_exif=options.train_exif)
    return Diagnosis(input=found)


def _diagnose_image(options: DiagnoseOptions, loaded: Model, entry: SingleImage) -> Diagnosis:
    data, why = entry.data, "use --calibration DATA for others"
    train = _pipeline_of(pipeline_of(loaded.card), options_of(options.train), loaded)
    images, words = Calibration((entry,), train), ""
    if options.calibration:
        spare = open_dataset(options.calibration)
        tested = Dataset(entry.name, "picture", loaded.card.task, loaded.card.classes, (entry,))
        reserved = reserve(tested, spare, options.calibration_images)
        why = f"{spare.name} has no other image"
        if reserved.items:
            images, words = Calibration(reserved.items, train, reserved.lack), reserved.words
    words = words or f"1 image, the tested one ({why})"

    def ready(pipeline: Pipeline) -> Pipeline:
        return with_calibration(pipeline, images, options.runs / CELLS / REWRITTEN)

    found = Diagnosis()
    if options.deploy or options.deploy_model:
        both = ready(train), ready(_pipeline_of(train, _deployment(options), loaded))
        stages = compare_stages(loaded, *both, [(entry.name, data)])
        found = Diagnosis(stages, calibration=calibration_of(loaded, words, *both))
        if options.layers:
            found = replace(found, layers=diagnose_layers(loaded, *both, [data], options.deploy))
    if options.input:
        dump = read_dump(options.input)
        fed = diagnose_input(loaded, [data], [dump], train, train_exif=options.train_exif)
        found = replace(found, input=fed)
    if options.predictions:
        alone = Dataset(entry.name, "picture", loaded.card.task, loaded.card.classes, (entry,))
        found = replace(found, predictions=_diagnose_predictions(options, loaded, alone).predictions)
    if options.output:
        near = match_output(loaded, train, data, read_dump(options.output), ready)
        seen = found.calibration or CalibrationInfo(len(images.entries), words)
        found = replace(found, dumps=(*found.dumps, match_table(near, "output")), calibration=seen)
    return found


def _check(options: DiagnoseOptions) -> None:
    """Raise InputError if the options do not say what to diagnose, or contradict each other."""
    deployed = bool(options.deploy or options.deploy_model)
    if not (deployed or options.input or options.output or options.predictions):
        raise InputError(
            "expected --deploy OPTIONS, --deploy-model FILE, or a file of the target: --input FILE.npy, "
            "--output FILE.npy or --predictions FILE.json"
        )
    if options.train_exif and not options.input:
        raise InputError("--train-exif: expected --input, a dump of the target's input")
    if options.layers and options.deploy_model:
        raise InputError("--layers: not supported with --deploy-model, whose layers have other names")
    if options.layers and not options.deploy:
        raise InputError("--layers: expected --deploy with a precision or a runtime")


def _deployment(options: DiagnoseOptions) -> tuple[NoiseOption, ...]:
    """The differences between training and deployment, the converted file of the model last."""
    files = (file_option(options.deploy_model),) if options.deploy_model else ()
    return (*options_of(options.deploy), *files)


def _pipeline_of(pipeline: Pipeline, chosen: Sequence[NoiseOption], model: Model) -> Pipeline:
    """The pipeline with these options; InputError if one is not for the task or replaces another."""
    for place, one in enumerate(chosen):
        if unfit := task_mismatch(one, model):
            raise InputError(f"{one.label}: {unfit}")
        for later in chosen[place + 1 :]:
            both = applied(pipeline, (one, later))
            if one.family == later.family and both == applied(pipeline, (later,)):
                raise InputError(f"{one.label} and {later.label}: the second replaces the first; use one")
    return applied(pipeline, chosen)
