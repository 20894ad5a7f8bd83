"""Detectors without anchors, or with boxes already decoded: NanoDet, YOLOX, YOLOv5, YOLOv8, FastestDet."""

from __future__ import annotations

from typing import Any

from holdfast.graph.candidates import levels, nominal_stride
from holdfast.graph.rules.proposal import ULTRALYTICS, YOLO_STRIDES, Proposal, words
from holdfast.graph.seen import Seen

BGR_MEAN, BGR_STD = (103.53, 116.28, 123.675), (57.375, 57.12, 58.395)


def distribution_bins(seen: Seen) -> Proposal | None:
    """NanoDet: at each stride class scores and 4 distributions of distances, or all in one tensor."""
    shapes = seen.outputs
    if len(shapes) == 1:
        ((name, shape),) = shapes.items()
        strides = (*YOLO_STRIDES, 64)
        if len(shape) != 3 or not levels(seen.size, strides, shape[1], 0) or shape[2] <= 33:
            return None
        classes, because = (
            shape[2] - 32,
            f"one output {name!r} {shape} = cells of strides 8 to 64 × (classes + 4·8 bins)",
        )
        return _nanodet(classes, because, seen, strides, 0.0)
    widths = sorted({s[-1] for s in shapes.values()})
    if len(widths) != 2 or len(shapes) % 2 or any(len(s) != 3 for s in shapes.values()):
        return None
    strides = tuple(8 * 2**i for i in range(len(shapes) // 2))
    cells = sorted((s[1] for s in shapes.values()), reverse=True)
    fits = all(levels(seen.size, (stride,), n, 0) for stride, n in zip(strides, cells[::2], strict=True))
    bins = [w for w in widths if w % 4 == 0 and 4 * 5 <= w <= 4 * 33]
    if not fits or cells[::2] != cells[1::2] or not bins:
        return None
    wide = 32 if 32 in bins else bins[0]
    classes = next(w for w in widths if w != wide)
    because = (
        f"pairs of outputs at strides {words(strides)} = {classes} class scores and 4·{wide // 4} bins a cell"
    )
    return _nanodet(classes, because, seen, strides, 0.5)


def _nanodet(classes: int, because: str, seen: Seen, strides: tuple[int, ...], centre: float) -> Proposal:
    squashed = any("Sigmoid" in ends for ends in seen.ends.values())
    options: dict[str, Any] = {
        "strides": strides,
        "centre": centre,
        "activation": "none" if squashed else "sigmoid",
    }
    policy = "letterbox" if centre else "stretch"
    fed = {"colour": "bgr", "scale": 1.0, "mean": BGR_MEAN, "std": BGR_STD, "policy": policy, "pad": 0}
    return Proposal(
        "detect",
        "nanodet",
        because,
        classes,
        "NanoDet",
        options=options,
        input=fed,
        resize="opencv-bilinear",
        thresholds={"score": 0.05, "nms_iou": 0.6},
    )


def one_tensor(seen: Seen) -> Proposal | None:
    """YOLOX, YOLOv5 or YOLOv8: all boxes of all strides in one tensor of three axes."""
    if len(seen.outputs) != 1:
        return None
    ((name, shape),) = seen.outputs.items()
    if len(shape) != 3 or shape[0] != 1:
        return None
    size, pixels = seen.size, f"{seen.size.width}×{seen.size.height}"
    for axis in (1, 2):
        rows, width = shape[axis], shape[3 - axis]
        cells = f"cells of strides 8, 16, 32 of {pixels}"
        if width < 6 and not (width == 5 and axis == 2):
            continue
        if rows % 3 == 0 and levels(size, YOLO_STRIDES, rows // 3, 0) and axis == 1:
            because = f"one output {name!r} {shape} = 3 anchors × {cells} times 5+{width - 5}"
            return Proposal("detect", "yolov5", because, width - 5, "Ultralytics", input=ULTRALYTICS)
        if not levels(size, YOLO_STRIDES, rows, 0):
            continue
        if axis == 2 or width == 84:
            because = f"one output {name!r} {shape} = {cells} times 4+{width - 4}"
            return Proposal("detect", "yolov8", because, width - 4, "Ultralytics", input=ULTRALYTICS)
        return _yolox(seen, f"one output {name!r} {shape} = {cells} times 5+{width - 5}", width - 5)
    return None


def _yolox(seen: Seen, because: str, classes: int) -> Proposal:
    ends = next(iter(seen.ends.values()))
    decoded = bool(ends & {"Mul", "Exp", "Add", "Div"})
    options: dict[str, Any] = {"decoded": decoded} if decoded else {"strides": YOLO_STRIDES}
    if "Sigmoid" not in ends and not decoded:
        options["activation"] = "sigmoid"
    fed = {"colour": "bgr", "scale": 1.0, "policy": "letterbox", "place": "corner"}
    return Proposal(
        "detect", "yolox", because, classes, "YOLOX", options=options, input=fed, resize="opencv-bilinear"
    )


def fastest(seen: Seen) -> Proposal | None:
    """FastestDet: one map of objectness, box and class probabilities."""
    if len(seen.outputs) != 1:
        return None
    ((name, shape),) = seen.outputs.items()
    if len(shape) != 4 or shape[1] < 6 or not {"Sigmoid", "Softmax", "Conv"} <= seen.ends[name]:
        return None
    stride = nominal_stride(seen.size.width, shape[3])
    because = (
        f"one map {name!r} {shape} of stride {stride} = sigmoid, 4 raw values and a softmax of {shape[1] - 5}"
    )
    return Proposal(
        "detect",
        "fastestdet",
        because,
        shape[1] - 5,
        "FastestDet",
        input={"colour": "bgr", "scale": 1 / 255},
        resize="opencv-bilinear",
    )
