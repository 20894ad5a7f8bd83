"""Darknet files in, an ONNX file and its card out."""

from __future__ import annotations

from pathlib import Path

from holdfast.core.errors import OutputError
from holdfast.core.model import Card, Head, Input, Policy
from holdfast.core.types import Size
from holdfast.graph.darknet.cfg import read_cfg
from holdfast.graph.darknet.layers import Network
from holdfast.graph.darknet.names import default_names, read_names
from holdfast.graph.darknet.shapes import strides, trace
from holdfast.graph.darknet.weights import read_weights

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
    classes = (
        read_names(names, network.heads[0].classes) if names else default_names(network.heads[0].classes)
    )
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
