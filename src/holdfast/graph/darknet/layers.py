"""The layers of darknet: for each kind what its section says, the shape of its map, and its ONNX nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from holdfast.graph.darknet.nodes import ACTIVATE, NodeBuilder, linear_name
from holdfast.graph.darknet.sections import Section

EPSILON = 1e-5  # what darknet adds to the variance when it folds a batch normalisation
Arrays: TypeAlias = Mapping[str, NDArray[np.float32]]
Names: TypeAlias = Sequence[str]  # of tensors


class MapShape(NamedTuple):
    """Channels, height and width of a map."""

    channels: int
    height: int
    width: int

    def __str__(self) -> str:
        return f"{self.channels} × {self.height} × {self.width}"


class DarknetLayer:
    """Base layer: the identity at inference time, as [dropout] and [empty] are."""

    def __init__(self, section: Section) -> None:
        self.section = section
        self.sources: tuple[int, ...] = (section.index - 1,)  # the layers it reads; −1 is the image

    def shape(self, inputs: Sequence[MapShape]) -> MapShape:
        """The shape of its map from those of the maps it reads."""
        return inputs[0]

    def blocks(self, source: MapShape) -> dict[str, tuple[int, ...]]:
        """The shapes of the arrays that it takes from the weights file, in the file's order."""
        return {}

    def emit(self, nodes: NodeBuilder, at: PlacedLayer, inputs: Names, out: str, arrays: Arrays) -> str:
        """The name of the map that its nodes give: `out`, or an input's own name where it does nothing."""
        return inputs[0]


class PlacedLayer(NamedTuple):
    """A layer in place, with the shapes of the maps it reads and of its own."""

    layer: DarknetLayer
    inputs: tuple[MapShape, ...]
    shape: MapShape


def _strides(section: Section) -> tuple[int, int]:  # vertical, horizontal
    stride = section.integer("stride", 1, least=1)
    return section.integer("stride_y", stride, least=1), section.integer("stride_x", stride, least=1)


def _windows(source: MapShape, size: int, padding: int, strides: tuple[int, int]) -> tuple[int, int]:
    """The number of windows that fit in each direction; `padding` is the sum of both sides."""
    height, width = ((n + padding - size) // s + 1 for n, s in zip(source[1:], strides, strict=True))
    return height, width


class _Convolutional(DarknetLayer):
    """A convolution, optionally followed by batch normalisation, then the activation."""

    def __init__(self, section: Section) -> None:
        super().__init__(section)
        self.size = section.integer("size", 1, least=1)
        self.strides = _strides(section)
        half = section.integer("pad", 0) != 0  # pad=1 means "half the kernel", not "one pixel"
        # pixels on every side, before dilation
        self.padding = self.size // 2 if half else section.integer("padding", 0, least=0)
        self.dilation = 1 if self.size == 1 else section.integer("dilation", 1, least=1)
        self.filters = section.integer("filters", 1, least=1)
        self.groups = section.integer("groups", 1, least=1)
        self.batch_normalize = section.integer("batch_normalize", 0) != 0 or section.integer("cbn", 0) != 0
        self.activation = section.word("activation", "logistic")

    def shape(self, inputs: Sequence[MapShape]) -> MapShape:
        source = inputs[0]
        if source.channels % self.groups or self.filters % self.groups:
            expected = f"expected channels and filters that are multiples of groups={self.groups}"
            got = f"got {source.channels} channels and filters={self.filters}"
            raise self.section.fail(f"{expected}, {got}")
        # Darknet computes the size of the map as if there were no dilation; that is right only for pad=1
        # and an odd kernel. In other cases it reads past its input, which no other runtime can repeat.
        cells = _windows(source, self.size, 2 * self.padding, self.strides)
        reach, padding = self.dilation * (self.size - 1) + 1, 2 * self.padding * self.dilation
        if cells != _windows(source, reach, padding, self.strides):
            expected = f"expected pad=1 and an odd size with dilation={self.dilation}"
            raise self.section.fail(f"{expected}, got size={self.size} and padding={self.padding}")
        return MapShape(self.filters, *cells)

    def blocks(self, source: MapShape) -> dict[str, tuple[int, ...]]:
        names = ("bias", "scale", "mean", "variance") if self.batch_normalize else ("bias",)
        kernel = (self.filters, source.channels // self.groups, self.size, self.size)
        return {**dict.fromkeys(names, (self.filters,)), "weights": kernel}

    def emit(self, nodes: NodeBuilder, at: PlacedLayer, inputs: Names, out: str, arrays: Arrays) -> str:
        # batch normalisation is folded in, in double precision
        weights, bias = arrays["weights"].astype(np.float64), arrays["bias"].astype(np.float64)
        if self.batch_normalize:
            factor, bias = _normalisation(arrays)
            weights = weights * factor[:, None, None, None]
        names = [nodes.constant(f"{out}_weights", weights), nodes.constant(f"{out}_bias", bias)]
        window = {"kernel_shape": [self.size] * 2, "strides": self.strides, "dilations": [self.dilation] * 2}
        pads, to = [self.padding * self.dilation] * 4, linear_name(self.activation, out)
        linear = nodes.add("Conv", [inputs[0], *names], to, **window, pads=pads, group=self.groups)
        return nodes.activate(self.activation, linear, out)


def _normalisation(arrays: Arrays) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The factor and shift (y = factor · x + shift) a batch normalisation comes down to."""
    factor = arrays["scale"] / np.sqrt(arrays["variance"].astype(np.float64) + EPSILON)
    return factor, arrays["bias"] - factor * arrays["mean"]


class _BatchNorm(DarknetLayer):
    def blocks(self, source: MapShape) -> dict[str, tuple[int, ...]]:
        return dict.fromkeys(("bias", "scale", "mean", "variance"), (source.channels,))

    def emit(self, nodes: NodeBuilder, at: PlacedLayer, inputs: Names, out: str, arrays: Arrays) -> str:
        factor, shift = (values[None, :, None, None] for values in _normalisation(arrays))
        scaled = nodes.add("Mul", [inputs[0], nodes.constant(f"{out}_factor", factor)], f"{out}_scaled")
        return nodes.add("Add", [scaled, nodes.constant(f"{out}_shift", shift)], out)


class _MaxPool(DarknetLayer):
    """A max pool; `padding` is the sum of both sides, the smaller half on the left and top."""

    def __init__(self, section: Section) -> None:
        super().__init__(section)
        self.strides = _strides(section)
        self.size = section.integer("size", section.integer("stride", 1), least=1)
        self.padding = section.integer("padding", self.size - 1, least=0)
        if self.padding >= self.size:
            raise section.fail(f"expected padding below size={self.size}, got padding={self.padding}")

    def shape(self, inputs: Sequence[MapShape]) -> MapShape:
        return MapShape(inputs[0].channels, *_windows(inputs[0], self.size, self.padding, self.strides))

    def emit(self, nodes: NodeBuilder, at: PlacedLayer, inputs: Names, out: str, arrays: Arrays) -> str:
        # Darknet pads the right and bottom by as much as its last window needs, be that more or less than
        # the other half of `padding`; where it needs less than nothing the last pixels are simply not read.
        before = self.padding // 2
        sides = zip(at.shape[1:], self.strides, at.inputs[0][1:], strict=True)
        after = [max(0, (cells - 1) * stride + self.size - n - before) for cells, stride, n in sides]
        kernel, pads = [self.size, self.size], [before, before, *after]
        return nodes.add("MaxPool", inputs, out, kernel_shape=kernel, strides=self.strides, pads=pads)


class _AvgPool(DarknetLayer):
    def shape(self, inputs: Sequence[MapShape]) -> MapShape:
        return inputs[0]._replace(height=1, width=1)

    def emit(self, nodes: NodeBuilder, at: PlacedLayer, inputs: Names, out: str, arrays: Arrays) -> str:
        return nodes.add("GlobalAveragePool", inputs, out)


class _Upsample(DarknetLayer):
    """Every pixel repeated `stride` × `stride` times, multiplied by `scale`."""

    def __init__(self, section: Section) -> None:
        super().__init__(section)
        self.stride = section.integer("stride", 2, least=1)
        self.scale = section.number("scale", 1.0)

    def shape(self, inputs: Sequence[MapShape]) -> MapShape:
        channels, height, width = inputs[0]
        return MapShape(channels, height * self.stride, width * self.stride)

    def emit(self, nodes: NodeBuilder, at: PlacedLayer, inputs: Names, out: str, arrays: Arrays) -> str:
        scales = nodes.constant(f"upsample_{self.stride}", [1, 1, self.stride, self.stride])
        name = out if self.scale == 1.0 else f"{out}_larger"
        how = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        larger = nodes.add("Resize", [inputs[0], "", scales], name, **how)
        return larger if self.scale == 1.0 else nodes.times(larger, self.scale, out)


def _earlier(section: Section, key: str) -> tuple[int, ...]:
    sources = []
    for number in section.numbers(key, int):
        index = section.index + number if number < 0 else number
        if not 0 <= index < section.index:
            allowed = f"0 to {section.index - 1}, or −1 to −{section.index} counted back"
            got = f"got {number}, that is layer {index}"
            raise section.fail(f"expected {key}= earlier layers ({allowed}), {got}")
        sources.append(index)
    return tuple(sources)


class _Route(DarknetLayer):
    """The maps of some earlier layers one after the other; of each only part `group_id` of `groups`."""

    def __init__(self, section: Section) -> None:
        super().__init__(section)
        self.groups = section.integer("groups", 1, least=1)
        self.group_id = section.integer("group_id", 0, least=0)
        if self.group_id >= self.groups:
            raise section.fail(f"expected group_id below groups={self.groups}, got {self.group_id}")
        self.sources = _earlier(section, "layers")

    def shape(self, inputs: Sequence[MapShape]) -> MapShape:
        for source, shape in zip(self.sources, inputs, strict=True):
            if shape[1:] != inputs[0][1:]:
                got = f"{inputs[0]} from layer {self.sources[0]} and {shape} from layer {source}"
                advice = "take a width and height that are multiples of 32"
                raise self.section.fail(f"expected maps of equal height and width, got {got}; {advice}")
            if shape.channels % self.groups:
                expected = f"expected channels that are a multiple of groups={self.groups}"
                raise self.section.fail(f"{expected}, got {shape.channels} from layer {source}")
        return inputs[0]._replace(channels=sum(shape.channels for shape in inputs) // self.groups)

    def emit(self, nodes: NodeBuilder, at: PlacedLayer, inputs: Names, out: str, arrays: Arrays) -> str:
        parts = list(inputs)
        if self.groups > 1:
            for place, shape in enumerate(at.inputs):
                share = shape.channels // self.groups
                to = out if len(inputs) == 1 else f"{out}_part{place}"
                parts[place] = nodes.channels(inputs[place], share * self.group_id, share, to)
        return parts[0] if len(parts) == 1 else nodes.add("Concat", parts, out, axis=1)


class _Shortcut(DarknetLayer):
    """The map before plus those of some earlier layers."""

    def __init__(self, section: Section) -> None:
        super().__init__(section)
        self.sources = (section.index - 1, *_earlier(section, "from"))
        self.activation = section.word("activation", "linear")

    def shape(self, inputs: Sequence[MapShape]) -> MapShape:
        # channels may differ: darknet adds as many as both have
        for shape in inputs[1:]:
            if shape[1:] != inputs[0][1:]:
                expected = "expected maps of equal height and width"
                raise self.section.fail(f"{expected}, got {inputs[0]} and {shape}")
        return inputs[0]

    def emit(self, nodes: NodeBuilder, at: PlacedLayer, inputs: Names, out: str, arrays: Arrays) -> str:
        total, channels = inputs[0], at.shape.channels
        for place, name in enumerate(inputs[1:], 1):
            more = channels - at.inputs[place].channels
            if more < 0:
                name = nodes.channels(name, 0, channels, f"{out}_fit{place}")
            elif more > 0:
                pads = nodes.constant(f"channels_{more}", [0, 0, 0, 0, 0, more, 0, 0], np.int64)
                name = nodes.add("Pad", [name, pads], f"{out}_fit{place}")
            to = f"{out}_sum{place}" if place < len(inputs) - 1 else linear_name(self.activation, out)
            total = nodes.add("Add", [total, name], to)
        return nodes.activate(self.activation, total, out)


class _Scale(DarknetLayer):
    """An earlier map times the map before: one factor per channel, or one per value ([sam])."""

    def __init__(self, section: Section) -> None:
        super().__init__(section)
        sources = _earlier(section, "from")
        if len(sources) != 1:
            raise section.fail(f"expected from= one layer, got {len(sources)}")
        self.sources = (section.index - 1, *sources)
        self.activation = section.word("activation", "linear")

    def shape(self, inputs: Sequence[MapShape]) -> MapShape:
        factors, scaled = inputs
        expected = scaled if self.section.kind == "sam" else scaled._replace(height=1, width=1)
        if factors != expected:
            raise self.section.fail(f"expected {expected} factors before it, got {factors}")
        return scaled

    def emit(self, nodes: NodeBuilder, at: PlacedLayer, inputs: Names, out: str, arrays: Arrays) -> str:
        linear = nodes.add("Mul", inputs[::-1], linear_name(self.activation, out))
        return nodes.activate(self.activation, linear, out)


class _Activate(DarknetLayer):
    def __init__(self, section: Section) -> None:
        super().__init__(section)
        self.activation = section.word("activation", "linear")

    def emit(self, nodes: NodeBuilder, at: PlacedLayer, inputs: Names, out: str, arrays: Arrays) -> str:
        return ACTIVATE[self.activation](nodes, inputs[0], out)


class Yolo(DarknetLayer):
    """A YOLOv3 head: its anchors (width, height) in input pixels, after the mask."""

    def __init__(self, section: Section) -> None:
        super().__init__(section)
        flat, total = section.numbers("anchors", float), section.integer("num", 1, least=1)
        if len(flat) < 2 * total:
            raise section.fail(f"expected anchors= {2 * total} numbers for num={total}, got {len(flat)}")
        masked = any(option.key == "mask" for option in section.options)
        mask = section.numbers("mask", int) if masked else range(total)
        wrong = [m for m in mask if not 0 <= m < total]
        if wrong:
            raise section.fail(f"expected mask= numbers from 0 to {total - 1}, got {wrong}")
        self.anchors = tuple((flat[2 * m], flat[2 * m + 1]) for m in mask)
        if not all(w > 0 and h > 0 for w, h in self.anchors):
            raise section.fail(f"expected anchors= positive widths and heights, got {self.anchors}")
        self.classes = section.integer("classes", 20, least=1)
        self.scale_xy = section.number("scale_x_y", 1.0)

    def shape(self, inputs: Sequence[MapShape]) -> MapShape:
        """The shape of the map it reads, which must hold its anchors and classes."""
        anchors, expected = len(self.anchors), len(self.anchors) * (5 + self.classes)
        if inputs[0].channels != expected:
            why = f"{anchors} anchors × (5 + {self.classes} classes), got {inputs[0].channels}"
            raise self.section.fail(f"expected filters={expected} before it, {why}")
        return inputs[0]


KINDS: Mapping[str, type[DarknetLayer]] = {
    "activation": _Activate,
    "avgpool": _AvgPool,
    "batchnorm": _BatchNorm,
    "convolutional": _Convolutional,
    "dropout": DarknetLayer,
    "empty": DarknetLayer,
    "maxpool": _MaxPool,
    "route": _Route,
    "sam": _Scale,
    "scale_channels": _Scale,
    "shortcut": _Shortcut,
    "upsample": _Upsample,
    "yolo": Yolo,
}
