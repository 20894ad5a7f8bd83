"""An experiment as data. The fields are what its TOML file may hold (see slots)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from holdfast.audit.gates import Gate
from holdfast.config import offers
from holdfast.experiment import names
from holdfast.experiment.slots import Takes

Texts: TypeAlias = tuple[str, ...]
RuleName = Annotated[str, Takes("AP rule.", names=offers.rules)]
Stages = Annotated[Texts, Takes("Exchanged stages.", names=offers.stages, example="resize=opencv-bilinear")]
Calibration = Annotated[
    str | None, Takes("Images to calibrate integer precisions on (else some of the data's).", place="data")
]
CalibrationImages = Annotated[int, Takes("How many images to calibrate on.", least=1)]


@dataclass(frozen=True)
class GivenModel:
    """A [[model]]."""

    path: Annotated[str, Takes("An ONNX file, or the name of a shipped model.", place="model")]
    name: Annotated[str, Takes("What it is called in the results; else by its file.")] = ""
    card: Annotated[Path | None, Takes("Its card, if that does not lie beside it.", place="file")] = None
    classes: Annotated[
        Literal["all", "common"], Takes("common: only classes both the model and the data know.")
    ] = "all"
    map: Annotated[Mapping[str, str], Takes("Classes of the data that the model calls otherwise.")] = field(
        default_factory=dict
    )


@dataclass(frozen=True)
class GivenData:
    """A [[data]]."""

    path: Annotated[str, Takes("A folder or file, or signs:SEED:COUNT, the embedded one.", place="data")]
    name: Annotated[str, Takes("What it is called in the results; else by its path.")] = ""
    format: Annotated[str | None, Takes("Read it as this format.", names=offers.formats)] = None
    split: Annotated[str | None, Takes("Which split of it.")] = None
    images: Annotated[int | None, Takes("Only the first so many images.", least=1)] = None


@dataclass(frozen=True)
class Evaluate:
    """do = "evaluate"."""

    rule: Annotated[str | None, Takes("AP rule; coco unless given.", names=offers.rules)] = None
    iou: Annotated[
        float | None, Takes("IoU threshold of counts and of AP (coco AP: .5 to .95).", least=0, most=1)
    ] = None
    score: Annotated[
        float | None, Takes("Score threshold of counts, precision and recall.", least=0, most=1)
    ] = None
    stage: Stages = ()
    noise: Annotated[
        Texts,
        Takes("Options of noise, all at once.", names=names.options, example="precision=int8-minmax",
              check=names.missing),
    ] = ()  # fmt: skip
    calibration: Calibration = None
    calibration_images: CalibrationImages = 100


@dataclass(frozen=True)
class Noise:
    """do = "noise": every option alone, then the worst of each family together."""

    only: Annotated[
        Texts, Takes("Only these families, or FAMILY=OPTION.", names=names.noises, check=names.missing)
    ] = ()
    skip: Annotated[Texts, Takes("Not these families, or FAMILY=OPTION.", names=names.noises)] = ()
    all: Annotated[bool, Takes("Also the options that are run on demand only.")] = False
    rule: RuleName = "coco"
    stage: Stages = ()
    calibration: Calibration = None
    calibration_images: CalibrationImages = 100


@dataclass(frozen=True)
class Attack:
    """do = "attack": few pixels on every image."""

    pixels: Annotated[int, Takes("Changed pixels an image, at most.", least=1)] = 3000
    amplitude: Annotated[int, Takes("Largest change of a channel.", least=1, most=255)] = 255
    regions: Annotated[int, Takes("Connected regions an image; 0: any number.", least=0)] = 0
    seconds: Annotated[float, Takes("Time for an image; 0: no limit.", least=0)] = 0.0
    steps: Annotated[int, Takes("Gradient steps a restart, or queries of the black box.", least=1)] = 100
    restarts: Annotated[int, Takes("Begin anew so often, until one succeeds.", least=1)] = 1
    mask: Annotated[str, Takes("Which pixels.", names=offers.masks)] = "top-gradient"
    anywhere: Annotated[bool, Takes("Also outside the boxes of the targets.")] = False
    goal: Annotated[
        Literal["vanish", "mislabel", "fabricate"],
        Takes("Targets vanish, get another class, or new ones appear."),
    ] = "vanish"
    shrink: Annotated[bool, Takes("Then fewest pixels, least amplitude that still do.")] = True
    black_box: Annotated[bool, Takes("From predictions alone: no gradient, any runtime.")] = False
    universal: Annotated[
        Literal["none", "spot", "boxes"], Takes("One patch for all images: at one spot, or on every target.")
    ] = "none"
    transform: Annotated[Texts, Takes("It must work under these too.", names=offers.transforms)] = ()
    deployment: Annotated[
        Texts,
        Takes("It must work under this noise too, e.g. resize=opencv-bilinear.", check=names.deployment,
              example="resize=opencv-bilinear"),
    ] = ()  # fmt: skip
    surrogate: Annotated[Texts, Takes("Attacked together with the model.", place="model")] = ()
    unseen: Annotated[Texts, Takes("Judged before and after, never attacked.", place="model")] = ()
    diverse: Annotated[bool, Takes("Random size and place at every step, to transfer better.")] = False
    score: Annotated[float, Takes("Lowest score that counts.", least=0, most=1)] = 0.25
    iou: Annotated[float, Takes("Overlap of detection and truth, and of AP.", least=0, most=1)] = 0.5
    nms_iou: Annotated[float, Takes("Overlap at which boxes are suppressed.", least=0, most=1)] = 0.45
    rule: RuleName = "voc"
    stage: Stages = ()
    features: Annotated[
        str, Takes("Network of the Fréchet distance: signs, inception:FILE, onnx:FILE, none.")
    ] = "signs"


@dataclass(frozen=True)
class Audit:
    """do = "audit": all of it within a budget of time."""

    budget: Annotated[
        str, Takes("Time for all of it: 10m, 90s, 1h30m, none.", example="10m", check=names.budget)
    ] = "10m"
    only: Annotated[Texts, Takes("Only these parts of it.", names=names.parts)] = ()
    noise_images: Annotated[int | None, Takes("Images that meet every noise (else planned).", least=2)] = None
    attack_images: Annotated[int | None, Takes("Images that are attacked (else planned).", least=1)] = None
    square_images: Annotated[int | None, Takes("Images with a square at every place.", least=1)] = None
    places: Annotated[int, Takes("Places of the square, at most.", least=1)] = 400
    square: Annotated[
        float, Takes("The square's side as a part of the shorter side.", least=0.01, most=0.9)
    ] = 0.05
    pixels: Annotated[tuple[int, ...], Takes("Budgets of the attack in pixels.", least=1)] = (
        100, 300, 1000, 3000,
    )  # fmt: skip
    steps: Annotated[int, Takes("Gradient steps of the attack.", least=1)] = 40
    spec: Annotated[tuple[Path, ...], Takes("VNN-LIB files to prove.", place="file")] = ()
    rule: RuleName = "voc"
    calibration: Calibration = None


@dataclass(frozen=True)
class Verify:
    """do = "verify": prove that no input of a set violates a property. It needs no data."""

    spec: Annotated[tuple[Path, ...], Takes("VNN-LIB files.", place="file")]
    seconds: Annotated[float, Takes("Give up after so many seconds, each.", least=0)] = 300.0


Work: TypeAlias = Evaluate | Noise | Attack | Audit | Verify
DOES: dict[str, type[Work]] = {
    "evaluate": Evaluate, "noise": Noise, "attack": Attack, "audit": Audit, "verify": Verify,
}  # fmt: skip
Does = Literal["evaluate", "noise", "attack", "audit", "verify"]


@dataclass(frozen=True)
class Condition:
    """A [[condition]]: run for each model on each data."""

    do: Annotated[Does, Takes("What is done.")]
    name: Annotated[str, Takes("What it is called in the results; else what is done.")] = ""
    work: Work = field(default_factory=Evaluate)


@dataclass(frozen=True)
class Experiment:
    """A whole file. Paths in it are relative to its folder, and absolute here."""

    file: Path
    models: tuple[GivenModel, ...]
    data: tuple[GivenData, ...]
    conditions: tuple[Condition, ...]
    title: Annotated[str, Takes("A line above the results.")] = ""
    seed: Annotated[int, Takes("Another seed, another search of attacks.", least=0)] = 0
    gates: tuple[Gate, ...] = ()
