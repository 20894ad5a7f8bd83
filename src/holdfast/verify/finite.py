"""Finite domains: where a graph rounds its free inputs, the cells of an input, and the graph after the cuts.

Up to the roundings ("cuts") every value must depend on one input through monotone steps: moves, sums and
products with constants, clipping. The value of a cut is then a step function of that input, and the
intervals on which it is constant are the cells to enumerate.
"""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import ModelError
from holdfast.graph.inspect import STANDARD, opset_of
from holdfast.graph.lower.moves import OPERATORS as MOVES
from holdfast.graph.lower.values import Node, StepBuilder, Value, View, constant_of, node_of
from holdfast.graph.nodes import needed, subgraphs

Values = NDArray[np.float32]
_FLOAT = 1  # ONNX's number for float32
StepFunction = Callable[[Values], NDArray[Any]]
Monotone = Callable[[Values, Values], Values]  # of an input, with a constant
_ROUNDINGS = {"Floor": np.floor, "Ceil": np.ceil, "Round": np.rint, "Sign": np.sign}
_SUMS: dict[str, Monotone] = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide}
_PAIRS: dict[str, Monotone] = _SUMS | {"Min": np.minimum, "Max": np.maximum}
# Expensive operators: a head ends before these.
_PRODUCTS = ("Einsum", "Gemm", "MatMul", "MatMulInteger", "QLinearMatMul")
_FILTERS = ("Conv", "ConvInteger", "ConvTranspose", "DeformConv", "QLinearConv")
HEAVY = frozenset((*_PRODUCTS, *_FILTERS, "GRU", "LSTM", "RNN"))


class NotFinite(Exception):
    """A free input reaches an output without being rounded; the message names the node."""


@dataclass(frozen=True, eq=False)
class MonotoneStep:
    """New elements: a monotone step applied to earlier ones, each with its own constant."""

    parents: NDArray[np.int64]
    step: Monotone
    constants: Values


@dataclass(frozen=True, eq=False)
class RoundingStep:
    """A rounding: the elements it reads, its step function, and its output type."""

    view: View
    function: StepFunction
    dtype: np.dtype[Any]


@dataclass(eq=False)
class RoundingTrace:
    """The cuts by the names of their outputs, the steps before them, and what depends on each tensor after.

    `roots` gives for every element, of the free inputs and of the steps, the free input it comes from;
    `needs` for every tensor from the cuts on the free inputs it depends on; `nodes` compute those tensors.
    A fixed tensor whose value does not matter is in neither `values` nor `needs`.
    """

    inputs: int
    roots: NDArray[np.int64]
    build: StepBuilder
    values: dict[str, Value]
    climbs: list[MonotoneStep] = field(default_factory=list)
    cuts: dict[str, RoundingStep] = field(default_factory=dict)
    needs: dict[str, frozenset[int]] = field(default_factory=dict)
    nodes: list[Any] = field(default_factory=list)  # onnx.NodeProto


def traced(proto: Any, name: str, free: NDArray[np.int64], template: NDArray[np.float32]) -> RoundingTrace:
    """The cuts of the network whose input is `name`; raise NotFinite if a free input bypasses them."""
    from onnx import TensorProto, numpy_helper

    index = np.full(template.shape, -1, np.int64)
    index.ravel()[free] = np.arange(len(free))
    build = StepBuilder((len(free),), np.dtype(np.float32))
    weights = proto.graph.initializer
    if any(weight.data_location == TensorProto.EXTERNAL for weight in weights):
        raise NotFinite("weights are in another file")
    # Larger constants are no index, shape or factor before a cut.
    small = [w for w in weights if len(w.dims) <= 1 and sum(w.dims) <= 1 << 16]
    values: dict[str, Value] = {w.name: numpy_helper.to_array(w) for w in small}
    values[name] = build.normal(View(index, template.astype(np.float64)))
    trace = RoundingTrace(len(free), np.arange(len(free)), build, values)
    for node in needed(proto.graph):
        _visit(node, trace, opset_of(proto))
    for port in proto.graph.output:
        if isinstance(trace.values.get(port.name), View):
            raise NotFinite(f"output {port.name!r} reads a free input as it is")
    return trace


def _visit(node: Any, trace: RoundingTrace, opset: int) -> None:
    after = [trace.needs[name] for name in node.input if name in trace.needs]
    operands = [trace.values.get(name) for name in node.input]
    before = any(isinstance(value, View) for value in operands)
    called = f"node {node.name or node.output[0]!r}: {node.op_type}"
    if subgraphs(node):  # it may read any outer tensor implicitly
        raise NotFinite(f"{called} contains a subgraph")
    if before and node.domain not in STANDARD:
        raise NotFinite(f"{called} of {node.domain!r} is not known")
    if after and before:
        raise NotFinite(f"{called} mixes a rounded and an unrounded free input")
    if after:
        trace.nodes.append(node)
        trace.needs.update(dict.fromkeys(node.output, frozenset().union(*after)))
    elif before or node.domain in STANDARD:
        try:
            _through(node, node_of(node, tuple(operands), opset, set()), trace)
        except (ModelError, ValueError, IndexError, KeyError, TypeError) as problem:
            if before:
                raise NotFinite(f"{called}: {problem}") from None


def _through(node: Any, parsed: Node, trace: RoundingTrace) -> None:
    """Add the outputs of a node before the cuts to the trace."""
    if node.op_type == "Constant":
        trace.values[node.output[0]] = constant_of(parsed)
        return
    views = [value for value in parsed.inputs if isinstance(value, View)]
    if not views and node.op_type not in MOVES:
        return  # fixed, and irrelevant for finding cuts
    if views:
        cut = _cut(parsed)
        if cut is not None:
            trace.cuts[node.output[0]] = cut
            live = cut.view.index[cut.view.index >= 0]
            trace.needs[node.output[0]] = frozenset(trace.roots[live].tolist())
            return
        if node.op_type == "Cast" and parsed.attributes["to"] != _FLOAT:
            raise parsed.fail("it changes the precision before a rounding")
        if node.op_type not in MOVES:
            trace.values[node.output[0]] = _apply_steps(parsed, trace)
            return
    if node.op_type == "Cast" and not views:
        trace.values[node.output[0]] = np.asarray(parsed.value(), _target(parsed))
        return
    # Skipped constants are unknown here; a move that needs one raises an error.
    if any(value is None and name for value, name in zip(parsed.inputs, node.input, strict=True)):
        raise parsed.fail("one of its inputs is computed")
    for name, value in zip(node.output, MOVES[node.op_type](parsed, trace.build), strict=False):
        trace.values[name] = trace.build.normal(value) if isinstance(value, View) else value


def _cut(node: Node) -> RoundingStep | None:
    view = node.inputs[0]
    if isinstance(view, View) and node.operator in _ROUNDINGS:
        return RoundingStep(view, _ROUNDINGS[node.operator], np.dtype(np.float32))
    if not isinstance(view, View) or node.operator != "Cast":
        return None
    dtype = _target(node)
    if dtype.kind in "iu":
        return RoundingStep(view, np.trunc, dtype)
    return RoundingStep(view, np.sign, dtype) if dtype.kind == "b" else None


def _target(node: Node) -> np.dtype[Any]:
    from onnx import helper

    dtype: np.dtype[Any] = np.dtype(helper.tensor_dtype_to_np_dtype(node.attributes["to"]))
    if dtype.isbuiltin != 1 or dtype.kind not in "biuf":
        raise node.fail(f"expected a type of numbers that numpy has, got {dtype.name}")
    return dtype


def _apply_steps(node: Node, trace: RoundingTrace) -> View:
    """The elements after a sum, product or bound with constants."""
    view = next(value for value in node.inputs if isinstance(value, View))
    for step, other in _steps(node):
        constant = np.asarray(other, np.float32)
        if not np.isfinite(constant).all():
            raise node.fail("its constant is not finite")
        shape = np.broadcast_shapes(view.shape, constant.shape)
        index, fill = np.broadcast_to(view.index, shape), np.broadcast_to(view.filled(), shape)
        constant = np.broadcast_to(constant, shape).ravel()
        live = np.flatnonzero(index.ravel() >= 0)
        parents = index.ravel()[live]
        begin = len(trace.roots)
        trace.roots = np.concatenate([trace.roots, trace.roots[parents]])
        trace.climbs.append(MonotoneStep(parents, step, constant[live]))
        fresh = np.full(index.size, -1, np.int64)
        fresh[live] = begin + np.arange(len(live))
        with np.errstate(over="ignore", invalid="ignore"):
            moved = step(fill.ravel().astype(np.float32), constant).astype(np.float64)
        view = View(fresh.reshape(shape), moved.reshape(shape))
    return view


def _steps(node: Node) -> list[tuple[Monotone, Any]]:
    """The monotone steps (value, constant) -> value of a node."""
    first = isinstance(node.inputs[0], View)
    if node.operator == "Relu":
        return [(np.maximum, 0.0)]
    if node.operator == "Neg":
        return [(np.multiply, -1.0)]
    if node.operator == "Clip":
        ends = [(np.maximum, "min", 1), (np.minimum, "max", 2)]
        bounds = [(step, node.attributes.get(name, node.constant(at, name))) for step, name, at in ends]
        return [(step, end) for step, end in bounds if end is not None]
    if node.operator not in _PAIRS or len(node.inputs) != 2 or node.opset < 7:
        raise node.fail("it is neither a rounding nor a sum, product or bound with constants before one")
    constant = node.required_constant(1 if first else 0, "other operand")
    if node.operator == "Div" and not (first and np.asarray(constant).all()):
        raise node.fail("expected the free input to be divided by a constant other than 0")
    if node.operator == "Sub" and not first:
        return [(lambda value, other: other - value, constant)]
    return [(_PAIRS[node.operator], constant)]


def cut_tensors(trace: RoundingTrace, point: Values) -> dict[str, NDArray[Any]]:
    """The output tensor of every cut for these free inputs (n,)."""
    elements, cuts = _elements(trace, point), trace.cuts.items()
    return {name: np.asarray(cut.function(_read(cut, elements)), cut.dtype) for name, cut in cuts}


def _elements(trace: RoundingTrace, point: Values) -> Values:
    elements = point.astype(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        for climb in trace.climbs:
            elements = np.concatenate([elements, climb.step(elements[climb.parents], climb.constants)])
    return elements


def _read(cut: RoundingStep, elements: Values) -> Values:
    if cut.view.fill is None:
        return elements[cut.view.index]
    return np.where(cut.view.index < 0, cut.view.fill.astype(np.float32), elements[cut.view.index])


class TooMany(Exception):
    """More cells than may be enumerated."""


@dataclass(frozen=True, eq=False)
class InputCells:
    """The cells of one input in order: all float32 from first[i] to last[i]."""

    first: Values
    last: Values

    def __len__(self) -> int:
        return len(self.first)

    @property
    def middle(self) -> Values:
        """One float32 of each cell, an integer if the cell contains one."""
        near = np.rint((self.first.astype(np.float64) + self.last) / 2).astype(np.float32)
        return np.where((self.first <= near) & (near <= self.last), near, self.first)


def step_function_of(trace: RoundingTrace, free: int) -> StepFunction:
    """The step function of one free input: from its values (b,) to the cut elements that read it, (m, b)."""
    own = np.flatnonzero(trace.roots == free)
    place = np.full(len(trace.roots) + 1, -1, np.int64)
    place[own] = np.arange(len(own))
    climbs, begin = [], trace.inputs
    for climb in trace.climbs:
        own_rows = np.flatnonzero(trace.roots[begin : begin + len(climb.parents)] == free)
        begin += len(climb.parents)
        if len(own_rows):
            climbs.append((climb.step, place[climb.parents[own_rows]], climb.constants[own_rows, None]))
    reads = [np.unique(place[cut.view.index]) for cut in trace.cuts.values()]
    cuts = [(cut, read[read >= 0]) for cut, read in zip(trace.cuts.values(), reads, strict=True)]

    def evaluate_cuts(values: Values) -> NDArray[Any]:
        elements = values[None]
        with np.errstate(over="ignore", invalid="ignore"):
            for step, parents, constants in climbs:
                elements = np.concatenate([elements, step(elements[parents], constants)])
        rows = [cut.function(elements[read]) for cut, read in cuts]
        return np.concatenate(rows) if rows else np.zeros((1, len(values)))

    return evaluate_cuts


def check_range(trace: RoundingTrace, ends: list[Values]) -> None:
    """Raise NotFinite if a cut gets a value its type cannot represent, where the result is undefined."""
    elements = [_elements(trace, point) for point in ends]
    for (name, cut), end in itertools.product(trace.cuts.items(), elements):
        values = np.trunc(_read(cut, end).astype(np.float64))
        good = np.isfinite(values)
        if cut.dtype.kind in "iu":
            kind = np.iinfo(cut.dtype)
            good &= (kind.min <= values) & (values <= kind.max) & (np.abs(values) < 2.0**63)
        if not good.all():
            raise NotFinite(f"the rounding {name!r} gets values that {cut.dtype.name} cannot represent")


def cells_of(function: StepFunction, low: np.float32, high: np.float32, limit: int) -> InputCells:
    """The cells between two float32, both included, in order; `function` gives monotone rows (m, b)."""
    left, right = ordinal(np.array([low])), ordinal(np.array([high]))
    borders = []
    below, above = function(number(left)), function(number(right))
    while len(left):
        differs = (below != above).any(axis=0)
        left, right, below, above = left[differs], right[differs], below[:, differs], above[:, differs]
        near = right - left == 1
        borders.append(right[near])
        left, right, below, above = left[~near], right[~near], below[:, ~near], above[:, ~near]
        if sum(map(len, borders)) + len(left) > limit:
            raise TooMany
        middle = (left + right) // 2
        between = function(number(middle))
        left, right = np.concatenate([left, middle]), np.concatenate([middle, right])
        below, above = np.concatenate([below, between], axis=1), np.concatenate([between, above], axis=1)
    cuts = np.sort(np.concatenate(borders))
    firsts = np.concatenate([ordinal(np.array([low])), cuts])
    lasts = np.concatenate([cuts - 1, ordinal(np.array([high]))])
    return InputCells(number(firsts), number(lasts))


def ordinal(values: Values) -> NDArray[np.int64]:
    """The place of each float32 in their order; both zeros are 0."""
    bits = values.astype(np.float32).view(np.int32).astype(np.int64)
    return np.where(bits < 0, -(bits & 0x7FFFFFFF), bits)


def number(ordinals: NDArray[np.int64]) -> Values:
    """The float32 at each place of their order."""
    bits = np.where(ordinals < 0, -ordinals | 0x80000000, ordinals)
    return bits.astype(np.uint32).view(np.float32)


@dataclass(frozen=True, eq=False)
class GraphSplit:
    """The tensors between the parts, by name.

    `alone` are, for each free input, the tensors of the head that depend on nothing else and go where more
    is mixed in; `joint` are those the tail reads or the graph gives out.
    """

    alone: Mapping[int, tuple[str, ...]]
    joint: tuple[str, ...]
    late: tuple[str, ...]  # outputs of the graph that the tail computes


def split(proto: Any, trace: RoundingTrace) -> GraphSplit:
    """The split of the graph after the cuts into head and tail."""
    tail: set[str] = set()
    for node in trace.nodes:
        if node.op_type in HEAVY or tail.intersection(node.input):
            tail.update(node.output)
    early = [name for name in trace.needs if name not in tail]
    outputs = [output.name for output in proto.graph.output]
    joint, alone = set(outputs).intersection(early), {i: set[str]() for i in range(trace.inputs)}
    for node in trace.nodes:
        late = node.output[0] in tail
        for name in node.input:
            if name not in trace.needs or name in tail:
                continue
            if late:
                joint.add(name)
            elif len(trace.needs[name]) == 1 and len(trace.needs[node.output[0]]) > 1:
                alone[next(iter(trace.needs[name]))].add(name)
    for name in joint:
        if len(trace.needs[name]) == 1:
            alone[next(iter(trace.needs[name]))].add(name)
    singles = {i: tuple(name for name in early if name in names) for i, names in alone.items()}
    late_outputs = tuple(name for name in outputs if name not in early)
    return GraphSplit(singles, tuple(name for name in early if name in joint), late_outputs)
