"""From the arguments of a public function to the plan of its work, and from its result to files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np

from holdfast.api.data import DataLike, dataset
from holdfast.api.keywords import build_options
from holdfast.api.model import Model
from holdfast.config.options import Options
from holdfast.config.output import write_json
from holdfast.core import model as core
from holdfast.core.dataset import Dataset
from holdfast.core.errors import InputError, OutputError
from holdfast.core.model import Task
from holdfast.core.pipeline import Pipeline, pipeline_of
from holdfast.core.result import Result
from holdfast.core.types import Sample
from holdfast.diagnose.run import IMAGE_SUFFIXES
from holdfast.evaluate.options import EvaluationOptions
from holdfast.evaluate.result import CELLS
from holdfast.evaluate.run import EvaluationPlan, defended, evaluation_plan
from holdfast.noise.suite import REWRITTEN
from holdfast.noise.vision.choose import calibration_pool, reserve, with_calibration
from holdfast.noise.vision.show import SingleImage
from holdfast.stages.deployed import Calibration, DeployedInference, with_providers
from holdfast.stages.families import families

ModelLike: TypeAlias = "str | Path | core.Model"
R = TypeVar("R", bound=Result)
T = TypeVar("T", bound=Options)


def plan_for_call(
    options: EvaluationOptions, model: Model, data: DataLike, command: str = ""
) -> EvaluationPlan:
    """What to evaluate: the model on the data, with the pipeline of its deployment."""
    reading: dict[str, Any] = (
        {} if isinstance(data, Dataset) else {"format": options.format, "split": options.split}
    )
    opened = dataset(data, task=model.card.task, limit=options.images, **reading)
    plan = evaluation_plan(options, model, opened, command)
    if model.stages is None:
        return plan
    stages = {kind: name for kind, _, name in (text.partition("=") for text in options.stage)}
    pipeline = ready_pipeline(model, opened, options.runs).replace(**stages)
    if options.provider:
        pipeline = pipeline.replace(infer=with_providers(pipeline.infer, options.provider))
    return replace(plan, pipeline=defended(pipeline, options.defend, model) if options.defend else pipeline)


def ready_pipeline(model: Model, data: Dataset, runs: Path) -> Pipeline:
    """The pipeline of a deployed model; calibration images, if it needs any, are not in the dataset."""
    infer = model.pipeline.infer
    if not isinstance(infer, DeployedInference):
        return model.pipeline
    calibration = infer.calibration
    if calibration is None and infer.calibrated:
        reserved = reserve(data, other_images(data))
        if not reserved.items or reserved.without:
            raise InputError(
                f"{', '.join(model.deployment)}: integer precisions need calibration images that are not "
                "tested on; pass them as model.deployed(…, calibration=dataset)"
            )
        calibration = Calibration(reserved.items, replace(model, stages=None).pipeline)
    calibration = calibration or Calibration((), model.pipeline)
    return with_calibration(model.pipeline, calibration, runs / CELLS / REWRITTEN)


def other_images(data: Dataset) -> Dataset | None:
    """The data that a dataset is a part of, or other embedded scenes; None for a dataset in memory."""
    source = data.source
    if "data" not in source:
        return None
    return calibration_pool(source["data"], data.task, source.get("format"), source.get("split"))


def network_file(net: ModelLike, runs: Path) -> Path:
    """The ONNX file to verify: of a path, a name or a model; of a deployed model, its rewritten file.

    InputError for a deployment that is more than a rewritten file.
    """
    from holdfast.verify.cli import find_network

    if not isinstance(net, core.Model):
        return find_network(net)
    if not isinstance(net, Model) or net.stages is None:
        return net.path
    trained, infer, what = pipeline_of(net.card), net.pipeline.infer, ", ".join(net.deployment)
    same = net.pipeline.replace(infer=trained.infer) == trained
    if not same or not isinstance(infer, DeployedInference) or infer.runtime != DeployedInference.runtime:
        rewrites = ", ".join(family.name for family in families() if "rewrite" in family.kinds)
        raise InputError(
            f"verify(): expected a deployment that only rewrites the network ({rewrites}), got {what}; "
            "a property is about the network: verify the model without the other stages"
        )
    if infer.calibrated and infer.calibration is None:
        raise InputError(
            f"verify(): {what}: integer precisions need calibration images; pass them as "
            "model.deployed(…, calibration=dataset)"
        )
    return replace(infer, folder=runs / CELLS / REWRITTEN).built(net).path


def options_for_call(
    shape: type[T], keywords: Mapping[str, Any], function: str, model: Model, data: DataLike, **known: Any
) -> T:
    """The options of a call on a model and data; an output that cannot be written is an error now."""
    names = subject_names(model, data)
    options = with_reading(build_options(shape, keywords, function, **names, **known), data)
    check_files(options)
    return options


def subject_names(model: Model, data: DataLike) -> dict[str, str]:
    """The model and the data as the command line would name them."""
    return {"model": model_name(model), "data": data_name(data)}


def model_name(model: core.Model) -> str:
    """The path of a model, or its name if it is a shipped one."""
    from holdfast.graph.load import shipped

    return model.name if model.name in shipped() and "holdfast" in model.path.parts else str(model.path)


def data_name(data: DataLike) -> str:
    """The path or name of a dataset; of one in memory, what it is called."""
    if isinstance(data, Dataset):
        return str(data.source.get("data", data.name))
    if isinstance(data, Sample):
        return data.name
    return str(data) if isinstance(data, str | Path) else "data"


def with_reading(options: T, data: DataLike) -> T:
    """The options with how a dataset was read, so that commands that repeat a run read the same images."""
    if not isinstance(data, Dataset):
        return options
    given = {name: getattr(options, name) for name in ("format", "split")}
    for name, value in given.items():
        if value is not None:
            raise InputError(f"{name}: the dataset is opened already; pass {name} to holdfast.dataset()")
    source, images = data.source, getattr(options, "images", None)
    if "data" not in source or "selection" in source:
        return options
    reading: dict[str, Any] = {**{name: source[name] for name in given}, "images": images or source["images"]}
    return replace(options, **reading)


def take_dataset(options: dict[str, Any], name: str) -> Callable[[Task], Dataset] | None:
    """Remove a dataset that is not a path or a name from the options; None if there is none."""
    given = options.get(name)
    if given is None or isinstance(given, str):
        return None
    del options[name]
    return lambda task: dataset(given, task=task)


def one_image(data: DataLike) -> SingleImage | None:
    """The image of a sample or of a path; None for a dataset."""
    if isinstance(data, Sample):
        return SingleImage(data.name, data.data)
    path = Path(data) if isinstance(data, str | Path) else None
    if path is not None and path.suffix.lower() in IMAGE_SUFFIXES and path.is_file():
        return SingleImage(path.name, path.read_bytes())
    return None


def array_file(given: str | Path | np.ndarray[Any, Any] | None, path: Path) -> Path | None:
    """The .npy file of an array, written now; a path is returned as it is."""
    if given is None or isinstance(given, str | Path):
        return None if given is None else Path(given)
    np.save(path, np.asarray(given))
    return path


def check_files(options: Options) -> None:
    """Raise OutputError before the work begins if a file that is asked for cannot be written."""
    for name in ("json", "out", "predictions_out", "per_image", "junit", "sarif"):
        path = getattr(options, name, None)
        if isinstance(path, Path) and path.suffix and path.resolve().parent.is_file():
            raise OutputError(f"{name}: {path}: expected a path inside a folder")


def write_files(result: R, options: Options, *, page: bool = True) -> R:
    """Write the JSON file and the page that the options name; return the result."""
    if path := getattr(options, "json", None):
        write_json(path, result.to_dict())
    if page and (path := getattr(options, "out", None)):
        result.save(path)
    return result
