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
    DefenceOptions,
    ExecutionOptions,
    StageOptions,
    SubjectOptions,
)

SEARCH, LIMITS, ROBUST, DETECTION = "Search", "Limits", "Robustness of the attack", "Detection"


def _models(what: str) -> Option:
    return Option(what, metavar="MODEL", group=ROBUST, refers_to="model", completions=completions.models)


@dataclass(frozen=True, kw_only=True)
class LimitOptions(Options, group=LIMITS):
    """What an attack may change, and how long it may search."""

    pixels: Annotated[int, Option("Pixel budget: maximum number of changed pixels per image.", least=1)] = (
        3000
    )
    amplitude: Annotated[int, Option("Maximum change of a channel.", least=1, most=255)] = 255
    regions: Annotated[
        int, Option("Maximum number of connected regions per image (0 = any number).", least=0)
    ] = 0
    seconds: Annotated[float, Option("Time limit per image in seconds (0 = no limit).", least=0)] = 0.0
    steps: Annotated[
        int, Option("Gradient steps per restart, or queries of the black-box search.", group=SEARCH, least=1)
    ] = 100
    restarts: Annotated[
        int, Option("Maximum number of restarts until one succeeds.", group=SEARCH, least=1)
    ] = 1


@dataclass(frozen=True, kw_only=True)
class MethodOptions(Options, group=SEARCH):
    """How an attack searches, and what it must work against."""

    mask: Annotated[
        str,
        Option(
            "Mask: square, cross (contiguous); grid, half-neighbour, top-gradient (scattered).",
            names=completions.masks,
        ),
    ] = "top-gradient"
    shape: Annotated[
        Literal["pixels", "square", "circle", "sign"],
        Option(
            "pixels: as the mask says. square, circle, sign (octagon): one printable patch per target, which "
            "must also work under shift, scale, rotation, light and jpeg unless --transform says otherwise."
        ),
    ] = "pixels"
    size: Annotated[
        str | None,
        Option(
            "Size of a shape: its side (38px, or 12cm with --sign-size), or its share of the object's box "
            "(10%). Default: --pixels is its area.",
            metavar="SIZE",
        ),
    ] = None
    sign_size: Annotated[
        str | None,
        Option(
            "Width of the object in centimetres, e.g. 60cm: the patch is saved at print size.", metavar="CM"
        ),
    ] = None
    anywhere: Annotated[
        bool, Option("Also change pixels outside the boxes of the targets; a shape may be beside its object.")
    ] = False
    contiguous: Annotated[
        bool, Option("Also attack with contiguous squares at the same pixel budget, for comparison.")
    ] = True
    goal: Annotated[
        Literal["vanish", "mislabel", "fabricate"],
        Option("Hide the targets, change their class, or make new objects appear."),
    ] = "vanish"
    shrink: Annotated[bool, Option("Reduce pixels and amplitude while the attack still succeeds.")] = True
    black_box: Annotated[bool, Option("Use predictions only (no gradients).")] = False
    universal: Annotated[
        Literal["none", "spot", "boxes"],
        Option("One adversarial patch for all images: at one position, or on every target."),
    ] = "none"
    transform: Annotated[
        tuple[str, ...],
        Option(
            "Must also work under this transform: shift, scale, rotation, light, jpeg. May be repeated. "
            "Default: none; all five with --shape square, circle or sign.",
            group=ROBUST,
            names=completions.transforms,
        ),
    ] = ()
    deployment: Annotated[
        tuple[str, ...],
        Option(
            "Must also work under this noise option, e.g. resize=opencv-bilinear. May be repeated.",
            metavar="NOISE",
            group=ROBUST,
            problem=completions.deployment_problem,
            example="resize=opencv-bilinear",
        ),
    ] = ()
    surrogate: Annotated[
        tuple[str, ...], _models("Also attack this model, for better transfer. May be repeated.")
    ] = ()
    diverse: Annotated[
        bool, Option("Random size and position at every step, for better transfer.", group=ROBUST)
    ] = False
    unseen: Annotated[
        tuple[str, ...],
        _models("Evaluate this model before and after without attacking it. May be repeated."),
    ] = ()


@dataclass(frozen=True, kw_only=True)
class DetectionOptions(Options, group=DETECTION):
    """When a target counts as detected."""

    score: Annotated[float, Option("Score threshold of a detection.", least=0, most=1)] = 0.25
    iou: Annotated[
        float, Option("IoU threshold of detection and ground truth, also for AP.", least=0, most=1)
    ] = 0.5
    nms_iou: Annotated[float, Option("IoU threshold of NMS.", least=0, most=1)] = 0.45
    rule: Annotated[str, Option("AP rule.", names=completions.rules)] = "voc"


@dataclass(frozen=True, kw_only=True)
class AttackSettings(
    LimitOptions, MethodOptions, DetectionOptions, StageOptions, DefenceOptions, group=EXECUTION
):
    """Settings of an attack on any model."""

    features: Annotated[
        str, Option("Feature network of the Fréchet distance: signs, inception:FILE, onnx:FILE or none.")
    ] = "signs"


@dataclass(frozen=True, kw_only=True)
class AttackOptions(
    AttackSettings,
    SubjectOptions,
    ClassOptions,
    ExecutionOptions,
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
    page: Annotated[bool, Option("Write report.html to DIR.")] = True
    json: Annotated[Path | None, Option("Write all results to this JSON file.")] = None
    out: Annotated[
        Path, Option("Folder for attacked images, patches and results.", metavar="DIR", short="-o")
    ]


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

    patch: Annotated[Path, Argument("PNG whose alpha channel is the mask, with its TOML file next to it.")]
    image: Annotated[Path, Argument("An image, or a folder of images.")]
    out: Annotated[Path, Option("PNG file or folder to write.", short="-o")]
    box: Annotated[
        tuple[str, ...], Option("Box to apply the patch to. May be repeated.", metavar="X1,Y1,X2,Y2")
    ] = ()
    at: Annotated[str | None, Option("Position of the patch: column and row.", metavar="X,Y")] = None
