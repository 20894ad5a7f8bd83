"""Rules for raw YOLO maps with anchors: YOLOv3, YOLOv4, YOLOv5 and YOLOv7 before the decoding of boxes."""

from dataclasses import dataclass
from typing import Any, TypeAlias

from holdfast.graph.candidates import nominal_stride
from holdfast.graph.evidence import ULTRALYTICS, GraphFacts, Proposal, words

Anchors: TypeAlias = dict[int, tuple[tuple[int, int], ...]]
ANCHORS_WARNING = (
    "anchors: {} for COCO, assumed: the graph does not contain them; check them against the training "
    "configuration, or boxes will have wrong sizes"
)
# Anchors of YOLOv3 and YOLOv3-tiny on COCO at 416, by stride; YOLOv5's are those of YOLOv3.
COCO_ANCHORS: Anchors = {
    8: ((10, 13), (16, 30), (33, 23)),
    16: ((30, 61), (62, 45), (59, 119)),
    32: ((116, 90), (156, 198), (373, 326)),
}
TINY_ANCHORS: Anchors = {
    16: ((10, 14), (23, 27), (37, 58)),
    32: ((81, 82), (135, 169), (344, 319)),
}
V4_ANCHORS: Anchors = {
    8: ((12, 16), (19, 36), (40, 28)),
    16: ((36, 75), (76, 55), (72, 146)),
    32: ((142, 110), (192, 243), (459, 401)),
}
V4_SCALES = {8: 1.2, 16: 1.1, 32: 1.05}


@dataclass(frozen=True)
class Maps:
    """Raw maps by stride, finest first."""

    names: tuple[str, ...]
    strides: tuple[int, ...]
    anchors: int  # per cell
    width: int  # 5 + classes


def maps_with_anchors(facts: GraphFacts) -> Proposal | None:
    """YOLOv3, YOLOv4, YOLOv5: maps of equal channels at two or more strides, or one of 255."""
    maps = _maps_of_four(facts) or _maps_of_five(facts)
    if maps is None:
        return None
    mish, silu = _activations(facts)
    shape = facts.outputs[maps.names[0]]
    steps, classes = maps.strides, maps.width - 5
    options: dict[str, Any] = {"outputs": maps.names, "strides": steps}
    options["anchors"] = _default_anchors(steps, maps.anchors, V4_ANCHORS if mish else COCO_ANCHORS)
    because = f"maps {facts.shapes()} of strides {words(steps)} = {maps.anchors} anchors × (5+{classes})"
    if silu or (len(shape) == 5 and shape[4] == maps.width and shape[1] == maps.anchors and not mish):
        options |= {"activation": "none"} if _in_unit(facts, maps, 0) else {}
        warnings = (ANCHORS_WARNING.format("YOLOv5's"),)
        because = f"{because}{', after SiLU' if silu else ''}"
        return Proposal(
            "yolov5-maps", because, classes, "Ultralytics", options, input=ULTRALYTICS, warnings=warnings
        )
    if len(shape) == 5 and _in_unit(facts, maps, 4):
        options["activation"] = "none"
    if mish and set(steps) <= set(V4_SCALES):
        options["scale_xy"] = tuple(V4_SCALES[s] for s in steps)
        because = f"{because}, after Mish as in YOLOv4"
    warnings = (ANCHORS_WARNING.format("YOLOv4's" if mish else "YOLOv3's"),)
    return Proposal("yolov3", because, classes, "darknet", options, warnings=warnings)


def _maps_of_four(facts: GraphFacts) -> Maps | None:
    """Maps (1, A·(5+k), h, w) or (1, h, w, A·(5+k))."""
    maps = {n: s for n, s in facts.outputs.items() if len(s) == 4}
    if not maps or len(maps) != len(facts.outputs):
        return None
    axis = 1 if len({s[1] for s in maps.values()}) == 1 else 3
    channels = {s[axis] for s in maps.values()}
    sides = {n: s[3] if axis == 1 else s[2] for n, s in maps.items()}
    order = _by_stride(facts, sides)
    width = channels.pop()
    count = next((a for a in (3, 2, 4, 5, 1) if width % a == 0 and width // a > 5), None)
    if channels or not order or count is None or (len(maps) == 1 and width != 255):
        return None
    return Maps(tuple(order), tuple(order.values()), count, width // count)


def _maps_of_five(facts: GraphFacts) -> Maps | None:
    """Maps (1, A, h, w, 5+k) or (1, h, w, A, 5+k)."""
    shapes = facts.outputs
    widths = {s[4] for s in shapes.values() if len(s) == 5}
    if any(len(s) != 5 for s in shapes.values()) or len(widths) != 1 or min(widths) < 6:
        return None
    if len(shapes) == 1 and widths != {85}:
        return None
    axis = next(
        (a for a in (1, 3) if len(each := {s[a] for s in shapes.values()}) == 1 and max(each) <= 9), 0
    )
    order = _by_stride(facts, {n: s[3 if axis == 1 else 2] for n, s in shapes.items()})
    if not axis or not order:
        return None
    first = next(iter(shapes.values()))
    return Maps(tuple(order), tuple(order.values()), first[axis], first[4])


def _by_stride(facts: GraphFacts, sides: dict[str, int]) -> dict[str, int]:
    """The stride of each map by its columns, finest first; empty if they are not of different strides."""
    strides = {n: nominal_stride(facts.size.width, side) or 0 for n, side in sides.items()}
    if len(set(strides.values())) != len(strides) or min(strides.values()) < 4:
        return {}
    return {n: strides[n] for n in sorted(strides, key=lambda n: strides[n])}


def _activations(facts: GraphFacts) -> tuple[bool, bool]:
    """Whether the network uses Mish (YOLOv4), and whether it uses SiLU (YOLOv5, YOLOv7)."""
    counts = facts.info.nodes
    mish = "Mish" in counts or min(counts.get("Softplus", 0), counts.get("Tanh", 0)) >= 10
    silu = "Swish" in counts or min(counts.get("Sigmoid", 0), counts.get("Mul", 0)) >= 10
    return mish, silu and not mish and "LeakyRelu" not in counts


def _in_unit(facts: GraphFacts, maps: Maps, first: int) -> bool:
    """Whether the values from `first` on of every cell are probabilities, for an image of noise."""
    values = [facts.sample[n][..., first:] for n in maps.names if facts.sample[n].shape[-1] == maps.width]
    return bool(values) and all(v.min() >= 0 and v.max() <= 1 and v.any() for v in values)


def _default_anchors(
    strides: tuple[int, ...], count: int, known: Anchors
) -> tuple[tuple[tuple[int, int], ...], ...]:
    """COCO's anchors by stride, the tiny ones for two maps; other strides and counts get scaled ones."""
    table = TINY_ANCHORS if set(strides) == set(TINY_ANCHORS) else known
    scaled = {s: tuple((a * s // 8, b * s // 8) for a, b in known[8]) for s in strides} | table
    return tuple(tuple(scaled[s][i % len(scaled[s])] for i in range(count)) for s in strides)
