"""The TensorFlow object-detection API: detection_boxes, detection_classes, detection_scores."""

from __future__ import annotations

from typing import Any

from holdfast.graph.rules.proposal import Proposal
from holdfast.graph.seen import Seen

ROLES = {
    "boxes": "detection_boxes",
    "scores": "detection_scores",
    "labels": "detection_classes",
    "count": "num_detections",
}
EVERY_SCORE = ("detection_multiclass_scores", "raw_detection_scores")  # (1, n, background + classes)


def tensorflow(seen: Seen) -> Proposal | None:
    """Boxes y1 x1 y2 x2 in 0..1 and class ids from 1, by the names of the outputs."""
    known = {name.split(":")[0]: name for name in seen.outputs}
    options: dict[str, Any] = {role: known[name] for role, name in ROLES.items() if name in known}
    if not {"boxes", "scores", "labels"} <= set(options):
        return None
    widths = [seen.outputs[known[name]][-1] for name in EVERY_SCORE if name in known]
    classes = widths[0] - 1 if widths and widths[0] != 91 else None  # None: COCO's 91 ids, with a name for 0
    offset = 1 if classes or seen.names else 0
    options |= {"form": "yxyx", "normalised": True, "label_offset": offset}
    return Proposal(
        "detect",
        "boxes",
        f"output {options['boxes']!r} is named as the TensorFlow object-detection API names it",
        classes,
        "the TensorFlow object-detection API",
        options=options,
        input={"policy": "stretch"},
        names="coco91",
        warnings=(
            "form: yxyx, because the TensorFlow object-detection API gives y1 x1 y2 x2",
            "normalised: true, because the TensorFlow object-detection API gives parts of the image, 0 to 1",
            f"label_offset: {offset}, because its class ids begin at 1"
            + ("" if offset else " and the names have a place for 0"),
        ),
    )
