"""Rules for exporters that name the task or the outputs: Ultralytics, TensorFlow, torchvision."""

from typing import Any

from holdfast.core.errors import CardError
from holdfast.graph.candidates import levels
from holdfast.graph.evidence import ULTRALYTICS, YOLO_STRIDES, GraphFacts, Proposal, literal

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
        return Proposal("rtdetr", because, classes, "Ultralytics", outputs, input=image)
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
    return Proposal(head, because, classes, "Ultralytics", options, input=ULTRALYTICS, warnings=warnings)


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
    return Proposal("boxes", because, classes, api, options, input=image, names="coco91", warnings=warnings)


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
    return Proposal("boxes", because, None, like, options, input=image, names="coco91", warnings=warnings)
