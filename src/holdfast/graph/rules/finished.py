"""Rules for outputs after NMS or top-k: boxes, scores and labels, one table, or selected indices."""

from holdfast.graph.evidence import SHORT_SIDE, ULTRALYTICS, GraphFacts, Proposal
from holdfast.graph.heads.decoded import roles
from holdfast.graph.inspect import other_inputs


def selected_indices(facts: GraphFacts) -> Proposal | None:
    """Outputs of a bare NonMaxSuppression: boxes, scores and selected indices."""
    shapes = facts.outputs
    picks = [n for n, s in shapes.items() if facts.kinds[n] in "iu" and len(s) in (2, 3) and s[-1] == 3]
    fours = [n for n, s in shapes.items() if facts.kinds[n] == "f" and len(s) == 3 and s[2] == 4]
    for four in fours:
        scores = [n for n, s in shapes.items() if n != four and len(s) == 3 and s[2] == shapes[four][1]]
        if picks and scores:
            because = f"{picks[0]!r} {shapes[picks[0]]} are selected indices into {four!r} and {scores[0]!r}"
            options = {"outputs": (four, scores[0], picks[0])}
            warnings = ("form: yxyx, assumed: the order that NonMaxSuppression documents",)
            classes, zoo = shapes[scores[0]][1], "image_shape" in _other_names(facts)
            like = "the YOLOv3 of the ONNX model zoo" if zoo else "most exports"
            image = {"policy": "letterbox", "pad": 128} if zoo else {}
            return Proposal("selected", because, classes, like, options, input=image, warnings=warnings)
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
    if "orig_target_sizes" in _other_names(facts):
        options = {role: names[role] for role in ("boxes", "scores", "labels")}
        because = f"it takes orig_target_sizes and gives {facts.shapes()}, as RT-DETR and D-FINE do"
        image = {"policy": "stretch", "scale": 1 / 255}
        return Proposal("boxes", because, None, "RT-DETR", options, input=image)
    fields: tuple[str, ...] = ("boxes", "scores", "labels", "count")
    options = {role: names[role] for role in fields if role in names}
    because = f"it gives boxes {names['boxes']!r}, scores {names['scores']!r} and labels {names['labels']!r}"
    warnings = ("form: xyxy in input pixels, assumed; label_offset 0, assumed; docs/how-to/your-model.md",)
    return Proposal("boxes", because, None, "most exports", options, warnings=warnings)


def _other_names(facts: GraphFacts) -> set[str]:
    return {t.name for t in other_inputs(facts.info)}


def mmdeploy(facts: GraphFacts) -> Proposal | None:
    """Boxes with scores (1, n, 5) and labels (1, n), by names or types."""
    shapes = facts.outputs
    fives = [n for n, s in shapes.items() if len(s) in (2, 3) and s[-1] == 5 and facts.kinds[n] == "f"]
    labels = [n for five in fives for n, s in shapes.items() if n != five and s == shapes[five][:-1]]
    labels = [n for n in labels if facts.kinds[n] in "iu" or "label" in n.lower()]
    if len(fives) != 1 or not labels:
        return None
    options = {"dets": fives[0], "labels": labels[0]}
    because = f"it gives {fives[0]!r} {shapes[fives[0]]} = boxes with scores, and {labels[0]!r}, as mmdeploy"
    image = SHORT_SIDE if facts.free_size else {"policy": "letterbox", "place": "corner"}
    like = "models of mmdetection"
    return Proposal("dets-labels", because, None, like, options, input=image, imagenet=True)


def paddle(facts: GraphFacts) -> Proposal | None:
    """PaddleDetection: one table of label, score, x1 y1 x2 y2, by the inputs scale_factor and im_shape."""
    tables = [n for n, s in facts.outputs.items() if len(s) in (2, 3) and s[-1] == 6]
    if not {"scale_factor", "im_shape"} & _other_names(facts) or len(tables) != 1:
        return None
    name = tables[0]
    because = f"it takes scale_factor and gives {name!r} {facts.outputs[name]}, as PaddleDetection does"
    options = {"boxes": name, "columns": ("label", "score", "x1", "y1", "x2", "y2")}
    image = {"policy": "stretch", "scale": 1 / 255}
    return Proposal("boxes", because, None, "PaddleDetection", options, input=image)


def _table(facts: GraphFacts) -> Proposal | None:
    name, shape = facts.only
    inside = {"NonMaxSuppression", "TopK"} & set(facts.info.nodes)
    if not inside or not shape or shape[-1] not in (6, 7) or len(shape) not in (2, 3):
        return None
    columns = "x1 y1 x2 y2 score label" if shape[-1] == 6 else "- x1 y1 x2 y2 label score"
    because = f"one output {name!r} {shape} of {shape[-1]} columns after {sorted(inside)[0]}"
    options = {"columns": tuple(columns.split())}
    warnings = (f"columns: {columns}, assumed: the order cannot be read from the graph",)
    return Proposal("boxes", because, None, "Ultralytics", options, input=ULTRALYTICS, warnings=warnings)
