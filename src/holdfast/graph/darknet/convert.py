"""Darknet `.cfg` and `.weights` in, an ONNX file with the raw YOLO maps and its card out."""

import difflib
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from holdfast.core.errors import CardError, ModelError, OutputError
from holdfast.core.model import Card, Head, Input, Policy
from holdfast.core.types import Size
from holdfast.graph.card import BUILT_IN, numbered
from holdfast.graph.darknet.layers import EPSILON, KINDS, Arrays, DarknetLayer, MapShape, PlacedLayer, Yolo
from holdfast.graph.darknet.nodes import ACTIVATE, NodeBuilder
from holdfast.graph.darknet.sections import Section, read_bytes, read_sections

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
        known = f"Supported sections: {', '.join(KINDS)}; activations: {', '.join(ACTIVATE)}"
        raise ModelError(f"{path}: {len(problems)} unsupported items: {'; '.join(problems)}. {known}")
    channels = net.integer("channels", 3, least=1)
    if channels != 3:
        raise net.fail(f"expected channels=3 (RGB), got channels={channels}")
    size = Size(net.integer("width", 416, least=1), net.integer("height", 416, least=1))
    layers = tuple(KINDS[section.kind](section) for section in sections)
    network = DarknetNetwork(size, net.integer("letter_box", 0) != 0, layers)
    classes = sorted({head.classes for head in network.heads})
    if not classes:
        problem = "expected at least one [yolo] section, got none"
        raise ModelError(f"{path}: {problem}; only detectors are exported")
    if len(classes) > 1:
        raise ModelError(f"{path}: expected the same classes= in every [yolo], got {classes}")
    return network


def _problems(section: Section) -> list[str]:
    """What cannot be exported of a section."""
    kind = section.kind
    problems = [] if kind in KINDS else [f"line {section.line}: [{kind}] is not a supported section"]
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
                expected = "expected a layer that is not a head (start with a [route] after each [yolo])"
                raise layer.section.fail(f"reads layer {source}, a [yolo]; {expected}")
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
                got = f"got {wide:g} × {high:g} for the input {size.width}×{size.height}"
                advice = "take a width and height that are multiples of 32"
                expected = "expected cells of whole pixels, equal in x and y"
                raise step.layer.section.fail(f"{expected}, {got}; {advice}")
            result.append(int(wide))
    return tuple(result)


SCORE, NMS_IOU = 0.001, 0.45  # what darknet's own mAP evaluation uses
OPSET, IR = 13, 7  # old enough for every runtime of the last years; nothing here needs more
INPUT = "images"


def convert(cfg: Path, weights: Path, out: Path, names: Path | None = None, size: Size | None = None) -> Card:
    """Convert a darknet detector to ONNX at `out` and return its card.

    `names` is a darknet .names file with one class per line. Without it, 80 classes are assumed to be COCO's
    and any other number of classes is numbered from 0. `size` overrides the width and height of the .cfg.
    """
    network = read_cfg(cfg)
    heads, size = network.heads, size or network.size
    steps = trace(network, size)
    cells = strides(steps, size)
    count = heads[0].classes
    assumed = BUILT_IN["coco80"] if count == 80 else numbered(count)
    classes = read_names(names, count) if names else assumed
    model = build(steps, read_weights(weights, steps), size, cfg.stem)
    draft = out.with_name(out.name + ".part")
    try:
        draft.write_bytes(model.SerializeToString(deterministic=True))
        draft.replace(out)
    except OSError as problem:
        draft.unlink(missing_ok=True)
        raise OutputError(f"{out}: could not write the ONNX file: {problem}") from problem
    outputs, anchors = tuple(f"yolo{i}" for i in range(len(heads))), tuple(head.anchors for head in heads)
    scale_xy = tuple(head.scale_xy for head in heads)
    options = {"outputs": outputs, "anchors": anchors, "strides": cells, "scale_xy": scale_xy}
    # Darknet stretches the image to the input, unless [net] says letter_box=1; then the border is 0.5.
    policy: Policy = "letterbox" if network.letter_box else "stretch"
    image, head = Input(size=size, scale=1 / 255, policy=policy, pad=127), Head("yolov3", options)
    return Card("detect", image, head, classes, score=SCORE, nms_iou=NMS_IOU, resize="opencv-bilinear")


def read_names(path: Path, count: int) -> tuple[str, ...]:
    """The class names of a .names file; raise CardError unless there are `count` of them."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise CardError(f"{path}: no such file; give a .names file with one class per line") from None
    except (OSError, UnicodeDecodeError) as problem:
        expected = "expected a .names file with one class per line"
        raise CardError(f"{path}: {expected}, got: {problem}") from problem
    classes = tuple(line.strip() for line in text.strip().splitlines())
    if len(classes) != count:
        raise CardError(f"{path}: expected {count} names, as classes= in [yolo] states, got {len(classes)}")
    return classes


def header_length(data: bytes, path: Path) -> int:
    """The bytes of the header of a .weights file: 16, or 20 from version 0.2 on."""
    if data.lstrip().startswith((b"[net]", b"[network]", b"#")):
        raise ModelError(f"{path}: expected darknet weights, got the text of a .cfg; the .cfg comes first")
    if len(data) >= 12:
        major, minor, _ = struct.unpack_from("<3i", data)
        length = 20 if major * 10 + minor >= 2 and major < 1000 and minor < 1000 else 16
        if len(data) >= length:
            return length
    expected = "expected darknet weights after a header of 16 or 20 bytes"
    raise ModelError(f"{path}: {expected}, got {len(data)} bytes in all")


def read_weights(path: Path, steps: Sequence[PlacedLayer]) -> dict[int, Arrays]:
    """The arrays of every layer that has some, by layer number."""
    data = read_bytes(path, ".weights file")
    length = header_length(data, path)
    count, excess = divmod(len(data) - length, 4)
    floats = np.frombuffer(data, "<f4", count, length)
    _check_count(path, steps, count, excess)
    by_layer: dict[int, Arrays] = {}
    position = 0
    for step in steps:
        arrays: dict[str, NDArray[np.float32]] = {}
        for name, shape in step.layer.blocks(step.inputs[0]).items():
            end = position + math.prod(shape)
            arrays[name] = floats[position:end].reshape(shape)
            _check_values(path, step, name, arrays[name], position)
            position = end
        if arrays:
            by_layer[step.layer.section.index] = arrays
    return by_layer


def _check_count(path: Path, steps: Sequence[PlacedLayer], got: int, excess: int) -> None:
    blocks = [step.layer.blocks(step.inputs[0]).values() for step in steps]
    ends = list(accumulate(sum(map(math.prod, shapes)) for shapes in blocks))
    expected = ends[-1]
    if got == expected and not excess:
        return
    odd = f" and {excess} bytes" if excess else ""
    message = f"{path}: expected {expected:,} floats for {steps[0].layer.section.path}, got {got:,}{odd}: "
    if got >= expected:
        raise ModelError(message + f"{got - expected:,}{odd} too many; is it the .weights of another .cfg?")
    within = next(step for step, end in zip(steps, ends, strict=True) if end > got).layer.section.at()
    why = f"{expected - got:,} too few, it ends within {within}; is it cut short, or of another .cfg?"
    raise ModelError(message + why)


def _check_values(
    path: Path, step: PlacedLayer, name: str, values: NDArray[np.float32], position: int
) -> None:
    wrong, expected = ~np.isfinite(values), "finite numbers"
    if name == "variance":
        wrong, expected = wrong | (values <= -EPSILON), "finite numbers of at least 0"
    if wrong.any():
        first = int(np.argmax(wrong))
        where = f"{int(wrong.sum())} such, the first is float {position + first:,} of the file"
        what = f"expected {expected} as {name} of {step.layer.section.at()}"
        raise ModelError(f"{path}: {what}, got {values.flat[first]} ({where})")


def build(
    steps: Sequence[PlacedLayer], arrays: Mapping[int, Arrays], size: Size, name: str
) -> onnx.ModelProto:
    """The ONNX model: `images` (N, 3, H, W) in 0..1 in, `yolo0`, `yolo1`, ... (N, A·(5+k), h, w) out.

    The maps come before any sigmoid. The output of darknet's layer 12 is the tensor `layer12`, so that a
    graph can be compared with its .cfg; a layer that does nothing has no node.
    """
    nodes = NodeBuilder()
    tensors = {-1: INPUT}
    heads = [step for step in steps if isinstance(step.layer, Yolo)]
    raw = {step.layer.sources[0]: f"yolo{place}" for place, step in enumerate(heads)}
    for at, step in enumerate(steps):
        inputs = [tensors[source] for source in step.layer.sources]
        tensors[at] = step.layer.emit(nodes, step, inputs, raw.get(at, f"layer{at}"), arrays.get(at, {}))
    outputs = []
    for place, step in enumerate(heads):
        tensor, output = tensors[step.layer.sources[0]], f"yolo{place}"
        if tensor != output:  # the layer before does nothing, or feeds two heads
            nodes.add("Identity", [tensor], output)
        outputs.append(helper.make_tensor_value_info(output, TensorProto.FLOAT, ["batch", *step.shape]))
    image = helper.make_tensor_value_info(INPUT, TensorProto.FLOAT, ["batch", 3, size.height, size.width])
    graph = helper.make_graph(nodes.nodes, name, [image], outputs, list(nodes.constants.values()))
    facts = {"producer_name": "holdfast", "doc_string": "exported from darknet", "ir_version": IR}
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], **facts)
    onnx.checker.check_model(model, full_check=True)
    return model
