"""What a rule proposes: a head, why, and how networks with that head are mostly fed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.core.model import Task
from holdfast.core.types import Size
from holdfast.graph.seen import Seen


@dataclass(frozen=True)
class Proposal:
    """A head that fits, why, and how networks with this head are mostly fed."""

    task: Task
    head: str
    because: str
    classes: int | None  # None: the outputs do not tell
    like: str  # whose training conventions are assumed for the rest
    options: Mapping[str, Any] = field(default_factory=dict)
    input: Mapping[str, Any] = field(default_factory=dict)
    imagenet: bool = False  # mean and std of ImageNet
    size: Size | None = None  # a better guess where the graph leaves the size open
    resize: str = "pillow-bilinear"
    thresholds: Mapping[str, Any] = field(default_factory=dict)
    names: str = "coco80"  # the built-in names assumed where neither outputs nor metadata tell the classes
    warnings: tuple[str, ...] = ()


Rule = Callable[[Seen], Proposal | None]
ULTRALYTICS: dict[str, Any] = {"policy": "letterbox", "scale": 1 / 255}
YOLO_STRIDES = (8, 16, 32)


def words(strides: tuple[int, ...]) -> str:
    """The strides as text."""
    return ", ".join(map(str, strides))
