"""The data types of an attack."""

import time
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from holdfast.core.errors import BudgetSpent, InputError
from holdfast.core.types import Boxes, Detections, Image

Goal: TypeAlias = Literal["vanish", "mislabel", "fabricate"]
PatchShape: TypeAlias = Literal["pixels", "square", "circle", "sign"]
CONTIGUOUS = ("square", "cross")  # masks whose pixels form one region per target


@dataclass(frozen=True)
class Limits:
    """What an attack may change in one image, and how long it may search."""

    pixels: int = 3000  # pixels of which any uint8 channel differs
    amplitude: int = 255  # largest change of a channel
    regions: int = 0  # connected regions (8 neighbours) of changed pixels; 0: any number
    steps: int = 100  # gradient steps of one restart, or queries of a black-box search
    restarts: int = 1
    seconds: float = 0.0  # per image; 0: no limit

    def __post_init__(self) -> None:
        for name, least in (("pixels", 1), ("amplitude", 1), ("regions", 0), ("steps", 1), ("restarts", 1)):
            if getattr(self, name) < least:
                raise InputError(f"{name}: expected {least} or more, got {getattr(self, name)}")


@dataclass(frozen=True)
class Rule:
    """When a target counts as detected: a detection of its class with at least this score and IoU."""

    score: float = 0.25
    iou: float = 0.5
    nms_iou: float = 0.45


@dataclass(frozen=True, eq=False)
class Target:
    """The target in one image (decoded pixels): true boxes, at least one of which the model detects."""

    image: Image
    boxes: Boxes
    before: Detections  # in the clean image, through the pipeline, at the rule's thresholds


@dataclass(frozen=True)
class Sticker:
    """A patch of a shape: the top left pixel and the side of its square."""

    x: int
    y: int
    side: int
    centimetres: float = 0.0  # its side in print; 0: the size of the object is not known


@dataclass(frozen=True, eq=False)
class SearchResult:
    """The result of the search on one image. `image` is uint8 and was judged through the model's pipeline."""

    image: Image
    after: Detections
    success: bool  # vanish: no target is detected any more
    steps: int = 0  # gradient steps or queries spent
    seconds: float = 0.0
    trail: tuple[tuple[int, bool], ...] = ()  # (changed pixels, success) of every judged image
    note: str = ""
    stickers: tuple[Sticker, ...] = ()  # one per target if the method has a shape


@dataclass(frozen=True)
class Method:
    """How to search. Names are registered parts; surrogates and deployments are in the plan."""

    mask: str = "top-gradient"
    shape: PatchShape = "pixels"  # other than pixels: one contiguous patch per target instead of a mask
    size: str = ""  # of a shape: 38px, 10% or 12cm; empty: as large as the pixel budget allows
    sign_size: str = ""  # width of the objects, such as 60cm
    inside: bool = True  # only pixels inside the boxes of the targets
    goal: Goal = "vanish"
    black_box: bool = False
    shrink: bool = True  # fewest pixels and least amplitude at which the attack still succeeds
    transforms: tuple[str, ...] = ()  # expectation over these, by name
    diversity: bool = False  # random resize and shift of the input at every step, for transfer
    rule: Rule = field(default_factory=Rule)

    @property
    def shaped(self) -> bool:
        """Whether the attack changes one contiguous patch per target, and every pixel of it."""
        return self.shape != "pixels"

    @property
    def lasting(self) -> bool:
        """Whether the attack must also work under random changes of the image."""
        return self.diversity or bool(self.transforms)


def check_time(until: float) -> None:
    """Raise BudgetSpent once the deadline (of time.monotonic) has passed."""
    if time.monotonic() >= until:
        raise BudgetSpent("time budget reached before the image was finished")
