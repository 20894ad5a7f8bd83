"""The options of `holdfast certify`."""

from dataclasses import dataclass
from typing import Annotated, Literal

from holdfast.config import completions
from holdfast.config.options import Option
from holdfast.evaluate.options import (
    ClassOptions,
    PageOptions,
    RunOptions,
    StageOptions,
    StrictOptions,
    SubjectOptions,
)

PATCH, DEFENCE, CHECK = "Patch", "Defence", "Check"


@dataclass(frozen=True, kw_only=True)
class CertifyOptions(
    SubjectOptions,
    ClassOptions,
    StageOptions,
    RunOptions,
    StrictOptions,
    PageOptions,
    command="certify",
    examples=(
        "holdfast certify signs-yolo signs:0:4 --patch 16 --lines 15",
        "holdfast certify signs-yolo signs:0:4 --patch 1% --lines 10 --squares 8 --alpha 0.6 --beta 0.3",
    ),
    group=DEFENCE,
):
    """The options of `holdfast certify`."""

    patch: Annotated[
        str,
        Option(
            "Side of the square patch in pixels (32), or its share of the image's area (1%).",
            metavar="SIZE",
            group=PATCH,
        ),
    ] = "1%"
    threat: Annotated[
        Literal["decoded", "scene", "input"],
        Option(
            "Where the patch is: decoded pixels, the scene before JPEG compression, or the network's input "
            "(with --masks input).",
            group=PATCH,
        ),
    ] = "decoded"
    overlap: Annotated[
        float,
        Option(
            "A certified object has a reported box over more than this share of it.",
            metavar="T",
            least=0,
            most=0.99,
            group=PATCH,
        ),
    ] = 0.0
    lines: Annotated[
        int, Option("Lines on each axis; each is the edge of two half-plane masks.", least=0, most=500)
    ] = 30
    squares: Annotated[
        int,
        Option(
            "Also mask with this many squares on each axis, for patches up to --patch (0: none).",
            least=0,
            most=500,
        ),
    ] = 0
    masks: Annotated[
        Literal["scene", "input"],
        Option("Mask the decoded image, or the network's input, where a patch is spread by the resize."),
    ] = "scene"
    score: Annotated[float, Option("Score threshold of detections on the whole image.", least=0, most=1)] = (
        0.25
    )
    alpha: Annotated[
        float | None,
        Option("Score threshold of detections on masked images (default: calibrated).", least=0, most=1),
    ] = None
    beta: Annotated[
        float,
        Option(
            "Raises that threshold to at least SCORE + (1 - SCORE) times this, for stricter masks.",
            least=0,
            most=1,
        ),
    ] = 0.0
    prune: Annotated[
        float,
        Option("Drop a box of a masked image that a reported box covers by this share.", least=0, most=1),
    ] = 0.6
    false_boxes: Annotated[
        float, Option("Added false boxes per image that the calibration allows at most.", least=0)
    ] = 0.1
    calibration: Annotated[
        str | None,
        Option(
            "Calibration images of the threshold (default: some of the data, which are then skipped).",
            metavar="DATA",
            refers_to="data",
            completions=completions.datasets,
        ),
    ] = None
    calibration_images: Annotated[int, Option("Number of calibration images.", least=1)] = 20
    attack: Annotated[
        int,
        Option(
            "Attack the wrapped detector at this many certified and as many other places per image, to check "
            "the certificates; each place takes 30 times the passes of an image.",
            metavar="N",
            least=0,
            group=CHECK,
        ),
    ] = 0
