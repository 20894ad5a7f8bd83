"""Facts read from a graph without a card, and the proposals that rules derive from them."""

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np

from holdfast.core.errors import ModelError
from holdfast.core.model import Layout, Task, read_onnx
from holdfast.core.registry import part
from holdfast.core.types import Size, Tensor
from holdfast.graph.feeds import KNOWN, feed
from holdfast.graph.inspect import ModelInfo, TensorInfo, image_input, info_of, load_proto, other_inputs
from holdfast.graph.quantised import in_float
from holdfast.graph.session import condense, open_session

# Operators that move values without changing them.
MOVES = frozenset(
    {"Transpose", "Reshape", "Concat", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Cast", "Slice"}
    | {"Split", "Gather", "Dropout"}
)
FREE_SIZES = (640, 416, 320, 512, 224)  # attempted in this order if the graph leaves the size open
Shape = tuple[int, ...]


@dataclass(frozen=True)
class GraphFacts:
    """The facts from which head and input are guessed."""

    info: ModelInfo
    size: Size
    layout: Layout
    free_size: bool
    dtype: str
    outputs: Mapping[str, Shape]
    kinds: Mapping[str, str]  # numpy kind of each output: "f", "i", ...
    ends: Mapping[str, frozenset[str]]  # the operators that compute each output, behind those that only move
    starts: frozenset[str]  # the operators that first read the image
    names: tuple[str, ...]  # class names the exporter left in the file
    channels: int  # of the image: 3, or 1 for grey
    takes_unit: bool  # whether the first constants applied to the image are those of values in 0..1

    @property
    def only(self) -> tuple[str, Shape]:
        """The name and the shape of the only output; an empty name and shape if there are several."""
        return next(iter(self.outputs.items())) if len(self.outputs) == 1 else ("", ())

    @cached_property
    def sample(self) -> Mapping[str, Tensor]:
        """The outputs for an image of random pixels: the ranges of values tell more than shapes."""
        path = self.info.path
        session = _open(path, read_onnx(path) if path.suffix == ".gz" else str(path))
        pixels = np.random.default_rng(0).integers(0, 256, (*self.size[::-1], self.channels))
        image = pixels.astype(np.uint8) if self.dtype == "uint8" else (pixels / 255).astype(self.dtype)
        return _outputs(session, self.info, image, self.layout)

    def shapes(self) -> str:
        """The outputs with their shapes, for reasons and messages."""
        return ", ".join(f"{name!r} {shape}" for name, shape in self.outputs.items())


def gather_facts(path: Path) -> GraphFacts:
    """Facts about the graph in a file."""
    proto = load_proto(path)
    info = info_of(path, proto)
    tensor = image_input(info)
    first, _, last = tensor.shape[-3:]
    channels = next((c for c in (3, 1) if c in (first, last)), 3)
    if channels not in (first, last) and isinstance(first, int):
        raise ModelError(f"{path}: expected an input of 3 colour channels, or 1 for grey, got {tensor}")
    layout: Layout = "nhwc" if last == channels != first else "nchw"
    size, free = _size(tensor, layout, info.metadata)
    outputs = {t.name: tuple(int(d) for d in (1, *t.shape[1:])) for t in info.outputs if t.static}
    if len(outputs) < len(info.outputs):
        size, outputs = _run(info, proto, (layout, channels), size, free)
    names = literal(info.metadata.get("names", ""))  # {0: 'person', ...}, which common exporters write
    if isinstance(names, dict) and sorted(names) == list(range(len(names))):
        names = [name for _, name in sorted(names.items())]
    texts = tuple(map(str, names)) if isinstance(names, list) else ()
    structure = in_float(proto).graph
    return GraphFacts(
        info=info,
        size=size,
        layout=layout,
        free_size=free,
        dtype=tensor.dtype,
        outputs=outputs,
        kinds={t.name: np.dtype(t.dtype).kind if t.dtype != "unknown" else "?" for t in info.outputs},
        ends={t.name: _ends(structure, t.name) for t in info.outputs},
        starts=frozenset(node.op_type for node in _first_nodes(structure, tensor.name)),
        names=texts if len(set(texts)) == len(texts) else (),
        channels=channels,
        takes_unit=_takes_unit(structure, tensor.name),
    )


def _size(tensor: TensorInfo, layout: Layout, metadata: Mapping[str, str]) -> tuple[Size, bool]:
    """The input's width and height, and whether the graph leaves them open."""
    height, width = tensor.shape[-2:] if layout == "nchw" else tensor.shape[-3:-1]
    if isinstance(height, int) and isinstance(width, int):
        return Size(width, height), False
    stated = literal(metadata.get("imgsz", ""))
    if isinstance(stated, list) and len(stated) == 2 and all(isinstance(v, int) for v in stated):
        return Size(stated[1], stated[0]), True
    return Size(FREE_SIZES[0], FREE_SIZES[0]), True


def _run(
    info: ModelInfo, proto: Any, axes: tuple[Layout, int], size: Size, free: bool
) -> tuple[Size, dict[str, Shape]]:
    """The first size the network runs at, and the shapes that really come out for a grey image."""
    (layout, channels), path, problem = axes, info.path, ""
    session, dtype = _open(path, proto.SerializeToString()), image_input(info).dtype
    for at in [size, *(Size(s, s) for s in FREE_SIZES if free and s != size.width)]:
        try:
            values = _outputs(session, info, np.full((at.height, at.width, channels), 0.5, dtype), layout)
        except Exception as refusal:  # noqa: BLE001
            problem = problem or condense(refusal)
        else:
            return at, {name: np.shape(value) for name, value in values.items()}
    pixels = f"{size.width}×{size.height}"
    raise ModelError(f"{path}: onnxruntime cannot run it on an image of {pixels}: {problem}")


def _open(path: Path, source: bytes | str) -> Any:
    try:
        return open_session(source)
    except Exception as refusal:  # noqa: BLE001 - onnxruntime has no common error class
        raise ModelError(f"{path}: onnxruntime cannot load it: {condense(refusal)}") from None


def _outputs(session: Any, info: ModelInfo, image: Tensor, layout: Layout) -> dict[str, Tensor]:
    """The outputs for an image (h, w, c); known second inputs are fed."""
    given = image_input(info)
    tensor = np.moveaxis(image, 2, 0)[None] if layout == "nchw" else image[None]
    batch = given.shape[0] if len(given.shape) == 4 and isinstance(given.shape[0], int) else 1
    feeds = {given.name: tensor.repeat(batch, axis=0) if len(given.shape) == 4 else tensor[0]}
    for other in (t for t in other_inputs(info) if t.name in KNOWN):
        feeds[other.name] = feed(KNOWN[other.name], other.shape, other.dtype, tensor, layout)
    values = session.run(None, feeds)
    outputs = {o.name: np.asarray(v) for o, v in zip(session.get_outputs(), values, strict=True)}
    if batch == 1 or any(v.ndim == 0 or len(v) != batch for v in outputs.values()):
        return outputs
    return {name: value[:1] for name, value in outputs.items()}


def _ends(graph: Any, name: str) -> frozenset[str]:
    """The operators that compute an output, behind those that only move values."""
    producers = {output: node for node in graph.node for output in node.output}
    operators: set[str] = set()
    visited, todo = {name}, [name]
    while todo:
        node = producers.get(todo.pop())
        if node is not None and node.op_type in MOVES:
            todo += set(node.input) - visited
            visited.update(node.input)
        elif node is not None and node.op_type != "Constant":
            operators.add(node.op_type)
    return frozenset(operators)


def _first_nodes(graph: Any, name: str) -> list[Any]:
    """The nodes that first read the image, behind those that only move values."""
    nodes, moved = [], {name}
    for node in graph.node:  # sorted: what a node reads comes before it
        if moved.intersection(node.input):
            if node.op_type in MOVES:
                moved.update(node.output)
            elif node.op_type != "Shape":
                nodes.append(node)
    return nodes


def _takes_unit(graph: Any, name: str) -> bool:
    """Whether the first constants expect values in 0..1: a mean or divisor up to 1, a factor above 0.1."""
    from onnx import numpy_helper

    constants = [(n.output[0], a) for n in graph.node if n.op_type == "Constant" for a in n.attribute]
    stored = {w.name: w for w in graph.initializer} | {n: a.t for n, a in constants if a.name == "value"}
    fits = []
    for node in (n for n in _first_nodes(graph, name) if n.op_type in ("Sub", "Add", "Div", "Mul")):
        if read := [stored[i] for i in node.input if i in stored and not stored[i].external_data]:
            largest = float(np.abs(numpy_helper.to_array(read[0])).max(initial=0.0))
            fits.append(largest > 0.1 if node.op_type == "Mul" else largest <= 1)
    return bool(fits) and all(fits)


def literal(text: str) -> Any:
    """The Python literal in a metadata string; None if it is not one."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None


@dataclass(frozen=True)
class Proposal:
    """A matching head, the reason, and the usual preprocessing of networks with this head."""

    head: str
    because: str
    classes: int | None  # None: cannot be inferred from the outputs
    like: str  # whose training conventions are assumed for the rest
    options: Mapping[str, Any] = field(default_factory=dict)
    input: Mapping[str, Any] = field(default_factory=dict)
    imagenet: bool = False  # mean and std of ImageNet
    size: Size | None = None  # a better guess where the graph leaves the size open
    resize: str = "pillow-bilinear"
    thresholds: Mapping[str, Any] = field(default_factory=dict)
    names: str = "coco80"  # the built-in names assumed if neither outputs nor metadata give the classes
    warnings: tuple[str, ...] = ()

    @property
    def task(self) -> Task:
        """The task that the head is for."""
        return cast(Task, part("head", self.head).facts["task"])


Rule = Callable[[GraphFacts], Proposal | None]
ULTRALYTICS: dict[str, Any] = {"policy": "letterbox", "scale": 1 / 255}
# Table 3 of SysNoise: ratio kept, short side 800, long side at most 1333, padded to a multiple of 32.
SHORT_SIDE: dict[str, Any] = {
    "policy": "short-side", "short_side": 800, "long_side": 1333, "multiple": 32, "place": "corner"
}  # fmt: skip
YOLO_STRIDES = (8, 16, 32)


def words(strides: tuple[int, ...]) -> str:
    """The strides as text."""
    return ", ".join(map(str, strides))
