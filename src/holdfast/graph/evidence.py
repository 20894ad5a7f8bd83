"""Facts read from a graph without a card, and the proposals that rules derive from them."""

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np

from holdfast.core.errors import ModelError
from holdfast.core.model import Layout, Task
from holdfast.core.registry import part
from holdfast.core.types import Size
from holdfast.graph.inspect import ModelInfo, TensorInfo, image_input, info_of, load_proto
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
    takes_unit: bool  # whether the first constants applied to the image are those of values in 0..1

    @property
    def only(self) -> tuple[str, Shape]:
        """The name and the shape of the only output; an empty name and shape if there are several."""
        return next(iter(self.outputs.items())) if len(self.outputs) == 1 else ("", ())

    def shapes(self) -> str:
        """The outputs with their shapes, for reasons and messages."""
        return ", ".join(f"{name!r} {shape}" for name, shape in self.outputs.items())


def gather_facts(path: Path) -> GraphFacts:
    """Facts about the graph in a file."""
    proto = load_proto(path)
    info = info_of(path, proto)
    tensor = image_input(info)
    first, _, last = tensor.shape[-3:]
    if 3 not in (first, last) and isinstance(first, int):
        raise ModelError(f"{path}: expected an input of 3 colour channels, got {tensor}")
    layout: Layout = "nhwc" if last == 3 != first else "nchw"
    size, free = _size(tensor, layout, info.metadata)
    outputs = {t.name: tuple(int(d) for d in (1, *t.shape[1:])) for t in info.outputs if t.static}
    if len(outputs) < len(info.outputs):
        size, outputs = _run(path, proto, tensor, layout, size, free)
    names = literal(info.metadata.get("names", ""))  # {0: 'person', ...}, which common exporters write
    if isinstance(names, dict) and sorted(names) == list(range(len(names))):
        names = [name for _, name in sorted(names.items())]
    texts = tuple(map(str, names)) if isinstance(names, list) else ()
    return GraphFacts(
        info=info,
        size=size,
        layout=layout,
        free_size=free,
        dtype=tensor.dtype,
        outputs=outputs,
        kinds={t.name: np.dtype(t.dtype).kind if t.dtype != "unknown" else "?" for t in info.outputs},
        ends={t.name: _ends(proto.graph, t.name) for t in info.outputs},
        starts=frozenset(node.op_type for node in _first_nodes(proto.graph, tensor.name)),
        names=texts if len(set(texts)) == len(texts) else (),
        takes_unit=_takes_unit(proto.graph, tensor.name),
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
    path: Path, proto: Any, tensor: TensorInfo, layout: Layout, size: Size, free: bool
) -> tuple[Size, dict[str, Shape]]:
    """The first size the network runs at, and the shapes that really come out for a grey image."""
    problem = ""
    try:
        session = open_session(proto.SerializeToString())
    except Exception as refusal:  # noqa: BLE001 - onnxruntime has no common error class
        raise ModelError(f"{path}: onnxruntime cannot load it: {condense(refusal)}") from None
    for at in [size, *(Size(s, s) for s in FREE_SIZES if free and s != size.width)]:
        image = (3, at.height, at.width) if layout == "nchw" else (at.height, at.width, 3)
        shape = (1, *image)[-len(tensor.shape) :]
        try:
            values = session.run(None, {tensor.name: np.full(shape, 0.5, tensor.dtype)})
        except Exception as refusal:  # noqa: BLE001
            problem = problem or condense(refusal)
        else:
            return at, {o.name: np.shape(v) for o, v in zip(session.get_outputs(), values, strict=True)}
    pixels = f"{size.width}×{size.height}"
    raise ModelError(f"{path}: onnxruntime cannot run it on an image of {pixels}: {problem}")


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
YOLO_STRIDES = (8, 16, 32)


def words(strides: tuple[int, ...]) -> str:
    """The strides as text."""
    return ", ".join(map(str, strides))
