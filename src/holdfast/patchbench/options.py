"""The options of `holdfast patchbench`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from holdfast.config import completions
from holdfast.config.options import Argument, Option, Options
from holdfast.evaluate.options import (
    EXECUTION,
    INPUT,
    CardOptions,
    ClassOptions,
    FormatOptions,
    ReadingOptions,
)

PATCH, PROPERTY = "Patch", "Property"


@dataclass(frozen=True, kw_only=True)
class MakeOptions(
    CardOptions,
    FormatOptions,
    ClassOptions,
    command="patchbench make",
    examples=(
        "holdfast patchbench make bench --images 2",
        "holdfast patchbench make free-bench --images 1 --content free --positions 2",
    ),
    group=INPUT,
):
    """The options of `holdfast patchbench make`."""

    folder: Annotated[Path, Argument("New or empty folder.", metavar="DIR")]
    model: Annotated[
        str,
        Option("Single-object detector: ONNX file or shipped model.", completions=completions.models),
    ] = "signs-single"
    data: Annotated[
        str,
        Option(
            "Dataset with one object per image: folder, file, or 'signs'.", completions=completions.datasets
        ),
    ] = "signs"
    images: Annotated[int, Option("Number of images.", least=1)] = 16
    seed: Annotated[int, Option("Random seed of the image selection.", least=0)] = 0
    held_out: Annotated[bool, Option("Use all images as test images (no 9:1 split).")] = False
    patch: Annotated[
        tuple[int, ...],
        Option(
            "Side in pixels (default: 3, or that of the image file). May be repeated: one network each.",
            group=PATCH,
            least=1,
        ),
    ] = ()
    content: Annotated[
        str, Option("'black', an image file (PNG alpha: mask), or 'free'.", metavar="WHAT", group=PATCH)
    ] = "black"
    positions: Annotated[
        str | None,
        Option(
            "With free content: positions per image (default: 4), or 'all'.", group=PATCH, metavar="N|all"
        ),
    ] = None
    strict: Annotated[
        bool, Option("Unsafe means below 0.5 (default: at most 0.5, as published).", group=PROPERTY)
    ] = False


@dataclass(frozen=True, kw_only=True)
class CheckOptions(
    Options,
    command="patchbench check",
    examples=(
        "holdfast patchbench make bench --images 1 && holdfast patchbench check bench",
        "holdfast patchbench check bench --json check.json",
    ),
):
    """The options of `holdfast patchbench check`."""

    folder: Annotated[Path, Argument("Benchmark folder, ours or a published one.", metavar="DIR")]
    json: Annotated[Path | None, Option("Also write all results to this JSON file.")] = None


@dataclass(frozen=True, kw_only=True)
class CertifyPositionsOptions(
    CardOptions,
    ReadingOptions,
    command="patchbench certify",
    examples=(
        "holdfast patchbench certify signs-certified signs --images 2 --patch 3",
        "holdfast patchbench certify signs-single signs --images 1 --seconds 20 --json positions.json",
    ),
):
    """The options of `holdfast patchbench certify`."""

    subject: Annotated[
        str,
        Argument(
            "Single-object detector, or a benchmark folder (with instances.csv).",
            completions=completions.models,
        ),
    ]
    data: Annotated[
        str | None,
        Argument("For a model: a dataset, or signs (embedded).", completions=completions.datasets),
    ] = None
    patch: Annotated[
        int | None,
        Option("Side of the patch in pixels (default: 3, or that of each instance).", group=PATCH, least=1),
    ] = None
    strict: Annotated[bool, Option("Unsafe means below 0.5 (default: at most 0.5).", group=PROPERTY)] = False
    seconds: Annotated[float, Option("Time limit per image.", group=EXECUTION, least=0.1)] = 60.0
    split_seconds: Annotated[
        float, Option("Time limit of splitting at one position (0: bounds only).", group=EXECUTION, least=0)
    ] = 5.0
    jobs: Annotated[int, Option("Threads (0 = one per core).", group=EXECUTION, least=0)] = 0
    seed: Annotated[int, Option("Random seed of the attack.", group=EXECUTION, least=0)] = 0
    json: Annotated[Path | None, Option("Write the state of every position to this JSON file.")] = None
    out: Annotated[Path | None, Option("Write the maps as an HTML page.", short="-o", metavar="PAGE")] = None


@dataclass(frozen=True, kw_only=True)
class PositionOptions(
    CardOptions,
    command="patchbench evaluate",
    examples=(
        "holdfast patchbench evaluate signs-single signs --images 1",
        "holdfast patchbench make bench --images 1 && holdfast patchbench evaluate bench -o positions.html",
    ),
):
    """The options of `holdfast patchbench evaluate`."""

    subject: Annotated[
        str,
        Argument(
            "Benchmark folder (with instances.csv), or a single-object detector.",
            completions=completions.models,
        ),
    ]
    data: Annotated[
        str | None,
        Argument("For a model: a dataset, or signs (embedded).", completions=completions.datasets),
    ] = None
    patch: Annotated[
        int | None, Option("For a model: side of the patch in pixels (default: 3).", least=1)
    ] = None
    content: Annotated[
        str | None,
        Option("For a model: black, or a PNG whose alpha channel is the mask.", metavar="black|FILE"),
    ] = None
    strict: Annotated[bool, Option("For a model: unsafe means below 0.5 (default: at most 0.5).")] = False
    images: Annotated[
        int | None, Option("Maximum number of images (default: 16) or instances (default: all).", least=1)
    ] = None
    jobs: Annotated[int, Option("Threads (0 = one per core).", least=0)] = 0
    json: Annotated[Path | None, Option("Write all maps to this JSON file.")] = None
    out: Annotated[Path | None, Option("Write the maps as an HTML page.", short="-o", metavar="PAGE")] = None
