"""A darknet .cfg as a Network of frozen layers."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from pathlib import Path

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
    Shortcut,
    Upsample,
    Yolo,
)
from holdfast.graph.darknet.sections import (
    Section,
    has,
    integer,
    integers,
    number,
    numbers,
    read_sections,
    word,
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
    channels = integer(net, "channels", 3, least=1)
    if channels != 3:
        raise ModelError(f"{net.at()}: expected channels=3 (RGB), got channels={channels}")
    size = Size(integer(net, "width", 416, least=1), integer(net, "height", 416, least=1))
    layers = tuple(Placed(section, PARSERS[section.kind](section)) for section in sections)
    network = Network(path, size, integer(net, "letter_box", 0) != 0, layers)
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
    size = integer(section, "size", 1, least=1)
    stride = integer(section, "stride", 1, least=1)
    whole = integer(section, "pad", 0) != 0  # pad=1 means "half the kernel", not "one pixel"
    return Convolutional(
        filters=integer(section, "filters", 1, least=1),
        size=size,
        stride_x=integer(section, "stride_x", stride, least=1),
        stride_y=integer(section, "stride_y", stride, least=1),
        padding=size // 2 if whole else integer(section, "padding", 0, least=0),
        dilation=1 if size == 1 else integer(section, "dilation", 1, least=1),
        groups=integer(section, "groups", 1, least=1),
        batch_normalize=integer(section, "batch_normalize", 0) != 0 or integer(section, "cbn", 0) != 0,
        activation=word(section, "activation", "logistic"),
    )


def _maxpool(section: Section) -> MaxPool:
    stride = integer(section, "stride", 1, least=1)
    size = integer(section, "size", stride, least=1)
    padding = integer(section, "padding", size - 1, least=0)
    if padding >= size and padding > 0:
        raise ModelError(f"{section.at()}: expected padding below size={size}, got padding={padding}")
    return MaxPool(
        size,
        integer(section, "stride_x", stride, least=1),
        integer(section, "stride_y", stride, least=1),
        padding,
    )


def _same(section: Section) -> Same:
    return Same()


def _upsample(section: Section) -> Upsample:
    return Upsample(integer(section, "stride", 2, least=1), number(section, "scale", 1.0))


def _sources(section: Section, key: str) -> tuple[int, ...]:
    sources = []
    for given in integers(section, key):
        index = section.index + given if given < 0 else given
        if not 0 <= index < section.index:
            raise ModelError(
                f"{section.at()}: expected {key}= earlier layers (0 to {section.index - 1}, or −1 to "
                f"−{section.index} counted back), got {given}, that is layer {index}"
            )
        sources.append(index)
    return tuple(sources)


def _route(section: Section) -> Route:
    groups = integer(section, "groups", 1, least=1)
    group_id = integer(section, "group_id", 0, least=0)
    if group_id >= groups:
        raise ModelError(f"{section.at()}: expected group_id below groups={groups}, got {group_id}")
    return Route(_sources(section, "layers"), groups, group_id)


def _shortcut(section: Section) -> Shortcut:
    return Shortcut(_sources(section, "from"), word(section, "activation", "linear"))


def _scale(section: Section) -> Scale:
    sources = _sources(section, "from")
    if len(sources) != 1:
        raise ModelError(f"{section.at()}: expected from= one layer, got {len(sources)}")
    return Scale(sources[0], section.kind == "sam", word(section, "activation", "linear"))


def _yolo(section: Section) -> Yolo:
    flat = numbers(section, "anchors")
    total = integer(section, "num", 1, least=1)
    if len(flat) < 2 * total:
        raise ModelError(
            f"{section.at()}: expected anchors= {2 * total} numbers for num={total}, got {len(flat)}"
        )
    mask = integers(section, "mask") if has(section, "mask") else tuple(range(total))
    wrong = [m for m in mask if not 0 <= m < total]
    if wrong:
        raise ModelError(f"{section.at()}: expected mask= numbers from 0 to {total - 1}, got {wrong}")
    anchors = tuple((flat[2 * m], flat[2 * m + 1]) for m in mask)
    if not all(w > 0 and h > 0 for w, h in anchors):
        raise ModelError(f"{section.at()}: expected anchors= positive widths and heights, got {anchors}")
    return Yolo(anchors, integer(section, "classes", 20, least=1), number(section, "scale_x_y", 1.0))


PARSERS: Mapping[str, Callable[[Section], Layer]] = {
    "activation": lambda section: Activate(word(section, "activation", "linear")),
    "avgpool": lambda section: AvgPool(),
    "batchnorm": lambda section: BatchNorm(),
    "convolutional": _convolutional,
    "dropout": _same,
    "empty": _same,
    "maxpool": _maxpool,
    "route": _route,
    "sam": _scale,
    "scale_channels": _scale,
    "shortcut": _shortcut,
    "upsample": _upsample,
    "yolo": _yolo,
}
