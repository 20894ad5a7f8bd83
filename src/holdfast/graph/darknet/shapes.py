"""Every layer with what it reads and the shape of the map it gives, for one input size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from holdfast.core.errors import ModelError
from holdfast.core.types import Size
from holdfast.graph.darknet.layers import (
    AvgPool,
    Convolutional,
    Layer,
    MaxPool,
    Network,
    Placed,
    Route,
    Scale,
    Shortcut,
    Upsample,
    Yolo,
)

IMAGE = -1  # the "layer" before layer 0


class Shape(NamedTuple):
    """Channels, height and width of a map."""

    channels: int
    height: int
    width: int

    def __str__(self) -> str:
        return f"{self.channels} × {self.height} × {self.width}"


@dataclass(frozen=True)
class Step:
    """A layer in place: the layers it reads (−1 is the image), their shapes and its own."""

    placed: Placed
    sources: tuple[int, ...]
    inputs: tuple[Shape, ...]
    shape: Shape

    @property
    def layer(self) -> Layer:
        """The layer itself."""
        return self.placed.layer


def trace(network: Network, size: Size | None = None) -> tuple[Step, ...]:
    """The steps of a network at `size` (by default the .cfg's own width and height)."""
    width, height = size or network.size
    steps: list[Step] = []
    for placed in network.layers:
        sources = _sources(placed)
        for source in sources:
            _no_head(placed, source, network.layers)
        inputs = tuple(Shape(3, height, width) if s == IMAGE else steps[s].shape for s in sources)
        steps.append(Step(placed, sources, inputs, _shape(placed, inputs)))
    return tuple(steps)


def strides(steps: Sequence[Step], size: Size) -> tuple[int, ...]:
    """Input pixels per cell of each [yolo] map; darknet divides the input by the map, so do we."""
    found = []
    for step in steps:
        if isinstance(step.layer, Yolo):
            wide, high = size.width / step.shape.width, size.height / step.shape.height
            if wide != high or wide != int(wide):
                raise ModelError(
                    f"{step.placed.section.at()}: expected cells of whole pixels, equal in x and y, got "
                    f"{wide:g} × {high:g} for the input {size.width}×{size.height}; "
                    "take a width and height that are multiples of 32"
                )
            found.append(int(wide))
    return tuple(found)


def _sources(placed: Placed) -> tuple[int, ...]:
    layer, before = placed.layer, placed.index - 1
    if isinstance(layer, Route):
        return layer.sources
    if isinstance(layer, Shortcut):
        return (before, *layer.sources)
    if isinstance(layer, Scale):
        return (before, layer.source)
    return (before,)


def _no_head(placed: Placed, source: int, layers: Sequence[Placed]) -> None:
    if source != IMAGE and isinstance(layers[source].layer, Yolo):
        raise ModelError(
            f"{placed.section.at()}: reads layer {source}, a [yolo]; expected a layer that is not a head "
            "(start with a [route] after each [yolo])"
        )


def _shape(placed: Placed, inputs: tuple[Shape, ...]) -> Shape:
    layer, first = placed.layer, inputs[0]
    match layer:
        case Convolutional():
            return _convolved(placed, layer, first)
        case MaxPool():
            shape = first._replace(
                height=(first.height + layer.padding - layer.size) // layer.stride_y + 1,
                width=(first.width + layer.padding - layer.size) // layer.stride_x + 1,
            )
            return _positive(placed, first, shape)
        case AvgPool():
            return first._replace(height=1, width=1)
        case Upsample():
            return first._replace(height=first.height * layer.stride, width=first.width * layer.stride)
        case Route():
            return _routed(placed, layer, inputs)
        case Shortcut() | Scale():
            return _combined(placed, inputs)
        case Yolo():
            anchors, wanted = len(layer.anchors), len(layer.anchors) * (5 + layer.classes)
            if first.channels != wanted:
                raise ModelError(
                    f"{placed.section.at()}: expected filters={wanted} before it, {anchors} anchors "
                    f"× (5 + {layer.classes} classes), got {first.channels}"
                )
    return first


def _convolved(placed: Placed, layer: Convolutional, given: Shape) -> Shape:
    at = placed.section.at()
    if given.channels % layer.groups or layer.filters % layer.groups:
        raise ModelError(
            f"{at}: expected channels and filters that are multiples of groups={layer.groups}, "
            f"got {given.channels} channels and filters={layer.filters}"
        )

    def sides(size: int, pad: int) -> tuple[int, int]:
        high = (given.height + 2 * pad - size) // layer.stride_y + 1
        return high, (given.width + 2 * pad - size) // layer.stride_x + 1

    # Darknet computes the size of the map as if there were no dilation; that is right only for pad=1 and
    # an odd kernel. In other cases it reads past its input, which no other runtime can repeat.
    reach = layer.dilation * (layer.size - 1) + 1
    if sides(layer.size, layer.padding) != sides(reach, layer.padding * layer.dilation):
        raise ModelError(
            f"{at}: expected pad=1 and an odd size with dilation={layer.dilation}, "
            f"got size={layer.size} and padding={layer.padding}"
        )
    return _positive(placed, given, Shape(layer.filters, *sides(layer.size, layer.padding)))


def _positive(placed: Placed, given: Shape, shape: Shape) -> Shape:
    if min(shape.height, shape.width) < 1:
        raise ModelError(
            f"{placed.section.at()}: expected an input map that its window fits into, got {given}; "
            "take a larger width and height"
        )
    return shape


def _routed(placed: Placed, layer: Route, inputs: tuple[Shape, ...]) -> Shape:
    at = placed.section.at()
    for source, shape in zip(layer.sources, inputs, strict=True):
        if shape[1:] != inputs[0][1:]:
            raise ModelError(
                f"{at}: expected maps of equal height and width, got {inputs[0]} from layer "
                f"{layer.sources[0]} and {shape} from layer {source}; take a width and height that are "
                "multiples of 32"
            )
        if shape.channels % layer.groups:
            raise ModelError(
                f"{at}: expected channels that are a multiple of groups={layer.groups}, "
                f"got {shape.channels} from layer {source}"
            )
    return inputs[0]._replace(channels=sum(shape.channels for shape in inputs) // layer.groups)


def _combined(placed: Placed, inputs: tuple[Shape, ...]) -> Shape:
    first, rest = inputs[0], inputs[1:]
    if isinstance(placed.layer, Scale):
        wanted = rest[0] if placed.layer.pointwise else rest[0]._replace(height=1, width=1)
        if first != wanted:
            raise ModelError(f"{placed.section.at()}: expected {wanted} factors before it, got {first}")
        return rest[0]
    for shape in rest:  # channels may differ: darknet adds as many as both have
        if shape[1:] != first[1:]:
            raise ModelError(
                f"{placed.section.at()}: expected maps of equal height and width, got {first} and {shape}"
            )
    return first
