"""A darknet .cfg as a Network of layers, and the shape of every map for one input size."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.core.errors import ModelError
from holdfast.core.types import Size
from holdfast.graph.darknet.layers import KINDS, DarknetLayer, MapShape, PlacedLayer, Yolo
from holdfast.graph.darknet.nodes import ACTIVATE
from holdfast.graph.darknet.sections import Section, read_sections

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

# Keys that shape a layer: an unknown key that resembles one of them is reported as a typo.
SHAPING = (
    *("activation", "anchors", "batch_normalize", "classes", "dilation", "filters", "group_id", "groups"),
    *("layers", "mask", "padding", "scale_x_y", "size", "stride", "stride_x", "stride_y"),
)


@dataclass(frozen=True)
class DarknetNetwork:
    """A whole .cfg: the input and the layers in order."""

    size: Size
    letter_box: bool
    layers: tuple[DarknetLayer, ...]

    @property
    def heads(self) -> tuple[Yolo, ...]:
        """The [yolo] layers in order."""
        return tuple(layer for layer in self.layers if isinstance(layer, Yolo))


def read_cfg(path: Path) -> DarknetNetwork:
    """The network of a .cfg with [yolo] heads; all unsupported items are reported together."""
    net, *sections = read_sections(path)
    problems = [problem for section in sections for problem in _problems(section)]
    if problems:
        raise ModelError(
            f"{path}: {len(problems)} unsupported items: " + "; ".join(problems) + ". "
            f"Supported sections: {', '.join(KINDS)}; activations: {', '.join(ACTIVATE)}"
        )
    channels = net.integer("channels", 3, least=1)
    if channels != 3:
        raise net.fail(f"expected channels=3 (RGB), got channels={channels}")
    size = Size(net.integer("width", 416, least=1), net.integer("height", 416, least=1))
    layers = tuple(KINDS[section.kind](section) for section in sections)
    network = DarknetNetwork(size, net.integer("letter_box", 0) != 0, layers)
    classes = sorted({head.classes for head in network.heads})
    if not classes:
        expected = "expected at least one [yolo] section, got none"
        raise ModelError(f"{path}: {expected}; only detectors are exported")
    if len(classes) > 1:
        raise ModelError(f"{path}: expected the same classes= in every [yolo], got {classes}")
    return network


def _problems(section: Section) -> list[str]:
    """What cannot be exported of a section."""
    kind, problems = section.kind, []
    if kind not in KINDS:
        problems.append(f"line {section.line}: [{kind}] is not a supported section")
    for option in section.options:
        key, value, line = option.key, option.value, f"line {option.line}:"
        if key == "activation" and value not in ACTIVATE:
            problems.append(f"{line} [{kind}] unknown activation {value!r}")
        if key in REFUSED.get(kind, ()) and (key in NAMING or value not in ("0", "none")):
            problems.append(f"{line} [{kind}] {key}={value} is not supported")
        near = difflib.get_close_matches(key, SHAPING, n=1, cutoff=0.85)
        if near and near[0] != key:
            problems.append(f"{line} unknown key {key!r}, did you mean {near[0]!r}?")
    return problems


def trace(network: DarknetNetwork, size: Size | None = None) -> tuple[PlacedLayer, ...]:
    """The steps of a network at `size` (by default the .cfg's own width and height)."""
    width, height = size or network.size
    shapes = {-1: MapShape(3, height, width)}
    steps = []
    for at, layer in enumerate(network.layers):
        for source in layer.sources:
            if source >= 0 and isinstance(network.layers[source], Yolo):
                raise layer.section.fail(
                    f"reads layer {source}, a [yolo]; expected a layer that is not a head "
                    "(start with a [route] after each [yolo])"
                )
        inputs = tuple(shapes[source] for source in layer.sources)
        shapes[at] = layer.shape(inputs)
        if min(shapes[at]) < 1:
            expected = f"expected an input map that its window fits into, got {inputs[0]}"
            raise layer.section.fail(f"{expected}; take a larger width and height")
        steps.append(PlacedLayer(layer, inputs, shapes[at]))
    return tuple(steps)


def strides(steps: Sequence[PlacedLayer], size: Size) -> tuple[int, ...]:
    """Input pixels per cell of each [yolo] map; darknet divides the input by the map, so do we."""
    result = []
    for step in steps:
        if isinstance(step.layer, Yolo):
            wide, high = size.width / step.shape.width, size.height / step.shape.height
            if wide != high or wide != int(wide):
                raise step.layer.section.fail(
                    f"expected cells of whole pixels, equal in x and y, got {wide:g} × {high:g} for the "
                    f"input {size.width}×{size.height}; take a width and height that are multiples of 32"
                )
            result.append(int(wide))
    return tuple(result)
