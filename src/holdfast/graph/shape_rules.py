"""Rules that recognise a head by the shapes of the outputs and the operators that compute them."""

from typing import Any

from holdfast.core.types import Size
from holdfast.graph.candidates import levels, nominal_stride
from holdfast.graph.evidence import ULTRALYTICS, YOLO_STRIDES, GraphFacts, Proposal, Rule, words
from holdfast.graph.heads.decoded import roles

BGR_MEAN, BGR_STD = (103.53, 116.28, 123.675), (57.375, 57.12, 58.395)
ANCHORS_WARNING = (
    "anchors: YOLOv3's for COCO, assumed: the graph does not contain them; check them against the training "
    "configuration, or boxes will have wrong sizes"
)
# Anchors of YOLOv3 and YOLOv3-tiny on COCO at 416, by stride.
COCO_ANCHORS: dict[int, tuple[tuple[int, int], ...]] = {
    8: ((10, 13), (16, 30), (33, 23)),
    16: ((30, 61), (62, 45), (59, 119)),
    32: ((116, 90), (156, 198), (373, 326)),
}
TINY_ANCHORS: dict[int, tuple[tuple[int, int], ...]] = {
    16: ((10, 14), (23, 27), (37, 58)),
    32: ((81, 82), (135, 169), (344, 319)),
}


def selected_indices(facts: GraphFacts) -> Proposal | None:
    """Outputs of a bare NonMaxSuppression: boxes, scores and selected indices."""
    shapes = facts.outputs
    picks = [n for n, s in shapes.items() if facts.kinds[n] in "iu" and len(s) == 2 and s[1] == 3]
    fours = [n for n, s in shapes.items() if facts.kinds[n] == "f" and len(s) == 3 and s[2] == 4]
    for four in fours:
        scores = [n for n, s in shapes.items() if n != four and len(s) == 3 and s[2] == shapes[four][1]]
        if picks and scores:
            because = f"{picks[0]!r} {shapes[picks[0]]} are selected indices into {four!r} and {scores[0]!r}"
            options = {"outputs": (four, scores[0], picks[0])}
            warnings = ("form: yxyx, assumed: the order that NonMaxSuppression documents",)
            classes = shapes[scores[0]][1]
            return Proposal("selected", because, classes, "most exports", options, warnings=warnings)
    return None


def after_nms(facts: GraphFacts) -> Proposal | None:
    """Boxes, scores and labels, or one table of six or seven columns, with NMS or top-k inside."""
    if len(facts.outputs) == 1:
        return _table(facts)
    names = roles(facts.outputs, facts.kinds)
    if not {"boxes", "scores", "labels"} <= set(names):
        return None
    box, score, label = (facts.outputs[names[r]] for r in ("boxes", "scores", "labels"))
    rows = box[:-1]
    if box[-1] != 4 or score not in (rows, (*rows, 1)) or label not in (rows, (*rows, 1)):
        return None
    fields: tuple[str, ...] = ("boxes", "scores", "labels", "count")
    options = {role: names[role] for role in fields if role in names}
    because = f"it gives boxes {names['boxes']!r}, scores {names['scores']!r} and labels {names['labels']!r}"
    warnings = ("form: xyxy in input pixels, assumed; label_offset 0, assumed; docs/how-to/your-model.md",)
    return Proposal("boxes", because, None, "most exports", options, warnings=warnings)


def _table(facts: GraphFacts) -> Proposal | None:
    name, shape = facts.only
    inside = {"NonMaxSuppression", "TopK"} & set(facts.info.nodes)
    if not inside or not shape or shape[-1] not in (6, 7) or len(shape) not in (2, 3):
        return None
    columns = "x1 y1 x2 y2 score label" if shape[-1] == 6 else "- x1 y1 x2 y2 label score"
    because = f"one output {name!r} {shape} of {shape[-1]} columns after {sorted(inside)[0]}"
    options = {"columns": tuple(columns.split())}
    warnings = (f"columns: {columns}, assumed: the order cannot be read from the graph",)
    return Proposal(
        head="boxes",
        because=because,
        classes=None,
        like="Ultralytics",
        options=options,
        input=ULTRALYTICS,
        warnings=warnings,
    )


def single_object(facts: GraphFacts) -> Proposal | None:
    """One box (1, 4) and one row of class scores."""
    if len(facts.outputs) != 2 or any(len(s) != 2 for s in facts.outputs.values()):
        return None
    four = sorted((n for n, s in facts.outputs.items() if s == (1, 4)), key=lambda n: "box" not in n)
    if not four:
        return None
    box = four[0]
    scores = next(n for n in facts.outputs if n != box)
    because = f"it gives one box {box!r} (1, 4) and class scores {scores!r} {facts.outputs[scores]}"
    return Proposal("landmark", because, facts.outputs[scores][1], "CCTSDB-YOLO", {"outputs": (box, scores)})


def one_row(facts: GraphFacts) -> Proposal | None:
    """One score per class."""
    name, shape = facts.only
    if len(shape) not in (2, 4) or shape[0] != 1 or shape[1] < 2 or any(d != 1 for d in shape[2:]):
        return None
    count, skip = (1000, 1) if shape[1] == 1001 else (shape[1], 0)
    size = Size(224, 224) if facts.free_size else facts.size
    crop: dict[str, Any] = {"policy": "crop", "short_side": round(min(size) / 0.875)}
    because = f"one output {name!r} {shape} = one score per class" + (" and a background" if skip else "")
    options = {"skip": skip} if skip else {}
    like = "torchvision classifiers"
    return Proposal(
        "classifier", because, classes=count, like=like, options=options, input=crop, imagenet=True, size=size
    )


def class_maps(facts: GraphFacts) -> Proposal | None:
    """Segmentation: a score per class and pixel at an eighth of the input or finer, or a map of class ids."""
    for name, shape in facts.outputs.items():
        if facts.kinds[name] in "iu" and len(shape) in (3, 4) and facts.size.width // 8 <= shape[-1]:
            return _segmenter(name, shape, None, "a map of class ids", facts)
        if len(shape) != 4 or facts.kinds[name] != "f":
            continue
        channels, wide = (shape[3], shape[2]) if facts.layout == "nhwc" else (shape[1], shape[3])
        if wide * 8 >= facts.size.width:
            return _segmenter(name, shape, max(channels, 2), f"{channels} scores per pixel", facts)
    return None


def _segmenter(
    name: str, shape: tuple[int, ...], classes: int | None, what: str, facts: GraphFacts
) -> Proposal:
    options: dict[str, Any] = {"outputs": (name,)} if len(facts.outputs) > 1 else {}
    if classes == 2 and 1 in (shape[1], shape[-1]) and "Sigmoid" in facts.ends[name]:
        options["single"] = "probability"
    because, like = f"output {name!r} {shape} = {what}", "torchvision segmenters"
    return Proposal("segmentation", because, classes or 256, like, options, imagenet=True)


def distribution_bins(facts: GraphFacts) -> Proposal | None:
    """NanoDet: at each stride class scores and 4 distributions of distances, or all in one tensor."""
    shapes = facts.outputs
    name, shape = facts.only
    if name:
        strides = (*YOLO_STRIDES, 64)
        if len(shape) != 3 or not levels(facts.size, strides, shape[1], 0) or shape[2] <= 33:
            return None
        because = f"one output {name!r} {shape} = cells of strides 8 to 64 × (classes + 4·8 bins)"
        return _nanodet(shape[2] - 32, because, facts, strides, 0.0)
    widths = sorted({s[-1] for s in shapes.values()})
    if len(widths) != 2 or len(shapes) % 2 or any(len(s) != 3 for s in shapes.values()):
        return None
    strides = tuple(8 * 2**i for i in range(len(shapes) // 2))
    cells = sorted((s[1] for s in shapes.values()), reverse=True)
    fits = all(levels(facts.size, (stride,), n, 0) for stride, n in zip(strides, cells[::2], strict=True))
    bins = [w for w in widths if w % 4 == 0 and 4 * 5 <= w <= 4 * 33]
    if not fits or cells[::2] != cells[1::2] or not bins:
        return None
    wide = 32 if 32 in bins else bins[0]
    classes = next(w for w in widths if w != wide)
    content = f"{classes} class scores and 4·{wide // 4} bins per cell"
    because = f"pairs of outputs at strides {words(strides)} = {content}"
    return _nanodet(classes, because, facts, strides, 0.5)


def _nanodet(
    classes: int, because: str, facts: GraphFacts, strides: tuple[int, ...], centre: float
) -> Proposal:
    squashed = any("Sigmoid" in ends for ends in facts.ends.values())
    options = {"strides": strides, "centre": centre, "activation": "none" if squashed else "sigmoid"}
    policy = "letterbox" if centre else "stretch"
    fed = {"colour": "bgr", "scale": 1.0, "mean": BGR_MEAN, "std": BGR_STD, "policy": policy, "pad": 0}
    least = {"score": 0.05, "nms_iou": 0.6}
    return Proposal(
        head="nanodet",
        because=because,
        classes=classes,
        like="NanoDet",
        options=options,
        input=fed,
        resize="opencv-bilinear",
        thresholds=least,
    )


def one_tensor(facts: GraphFacts) -> Proposal | None:
    """YOLOX, YOLOv5 or YOLOv8: all boxes of all strides in one tensor of three axes."""
    name, shape = facts.only
    if len(shape) != 3 or shape[0] != 1:
        return None
    size, cells = facts.size, f"cells of strides 8, 16, 32 of {facts.size.width}×{facts.size.height}"
    for axis in (1, 2):
        rows, width = shape[axis], shape[3 - axis]
        if width < 6 and not (width == 5 and axis == 2):
            continue
        if rows % 3 == 0 and levels(size, YOLO_STRIDES, rows // 3, 0) and axis == 1:
            because = f"one output {name!r} {shape} = 3 anchors × {cells} times 5+{width - 5}"
            return Proposal("yolov5", because, width - 5, "Ultralytics", input=ULTRALYTICS)
        if not levels(size, YOLO_STRIDES, rows, 0):
            continue
        if axis == 2 or width == 84:
            because = f"one output {name!r} {shape} = {cells} times 4+{width - 4}"
            return Proposal("yolov8", because, width - 4, "Ultralytics", input=ULTRALYTICS)
        return _yolox(facts, f"one output {name!r} {shape} = {cells} times 5+{width - 5}", width - 5)
    return None


def _yolox(facts: GraphFacts, because: str, classes: int) -> Proposal:
    ends = next(iter(facts.ends.values()))
    decoded = bool(ends & {"Mul", "Exp", "Add", "Div"})
    options: dict[str, Any] = {"decoded": decoded} if decoded else {"strides": YOLO_STRIDES}
    if "Sigmoid" not in ends and not decoded:
        options["activation"] = "sigmoid"
    # YOLOX rounds the sides of the resized image down: `int(side * ratio)`.
    fed = {"colour": "bgr", "scale": 1.0, "policy": "letterbox-truncate", "place": "corner"}
    return Proposal(
        head="yolox",
        because=because,
        classes=classes,
        like="YOLOX",
        options=options,
        input=fed,
        resize="opencv-bilinear",
    )


def fastest(facts: GraphFacts) -> Proposal | None:
    """FastestDet: one map of objectness, box and class probabilities."""
    name, shape = facts.only
    if len(shape) != 4 or shape[1] < 6 or not {"Sigmoid", "Softmax", "Conv"} <= facts.ends[name]:
        return None
    stride = nominal_stride(facts.size.width, shape[3])
    classes, fed = shape[1] - 5, {"colour": "bgr", "scale": 1 / 255}
    content = f"sigmoid, 4 raw values and a softmax of {classes}"
    because = f"one map {name!r} {shape} of stride {stride} = {content}"
    return Proposal("fastestdet", because, classes, "FastestDet", input=fed, resize="opencv-bilinear")


def anchors_and_deltas(facts: GraphFacts) -> Proposal | None:
    """RetinaNet: scores (1, n, k) and deltas (1, n, 4) over nine anchors per cell at five strides."""
    shapes = list(facts.outputs.values())
    strides = (8, 16, 32, 64, 128)
    if len(shapes) != 2 or any(len(s) != 3 for s in shapes) or shapes[0][1] != shapes[1][1]:
        return None
    widths = [s[2] for s in shapes]
    if 4 not in widths or shapes[0][1] % 9 or not levels(facts.size, strides, shapes[0][1] // 9, 0):
        return None
    classes = widths[1 - widths.index(4)]
    ends = frozenset().union(*facts.ends.values())
    options = {"strides": strides, "activation": "none" if "Sigmoid" in ends else "sigmoid"}
    because = f"two outputs {facts.shapes()} = 9 anchors × cells of strides {words(strides)}"
    warnings = ("sizes: 4 strides, ratios 0.5 1 2, scales 1 1.26 1.59, assumed, as in RetinaNet",)
    return Proposal("anchors", because, classes, "RetinaNet", options, imagenet=True, warnings=warnings)


def maps_with_anchors(facts: GraphFacts) -> Proposal | None:
    """YOLOv3: maps of equal channels at two or more strides, or one of 255."""
    maps = {n: s for n, s in facts.outputs.items() if len(s) == 4}
    if not maps or len(maps) != len(facts.outputs):
        return None
    axis = 1 if len({s[1] for s in maps.values()}) == 1 else 3
    channels = {s[axis] for s in maps.values()}
    sides = {n: s[3] if axis == 1 else s[2] for n, s in maps.items()}
    strides = {n: nominal_stride(facts.size.width, side) for n, side in sides.items()}
    if len(channels) != 1 or len(set(strides.values())) != len(maps) or None in strides.values():
        return None
    width = channels.pop()
    count = next((a for a in (3, 2, 4, 5, 1) if width % a == 0 and width // a > 5), None)
    if count is None or (len(maps) == 1 and width != 255) or min(s or 0 for s in strides.values()) < 4:
        return None
    order = sorted(maps, key=lambda n: strides[n] or 0)
    steps = tuple(int(strides[n] or 0) for n in order)
    because = f"maps {facts.shapes()} of strides {words(steps)} = {count} anchors × (5+{width // count})"
    options = {"outputs": tuple(order), "strides": steps, "anchors": _default_anchors(steps, count)}
    classes = width // count - 5
    return Proposal("yolov3", because, classes, "darknet", options, warnings=(ANCHORS_WARNING,))


def _default_anchors(strides: tuple[int, ...], count: int) -> tuple[tuple[tuple[int, int], ...], ...]:
    """COCO's anchors by stride, the tiny ones for two maps; other strides and counts get scaled ones."""
    table = TINY_ANCHORS if set(strides) == set(TINY_ANCHORS) else COCO_ANCHORS
    scaled = {s: tuple((a * s // 8, b * s // 8) for a, b in COCO_ANCHORS[8]) for s in strides} | table
    return tuple(tuple(scaled[s][i % len(scaled[s])] for i in range(count)) for s in strides)


# In this order: the first rule that makes a proposal wins.
RULES: tuple[Rule, ...] = (
    selected_indices,
    after_nms,
    single_object,
    one_row,
    distribution_bins,
    one_tensor,
    anchors_and_deltas,
    fastest,
    maps_with_anchors,
    class_maps,
)
