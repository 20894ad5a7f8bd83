"""The layers a darknet .cfg may hold, as frozen facts with darknet's defaults filled in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from holdfast.core.types import Size
from holdfast.graph.darknet.sections import Section


@dataclass(frozen=True)
class Convolutional:
    """A convolution; batch normalisation, where there is one, lies between it and the activation."""

    filters: int
    size: int
    stride_x: int
    stride_y: int
    padding: int  # pixels on every side, before dilation
    dilation: int
    groups: int
    batch_normalize: bool
    activation: str


@dataclass(frozen=True)
class BatchNorm:
    """A batch normalisation of its own."""


@dataclass(frozen=True)
class MaxPool:
    """A max pool; `padding` is the sum of both sides, the smaller half on the left and top."""

    size: int
    stride_x: int
    stride_y: int
    padding: int


@dataclass(frozen=True)
class AvgPool:
    """The mean of every channel over the whole map."""


@dataclass(frozen=True)
class Upsample:
    """Every pixel repeated `stride` × `stride` times, multiplied by `scale`."""

    stride: int
    scale: float


@dataclass(frozen=True)
class Route:
    """The maps of some earlier layers one after the other; of each only part `group_id` of `groups`."""

    sources: tuple[int, ...]
    groups: int
    group_id: int


@dataclass(frozen=True)
class Shortcut:
    """The map before plus those of some earlier layers."""

    sources: tuple[int, ...]
    activation: str


@dataclass(frozen=True)
class Scale:
    """An earlier map times the map before: one factor a channel, or one a value with `pointwise`."""

    source: int
    pointwise: bool
    activation: str


@dataclass(frozen=True)
class Activate:
    """An activation of its own."""

    activation: str


@dataclass(frozen=True)
class Same:
    """What does nothing when a trained network runs: [dropout], [empty]."""


@dataclass(frozen=True)
class Yolo:
    """A YOLOv3 head: its anchors (width, height) in input pixels, after the mask."""

    anchors: tuple[tuple[float, float], ...]
    classes: int
    scale_xy: float


Layer: TypeAlias = (
    Convolutional
    | BatchNorm
    | MaxPool
    | AvgPool
    | Upsample
    | Route
    | Shortcut
    | Scale
    | Activate
    | Same
    | Yolo
)


@dataclass(frozen=True)
class Placed:
    """A layer and the section it was read from."""

    section: Section
    layer: Layer

    @property
    def index(self) -> int:
        """Darknet's number of the layer, from 0."""
        return self.section.index


@dataclass(frozen=True)
class Network:
    """A whole .cfg: the input and the layers in order."""

    path: Path
    size: Size
    letter_box: bool
    layers: tuple[Placed, ...]

    @property
    def heads(self) -> tuple[Yolo, ...]:
        """The [yolo] layers in order."""
        return tuple(placed.layer for placed in self.layers if isinstance(placed.layer, Yolo))
