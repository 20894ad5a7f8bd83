"""torchvision's detectors: boxes (n, 4), labels (n,) and scores (n,) of one image."""

from __future__ import annotations

from holdfast.graph.rules.proposal import Proposal
from holdfast.graph.seen import Seen


def torchvision(seen: Seen) -> Proposal | None:
    """Boxes x1 y1 x2 y2 in pixels and labels from 1, by the names and axes of the outputs."""
    axes = {name: len(shape) for name, shape in seen.outputs.items()}
    if [axes.get(name) for name in ("boxes", "labels", "scores")] != [2, 1, 1]:
        return None
    return Proposal(
        "detect",
        "boxes",
        "outputs 'boxes', 'labels' and 'scores' without a batch axis are those of torchvision",
        None,
        "torchvision detectors",
        options={"boxes": "boxes", "scores": "scores", "labels": "labels"},
        input={"policy": "letterbox", "place": "corner"},  # any size is taken, the aspect ratio is to stay
        names="coco91",
        warnings=(
            "form: xyxy in input pixels, because torchvision gives them so",
            "label_offset: 0, because label 0 is the background and has a place among the names",
        ),
    )
