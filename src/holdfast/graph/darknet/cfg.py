"""A darknet .cfg as a Network of frozen layers, and the shape of every map for one input size."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from holdfast.core.errors import ModelError
from holdfast.core.types import Size
from holdfast.graph.darknet.layers import (
    Activate,
    AvgPool,
    BatchNorm,
    Convolutional,
    Layer,
    MaxPool,
    Network,
    Placed,
    Route,
    Same,
    Scale,
    Section,
    Shortcut,
    Upsample,
    Yolo,
    read_sections,
)

ACTIVATIONS = (
    *("elu", "hardtan", "leaky", "lhtan", "linear", "loggy", "logistic", "mish", "plse", "ramp"),
    *("relie", "relu", "relu6", "revleaky", "selu", "swish", "tanh"),
)

# Keys that change what a layer computes in a way that is not exported; 0 or "none" means "not used",
# save for keys that name a layer, where 0 is the first one.
NAMING = ("embedding_layer", "share_index")
REFUSED: Mapping[str, tuple[str, ...]] = {
    "convolutional": (
        *("antialiasing", "binary", "bin_output", "coordconv", "dontload", "dontloadscales", "flipped"),
        *("rotate", "share_index", "stretch", "stretch_sway", "sway", "xnor"),
    ),
    "batchnorm": ("dontload",),
    "maxpool": ("antialiasing", "maxpool_depth"),
    "shortcut": ("weights_type",),
    "scale_channels": ("scale_wh",),
    "yolo": ("new_coords", "embedding_layer", "map"),
}

# Keys that shape a layer: a key nobody knows that looks like one of them is a slip of the pen.
SHAPING = (
    *("activation", "anchors", "batch_normalize", "classes", "dilation", "filters", "group_id", "groups"),
    *("layers", "mask", "padding", "scale_x_y", "size", "stride", "stride_x", "stride_y"),
)


def read_cfg(path: Path) -> Network:
    """The network of a .cfg with [yolo] heads; what cannot be exported is listed all at once."""
    net, *sections = read_sections(path)
    _refuse(path, sections)
    channels = net.integer("channels", 3, least=1)
    if channels != 3:
        raise ModelError(f"{net.at()}: expected channels=3 (RGB), got channels={channels}")
    size = Size(net.integer("width", 416, least=1), net.integer("height", 416, least=1))
    layers = tuple(Placed(section, PARSERS[section.kind](section)) for section in sections)
    network = Network(path, size, net.integer("letter_box", 0) != 0, layers)
    if not network.heads:
        raise ModelError(
            f"{path}: expected at least one [yolo] section, got none; only detectors are exported"
        )
    classes = sorted({head.classes for head in network.heads})
    if len(classes) > 1:
        raise ModelError(f"{path}: expected the same classes= in every [yolo], got {classes}")
    return network


def _refuse(path: Path, sections: list[Section]) -> None:
    problems = []
    for section in sections:
        if section.kind not in PARSERS:
            problems.append(f"line {section.line}: [{section.kind}] is not a supported section")
        problems += [f"line {line}: {what}" for line, what in _strange_options(section)]
    if problems:
        raise ModelError(
            f"{path}: {len(problems)} things that cannot be exported: " + "; ".join(problems) + ". "
            f"Supported sections: {', '.join(sorted(PARSERS))}; activations: {', '.join(ACTIVATIONS)}"
        )


def _strange_options(section: Section) -> list[tuple[int, str]]:
    found = []
    for option in section.options:
        if option.key == "activation" and option.value not in ACTIVATIONS:
            found.append((option.line, f"[{section.kind}] unknown activation {option.value!r}"))
        used = option.key in NAMING or option.value not in ("0", "none")
        if used and option.key in REFUSED.get(section.kind, ()):
            found.append((option.line, f"[{section.kind}] {option.key}={option.value} is not supported"))
        near = difflib.get_close_matches(option.key, SHAPING, n=1, cutoff=0.85)
        if near and near[0] != option.key:
            found.append((option.line, f"unknown key {option.key!r}, did you mean {near[0]!r}?"))
    return found


def _convolutional(section: Section) -> Convolutional:
    size = section.integer("size", 1, least=1)
    stride = section.integer("stride", 1, least=1)
    whole = section.integer("pad", 0) != 0  # pad=1 means "half the kernel", not "one pixel"
    return Convolutional(
        filters=section.integer("filters", 1, least=1),
        size=size,
        stride_x=section.integer("stride_x", stride, least=1),
        stride_y=section.integer("stride_y", stride, least=1),
        padding=size // 2 if whole else section.integer("padding", 0, least=0),
        dilation=1 if size == 1 else section.integer("dilation", 1, least=1),
        groups=section.integer("groups", 1, least=1),
        batch_normalize=section.integer("batch_normalize", 0) != 0 or section.integer("cbn", 0) != 0,
        activation=section.word("activation", "logistic"),
    )


def _maxpool(section: Section) -> MaxPool:
    stride = section.integer("stride", 1, least=1)
    size = section.integer("size", stride, least=1)
    padding = section.integer("padding", size - 1, least=0)
    if padding >= size and padding > 0:
        raise ModelError(f"{section.at()}: expected padding below size={size}, got padding={padding}")
    return MaxPool(
        size,
        section.integer("stride_x", stride, least=1),
        section.integer("stride_y", stride, least=1),
        padding,
    )


def _sources(section: Section, key: str) -> tuple[int, ...]:
    sources = []
    for given in section.integers(key):
        index = section.index + given if given < 0 else given
        if not 0 <= index < section.index:
            raise ModelError(
                f"{section.at()}: expected {key}= earlier layers (0 to {section.index - 1}, or −1 to "
                f"−{section.index} counted back), got {given}, that is layer {index}"
            )
        sources.append(index)
    return tuple(sources)


def _route(section: Section) -> Route:
    groups = section.integer("groups", 1, least=1)
    group_id = section.integer("group_id", 0, least=0)
    if group_id >= groups:
        raise ModelError(f"{section.at()}: expected group_id below groups={groups}, got {group_id}")
    return Route(_sources(section, "layers"), groups, group_id)


def _scale(section: Section) -> Scale:
    sources = _sources(section, "from")
    if len(sources) != 1:
        raise ModelError(f"{section.at()}: expected from= one layer, got {len(sources)}")
    return Scale(sources[0], section.kind == "sam", section.word("activation", "linear"))


def _yolo(section: Section) -> Yolo:
    flat = section.numbers("anchors")
    total = section.integer("num", 1, least=1)
    if len(flat) < 2 * total:
        raise ModelError(
            f"{section.at()}: expected anchors= {2 * total} numbers for num={total}, got {len(flat)}"
        )
    mask = section.integers("mask") if section.has("mask") else tuple(range(total))
    wrong = [m for m in mask if not 0 <= m < total]
    if wrong:
        raise ModelError(f"{section.at()}: expected mask= numbers from 0 to {total - 1}, got {wrong}")
    anchors = tuple((flat[2 * m], flat[2 * m + 1]) for m in mask)
    if not all(w > 0 and h > 0 for w, h in anchors):
        raise ModelError(f"{section.at()}: expected anchors= positive widths and heights, got {anchors}")
    return Yolo(anchors, section.integer("classes", 20, least=1), section.number("scale_x_y", 1.0))


PARSERS: Mapping[str, Callable[[Section], Layer]] = {
    "activation": lambda section: Activate(section.word("activation", "linear")),
    "avgpool": lambda section: AvgPool(),
    "batchnorm": lambda section: BatchNorm(),
    "convolutional": _convolutional,
    "dropout": lambda section: Same(),
    "empty": lambda section: Same(),
    "maxpool": _maxpool,
    "route": _route,
    "sam": _scale,
    "scale_channels": _scale,
    "shortcut": lambda section: Shortcut(_sources(section, "from"), section.word("activation", "linear")),
    "upsample": lambda section: Upsample(section.integer("stride", 2, least=1), section.number("scale", 1.0)),
    "yolo": _yolo,
}


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
        sources = _inputs(placed)
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


def _inputs(placed: Placed) -> tuple[int, ...]:
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
