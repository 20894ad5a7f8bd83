"""Darknet files in, an ONNX file with the raw YOLO maps and its card out."""

import math
import struct
from collections.abc import Mapping, Sequence
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
from holdfast.graph.darknet.cfg import read_cfg, strides, trace
from holdfast.graph.darknet.layers import EPSILON, Arrays, PlacedLayer, Yolo
from holdfast.graph.darknet.nodes import NodeBuilder

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
    options = {
        "outputs": tuple(f"yolo{place}" for place in range(len(heads))),
        "anchors": tuple(head.anchors for head in heads),
        "strides": cells,
        "scale_xy": tuple(head.scale_xy for head in heads),
    }
    # Darknet stretches the image to the input, unless [net] says letter_box=1; then the border is 0.5.
    policy: Policy = "letterbox" if network.letter_box else "stretch"
    return Card(
        task="detect",
        input=Input(size=size, scale=1 / 255, policy=policy, pad=127),
        head=Head("yolov3", options),
        classes=classes,
        score=SCORE,
        nms_iou=NMS_IOU,
        resize="opencv-bilinear",
    )


def read_names(path: Path, count: int) -> tuple[str, ...]:
    """The class names of a .names file; raise CardError unless there are `count` of them."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise CardError(f"{path}: no such file; give a .names file with one class per line") from None
    except (OSError, UnicodeDecodeError) as problem:
        raise CardError(
            f"{path}: expected a .names file with one class per line, got: {problem}"
        ) from problem
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
    raise ModelError(
        f"{path}: expected darknet weights after a header of 16 or 20 bytes, got {len(data)} bytes in all"
    )


def read_weights(path: Path, steps: Sequence[PlacedLayer]) -> dict[int, Arrays]:
    """The arrays of every layer that has some, by layer number."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise ModelError(f"{path}: no such file; give the path of a darknet .weights file") from None
    except OSError as problem:
        raise ModelError(f"{path}: expected a readable darknet .weights file, got: {problem}") from problem
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
    cfg = steps[0].layer.section.path
    message = f"{path}: expected {expected:,} floats for {cfg}, got {got:,}{odd}: "
    if got >= expected:
        raise ModelError(message + f"{got - expected:,}{odd} too many; is it the .weights of another .cfg?")
    within = next(step for step, end in zip(steps, ends, strict=True) if end > got)
    raise ModelError(
        message + f"{expected - got:,} too few, it ends within {within.layer.section.at()}; "
        "is it cut short, or of another .cfg?"
    )


def _check_values(
    path: Path, step: PlacedLayer, name: str, values: NDArray[np.float32], position: int
) -> None:
    wrong, expected = ~np.isfinite(values), "finite numbers"
    if name == "variance":
        wrong, expected = wrong | (values <= -EPSILON), "finite numbers of at least 0"
    if wrong.any():
        first = int(np.argmax(wrong))
        raise ModelError(
            f"{path}: expected {expected} as {name} of {step.layer.section.at()}, got {values.flat[first]} "
            f"({int(wrong.sum())} such, the first is float {position + first:,} of the file)"
        )


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
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR,
        producer_name="holdfast",
        doc_string="exported from darknet",
    )
    onnx.checker.check_model(model, full_check=True)
    return model
