"""The rules of a contest: every point the contest's document leaves open, fixed in one file."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Member:
    """A model of the contest: its name, its file inside the contest's folder, and the file's hash."""

    name: str
    file: str
    sha256: str


@dataclass(frozen=True)
class Vote:
    """How the mimic model votes: a box stands when at least `least` members have one like it.

    Like it means: of the same class, with an IoU of at least `iou`. Box and score come from those that agree.
    """

    members: tuple[Member, ...] = ()  # the single model is one of them
    least: int = 2
    iou: float = 0.5


@dataclass(frozen=True)
class Scale:
    """A clipped range of a score; the raw value is shown beside it."""

    low: float = 0.0
    high: float = 1.0


@dataclass(frozen=True)
class Archive:
    """What a submitted zip may be at most."""

    bytes: int = 1 << 30  # packed, and unpacked
    ratio: float = 200.0  # unpacked to packed, of any file
    file_bytes: int = 16 << 20  # one file, unpacked


@dataclass(frozen=True)
class Rules:
    """The rules of one contest."""

    name: str
    images: int  # numbered 1..images
    single: Member
    mimic: Vote
    features: str  # how the feature net is opened: "signs", "inception:FILE", …
    features_sha256: str
    distance: str  # what the number is called: "FID", or "FD-<net>"
    distance_max: float
    distance_min: float = 0.0
    width: int = 416
    height: int = 416
    pixels: int = 3000  # changed pixels an image: any uint8 channel differs
    ap: str = "voc"  # a name of holdfast.metrics.rules.RULES
    iou: float = 0.5
    score: float = 0.25
    nms_iou: float = 0.45
    effect: Scale = field(default_factory=Scale)  # S_e
    stealth: Scale = field(default_factory=Scale)  # S_s
    archive: Archive = field(default_factory=Archive)
    seed: int = 0
