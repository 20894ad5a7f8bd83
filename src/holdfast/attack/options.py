"""The options of `holdfast attack` and `holdfast patch apply`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from holdfast.config import completions
from holdfast.config.options import Argument, Option, Options
from holdfast.evaluate.options import (
    EXECUTION,
    OUTPUT,
    ClassOptions,
    JobsOptions,
    StageOptions,
    SubjectOptions,
)

SEARCH, LIMITS, ROBUST, DETECTION = "Search", "Limits", "Robustness of the attack", "Detection"


def _models(what: str) -> Option:
    complete = completions.models
    return Option(what, metavar="MODEL", group=ROBUST, refers_to="model", completions=complete)


@dataclass(frozen=True, kw_only=True)
class LimitOptions(Options, group=LIMITS):
    """What an attack may change, and how long it may search."""

    pixels: Annotated[int, Option("Changed pixels per image, at most.", least=1)] = 3000
    amplitude: Annotated[int, Option("Largest change of a channel.", least=1, most=255)] = 255
    regions: Annotated[int, Option("Connected regions per image (0 = any number).", least=0)] = 0
    seconds: Annotated[float, Option("Time per image (0 = no limit).", least=0)] = 0.0
    steps: Annotated[
        int, Option("Gradient steps per restart, or queries of the black box.", group=SEARCH, least=1)
    ] = 100
    restarts: Annotated[int, Option("Restarts until one succeeds.", group=SEARCH, least=1)] = 1


@dataclass(frozen=True, kw_only=True)
class MethodOptions(Options, group=SEARCH):
    """How an attack searches, and what it must work against."""

    mask: Annotated[
        str,
        Option(
            "Shape of the changed pixels: square, cross, grid, half-neighbour, top-gradient.",
            names=completions.masks,
        ),
    ] = "top-gradient"
    anywhere: Annotated[bool, Option("Also outside the boxes of the targets.")] = False
    goal: Annotated[
        Literal["vanish", "mislabel", "fabricate"],
        Option("Targets vanish, get another class, or new ones appear."),
    ] = "vanish"
    shrink: Annotated[bool, Option("Then reduce pixels and amplitude as far as the attack still works.")] = (
        True
    )
    black_box: Annotated[bool, Option("Use predictions only: no gradient, any runtime.")] = False
    universal: Annotated[
        Literal["none", "spot", "boxes"],
        Option("One patch for all images: at one position, or on every target."),
    ] = "none"
    transform: Annotated[
        tuple[str, ...],
        Option(
            "Also under shift, scale, rotation, light, jpeg. May be repeated.",
            group=ROBUST,
            names=completions.transforms,
        ),
    ] = ()
    deployment: Annotated[
        tuple[str, ...],
        Option(
            "Also under this noise, e.g. resize=opencv-bilinear. May be repeated.",
            metavar="NOISE",
            group=ROBUST,
            problem=completions.deployment_problem,
            example="resize=opencv-bilinear",
        ),
    ] = ()
    surrogate: Annotated[
        tuple[str, ...], _models("Attack this model too, for better transfer. May be repeated.")
    ] = ()
    diverse: Annotated[
        bool, Option("Random size and position at every step, for better transfer.", group=ROBUST)
    ] = False
    unseen: Annotated[
        tuple[str, ...],
        _models("Evaluate this model before and after, without attacking it. May be repeated."),
    ] = ()


@dataclass(frozen=True, kw_only=True)
class DetectionOptions(Options, group=DETECTION):
    """When a target counts as detected."""

    score: Annotated[float, Option("Lowest score that counts.", least=0, most=1)] = 0.25
    iou: Annotated[float, Option("Overlap of detection and truth, and of AP.", least=0, most=1)] = 0.5
    nms_iou: Annotated[float, Option("Overlap at which boxes are suppressed.", least=0, most=1)] = 0.45
    rule: Annotated[str, Option("AP rule of mAP before and after.", names=completions.rules)] = "voc"


@dataclass(frozen=True, kw_only=True)
class AttackSettings(LimitOptions, MethodOptions, DetectionOptions, StageOptions, group=EXECUTION):
    """An attack, whatever it attacks."""

    features: Annotated[
        str, Option("Network of the Fréchet distance: signs, inception:FILE, onnx:FILE, none.")
    ] = "signs"


@dataclass(frozen=True, kw_only=True)
class AttackOptions(
    AttackSettings,
    SubjectOptions,
    ClassOptions,
    JobsOptions,
    command="attack",
    examples=(
        "holdfast attack signs-plain signs:0:2 --pixels 300 --steps 20 --no-shrink -o attacked",
        "holdfast attack signs-plain signs:0:1 --pixels 400 --steps 60 --black-box -o black-box",
    ),
    group=OUTPUT,
):
    """The options of `holdfast attack`."""

    model: Annotated[
        str, Argument("A detector: an ONNX file or a shipped model.", completions=completions.models)
    ]
    data: Annotated[
        str, Argument("A dataset, 'signs', or the folder of a contest.", completions=completions.datasets)
    ]
    seed: Annotated[int, Option("Random seed.", group=EXECUTION, least=0)] = 0
    page: Annotated[bool, Option("Write report.html into DIR.")] = True
    json: Annotated[Path | None, Option("Write all numbers to this JSON file.")] = None
    out: Annotated[Path, Option("Folder of attacked images, patches and numbers.", metavar="DIR", short="-o")]


@dataclass(frozen=True, kw_only=True)
class ApplyOptions(
    Options,
    command="patch apply",
    examples=(
        (
            "holdfast attack signs-plain signs:0:1 --steps 20 --no-shrink -o attacked && "
            "holdfast patch apply attacked/patches/signs-0-000000.png attacked/images -o patched"
        ),
        "holdfast patch apply attacked/patches/signs-0-000000.png attacked/images --at 10,20 -o moved",
    ),
):
    """The options of `holdfast patch apply`."""

    patch: Annotated[Path, Argument("A PNG whose alpha is the mask, with its TOML next to it.")]
    image: Annotated[Path, Argument("An image, or a folder of images.")]
    out: Annotated[Path, Option("PNG to write, or folder of PNGs.", short="-o")]
    box: Annotated[
        tuple[str, ...], Option("For a patch on boxes: a box. May be repeated.", metavar="X1,Y1,X2,Y2")
    ] = ()
    at: Annotated[str | None, Option("Position of the patch instead: column and row.", metavar="X,Y")] = None
