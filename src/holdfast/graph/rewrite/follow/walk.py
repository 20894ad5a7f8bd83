"""One walk through a graph whose nodes change: every tensor's old and new shape, node by node."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import helper, numpy_helper

from holdfast.core.model import Card
from holdfast.graph.inspect import STANDARD, opset_of
from holdfast.graph.nodes import attributes_of, names_in, subgraphs
from holdfast.graph.rewrite.follow.shapes import (
    POOLS,
    Array,
    Axis,
    TensorFacts,
    axis,
    changed,
    joined,
    kind_of,
    new_size,
    old_size,
    outputs_of,
    regrouped,
    windows_of,
)
from holdfast.graph.rewrite.types import CannotRewrite, ModelProto
from holdfast.graph.session import condense, open_session, runtime

Rule: TypeAlias = Callable[["GraphWalk", Any], None]  # adapts a node to its changed inputs


@dataclass(frozen=True)
class TensorValue:
    """A tensor in both graphs: its axes (None if they depend on the data) and its value, if constant."""

    kind: int
    axes: tuple[Axis, ...] | None
    old: Array | None = None
    new: Array | None = None

    @property
    def changed(self) -> bool:
        """Whether it has another shape or value now."""
        both_values = self.old is not None and self.new is not None and self.old is not self.new
        if both_values and not np.array_equal(self.old, self.new):  # type: ignore[arg-type]
            return True
        return self.axes is not None and any(changed(a) for a in self.axes)

    @property
    def constant(self) -> bool:
        """Whether its value is known and the same in both graphs."""
        return self.old is not None and not self.changed

    @property
    def old_shape(self) -> tuple[int, ...]:
        """The old shape; () if unknown."""
        return tuple(map(old_size, self.axes or ()))

    @property
    def new_shape(self) -> tuple[int, ...]:
        """The new shape; () if unknown."""
        return tuple(map(new_size, self.axes or ()))

    def side(self, new: bool) -> TensorFacts:
        """Facts about the tensor in one of the graphs."""
        shape = None if self.axes is None else (self.new_shape if new else self.old_shape)
        return TensorFacts(self.kind, shape, self.new if new else self.old)


@dataclass
class GraphWalk:
    """State of a walk: the model being changed, the facts about its tensors, the nodes changed so far."""

    model: ModelProto
    size: tuple[int, int]  # height and width of the network's input
    values: dict[str, TensorValue]
    rules: dict[str, Rule]
    makers: dict[str, int] = field(default_factory=dict)  # tensor -> number of the node that gives it
    users: dict[str, list[int]] = field(default_factory=dict)  # tensor -> numbers of the nodes that take it
    doing: set[int] = field(default_factory=set)
    done: set[int] = field(default_factory=set)
    touched: dict[int, str] = field(default_factory=dict)  # number of a changed node -> its operator

    def __post_init__(self) -> None:
        self.nodes, self.opset = self.model.graph.node, opset_of(self.model) or 1
        for i, node in enumerate(self.nodes):
            self.makers.update({name: i for name in node.output if name})
            for name in node.input:
                self.users.setdefault(name, []).append(i)

    def value(self, name: str) -> TensorValue:
        """Facts about a tensor; empty facts for an unknown name (an outer tensor, an empty name)."""
        return self.values.get(name, TensorValue(0, None))

    def side(self, node: Any, new: bool) -> dict[str, TensorFacts]:
        """Facts about a node's inputs in one of the graphs."""
        return {name: self.value(name).side(new) for name in node.input if name}

    def touch(self, node: Any) -> None:
        """Record that a node has changed."""
        self.touched[self.makers[node.output[0]]] = node.op_type

    def replace_input(self, node: Any, index: int, array: Array) -> None:
        """Replace an input of a node by a constant of its own."""
        name = f"{node.output[0]}/follows/{index}"
        while name in self.values:  # of a rewrite before this one
            name += "'"
        self.model.graph.initializer.append(numpy_helper.from_array(array, name))
        self.values[name] = TensorValue(kind_of(array), _fixed(array.shape), array, array)
        node.input.extend([""] * (index + 1 - len(node.input)))
        node.input[index] = name
        self.touch(node)


def walk_graph(model: ModelProto, card: Card, rules: dict[str, Rule]) -> GraphWalk:
    """Walk through all nodes of a model whose input is as its card says, with a batch of one."""
    if card.input.policy == "short-side":
        raise CannotRewrite("the size of the input differs from image to image")
    arrays = [(w, numpy_helper.to_array(w)) for w in model.graph.initializer]
    values = {w.name: TensorValue(w.data_type, _fixed(a.shape), a, a) for w, a in arrays}
    image = (1, *card.input.shape)
    for entry in model.graph.input:
        if entry.name not in values:
            kind = entry.type.tensor_type
            free = image if len(kind.shape.dim) == 4 else (1,) * len(kind.shape.dim)
            dims = [d.dim_value or n for d, n in zip(kind.shape.dim, free, strict=True)]
            values[entry.name] = TensorValue(kind.elem_type, _fixed(dims))
    walk = GraphWalk(model, (card.input.size.height, card.input.size.width), values, rules)
    for i in range(len(walk.nodes)):
        step(walk, i)
    return walk


def reach(walk: GraphWalk, name: str) -> bool:
    """Process the nodes a tensor depends on; return False if one of them is being processed already."""
    needed: set[int] = set()
    ahead = [name]
    while ahead:
        maker = walk.makers.get(ahead.pop())
        if maker in walk.doing:
            return False
        if maker is not None and maker not in needed and maker not in walk.done:
            needed.add(maker)
            ahead.extend(n for n in walk.nodes[maker].input if n)
    for i in sorted(needed):
        step(walk, i)
    return True


def step(walk: GraphWalk, i: int) -> None:
    """Process one node: infer its old outputs, apply its rule, infer its new outputs."""
    if i in walk.done:
        return
    walk.doing.add(i)
    node = walk.nodes[i]
    try:
        old = outputs_of(node, walk.side(node, new=False), walk.model)
    except ValueError:  # ONNX's shape inference failed: shapes are unknown from here on
        old = [TensorFacts(0, None) for _ in node.output]
    inputs = tuple(node.input)
    for name, was in zip(node.output, old, strict=True):
        if name:  # so that a rule can read the old outputs
            axes = None if was.shape is None else _fixed(was.shape)
            walk.values[name] = TensorValue(was.kind, axes, was.value)
    rule = walk.rules.get(node.op_type)
    if rule is not None and node.domain in STANDARD:
        rule(walk, node)
    if any(walk.value(n).changed for inner in subgraphs(node) for n in names_in(inner)):
        raise cannot(node, "has a graph inside that takes what changed; sizes are not followed there")
    if i in walk.touched or any(walk.value(n).changed for n in inputs):
        try:
            new = outputs_of(node, walk.side(node, new=True), walk.model)
        except ValueError as problem:
            raise cannot(node, f"cannot take what now reaches it: {problem}") from None
    else:
        new = old
    for name, was, now in zip(node.output, old, new, strict=True):
        if name:
            axes = None
            if was.shape is not None and now.shape is not None and len(was.shape) == len(now.shape):
                axes = _axes(walk, node, inputs, was.shape, now.shape)
            walk.values[name] = TensorValue(now.kind, axes, was.value, now.value)
    walk.doing.remove(i)
    walk.done.add(i)


def cannot(node: Any, why: str) -> CannotRewrite:
    """The error that names a node and why the graph cannot follow there."""
    return CannotRewrite(f"{node.op_type} {title(node)!r} {why}")


def title(node: Any) -> str:
    """What a node is called: its name, or its first output's."""
    return str(node.name or node.output[0])


def counted(operators: Iterable[str]) -> str:
    """How many of each operator: "1 MaxPool, 38 Reshape"."""
    return ", ".join(f"{n} {op}" for op, n in Counter(operators).most_common())


def _fixed(shape: Iterable[int]) -> tuple[Axis, ...]:
    return tuple(axis(int(n), int(n)) for n in shape)


def _axes(
    walk: GraphWalk, node: Any, inputs: tuple[str, ...], was: tuple[int, ...], now: tuple[int, ...]
) -> tuple[Axis, ...]:
    input_axes = [axes for name in inputs if (axes := walk.value(name).axes) is not None]
    if was == now and not any(changed(a) for axes in input_axes for a in axes):
        return _fixed(now)
    proposed: list[Axis | None] = [None] * len(now)
    if node.op_type in ("Reshape", "Flatten", "Squeeze", "Unsqueeze") and input_axes and 0 not in was:
        runs = regrouped(input_axes[0], was)
        proposed = list(runs) if isinstance(runs, tuple) else proposed
    elif node.op_type == "Transpose":
        order = attributes_of(node).get("perm") or range(len(now))[::-1]
        proposed = [input_axes[0][p] for p in order]
    else:
        for i, sizes in enumerate(zip(was, now, strict=True)):
            # the axis of an input at the same place from the right that is as long, one that changed first
            there = [axes[i - len(now)] for axes in input_axes if len(axes) >= len(now) - i]
            fits = [a for a in there if (old_size(a), new_size(a)) == sizes]
            proposed[i] = next((a for a in fits if changed(a)), fits[0] if fits else None)
        if node.op_type == "Concat" and len(input_axes) == len(inputs):
            at = attributes_of(node)["axis"]
            proposed[at] = joined([axes[at] for axes in input_axes])
    known = [None if p is None else (old_size(p), new_size(p)) for p in proposed]
    each = zip(proposed, known, was, now, strict=True)
    return tuple(p if p is not None and size == (o, n) else axis(o, n) for p, size, o, n in each)


def tidy(walk: GraphWalk, before: set[str]) -> None:
    """Drop outdated declared shapes, and constants of `before` that no node reads any more."""
    graph = walk.model.graph
    for info in [v for v in graph.value_info if walk.value(v.name).changed]:
        graph.value_info.remove(info)
    for out in graph.output:
        value = walk.value(out.name)
        dims = out.type.tensor_type.shape.dim
        for dim, old, new in zip(dims, value.old_shape, value.new_shape, strict=False):
            if dim.HasField("dim_value") and old != new:
                dim.dim_value = new
    unused = before - names_in(graph)
    for values in (graph.initializer, graph.input):
        for item in [v for v in values if v.name in unused]:
            values.remove(item)


def proven(walk: GraphWalk) -> None:
    """Raise CannotRewrite unless ONNX Runtime runs the rewritten graph with the predicted shapes."""
    constants = {w.name for w in walk.model.graph.initializer}
    inputs = {i.name: walk.value(i.name) for i in walk.model.graph.input if i.name not in constants}
    feed = {n: np.zeros(v.new_shape, helper.tensor_dtype_to_np_dtype(v.kind)) for n, v in inputs.items()}
    try:
        session = open_session(walk.model.SerializeToString(), threads=1)
        outputs = session.run(None, feed)
    except Exception as problem:
        why = condense(problem, 300)
        raise CannotRewrite(f"the rewritten graph does not run in ONNX Runtime: {why}") from problem
    for out, value in zip(session.get_outputs(), outputs, strict=True):
        foreseen = walk.value(out.name)
        if foreseen.axes is not None and foreseen.new_shape != np.shape(value):
            expected = f"output {out.name!r} was expected to be {foreseen.new_shape} after the rewrite"
            got = f"onnxruntime {runtime().__version__} gives {np.shape(value)}"
            raise CannotRewrite(f"{expected}, but {got}: it pools by another rule; upgrade it")


def unchanged(data: bytes, family: str) -> str:
    """Reason why a rewrite of that family leaves this ONNX file unchanged."""
    nodes = [n for n in onnx.load_from_string(data).graph.node if n.domain in STANDARD]
    if family == "ceil":
        pools = [n for n in nodes if n.op_type in POOLS]
        strided = [n for n in pools if max(attributes_of(n).get("strides", ()), default=1) > 1]
        same = [n.op_type for n in strided if windows_of(n) is None]
        divisible = [n.op_type for n in strided if windows_of(n) is not None]
        why_divisible = "of stride over 1, whose sizes divide: floor and ceil are the same"
        reasons = ((divisible, why_divisible), (same, "of padding SAME, which is ⌈W/S⌉ in any mode"))
        described = ", ".join(f"{counted(operators)} {why}" for operators, why in reasons if operators)
        return described or "no pool of stride over 1 in the graph"
    if family == "upsample":
        kinds = [n.op_type for n in nodes if n.op_type in ("Resize", "Upsample")]
        if not kinds:
            return "no Resize or Upsample in the graph"
        return f"{counted(kinds)}: already done this way, or neither nearest nor linear"
    return "the graph has no node that it changes"
