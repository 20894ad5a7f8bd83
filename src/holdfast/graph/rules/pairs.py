"""Rules for boxes and class scores as two outputs: the DETR family, SSD, YOLO-NAS and the like."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from holdfast.core.types import Tensor
from holdfast.graph.candidates import levels
from holdfast.graph.evidence import SHORT_SIDE, ULTRALYTICS, YOLO_STRIDES, GraphFacts, Proposal
from holdfast.graph.heads.boxes_scores import squeezed

SLACK = 1e-3  # by which probabilities of float16 leave 0..1
FAR = 4.0  # boxes in parts of the input do not reach this far, boxes in pixels do
# Operators of transformers whose classes are independent (Deformable DETR, RT-DETR, D-FINE, RF-DETR).
DEFORMABLE = frozenset({"GridSample", "TopK", "GatherElements"})


@dataclass(frozen=True)
class Pair:
    """Names of the outputs, and their values for an image of random pixels: boxes (n, 4), scores (n, k)."""

    box: str
    score: str
    boxes: Tensor
    scores: Tensor

    @property
    def probabilities(self) -> bool:
        """Whether all scores are in 0..1."""
        return bool(self.scores.min() >= -SLACK and self.scores.max() <= 1 + SLACK)

    @property
    def sums_to_one(self) -> bool:
        """Whether the scores of every row sum to 1."""
        return self.probabilities and bool(np.abs(self.scores.sum(axis=1) - 1).max() < 0.01)


def boxes_and_scores(facts: GraphFacts) -> Proposal | None:
    """The only two outputs (1, n, 4) and (1, n, k) or (1, k, n) of floats that belong together."""
    floats = [n for n, s in facts.outputs.items() if facts.kinds[n] == "f" and len(s) in (3, 4) and s[0] == 1]
    shapes = {n: squeezed(np.broadcast_to(np.float32(0), facts.outputs[n])).shape for n in floats}
    fours = [n for n, s in shapes.items() if len(s) == 2 and s[1] == 4]
    pairs = [
        (box, n) for box in fours for n, s in shapes.items()
        if n != box and len(s) == 2 and shapes[box][0] in s and s != (4, 4)
    ]  # fmt: skip
    if len(pairs) == 2 and pairs[0] == pairs[1][::-1]:  # four classes: the name tells
        pairs.sort(key=lambda p: "box" not in p[0].lower())
        pairs = pairs[:1]
    if len(pairs) != 1:
        return None
    box, score = pairs[0]
    scores = squeezed(facts.sample[score])
    count = shapes[box][0]
    pair = Pair(box, score, squeezed(facts.sample[box]), scores if scores.shape[0] == count else scores.T)
    named = "logits" in score.lower() or "pred_boxes" in box.lower()
    per_cell = 3 if count % 3 == 0 and levels(facts.size, YOLO_STRIDES, count // 3, 0) else 1
    is_grid = levels(facts.size, YOLO_STRIDES, count // per_cell, 0) is not None
    return _detr(facts, pair) if named or (count <= 1000 and not is_grid) else _dense(facts, pair, is_grid)


def _detr(facts: GraphFacts, pair: Pair) -> Proposal:
    """Queries of a transformer: centre and sides in 0..1, and logits or probabilities."""
    width, count = pair.scores.shape[1], len(facts.names)
    no_object = count == width - 1 if count else not DEFORMABLE & set(facts.info.nodes)
    no_object = no_object or pair.sums_to_one
    activation = "softmax" if no_object else "sigmoid"
    if pair.probabilities and pair.scores.any():
        activation = "none"
    options: dict[str, Any] = {"boxes": pair.box, "scores": pair.score, "activation": activation}
    options |= {"background": "last", "multi_label": False} if no_object else {}
    last = " and no object" if no_object else ""
    because = f"{_named(facts, pair)} are {len(pair.boxes)} queries of {width - no_object} classes{last}"
    why = "the file names one class less" if count and no_object else "no deformable attention"
    kind = f"with a class for no object at the end ({why})" if no_object else "without a class for no object"
    warnings = (f"activation: {activation}, {kind}, assumed",)
    imagenet = no_object or width == 91
    image: dict[str, Any] = {"policy": "stretch"}
    if no_object and facts.free_size:  # DETR; it is not padded
        image = {**SHORT_SIDE, "multiple": 1}
    image |= {} if imagenet else {"scale": 1 / 255}
    return Proposal(
        "detr", because, width - no_object, "the DETR family" if imagenet else "RT-DETR", options,
        input=image, imagenet=imagenet, warnings=warnings,
    )  # fmt: skip


def _dense(facts: GraphFacts, pair: Pair, is_grid: bool) -> Proposal | None:
    """Boxes of all cells or anchors, before NMS; None for deltas, many of whose sides are negative."""
    width, names = pair.scores.shape[1], len(facts.names)
    background = pair.sums_to_one or width == names + 1 or (not names and width in (21, 81))
    activation = "none" if pair.probabilities else "softmax" if background else "sigmoid"
    reach = float(np.abs(pair.boxes).max())
    normalised = 0 < reach < FAR
    inverted = (pair.boxes[:, 2:] < pair.boxes[:, :2]).any(axis=1).mean() > 0.2
    if inverted and (pair.boxes[:, 2:] < 0).mean() > 0.2:
        return None
    form = "cxcywh" if inverted else "xyxy"
    options: dict[str, Any] = {"boxes": pair.box, "scores": pair.score, "form": form}
    options |= {"normalised": normalised, "activation": activation}
    options |= {"background": "first"} if background else {}
    because = f"{_named(facts, pair)} are boxes and scores of {width - background} classes"
    unit = "parts of the input" if normalised else "pixels"
    inside = "" if pair.probabilities else "not "
    warnings = [
        f"form: {form}, assumed from the values for an image of noise",
        f"normalised: {str(normalised).lower()}, because boxes of noise reach to {reach:.3g}: {unit}",
        f"activation: {activation}, because scores are {inside}in 0..1 on an image of noise",
    ]
    if background:
        reason = (
            "the scores of a box sum to 1" if pair.sums_to_one else f"{width} scores, one more than classes"
        )
        warnings.append(f"background: first, assumed: {reason}")
    ssd = {"policy": "stretch", "scale": 1.0, "mean": (127.0,) * 3, "std": (128.0,) * 3}
    like, image = ("YOLO-NAS", ULTRALYTICS) if is_grid or not background else ("SSD and UltraFace", ssd)
    return Proposal(
        "boxes-scores", because, width - background, like, options, input=image, warnings=tuple(warnings)
    )


def _named(facts: GraphFacts, pair: Pair) -> str:
    outputs = facts.outputs
    return f"outputs {pair.box!r} {outputs[pair.box]} and {pair.score!r} {outputs[pair.score]}"
