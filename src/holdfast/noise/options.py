"""The options of `holdfast noise` and its subcommands."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from holdfast.config import completions
from holdfast.config.options import Argument, Option, Options
from holdfast.evaluate import options as evaluate

NOISE = "Noise"


@dataclass(frozen=True, kw_only=True)
class SelectionOptions(Options, group=NOISE):
    """Which noise options are measured."""

    only: Annotated[
        tuple[str, ...],
        Option(
            "Only these noise families or FAMILY=OPTION, or paper, separated by commas or repeated.",
            names=completions.noise_selection,
            commas=True,
            problem=completions.missing_library,
        ),
    ] = ()
    skip: Annotated[
        tuple[str, ...],
        Option(
            "Skip these noise families or FAMILY=OPTION, separated by commas or repeated.",
            names=completions.noises,
            commas=True,
        ),
    ] = ()


@dataclass(frozen=True, kw_only=True)
class AllOptions(SelectionOptions, group=NOISE):
    """Which noise options are measured, including those that run on demand."""

    all: Annotated[bool, Option("Also run the options that are off by default.")] = False


@dataclass(frozen=True, kw_only=True)
class SuiteNameOptions(Options, group=NOISE):
    """The set of noise options that --only and --skip choose from."""

    suite: Annotated[
        Literal["default", "paper", "corruptions"],
        Option("Default options, those of the SysNoise paper, or default and 15 common corruptions."),
    ] = "default"


@dataclass(frozen=True, kw_only=True)
class UseOptions(Options, group=NOISE):
    """Noise options of the user."""

    use: Annotated[tuple[Path, ...], Option("A Python file with your own noise options.")] = ()


@dataclass(frozen=True, kw_only=True)
class CalibrationOptions(Options, group=NOISE):
    """The calibration images of integer precisions."""

    calibration: Annotated[
        str | None,
        Option(
            "Calibration images of integer precisions (default: some of the data).",
            metavar="DATA",
            refers_to="data",
            completions=completions.datasets,
        ),
    ] = None
    calibration_images: Annotated[int, Option("Number of calibration images.", least=1)] = 100


@dataclass(frozen=True, kw_only=True)
class RuleOptions(Options, group=evaluate.SCORING):
    """The AP rule of a noise suite."""

    rule: Annotated[str, Option("AP rule.", names=completions.rules)] = "coco"


@dataclass(frozen=True, kw_only=True)
class SuiteOptions(
    AllOptions, SuiteNameOptions, UseOptions, CalibrationOptions, RuleOptions, evaluate.ReadingOptions,
    evaluate.SliceOptions, evaluate.ProviderOptions, evaluate.ClassOptions, evaluate.DefenceOptions,
    evaluate.RunOptions, evaluate.StrictOptions, evaluate.PageOptions,
):  # fmt: skip
    """The options that a suite and a combination share."""


@dataclass(frozen=True, kw_only=True)
class TaskOptions(Options, group=evaluate.INPUT):
    """The task of the models."""

    task: Annotated[
        Literal["pictures", "language", "speech"],
        Option("Task of the models: images, language models or speech synthesis."),
    ] = "pictures"


@dataclass(frozen=True, kw_only=True)
class NoiseOptions(
    TaskOptions,
    SuiteOptions,
    evaluate.DeployModelOptions,
    evaluate.RecordOptions,
    command="noise",
    examples=(
        "holdfast noise signs-yolo signs:0:8 --only decode,resize",
        "holdfast noise signs-class signs:0:20 -o noise.html",
    ),
    group=evaluate.INPUT,
):
    """The options of `holdfast noise`."""

    models_data: Annotated[
        tuple[str, ...],
        Argument(
            "One or more models (ONNX files or shipped names), then the dataset.",
            metavar="MODEL… DATA",
            completions=completions.models,
        ),
    ]
    card: Annotated[
        tuple[Path, ...], Option("Card of each model, in order (default: next to the model).")
    ] = ()
    dry_run: Annotated[
        bool, Option("Estimate cells, time and size from a timed sample.", group="Execution")
    ] = False


@dataclass(frozen=True, kw_only=True)
class CombineOptions(
    SuiteOptions,
    evaluate.SubjectOptions,
    command="noise combine",
    examples=(
        "holdfast noise combine signs-class signs:0:20 --only decode,resize",
        "holdfast noise combine signs-yolo signs:0:4 --only resize,colour -o combine.html",
    ),
    group=NOISE,
):
    """The options of `holdfast noise combine`."""

    all: Annotated[bool, Option("Try every option at each step.")] = False


@dataclass(frozen=True, kw_only=True)
class ListOptions(
    UseOptions,
    evaluate.OutputOptions,
    command="noise list",
    examples=(
        "holdfast noise list",
        "holdfast noise list --markdown",
    ),
):
    """The options of `holdfast noise list`."""


@dataclass(frozen=True, kw_only=True)
class ShowOptions(
    SelectionOptions,
    UseOptions,
    evaluate.CardOptions,
    command="noise show",
    examples=(
        (
            "holdfast data make signs scenes --images 4 && "
            "holdfast noise show scenes/images/000000.jpg --only resize"
        ),
        "holdfast noise show scenes/images/000001.jpg --model signs-yolo --only colour -o colour.html",
    ),
):
    """The options of `holdfast noise show`."""

    image: Annotated[Path, Argument("An image file.")]
    model: Annotated[
        str | None,
        Option("Resize as for this model, and show its feature maps.", completions=completions.models),
    ] = None
    calibration: Annotated[
        str | None, Option("Calibration images of integer precisions (default: this one).", metavar="DATA")
    ] = None
    folder: Annotated[Path | None, Option("Write all images as PNG files into this folder.")] = None
    out: Annotated[Path, Option("Page to write.", short="-o")] = Path("noise.html")
