"""Darknet files in, an ONNX file with the raw YOLO maps and its card out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx
from onnx import TensorProto, helper

from holdfast.core.errors import CardError, OutputError
from holdfast.core.model import Card, Head, Input, Policy
from holdfast.core.types import Size
from holdfast.graph.card import BUILT_IN, numbered
from holdfast.graph.darknet.cfg import read_cfg, strides, trace
from holdfast.graph.darknet.layers import Arrays, Step, Yolo
from holdfast.graph.darknet.nodes import Nodes
from holdfast.graph.darknet.weights import read_weights

SCORE, NMS_IOU = 0.001, 0.45  # what darknet's own mAP evaluation uses
OPSET, IR = 13, 7  # old enough for every runtime of the last years; nothing here needs more
INPUT = "images"


def convert(cfg: Path, weights: Path, out: Path, names: Path | None = None, size: Size | None = None) -> Card:
    """The card of a darknet detector whose ONNX form it writes to `out`.

    `names` is a darknet .names file, one class a line; without it 80 classes are taken for COCO's and any
    other number is numbered from 0. `size` overrides the width and height of the .cfg.
    """
    network = read_cfg(cfg)
    heads, size = network.heads, size or network.size
    steps = trace(network, size)
    cells = strides(steps, size)
    count = heads[0].classes
    assumed = BUILT_IN["coco80"] if count == 80 else numbered(count)
    classes = read_names(names, count) if names else assumed
    model = build(steps, read_weights(weights, steps), size, cfg.stem)
    _write(out, model.SerializeToString(deterministic=True))
    options = {
        "outputs": tuple(f"yolo{place}" for place in range(len(heads))),
        "anchors": tuple(head.anchors for head in heads),
        "strides": cells,
        "scale_xy": tuple(head.scale_xy for head in heads),
    }
    # Darknet stretches the picture to the input, unless [net] says letter_box=1; then the border is 0.5.
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


def read_names(path: Path, wanted: int) -> tuple[str, ...]:
    """The class names of a .names file, which must be `wanted` many."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise CardError(f"{path}: no such file; give a .names file with one class a line") from None
    except (OSError, UnicodeDecodeError) as problem:
        raise CardError(f"{path}: expected a .names file with one class a line, got: {problem}") from problem
    classes = tuple(line.strip() for line in text.strip().splitlines())
    if len(classes) != wanted:
        raise CardError(f"{path}: expected {wanted} names, as classes= in [yolo] says, got {len(classes)}")
    return classes


def build(steps: Sequence[Step], arrays: Mapping[int, Arrays], size: Size, name: str) -> onnx.ModelProto:
    """The ONNX model: `images` (N, 3, H, W) in 0..1 in, `yolo0`, `yolo1`, ... (N, A·(5+k), h, w) out.

    The maps come before any sigmoid. The output of darknet's layer 12 is the tensor `layer12`, so that a
    graph can be read beside its .cfg; a layer that does nothing leaves none.
    """
    nodes = Nodes()
    tensors = {-1: INPUT}
    heads = [step for step in steps if isinstance(step.layer, Yolo)]
    raw = {step.layer.sources[0]: f"yolo{place}" for place, step in enumerate(heads)}
    for at, step in enumerate(steps):
        inputs = [tensors[source] for source in step.layer.sources]
        tensors[at] = step.layer.emit(nodes, step, inputs, raw.get(at, f"layer{at}"), arrays.get(at, {}))
    outputs = []
    for place, step in enumerate(heads):
        given, wanted = tensors[step.layer.sources[0]], f"yolo{place}"
        if given != wanted:  # the layer before does nothing, or feeds two heads
            nodes.add("Identity", [given], wanted)
        outputs.append(helper.make_tensor_value_info(wanted, TensorProto.FLOAT, ["batch", *step.shape]))
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


def _write(path: Path, data: bytes) -> None:
    draft = path.with_name(path.name + ".part")
    try:
        draft.write_bytes(data)
        draft.replace(path)
    except OSError as problem:
        draft.unlink(missing_ok=True)
        raise OutputError(f"{path}: could not write the ONNX file: {problem}") from problem
