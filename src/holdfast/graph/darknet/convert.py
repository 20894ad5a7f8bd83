"""Darknet files in, an ONNX file and its card out."""

from __future__ import annotations

from pathlib import Path

from holdfast.core.errors import CardError, OutputError
from holdfast.core.model import Card, Head, Input, Policy
from holdfast.core.types import Size
from holdfast.graph.card import BUILT_IN, numbered
from holdfast.graph.darknet.cfg import read_cfg, strides, trace
from holdfast.graph.darknet.layers import Network
from holdfast.graph.darknet.weights import read_weights


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


SCORE, NMS_IOU = 0.001, 0.45  # what darknet's own mAP evaluation uses


def convert(cfg: Path, weights: Path, out: Path, names: Path | None = None, size: Size | None = None) -> Card:
    """The card of a darknet detector whose ONNX form it writes to `out`.

    `names` is a darknet .names file, one class a line; without it 80 classes are taken for COCO's and any
    other number is numbered from 0. `size` overrides the width and height of the .cfg.
    """
    from holdfast.graph.darknet.export import build

    network = read_cfg(cfg)
    size = size or network.size
    steps = trace(network, size)
    cells = strides(steps, size)
    count = network.heads[0].classes
    assumed = BUILT_IN["coco80"] if count == 80 else numbered(count)
    classes = read_names(names, count) if names else assumed
    model = build(steps, read_weights(weights, steps), size, cfg.stem)
    _write(out, model.SerializeToString(deterministic=True))
    return _card(network, size, cells, classes)


def _card(network: Network, size: Size, cells: tuple[int, ...], classes: tuple[str, ...]) -> Card:
    options = {
        "outputs": tuple(f"yolo{place}" for place in range(len(network.heads))),
        "anchors": tuple(head.anchors for head in network.heads),
        "strides": cells,
        "scale_xy": tuple(head.scale_xy for head in network.heads),
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


def _write(path: Path, data: bytes) -> None:
    draft = path.with_name(path.name + ".part")
    try:
        draft.write_bytes(data)
        draft.replace(path)
    except OSError as problem:
        draft.unlink(missing_ok=True)
        raise OutputError(f"{path}: could not write the ONNX file: {problem}") from problem
