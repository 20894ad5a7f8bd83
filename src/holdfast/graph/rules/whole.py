"""One answer for the whole image, or one for every pixel: classifiers, single objects, segmenters."""

from __future__ import annotations

from typing import Any

from holdfast.core.types import Size
from holdfast.graph.rules.proposal import Proposal
from holdfast.graph.seen import Seen


def single_object(seen: Seen) -> Proposal | None:
    """One box (1, 4) and one row of class scores."""
    if len(seen.outputs) != 2 or any(len(s) != 2 for s in seen.outputs.values()):
        return None
    four = [n for n, s in seen.outputs.items() if s == (1, 4)]
    if not four:
        return None
    box = next((n for n in four if "box" in n), four[0])
    scores = next(n for n in seen.outputs if n != box)
    because = f"it gives one box {box!r} (1, 4) and class scores {scores!r} {seen.outputs[scores]}"
    options = {"outputs": (box, scores)}
    return Proposal("single", "landmark", because, seen.outputs[scores][1], "CCTSDB-YOLO", options=options)


def one_row(seen: Seen) -> Proposal | None:
    """One score per class."""
    if len(seen.outputs) != 1:
        return None
    ((name, shape),) = seen.outputs.items()
    if len(shape) not in (2, 4) or shape[0] != 1 or shape[1] < 2 or any(d != 1 for d in shape[2:]):
        return None
    count, skip = (1000, 1) if shape[1] == 1001 else (shape[1], 0)
    size = Size(224, 224) if seen.free_size else seen.size
    crop: dict[str, Any] = {"policy": "crop", "short_side": round(min(size) / 0.875)}
    return Proposal(
        "classify",
        "classifier",
        f"one output {name!r} {shape} = one score per class" + (" and a background" if skip else ""),
        count,
        "torchvision classifiers",
        options={"skip": skip} if skip else {},
        input=crop,
        imagenet=True,
        size=size,
    )


def class_maps(seen: Seen) -> Proposal | None:
    """Segmentation: a score per class and pixel at an eighth of the input or finer, or a map of class ids."""
    for name, shape in seen.outputs.items():
        if seen.kinds[name] in "iu" and len(shape) in (3, 4) and seen.size.width // 8 <= shape[-1]:
            return _segmenter(name, shape, None, "a map of class ids", seen)
        if len(shape) != 4 or seen.kinds[name] != "f":
            continue
        channels, wide = (shape[3], shape[2]) if seen.layout == "nhwc" else (shape[1], shape[3])
        if wide * 8 >= seen.size.width:
            return _segmenter(name, shape, max(channels, 2), f"{channels} scores a pixel", seen)
    return None


def _segmenter(name: str, shape: tuple[int, ...], classes: int | None, what: str, seen: Seen) -> Proposal:
    options: dict[str, Any] = {"outputs": (name,)} if len(seen.outputs) > 1 else {}
    if classes == 2 and 1 in (shape[1], shape[-1]) and "Sigmoid" in seen.ends[name]:
        options["single"] = "probability"
    because = f"output {name!r} {shape} = {what}"
    return Proposal(
        "segment",
        "segmentation",
        because,
        classes or 256,
        "torchvision segmenters",
        options=options,
        imagenet=True,
    )
