"""The network of the benchmark: the unmodified detector with patch, IoU and class test around it."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from holdfast.core.errors import CardError, ModelError
from holdfast.core.model import Input, Model
from holdfast.core.patch import Patch
from holdfast.core.registry import part
from holdfast.core.types import Detections, Floats
from holdfast.graph.inspect import load_proto, opset_of
from holdfast.patchbench.layout import Layout

PREFIX = "patchbench/"  # of all names added to the user's graph
INPUT, PICTURE, BOX, LABEL, OUTPUT = (PREFIX + n for n in ("input", "picture", "box", "class", "output"))
OLDEST = 11  # first opset in which all operators used here support their types
_FLOAT, _INT64 = 1, 7
_KINDS = {"float16": 10, "uint8": 2}


@dataclass(frozen=True, eq=False)
class DetectorPorts:
    """The names of input, box and scores; raw box · `scale` (4,) is the box relative to the picture."""

    input: str
    box: str
    scores: str
    scale: Floats


def check_single(model: Model) -> None:
    """Raise CardError unless the model is a single-object detector."""
    head = part("head", model.card.head.name)
    if model.card.task != "single" or head.facts.get("task") != "single":
        raise CardError(
            f"{model.path}: expected a detector of a single object (task single, such as signs-single), "
            f"got the task {model.card.task!r} with the head {model.card.head.name!r}"
        )


def detector_of(model: Model, proto: Any) -> DetectorPorts:
    """The ports of the detector, inferred by feeding recognisable numbers to the card's head."""
    check_single(model)
    name = image_input(model, proto)
    names = [value.name for value in proto.graph.output]
    if len(names) != 2:
        raise ModelError(f"{model.path}: expected two outputs, a box and scores, got {len(names)}")
    box, scores, scale = _distinguish(model, names, part("head", model.card.head.name).function)
    return DetectorPorts(name, box, scores, scale / np.array([*model.card.input.size] * 2, np.float64))


def image_input(model: Model, proto: Any) -> str:
    """The name of the one image input; raise ModelError if there are several or it takes a larger batch."""
    weights = {weight.name for weight in proto.graph.initializer}
    inputs = [value for value in proto.graph.input if value.name not in weights]
    if len(inputs) != 1:
        raise ModelError(f"{model.path}: expected one image input, got {len(inputs)}")
    for batch in inputs[0].type.tensor_type.shape.dim[:1]:
        if batch.dim_value > 1:
            many = f"takes {batch.dim_value} images at once"
            raise ModelError(f"{model.path}: {many}; export it with a batch of 1")
    return str(inputs[0].name)


def _distinguish(model: Model, names: list[str], head: Any) -> tuple[str, str, Floats]:
    """The box's name, the scores' name, and the factor of each corner in the head."""
    corners = np.array([1.0, 2.0, 3.0, 4.0])
    error = None
    for box, scores in (names, names[::-1]):
        raw = {box: corners[None], scores: 100.0 + np.arange(len(model.card.classes))[None]}
        try:  # in the order of the graph, which a head may rely on
            detections = head({name: raw[name] for name in names}, model.card)
        except CardError as problem:
            error = error or problem
            continue
        if isinstance(detections, Detections) and len(detections) == 1:
            scale = detections.boxes[0] / corners
            if (scale > 0).all() and scale.max() < 20 * max(model.card.input.size):
                return box, scores, scale
    raise error or CardError(f"{model.path}: the head {model.card.head.name!r} gives no single box")


@dataclass
class _Writer:
    """A builder of nodes and constants with prefixed names."""

    nodes: list[Any] = field(default_factory=list)
    weights: list[Any] = field(default_factory=list)

    def constant(self, value: Any, dtype: Any = np.int64) -> str:
        """Add a constant and return its name."""
        from onnx import numpy_helper

        name = f"{PREFIX}constant_{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def node(self, operator: str, *inputs: str, named: str = "", **attributes: Any) -> str:
        """Add a node and return the name of its output."""
        from onnx import helper

        name = f"{PREFIX}{operator}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(inputs), [named or name], name=name, **attributes))
        return named or name

    def part(self, source: str, begin: int, end: int) -> str:
        """The elements begin to end of a flat tensor."""
        return self.node("Slice", source, self.constant([begin]), self.constant([end]))


def bench_graph(model: Model, layout: Layout, content: Patch | None) -> bytes:
    """The ONNX file for one patch; None: the picture already contains the patch, whose content is free.

    Input (3·h·w + 8,) by the layout, output (1,) = IoU · equal(class). Nodes and weights of the user's graph
    are copied unchanged.
    """
    import onnx
    from onnx import helper

    proto = load_proto(model.path)
    opset = opset_of(proto)
    if opset < OLDEST:
        raise ModelError(f"{model.path}: expected opset {OLDEST} or newer, got {opset}; export it again")
    if any(name.startswith(PREFIX) for node in proto.graph.node for name in node.output):
        raise ModelError(f"{model.path}: holds a patch already; give the detector it was made from")
    detector = detector_of(model, proto)
    g = _Writer()
    _prepared(g, _picture(g, layout, content), model.card.input, detector.input)
    prefix = len(g.nodes)
    _output(g, detector, layout, len(model.card.classes) if content is None else None)
    result = onnx.ModelProto()
    result.CopyFrom(proto)
    onnx.external_data_helper.load_external_data_for_model(result, str(model.path.parent))
    graph = result.graph
    original = list(graph.node)
    for name in ("node", "input", "output"):
        graph.ClearField(name)
    graph.node.extend([*g.nodes[:prefix], *original, *g.nodes[prefix:]])
    graph.initializer.extend(g.weights)
    graph.input.append(helper.make_tensor_value_info(INPUT, _FLOAT, [layout.length]))
    graph.output.append(helper.make_tensor_value_info(OUTPUT, _FLOAT, [1]))
    result.ir_version = max(result.ir_version, 4)  # from version 4 on, weights need not be inputs
    data: bytes = result.SerializeToString(deterministic=True)
    return data


def _picture(g: _Writer, layout: Layout, content: Patch | None) -> str:
    """The picture (1, 3, h, w) in 0..1 with the patch on it."""
    w, h = layout.size
    flat, shape = g.part(INPUT, 0, layout.pixels), g.constant([1, 3, h, w])
    image = g.node("Reshape", flat, shape, named=PICTURE if content is None else "")
    if content is None:
        return image
    # Truncated to integers, as in the published files.
    position = g.node("Cast", g.part(INPUT, layout.pixels, layout.pixels + 2), to=_INT64)
    # A pixel inside the square looks up its own pixel of the patch.
    inside, index = [], []
    for axis, (extent, side) in enumerate(zip(layout.size, layout.patch, strict=True)):
        offset = g.node("Sub", g.constant(np.arange(extent)), g.part(position, axis, axis + 1))
        after_start = g.node("Not", g.node("Less", offset, g.constant(0)))
        covered = g.node("And", after_start, g.node("Less", offset, g.constant(side)))
        inside.append(g.node("Reshape", covered, g.constant([1, -1] if axis == 0 else [-1, 1])))
        index.append(g.node("Where", covered, offset, g.constant(0)))
    mask = g.node("And", inside[0], inside[1])  # (h, w)
    columns, rows = index
    if not content.mask.all():
        mask_value = _lookup(g, g.constant(content.mask), rows, columns, 0)
        mask = g.node("And", mask, g.node("Equal", mask_value, g.constant(1)))
    pixels = content.pixels.astype(np.float32) / np.float32(255)
    if (pixels == pixels[0, 0, 0]).all():
        value = g.constant(pixels[0, 0, 0], np.float32)
    else:
        value = _lookup(g, g.constant(pixels.transpose(2, 0, 1), np.float32), rows, columns, 1)
    return g.node("Where", mask, value, image, named=PICTURE)


def _lookup(g: _Writer, table: str, rows: str, columns: str, axis: int) -> str:
    return g.node("Gather", g.node("Gather", table, rows, axis=axis), columns, axis=axis + 1)


def _prepared(g: _Writer, picture: str, network_input: Input, named: str) -> None:
    """Add the preprocessing of the card: from the picture to the detector's input."""
    last = picture
    if network_input.colour == "bgr":
        last = g.node("Gather", last, g.constant([2, 1, 0]), axis=1)
    if network_input.dtype == "uint8":
        last = g.node("Round", g.node("Mul", last, g.constant(255.0, np.float32)))
    else:
        std, mean = np.array([network_input.std, network_input.mean], np.float64)
        gain, shift = 255 * np.float64(network_input.scale) / std, mean / std
        if (gain.astype(np.float32) != 1).any():
            last = g.node("Mul", last, g.constant(gain.reshape(1, 3, 1, 1), np.float32))
        if shift.any():
            last = g.node("Sub", last, g.constant(shift.reshape(1, 3, 1, 1), np.float32))
    if network_input.layout == "nhwc":
        last = g.node("Transpose", last, perm=[0, 2, 3, 1])
    if network_input.dtype != "float32":
        last = g.node("Cast", last, to=_KINDS[network_input.dtype])
    g.node("Identity", last, named=named)


def _output(g: _Writer, detector: DetectorPorts, layout: Layout, classes: int | None) -> None:
    """Add the box (4,) relative to the picture, the class (1,) as a float, and IoU · equal(class), (1,).

    Negative sides count as 0: a box with swapped corners is empty. With the number of `classes`, the output
    is written with operators that have linear bounds, for a verifier.
    """
    flat = g.constant([-1])
    box = g.node("Cast", g.node("Reshape", detector.box, flat), to=_FLOAT)
    scale = detector.scale.astype(np.float32)
    box = g.node("Mul", box, g.constant(scale, np.float32)) if (scale != 1).any() else box
    box = g.node("Identity", box, named=BOX)
    scores = g.node("Cast", g.node("Reshape", detector.scores, flat), to=_FLOAT)
    best = g.node("ArgMax", scores, axis=0, keepdims=1)
    label = g.node("Cast", best, to=_FLOAT, named=LABEL)
    begin = layout.pixels + 2
    target_class, target = g.part(INPUT, begin + 1, begin + 2), g.part(INPUT, begin + 2, begin + 6)
    low = g.node("Max", g.part(box, 0, 2), g.part(target, 0, 2))
    high = g.node("Min", g.part(box, 2, 4), g.part(target, 2, 4))
    if classes is not None:
        sides = g.node("Relu", g.node("Sub", high, low))
        equal = _leads(g, scores, target_class, classes)
        g.node("Mul", _overlap(g, sides, box, target), equal, named=OUTPUT)
        return
    inner = _area(g, low, high)
    areas = [_area(g, g.part(corners, 0, 2), g.part(corners, 2, 4)) for corners in (target, box)]
    union = g.node("Sub", g.node("Add", *areas), inner)
    equal = g.node("Cast", g.node("Equal", label, target_class), to=_FLOAT)
    g.node("Mul", g.node("Div", inner, union), equal, named=OUTPUT)


def _overlap(g: _Writer, sides: str, box: str, target: str) -> str:
    """The IoU from the sides (2,) of the intersection.

    The union is the target and the parts of the box outside of it, all of which are sums of products of
    numbers that are not negative: in any relaxation it is at least the target.
    """
    before = g.node("Relu", g.node("Sub", g.part(target, 0, 2), g.part(box, 0, 2)))
    after = g.node("Relu", g.node("Sub", g.part(box, 2, 4), g.part(target, 2, 4)))
    outside = g.node("Add", before, after)
    (width, height), (across, down) = ((g.part(pair, 0, 1), g.part(pair, 1, 2)) for pair in (sides, outside))
    beside = g.node("Mul", across, g.node("Add", height, down))
    outer = g.node("Add", g.node("Mul", width, down), beside)
    union = g.node("Add", _area(g, g.part(target, 0, 2), g.part(target, 2, 4)), outer)
    return g.node("Div", g.node("Mul", width, height), union)


def _leads(g: _Writer, scores: str, target_class: str, classes: int) -> str:
    """1 if the target's score (1,) is above all others, else 0; in a tie of the best two, 0."""
    one = g.constant(1.0, np.float32)
    distance = g.node("Abs", g.node("Sub", g.constant(np.arange(classes), np.float32), target_class))
    chosen = g.node("Relu", g.node("Sub", one, distance))  # (classes,): 1 for the target
    all_of = g.constant(np.ones((classes, 1)), np.float32)
    own = g.node("MatMul", g.node("Mul", chosen, scores), all_of)
    lead = g.node("Add", g.node("Sub", own, scores), chosen)  # that over itself is 1
    above = g.node("MatMul", g.node("Relu", g.node("Sign", lead)), all_of)
    return g.node("Relu", g.node("Sub", above, g.constant(classes - 1, np.float32)))


def _area(g: _Writer, low: str, high: str) -> str:
    sides = g.node("Relu", g.node("Sub", high, low))
    return g.node("Mul", g.part(sides, 0, 1), g.part(sides, 1, 2))
