"""The options of `holdfast train`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from holdfast.config import completions
from holdfast.config.options import Argument, Names, Option, Options
from holdfast.evaluate import options as shared
from holdfast.evaluate.options import (
    CardOptions,
    JobsOptions,
    MapOptions,
    OutputOptions,
    ReadingOptions,
    SubjectOptions,
)  # fmt: skip

MIX, TRAINING = "Mix", "Training"


def _mixed(what: str, names: Names) -> Option:
    text = f"{what} to draw from, separated by commas or repeated."
    return Option(text, group=MIX, names=names, commas=True)


@dataclass(frozen=True, kw_only=True)
class ClassifierOptions(Options):
    """A classifier and the images it is trained on."""

    model: Annotated[
        str, Argument("A classifier: an ONNX file or a shipped name.", completions=completions.models)
    ]
    data: Annotated[
        str,
        Argument(
            "A dataset for classification: one folder per class, a list, signs, far.",
            completions=completions.datasets,
        ),
    ]


@dataclass(frozen=True, kw_only=True)
class WorkOptions(Options, group=shared.EXECUTION):
    """The folder of training files."""

    work: Annotated[
        Path,
        Option("Folder of images, checkpoints and trained models; runs are resumable.", metavar="FOLDER"),
    ] = Path("holdfast-train")


@dataclass(frozen=True, kw_only=True)
class MixOptions(
    ClassifierOptions,
    SubjectOptions,
    MapOptions,
    JobsOptions,
    WorkOptions,
    OutputOptions,
    command="train mix",
    examples=(
        "holdfast train mix signs-class signs:0:96 --steps 20 -o mixed.onnx",
        "holdfast train mix signs-class signs:0:96 --steps 20 --augment augmix -o augmented.onnx",
    ),
):
    """The options of `holdfast train mix`."""

    out: Annotated[
        Path, Option("New ONNX file; its card is written next to it.", short="-o", metavar="NEW.onnx")
    ]
    decode: Annotated[tuple[str, ...], _mixed("Decoders", completions.decoders)] = ()
    resize: Annotated[tuple[str, ...], _mixed("Resizes", completions.resizes)] = ()
    mix_per: Annotated[
        Literal["iteration", "image"],
        Option("Draw decoder and resize per iteration (the paper's Algorithm 1) or per image.", group=MIX),
    ] = "iteration"
    augment: Annotated[
        tuple[str, ...],
        Option(
            "Augmentations, in this order: standard, augmix, apr-sp, deep.",
            metavar="NAMES",
            group=MIX,
            commas=True,
        ),
    ] = ()
    adversarial: Annotated[
        float,
        Option(
            "Train on PGD examples within this many levels of 255 (0 = none).", group=MIX, least=0, most=255
        ),
    ] = 0.0
    consistency: Annotated[
        float,
        Option("Weight of AugMix's consistency loss, 12 in its paper (0 = none).", group=MIX, least=0),
    ] = 0.0
    steps: Annotated[int | None, Option("Training steps (300).", group=TRAINING, least=1)] = None
    epochs: Annotated[
        float | None, Option("Passes over the data, instead of --steps.", group=TRAINING, least=0.01)
    ] = None
    batch: Annotated[int, Option("Images per step.", group=TRAINING, least=1)] = 64
    rate: Annotated[float, Option("Highest learning rate.", group=TRAINING, least=0)] = 3e-4
    shift: Annotated[int, Option("Move each image by up to this many pixels.", group=TRAINING, least=0)] = 0
    smoothing: Annotated[float, Option("Label smoothing.", group=TRAINING, least=0, most=0.9)] = 0.0
    statistics: Annotated[
        Literal["moving", "file"],
        Option("Batch normalisation statistics: updated in training, or as in the file.", group=TRAINING),
    ] = "moving"
    seed: Annotated[int, Option("Random seed.", group=TRAINING, least=0)] = 0
    held_out: Annotated[
        float, Option("Share of the data that is held out for testing.", group=TRAINING, least=0, most=1)
    ] = 0.25
    test: Annotated[
        str | None,
        Option(
            "Test on this data instead.", metavar="DATA", group=TRAINING, completions=completions.datasets
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class TentOptions(
    ReadingOptions,
    JobsOptions,
    WorkOptions,
    OutputOptions,
    command="train tent",
    examples=(
        "holdfast train tent resnet18.onnx signs:0:100 --only resize",
        "holdfast train tent resnet18.onnx signs:0:100 --rate 0.0001 --json tent.json",
    ),
):
    """The options of `holdfast train tent`."""

    models_data: Annotated[
        tuple[str, ...],
        Argument(
            "One or more classifiers (ONNX files or shipped names), then the dataset.",
            metavar="MODEL… DATA",
            completions=completions.models,
        ),
    ]
    card: Annotated[
        tuple[Path, ...],
        Option("Card of each model, in order (default: next to the model).", group=shared.INPUT),
    ] = ()

    only: Annotated[
        tuple[str, ...],
        Option(
            "Only these noise families or FAMILY=OPTION, separated by commas or repeated.",
            names=completions.noises,
            commas=True,
        ),
    ] = ()
    batch: Annotated[int, Option("Images per batch.", group=TRAINING, least=2)] = 100
    rate: Annotated[float, Option("Learning rate of Adam.", group=TRAINING, least=0)] = 1e-3
    steps: Annotated[int, Option("Steps per batch.", group=TRAINING, least=1)] = 1
    seed: Annotated[int, Option("Random seed of the order of images.", group=TRAINING, least=0)] = 0


@dataclass(frozen=True, kw_only=True)
class CertifiedOptions(
    ReadingOptions,
    WorkOptions,
    OutputOptions,
    command="train certified",
    examples=(
        "holdfast train certified signs:1:200 --steps 40 -o certified.onnx",
        "holdfast train certified signs:1:2500 --patch 2 --json trained.json -o certified.onnx",
    ),
):
    """The options of `holdfast train certified`."""

    data: Annotated[
        str,
        Argument("A dataset with one object per image, or signs.", completions=completions.datasets),
    ]
    out: Annotated[
        Path, Option("New ONNX file; its card is written next to it.", short="-o", metavar="NEW.onnx")
    ]
    patch: Annotated[
        int,
        Option(
            "Side of the patch, in pixels of the 64×64 input.",
            group=TRAINING,
            least=1,
            most=16,
        ),
    ] = 3
    steps: Annotated[int, Option("Training steps.", group=TRAINING, least=6)] = 1600
    batch: Annotated[int, Option("Images per step.", group=TRAINING, least=2)] = 32
    rate: Annotated[float, Option("Highest learning rate.", group=TRAINING, least=0)] = 2e-3
    seed: Annotated[int, Option("Random seed.", group=TRAINING, least=0)] = 0
    held_out: Annotated[
        float, Option("Share of the data that is held out for testing.", group=TRAINING, least=0, most=1)
    ] = 0.1
    test: Annotated[
        str | None,
        Option(
            "Test on this data instead.", metavar="DATA", group=TRAINING, completions=completions.datasets
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class MitigationOptions(CardOptions, ClassifierOptions, WorkOptions, OutputOptions, group=TRAINING):
    """The options that the two comparisons of mitigations share."""

    test: Annotated[
        str | None,
        Option("Test images (default: every fourth of the data).", group=shared.INPUT, metavar="DATA"),
    ] = None
    images: Annotated[
        int | None, Option("Only N images of each dataset, evenly spread.", group=shared.INPUT, least=8)
    ] = None
    steps: Annotated[int, Option("Training steps of each row.", least=1)] = 300
    batch: Annotated[int, Option("Images per step.", least=2)] = 64
    rate: Annotated[float, Option("Highest learning rate.", least=0)] = 1e-3
    shift: Annotated[int, Option("Move each training image by up to this many pixels.", least=0)] = 2
    seed: Annotated[int, Option("First random seed of training.", least=0)] = 0
    jobs: Annotated[
        int, Option("Rows trained at once, each on one core.", group=shared.EXECUTION, least=1)
    ] = 1


@dataclass(frozen=True, kw_only=True)
class MatrixOptions(
    MitigationOptions,
    command="train matrix",
    examples=(
        "holdfast train matrix signs-class signs:0:96 --steps 20",
        "holdfast train matrix signs-class signs:0:96 --steps 20 --over decode --with pillow,ffmpeg",
    ),
    group=shared.INPUT,
):
    """The options of `holdfast train matrix`."""

    over: Annotated[Literal["resize", "decode"], Option("The stage that is replaced.")] = "resize"
    with_: Annotated[
        tuple[str, ...],
        Option("Use these instead of the paper's, separated by commas or repeated.", commas=True),
    ] = ()
    seeds: Annotated[
        int, Option("Trainings per row with different seeds, averaged.", group=TRAINING, least=1)
    ] = 1


@dataclass(frozen=True, kw_only=True)
class MitigateOptions(
    MitigationOptions,
    command="train compare",
    examples=(
        "holdfast train compare signs-class signs:0:96 --with standard,mix --only resize --steps 20",
        "holdfast train compare signs-class signs:0:96 --with augmix --only decode --steps 20 --markdown",
    ),
    group=shared.INPUT,
):
    """The options of `holdfast train compare`."""

    with_: Annotated[
        tuple[str, ...],
        Option(
            "Only these: standard, augmix, apr-sp, deep, deep+apr-sp, deep+augmix, adversarial, mix.",
            commas=True,
        ),
    ] = ()
    only: Annotated[
        tuple[str, ...], Option("Only these noise families.", names=completions.noises, commas=True)
    ] = ()
    out: Annotated[
        Path | None, Option("Write the page to this HTML file.", short="-o", group=shared.OUTPUT)
    ] = None
