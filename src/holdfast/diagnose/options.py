"""The options of `holdfast diagnose`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from holdfast.config import completions
from holdfast.config.options import Argument, Option
from holdfast.evaluate.options import (
    INPUT,
    OUTPUT,
    ClassOptions,
    DeployModelOptions,
    RunOptions,
    SubjectOptions,
)
from holdfast.noise.options import CalibrationOptions, RuleOptions, UseOptions


@dataclass(frozen=True, kw_only=True)
class DiagnoseOptions(
    UseOptions,
    CalibrationOptions,
    RuleOptions,
    SubjectOptions,
    ClassOptions,
    DeployModelOptions,
    RunOptions,
    command="diagnose",
    examples=(
        "holdfast diagnose signs-yolo signs:0:8 --deploy resize=opencv-nearest",
        "holdfast diagnose signs-yolo signs:0:8 --deploy decode=ffmpeg,precision=int8 -o diagnose.html",
    ),
    group=INPUT,
):
    """The options of `holdfast diagnose`."""

    data: Annotated[
        str, Argument("An image, or a dataset.", metavar="IMAGE|DATA", completions=completions.datasets)
    ]
    train: Annotated[
        str, Option("Training pipeline: FAMILY=OPTION,… (default: as in the card).", metavar="OPTIONS")
    ] = ""
    deploy: Annotated[str, Option("Deployment: FAMILY=OPTION,FAMILY=OPTION.", metavar="OPTIONS")] = ""
    input: Annotated[
        Path | None,
        Option("Input tensor of the target: a .npy file, or a folder of them with the names of the images."),
    ] = None
    train_exif: Annotated[
        bool, Option("The training applies the EXIF orientation of images (cv2.imread does). With --input.")
    ] = False
    predictions: Annotated[
        Path | None,
        Option("Predictions of the target: COCO results (JSON), or a file of evaluate --predictions-out."),
    ] = None
    output: Annotated[Path | None, Option("A .npy file with the output of the target.")] = None
    layers: Annotated[
        bool, Option("Compare the layers of the network: precisions and runtimes of --deploy.")
    ] = False
    json: Annotated[Path | None, Option("Write all numbers to this JSON file.", group=OUTPUT)] = None
    out: Annotated[Path | None, Option("Write the page to this HTML file.", short="-o", group=OUTPUT)] = None
