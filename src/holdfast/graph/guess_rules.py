"""Rules that recognise a head: by its exporter's metadata or names, then by shapes and operators."""

from typing import Any

from holdfast.core.errors import CardError
from holdfast.core.types import Size
from holdfast.graph.candidates import levels, nominal_stride
from holdfast.graph.evidence import ULTRALYTICS, YOLO_STRIDES, GraphFacts, Proposal, Rule, literal, words
from holdfast.graph.heads.decoded import roles

BOXES_ONLY = {
    "segment": "outputs: boxes only, because masks of single objects are not evaluated",
    "pose": "outputs: boxes only, because keypoints are not evaluated",
    "obb": "boxes: the upright box around each rotated box, because rotated boxes are not evaluated",
}
TABLE = ("x1", "y1", "x2", "y2", "score", "label")
ROTATED = ("cx", "cy", "w", "h", "score", "label", "angle")


def ultralytics(facts: GraphFacts) -> Proposal | None:
    """Detect, segment, pose, obb or classify, by the metadata `task` and `names`."""
    task = facts.info.metadata.get("task", "")
    if not facts.names:
        return None
    count = len(facts.names)
    if task == "classify" and set(facts.outputs.values()) == {(1, count)}:
        because = f"the file's metadata says task 'classify' and {count} classes"
        image = {"policy": "crop", "short_side": min(facts.size), "scale": 1 / 255}
        return Proposal("classifier", because, count, "Ultralytics", input=image)
    if task not in ("detect", *BOXES_ONLY):
        return None
    tables = [name for name, shape in facts.outputs.items() if len(shape) == 3]
    proposal = _detector(facts, task, tables[0]) if tables else None
    if proposal is None and task != "detect":
        says = f"its metadata says an Ultralytics model of task {task!r} with {count} classes"
        problem = f"but the outputs {facts.shapes()} do not match"
        advice = "write a card by hand (docs/how-to/your-model.md)"
        raise CardError(f"{facts.info.path}: {says}, {problem}; {advice}")
    return proposal


def _detector(facts: GraphFacts, task: str, name: str) -> Proposal | None:
    """The head that reads output `name` of a model of that task; None if the shape does not fit."""
    _, rows, columns = facts.outputs[name]
    classes, trailing = len(facts.names), _trailing(facts, task)
    says = f"the file's metadata says task {task!r} and {classes} classes"
    because = f"{says}, output {name!r} is {facts.outputs[name]} = "
    outputs: dict[str, Any] = {"outputs": (name,)} if len(facts.outputs) > 1 else {}
    if _is_rtdetr(facts, task, rows, columns):
        image = {"policy": "stretch", "scale": 1 / 255}
        because = f"{because}queries times 4+{classes}"
        return Proposal("rtdetr", because, classes, "Ultralytics", outputs, image)
    width = 4 + classes + trailing
    warnings = (BOXES_ONLY[task],) if task in BOXES_ONLY else ()
    if columns == 6 + trailing and (_finished(facts) or rows != width):
        named = (*TABLE, *["-"] * trailing) if task != "obb" else ROTATED
        options: dict[str, Any] = {"columns": named, **({"boxes": name} if outputs else {})}
        head, because = "boxes", f"{because}detections times {6 + trailing}"
    elif width in (rows, columns):
        options = {**outputs, **({"trailing": trailing} if trailing else {})}
        options |= {"angle": True} if task == "obb" else {}
        head, because = "yolov8", f"{because}boxes times 4+{classes}" + (f"+{trailing}" if trailing else "")
    else:
        return None
    return Proposal(head, because, classes, "Ultralytics", options, ULTRALYTICS, warnings=warnings)


def _trailing(facts: GraphFacts, task: str) -> int:
    """How many columns follow the classes: mask coefficients, keypoints or an angle."""
    if task == "segment":
        maps = [shape[1] for shape in facts.outputs.values() if len(shape) == 4]
        return maps[0] if maps else 32
    if task == "pose":
        points = literal(facts.info.metadata.get("kpt_shape", "")) or (17, 3)
        return int(points[0]) * int(points[1])
    return 1 if task == "obb" else 0


def _finished(facts: GraphFacts) -> bool:
    """Whether the metadata says that detections are selected in the graph."""
    metadata = facts.info.metadata
    args = literal(metadata.get("args", ""))
    return metadata.get("end2end") == "True" or (isinstance(args, dict) and bool(args.get("nms")))


def _is_rtdetr(facts: GraphFacts, task: str, rows: int, columns: int) -> bool:
    """Whether the table is of queries: the metadata says so, or its rows are not the cells of a grid."""
    metadata, fits = facts.info.metadata, columns == 4 + len(facts.names)
    if task != "detect" or not fits or _finished(facts):
        return False
    named = "rtdetr" in f"{metadata.get('head', '')} {metadata.get('description', '')}".lower()
    return named or (columns != len(TABLE) and not levels(facts.size, YOLO_STRIDES, rows, 0))


ROLES = {
    "boxes": "detection_boxes",
    "scores": "detection_scores",
    "labels": "detection_classes",
    "count": "num_detections",
}
EVERY_SCORE = ("detection_multiclass_scores", "raw_detection_scores")  # (1, n, background + classes)


def tensorflow(facts: GraphFacts) -> Proposal | None:
    """Boxes y1 x1 y2 x2 in 0..1 and class ids from 1, by the names of the outputs."""
    by_name = {name.split(":")[0]: name for name in facts.outputs}
    options: dict[str, Any] = {role: by_name[name] for role, name in ROLES.items() if name in by_name}
    if not {"boxes", "scores", "labels"} <= set(options):
        return None
    widths = [facts.outputs[by_name[name]][-1] for name in EVERY_SCORE if name in by_name]
    classes = widths[0] - 1 if widths and widths[0] != 91 else None  # None: COCO's 91 ids, with a name for 0
    offset = 1 if classes or facts.names else 0
    options |= {"form": "yxyx", "normalised": True, "label_offset": offset}
    api = "the TensorFlow object-detection API"
    place = "" if offset else " and the names have a place for 0"
    warnings = (
        f"form: yxyx, because {api} gives y1 x1 y2 x2",
        f"normalised: true, because {api} gives fractions of the image, 0 to 1",
        f"label_offset: {offset}, because its class ids begin at 1{place}",
    )
    because, image = f"output {options['boxes']!r} is named as {api} names it", {"policy": "stretch"}
    return Proposal("boxes", because, classes, api, options, image, names="coco91", warnings=warnings)


def torchvision(facts: GraphFacts) -> Proposal | None:
    """Boxes x1 y1 x2 y2 in pixels and labels from 1, by the names and axes of the outputs."""
    axes = {name: len(shape) for name, shape in facts.outputs.items()}
    if [axes.get(name) for name in ("boxes", "labels", "scores")] != [2, 1, 1]:
        return None
    because = "outputs 'boxes', 'labels' and 'scores' without a batch axis are those of torchvision"
    options = {role: role for role in ("boxes", "scores", "labels")}
    image = {"policy": "letterbox", "place": "corner"}  # any size is accepted; keep the aspect ratio
    warnings = (
        "form: xyxy in input pixels, because torchvision returns them so",
        "label_offset: 0, because label 0 is the background and has a place among the names",
    )
    like = "torchvision detectors"
    return Proposal("boxes", because, None, like, options, image, names="coco91", warnings=warnings)


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
    return Proposal("boxes", because, None, "Ultralytics", options, ULTRALYTICS, warnings=warnings)


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
    return Proposal("classifier", because, count, like, options, crop, imagenet=True, size=size)


def class_maps(facts: GraphFacts) -> Proposal | None:
    """Segmentation: a score per class and pixel at an eighth of the input or finer, or a map of class ids."""
    for name, shape in facts.outputs.items():
        if facts.kinds[name] in "iu" and len(shape) in (3, 4) and facts.size.width // 8 <= shape[-1]:
            return _segmenter(facts, name, None, "a map of class ids")
        if len(shape) != 4 or facts.kinds[name] != "f":
            continue
        channels, wide = (shape[3], shape[2]) if facts.layout == "nhwc" else (shape[1], shape[3])
        if wide * 8 >= facts.size.width:
            return _segmenter(facts, name, max(channels, 2), f"{channels} scores per pixel")
    return None


def _segmenter(facts: GraphFacts, name: str, classes: int | None, what: str) -> Proposal:
    shape = facts.outputs[name]
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
    image = {"colour": "bgr", "scale": 1.0, "mean": BGR_MEAN, "std": BGR_STD, "policy": policy, "pad": 0}
    least = {"score": 0.05, "nms_iou": 0.6}
    resize = "opencv-bilinear"
    return Proposal("nanodet", because, classes, "NanoDet", options, image, resize=resize, thresholds=least)


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
    image = {"colour": "bgr", "scale": 1.0, "policy": "letterbox-truncate", "place": "corner"}
    return Proposal("yolox", because, classes, "YOLOX", options, image, resize="opencv-bilinear")


def fastest(facts: GraphFacts) -> Proposal | None:
    """FastestDet: one map of objectness, box and class probabilities."""
    name, shape = facts.only
    if len(shape) != 4 or shape[1] < 6 or not {"Sigmoid", "Softmax", "Conv"} <= facts.ends[name]:
        return None
    stride = nominal_stride(facts.size.width, shape[3])
    classes, image = shape[1] - 5, {"colour": "bgr", "scale": 1 / 255}
    content = f"sigmoid, 4 raw values and a softmax of {classes}"
    because = f"one map {name!r} {shape} of stride {stride} = {content}"
    return Proposal("fastestdet", because, classes, "FastestDet", input=image, resize="opencv-bilinear")


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


# The first rule that makes a proposal wins: metadata takes precedence over names, these over shapes.
RULES: tuple[Rule, ...] = (
    *(ultralytics, tensorflow, torchvision),
    *(selected_indices, after_nms, single_object, one_row, distribution_bins, one_tensor),
    *(anchors_and_deltas, fastest, maps_with_anchors, class_maps),
)
