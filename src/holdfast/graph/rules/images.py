"""Rules for outputs that describe the whole image: one box, class scores, or a class per pixel."""

from typing import Any

from holdfast.core.types import Size
from holdfast.graph.evidence import GraphFacts, Proposal


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
    return Proposal("classifier", because, count, like, options, input=crop, imagenet=True, size=size)


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
