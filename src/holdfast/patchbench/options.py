"""The options of `holdfast patchbench`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from holdfast.config import completions
from holdfast.config.options import Argument, Option, Options
from holdfast.evaluate.options import INPUT, CardOptions, ClassOptions, FormatOptions

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

    folder: Annotated[Path, Argument("A new or empty folder.", metavar="DIR")]
    model: Annotated[
        str,
        Option("A detector of one object: an ONNX file or a shipped one.", completions=completions.models),
    ] = "signs-single"
    data: Annotated[
        str,
        Option("Pictures of one object each: folder, file, or 'signs'.", completions=completions.datasets),
    ] = "signs"
    images: Annotated[int, Option("Number of pictures.", least=1)] = 16
    seed: Annotated[int, Option("Random seed of the pictures.", least=0)] = 0
    held_out: Annotated[bool, Option("The data are test data: do not split them 9:1.")] = False
    patch: Annotated[
        tuple[int, ...],
        Option(
            "Side (default: 3, or of the picture). May be repeated: one network each.", group=PATCH, least=1
        ),
    ] = ()
    content: Annotated[
        str, Option("'black', a picture (alpha of a PNG: mask), or 'free'.", metavar="WHAT", group=PATCH)
    ] = "black"
    positions: Annotated[
        str | None,
        Option("With free content: positions per image (4), or 'all'.", group=PATCH, metavar="N|all"),
    ] = None
    strict: Annotated[
        bool, Option("Unsafe is below 0.5; otherwise at most 0.5, as published.", group=PROPERTY)
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

    folder: Annotated[Path, Argument("A benchmark folder: ours, or a published one.", metavar="DIR")]
    json: Annotated[Path | None, Option("Also write everything to this JSON file.")] = None


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
            "A benchmark folder (with instances.csv), or a single-object model.",
            completions=completions.models,
        ),
    ]
    data: Annotated[
        str | None,
        Argument("For a model: a dataset, or signs, the embedded one.", completions=completions.datasets),
    ] = None
    patch: Annotated[int | None, Option("For a model: rows and columns of the patch (3).", least=1)] = None
    content: Annotated[
        str | None, Option("For a model: black, or a PNG (its alpha is the mask).", metavar="black|FILE")
    ] = None
    strict: Annotated[bool, Option("For a model: unsafe is below 0.5, not 0.5 itself.")] = False
    images: Annotated[int | None, Option("Images (16) or instances (all), at most.", least=1)] = None
    jobs: Annotated[int, Option("Threads (0 = one per core).", least=0)] = 0
    json: Annotated[Path | None, Option("Write all maps to this JSON file.")] = None
    out: Annotated[Path | None, Option("Write the maps as a page.", short="-o", metavar="PAGE")] = None
