"""Graphs with NMS inside: boxes, scores and labels, a table, or selected indices."""

from __future__ import annotations

from typing import Any

from holdfast.graph.heads.boxes import roles
from holdfast.graph.rules.proposal import ULTRALYTICS, Proposal
from holdfast.graph.seen import Seen


def selected_indices(seen: Seen) -> Proposal | None:
    """Outputs of a bare NonMaxSuppression: boxes, scores and selected indices."""
    shapes = seen.outputs
    picks = [n for n, s in shapes.items() if seen.kinds[n] in "iu" and len(s) == 2 and s[1] == 3]
    fours = [n for n, s in shapes.items() if seen.kinds[n] == "f" and len(s) == 3 and s[2] == 4]
    for four in fours:
        scores = [n for n, s in shapes.items() if n != four and len(s) == 3 and s[2] == shapes[four][1]]
        if picks and scores:
            because = f"{picks[0]!r} {shapes[picks[0]]} are selected indices into {four!r} and {scores[0]!r}"
            return Proposal(
                "detect",
                "selected",
                because,
                shapes[scores[0]][1],
                "most exports",
                options={"outputs": (four, scores[0], picks[0])},
                warnings=("form: yxyx, assumed: the order NonMaxSuppression itself documents",),
            )
    return None


def after_nms(seen: Seen) -> Proposal | None:
    """Boxes, scores and labels, or one table of six or seven columns, with NMS or top-k inside."""
    if len(seen.outputs) == 1:
        return _table(seen)
    names = roles(seen.outputs, seen.kinds)
    if not {"boxes", "scores", "labels"} <= set(names):
        return None
    box, score, label = (seen.outputs[names[r]] for r in ("boxes", "scores", "labels"))
    rows = box[:-1]
    if box[-1] != 4 or score not in (rows, (*rows, 1)) or label not in (rows, (*rows, 1)):
        return None
    by_row: dict[str, Any] = {
        role: names[role] for role in ("boxes", "scores", "labels", "count") if role in names
    }
    return Proposal(
        "detect",
        "boxes",
        f"it gives boxes {names['boxes']!r}, scores {names['scores']!r} and labels {names['labels']!r}",
        None,
        "most exports",
        options=by_row,
        warnings=("form: xyxy in input pixels, assumed; label_offset 0, assumed: see docs/models.md",),
    )


def _table(seen: Seen) -> Proposal | None:
    ((name, shape),) = seen.outputs.items()
    inside = {"NonMaxSuppression", "TopK"} & set(seen.info.nodes)
    if not inside or not shape or shape[-1] not in (6, 7) or len(shape) not in (2, 3):
        return None
    columns = {
        6: ("x1", "y1", "x2", "y2", "score", "label"),
        7: ("-", "x1", "y1", "x2", "y2", "label", "score"),
    }[shape[-1]]
    return Proposal(
        "detect",
        "boxes",
        f"one output {name!r} {shape} of {shape[-1]} columns after {sorted(inside)[0]}",
        None,
        "Ultralytics",
        options={"columns": columns},
        input=ULTRALYTICS,
        warnings=(f"columns: {' '.join(columns)}, assumed: a graph does not tell their order",),
    )
