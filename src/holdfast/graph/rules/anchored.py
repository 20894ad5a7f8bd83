"""Detectors with anchors the graph does not hold: YOLOv3 maps, RetinaNet."""

from __future__ import annotations

from holdfast.graph.candidates import levels, nominal_stride
from holdfast.graph.rules.proposal import Proposal, words
from holdfast.graph.seen import Seen

ANCHORS_WARNING = (
    "anchors: YOLOv3's for COCO, assumed: a graph does not hold them; take them from the training "
    "configuration, or boxes have wrong sizes"
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


def anchors_and_deltas(seen: Seen) -> Proposal | None:
    """RetinaNet: scores (1, n, k) and deltas (1, n, 4) over nine anchors a cell of five strides."""
    shapes = list(seen.outputs.values())
    strides = (8, 16, 32, 64, 128)
    if len(shapes) != 2 or any(len(s) != 3 for s in shapes) or shapes[0][1] != shapes[1][1]:
        return None
    widths = [s[2] for s in shapes]
    if 4 not in widths or shapes[0][1] % 9 or not levels(seen.size, strides, shapes[0][1] // 9, 0):
        return None
    classes = widths[1 - widths.index(4)]
    ends = frozenset().union(*seen.ends.values())
    options = {"strides": strides, "activation": "none" if "Sigmoid" in ends else "sigmoid"}
    because = f"two outputs {seen.shapes()} = 9 anchors × cells of strides {words(strides)}"
    return Proposal(
        "detect",
        "anchors",
        because,
        classes,
        "RetinaNet",
        options=options,
        imagenet=True,
        warnings=("sizes: 4 strides, ratios 0.5 1 2, scales 1 1.26 1.59, assumed as RetinaNet",),
    )


def maps_with_anchors(seen: Seen) -> Proposal | None:
    """YOLOv3: maps of equal channels at two or more strides, or one of 255."""
    maps = {n: s for n, s in seen.outputs.items() if len(s) == 4}
    if not maps or len(maps) != len(seen.outputs):
        return None
    axis = 1 if len({s[1] for s in maps.values()}) == 1 else 3
    channels = {s[axis] for s in maps.values()}
    sides = {n: s[3] if axis == 1 else s[2] for n, s in maps.items()}
    strides = {n: nominal_stride(seen.size.width, side) for n, side in sides.items()}
    if len(channels) != 1 or len(set(strides.values())) != len(maps) or None in strides.values():
        return None
    width = channels.pop()
    count = next((a for a in (3, 2, 4, 5, 1) if width % a == 0 and width // a > 5), None)
    if count is None or (len(maps) == 1 and width != 255) or min(s or 0 for s in strides.values()) < 4:
        return None
    order = sorted(maps, key=lambda n: strides[n] or 0)
    steps = tuple(int(strides[n] or 0) for n in order)
    because = f"maps {seen.shapes()} of strides {words(steps)} = {count} anchors × (5+{width // count})"
    options = {"outputs": tuple(order), "strides": steps, "anchors": _default_anchors(steps, count)}
    return Proposal(
        "detect",
        "yolov3",
        because,
        width // count - 5,
        "darknet",
        options=options,
        warnings=(ANCHORS_WARNING,),
    )


def _default_anchors(strides: tuple[int, ...], count: int) -> tuple[tuple[tuple[int, int], ...], ...]:
    """COCO's anchors by stride, the tiny ones for two maps; other strides and counts get scaled ones."""
    table = TINY_ANCHORS if set(strides) == set(TINY_ANCHORS) else COCO_ANCHORS
    chosen = []
    for stride in strides:
        base = table.get(stride) or tuple((a * stride // 8, b * stride // 8) for a, b in COCO_ANCHORS[8])
        chosen.append(tuple(base[i % len(base)] for i in range(count)))
    return tuple(chosen)
