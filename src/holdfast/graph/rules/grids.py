"""Rules for outputs over grids of cells: NanoDet, FastestDet, RetinaNet, CenterNet."""

import re

from holdfast.graph.candidates import levels, nominal_stride
from holdfast.graph.evidence import YOLO_STRIDES, GraphFacts, Proposal, words

BGR_MEAN, BGR_STD = (103.53, 116.28, 123.675), (57.375, 57.12, 58.395)
CENTERNET_MEAN, CENTERNET_STD = (0.408, 0.447, 0.47), (0.289, 0.274, 0.278)
RETINANET_ANCHORS = "sizes: 4 strides, ratios 0.5 1 2, scales 1 1.26 1.59, assumed, as in RetinaNet"


def distribution_bins(facts: GraphFacts) -> Proposal | None:
    """NanoDet: at each stride class scores and 4 distributions of distances, or all in one tensor."""
    shapes = facts.outputs
    name, shape = facts.only
    if name:
        strides = (*YOLO_STRIDES, 64)
        if len(shape) != 3 or not levels(facts.size, strides, shape[1], 0) or shape[2] <= 33:
            return None
        because = f"one output {name!r} {shape} = cells of strides 8 to 64 × (classes + 4·8 bins)"
        return _nanodet(shape[2] - 32, because, facts, strides, 0.0)
    widths = sorted({s[-1] for s in shapes.values()})
    if len(widths) != 2 or len(shapes) % 2 or any(len(s) != 3 for s in shapes.values()):
        return None
    strides = tuple(8 * 2**i for i in range(len(shapes) // 2))
    cells = sorted((s[1] for s in shapes.values()), reverse=True)
    fits = all(levels(facts.size, (stride,), n, 0) for stride, n in zip(strides, cells[::2], strict=True))
    bins = [w for w in widths if w % 4 == 0 and 4 * 5 <= w <= 4 * 33]
    if not fits or cells[::2] != cells[1::2] or not bins:
        return None
    wide = 32 if 32 in bins else bins[0]
    classes = next(w for w in widths if w != wide)
    content = f"{classes} class scores and 4·{wide // 4} bins per cell"
    because = f"pairs of outputs at strides {words(strides)} = {content}"
    return _nanodet(classes, because, facts, strides, 0.5)


def _nanodet(
    classes: int, because: str, facts: GraphFacts, strides: tuple[int, ...], centre: float
) -> Proposal:
    squashed = any("Sigmoid" in ends for ends in facts.ends.values())
    options = {"strides": strides, "centre": centre, "activation": "none" if squashed else "sigmoid"}
    policy = "letterbox" if centre else "stretch"
    image = {"colour": "bgr", "scale": 1.0, "mean": BGR_MEAN, "std": BGR_STD, "policy": policy, "pad": 0}
    least = {"score": 0.05, "nms_iou": 0.6}
    resize = "opencv-bilinear"
    return Proposal(
        "nanodet", because, classes, "NanoDet", options, input=image, resize=resize, thresholds=least
    )


def fastest(facts: GraphFacts) -> Proposal | None:
    """FastestDet: one map of objectness, box and class probabilities."""
    name, shape = facts.only
    if len(shape) != 4 or shape[1] < 6 or not {"Sigmoid", "Softmax", "Conv"} <= facts.ends[name]:
        return None
    stride = nominal_stride(facts.size.width, shape[3])
    classes, image = shape[1] - 5, {"colour": "bgr", "scale": 1 / 255}
    content = f"sigmoid, 4 raw values and a softmax of {classes}"
    because = f"one map {name!r} {shape} of stride {stride} = {content}"
    return Proposal("fastestdet", because, classes, "FastestDet", input=image, resize="opencv-bilinear")


def anchors_and_deltas(facts: GraphFacts) -> Proposal | None:
    """RetinaNet: scores (1, n, k) and deltas (1, n, 4) over nine anchors per cell at five strides."""
    shapes = list(facts.outputs.values())
    strides = (8, 16, 32, 64, 128)
    if len(shapes) != 2 or any(len(s) != 3 for s in shapes) or shapes[0][1] != shapes[1][1]:
        return None
    widths = [s[2] for s in shapes]
    if 4 not in widths or shapes[0][1] % 9 or not levels(facts.size, strides, shapes[0][1] // 9, 0):
        return None
    classes = widths[1 - widths.index(4)]
    ends = frozenset().union(*facts.ends.values())
    options = {"strides": strides, "activation": "none" if "Sigmoid" in ends else "sigmoid"}
    because = f"two outputs {facts.shapes()} = 9 anchors × cells of strides {words(strides)}"
    warnings = (RETINANET_ANCHORS,)
    return Proposal("anchors", because, classes, "RetinaNet", options, imagenet=True, warnings=warnings)


def levels_of_anchors(facts: GraphFacts) -> Proposal | None:
    """RetinaNet: at each of five strides a map of 9·k scores and a map of 36 deltas."""
    maps = {n: s for n, s in facts.outputs.items() if len(s) == 4}
    deltas, scores = ({n: s for n, s in maps.items() if (s[1] == 36) == four} for four in (True, False))
    channels = {s[1] for s in scores.values()}
    if len(maps) != len(facts.outputs) or len(deltas) != 5 or len(scores) != 5 or len(channels) != 1:
        return None
    strides = (8, 16, 32, 64, 128)
    columns = [sorted((s[3] for s in group.values()), reverse=True) for group in (deltas, scores)]
    near = all(abs(facts.size.width / s - n) <= 1 for s, n in zip(strides, columns[0], strict=True))
    wide = channels.pop()
    if wide % 9 or columns[0] != columns[1] or not near:
        return None
    ends = frozenset().union(*(facts.ends[n] for n in scores))
    options = {"strides": strides, "activation": "none" if "Sigmoid" in ends else "sigmoid"}
    because = f"ten maps at strides 8 to 128 = 9 anchors × ({wide // 9} scores and 4 deltas)"
    warnings = (RETINANET_ANCHORS,)
    return Proposal("anchors", because, wide // 9, "RetinaNet", options, imagenet=True, warnings=warnings)


def heat_maps(facts: GraphFacts) -> Proposal | None:
    """CenterNet: a heat map per class, and two channels each of sides and of offsets, at one stride."""
    maps = {n: s for n, s in facts.outputs.items() if len(s) == 4}
    twos = [n for n, s in maps.items() if s[1] == 2]
    heat = [n for n in maps if n not in twos]
    if len(maps) != len(facts.outputs) or len({s[2:] for s in maps.values()}) != 1:
        return None
    if not heat and len(twos) == 3:  # two classes
        heat = [next((n for n in twos if re.search("hm|heat", n.lower())), twos[0])]
        twos.remove(heat[0])
    if len(heat) != 1 or len(twos) not in (1, 2):
        return None
    twos.sort(key=lambda n: re.search("reg|off", n.lower()) is not None)
    values = facts.sample[heat[0]]
    squashed = values.min() >= 0 and values.max() <= 1
    outputs, shape = (heat[0], *twos), maps[heat[0]]
    options = {"outputs": outputs, "activation": "none" if squashed else "sigmoid"}
    because = f"maps {facts.shapes()} = {shape[1]} heat maps and two channels of sides and offsets"
    warnings = (f"outputs: {' '.join(outputs)}, the order of sides and offset assumed from the names",)
    image = {
        "colour": "bgr",
        "scale": 1 / 255,
        "mean": CENTERNET_MEAN,
        "std": CENTERNET_STD,
        "policy": "letterbox",
    }
    image |= {"pad": 0}
    resize = "opencv-bilinear"
    return Proposal(
        "centernet", because, shape[1], "CenterNet", options, input=image, resize=resize, warnings=warnings
    )
