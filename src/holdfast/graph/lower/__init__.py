"""ONNX files lowered to the steps of `holdfast.graph.ir`, over the inputs that are free."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from onnx import external_data_helper, helper, inliner, numpy_helper

from holdfast.core.errors import ModelError
from holdfast.graph.inspect import STANDARD, load_proto, opset_of
from holdfast.graph.ir import Array, Net
from holdfast.graph.lower import conv, curves, matrix, moves
from holdfast.graph.lower.growth import check_size
from holdfast.graph.lower.tidy import tidied
from holdfast.graph.lower.values import (
    Lowering,
    Node,
    StepBuilder,
    Value,
    View,
    as_view,
    constant_of,
    folded,
    natural,
    node_of,
)
from holdfast.graph.nodes import RANDOM, attributes_of, needed

_TABLES = (moves.OPERATORS, matrix.OPERATORS, conv.OPERATORS, curves.OPERATORS)
OPERATORS: Mapping[str, Lowering] = {name: lower for table in _TABLES for name, lower in table.items()}


class OperatorTable(NamedTuple):
    """How nodes are lowered: one function per operator, and the message for unsupported ones."""

    operators: Mapping[str, Lowering] = OPERATORS
    moves: Mapping[str, Lowering] = moves.OPERATORS  # of constants: ONNX Runtime would need a session each
    aim: str = "lowered"
    unknown: str = "it is not linear, piecewise linear or one of the known curves"


STEPS = OperatorTable()
# Malformed nodes make numpy raise one of these; the node is then named.
_NUMPY_ERRORS = (ValueError, IndexError, KeyError, TypeError, AttributeError, ZeroDivisionError)


def lower_nodes(
    proto: Any, build: StepBuilder, values: dict[str, Value], table: OperatorTable = STEPS
) -> list[Value]:
    """The values of the graph's outputs, given those of its inputs; `values` is used up."""
    graph = proto.graph
    opset = opset_of(proto) or 1
    outputs = [o.name for o in graph.output]
    nodes = needed(graph)
    uses = Counter([*outputs, *(name for node in nodes for name in node.input)])
    for node in nodes:
        if missing := [name for name in node.input if name and name not in values]:
            where = f"node {node.name or node.output[0]!r}"
            problem = f"its input {missing[0]!r} is not an input, a weight or an output supported"
            raise ModelError(f"{where}: {problem} of an earlier node; expected a sorted graph")
        inputs = tuple(values[name] if name else None for name in node.input)
        parsed = node_of(node, inputs, opset, set(outputs), table.aim)
        results = lowered(parsed, node.domain, build, table)
        for name, value in zip(node.output, results, strict=False):
            values[name] = build.normal(value) if isinstance(value, View) else value
        for name in node.input:  # release values after their last use
            uses[name] -= 1
            if name and not uses[name]:
                values.pop(name, None)
    for name in outputs:
        if name not in values:
            raise ModelError(f"output {name!r} is not computed by any node; expected a complete graph")
    return [values[name] for name in outputs]


def lowered(node: Node, domain: str, build: StepBuilder, table: OperatorTable = STEPS) -> list[Value]:
    """The values of a node's outputs; the steps they need are emitted."""
    if domain not in STANDARD:
        raise node.fail(f"operators of the domain {domain!r} are not supported")
    if node.operator == "Constant":
        return [constant_of(node)]
    if node.operator in RANDOM:
        raise node.fail("it draws random numbers")
    dropped = build.drop_softmax and node.last and node.operator in ("Softmax", "LogSoftmax")
    constant = not dropped and all(not isinstance(v, View) for v in node.inputs)
    check_size(node)
    lower = (table.moves if constant else table.operators).get(node.operator)
    try:
        if lower is not None:
            return lower(node, build)
        if constant:
            return list(folded(node))
        raise node.fail(table.unknown)
    except _NUMPY_ERRORS as problem:
        raise node.fail(f"{type(problem).__name__}: {problem}") from problem


def lower_onnx(
    model: Any,
    lower: ArrayLike | None = None,
    upper: ArrayLike | None = None,
    *,
    drop_softmax: bool = False,
    as_evaluated: bool = False,
) -> Net:
    """The network of an ONNX file (a path or a parsed proto) as steps over its free inputs.

    `lower` and `upper` are flat bounds of the whole input: where both are one number of the input's type the
    input is fixed and folded away; without them every input is free. A Softmax as last layer is an error
    unless `drop_softmax` says that outputs are only compared with each other, which it does not change.
    With `as_evaluated` every operation that a runtime rounds stays a step, fixed inputs included, and the
    net's `roundoff` is that of the coarsest type in the file. An error names the node that is not supported.
    """
    bounds, is_path = None, isinstance(model, str | Path)
    if lower is not None and upper is not None:
        bounds = np.asarray(lower, np.float64).ravel(), np.asarray(upper, np.float64).ravel()
        if bounds[0].shape != bounds[1].shape:
            raise ModelError(f"expected bounds of one size, got {bounds[0].size} and {bounds[1].size}")
    try:
        proto = load_complete_proto(Path(model)) if is_path else model
        return _lower(proto, bounds, drop_softmax, as_evaluated)
    except ModelError as problem:
        if not is_path or str(problem).startswith(str(model)):
            raise
        raise type(problem)(f"{model}: {problem}") from problem


def load_complete_proto(path: Path) -> Any:
    """The parsed ONNX file with the weights stored next to it."""
    proto = load_proto(path)
    external_data_helper.load_external_data_for_model(proto, str(path.parent))
    return proto


def _lower(proto: Any, bounds: tuple[Array, Array] | None, drop_softmax: bool, as_evaluated: bool) -> Net:
    entry = prepare_graph(proto, bounds, drop_softmax, as_evaluated)
    outputs = [as_view(v) for v in lower_nodes(entry.proto, entry.build, entry.values)]
    index = np.concatenate([v.index.ravel() for v in outputs])
    fill = np.concatenate([v.filled().ravel() for v in outputs])
    step = entry.build.step_holding(View(index, None if (index >= 0).all() else fill))
    steps = tidied(tuple(entry.build.steps), step, as_evaluated)
    # the unit roundoff is that of the coarsest floating-point type that values pass through
    casts = [attributes_of(node)["to"] for node in needed(entry.proto.graph) if node.op_type == "Cast"]
    kinds = [entry.build.dtype, *(np.dtype(helper.tensor_dtype_to_np_dtype(to)) for to in casts)]
    roundoff = max(float(np.finfo(kind).eps) / 2 for kind in kinds if kind.kind == "f")
    return Net(steps, entry.free, entry.template, roundoff if as_evaluated else 0.0)


@dataclass(frozen=True, eq=False)
class PreparedGraph:
    """A graph ready to be lowered: its own functions inlined, its inputs and weights as values."""

    proto: Any
    build: StepBuilder
    values: dict[str, Value]
    free: NDArray[np.int64]
    template: Array


def prepare_graph(
    proto: Any,
    bounds: tuple[Array, Array] | None = None,
    drop_softmax: bool = False,
    as_evaluated: bool = False,
) -> PreparedGraph:
    """Inline functions and give the inputs and weights their initial values."""
    if proto.functions:
        proto = inliner.inline_local_functions(proto)
    weights = {w.name: numpy_helper.to_array(w) for w in proto.graph.initializer}
    graph_inputs = [i for i in proto.graph.input if i.name not in weights]
    shapes = _input_shapes(graph_inputs, None if bounds is None else len(bounds[0]))
    size = sum(prod(s) for s in shapes)
    kinds = [np.dtype(helper.tensor_dtype_to_np_dtype(i.type.tensor_type.elem_type)) for i in graph_inputs]
    for value, kind in zip(graph_inputs, kinds, strict=True):
        if kind.kind != "f":
            raise ModelError(f"input {value.name!r}: expected floating-point values, got {kind.name}")
    dtype = kinds[0]
    fixed, template = np.zeros(size, bool), np.zeros(size)
    if bounds is not None:
        with np.errstate(over="ignore"):
            low, high = (b.astype(dtype) for b in bounds)
        fixed = low == high
        template = np.where(fixed, low.astype(np.float64), 0.0)
    free = np.flatnonzero(~fixed)
    all_free = len(free) == size and len(shapes) == 1
    build = StepBuilder(natural(shapes[0]) if all_free else (len(free),), dtype, drop_softmax, as_evaluated)
    index = np.full(size, -1, np.int64)
    index[free] = np.arange(len(free))
    values: dict[str, Value] = dict(weights)
    ends = np.cumsum([prod(shape) for shape in shapes])[:-1]
    parts = zip(graph_inputs, shapes, np.split(index, ends), np.split(template, ends), strict=True)
    for value, shape, own, fill in parts:
        values[value.name] = build.normal(View(own.reshape(shape), fill.reshape(shape)))
    template = template.reshape(shapes[0]) if len(shapes) == 1 else template
    return PreparedGraph(proto, build, values, free, template)


def _input_shapes(graph_inputs: list[Any], size: int | None) -> list[tuple[int, ...]]:
    """The shape of each input; one that is free is a batch of 1, or what the number of inputs says."""
    dims = [value.type.tensor_type.shape.dim for value in graph_inputs]
    shapes = [[d.dim_value if d.dim_value > 0 else None for d in each] for each in dims]
    for shape in shapes:
        if shape and shape[0] is None and (len(shape) > 1 or size is None or len(shapes) > 1):
            shape[0] = 1
    if len(shapes) == 1 and size is not None:
        only, fixed = shapes[0], prod(d for d in shapes[0] if d is not None)
        if only.count(None) == 1 and fixed and size % fixed == 0:
            shapes[0] = [size // fixed if d is None else d for d in only]
        elif only and None not in only and prod(d or 1 for d in only[1:]) == size != fixed:
            shapes[0] = [1, *only[1:]]  # a batch written into the file
    for value, shape in zip(graph_inputs, shapes, strict=True):
        if None in shape:
            got = f"got {tuple('?' if d is None else d for d in shape)}; export the model with fixed sizes"
            raise ModelError(f"input {value.name!r}: expected a fixed shape beyond the batch, {got}")
    complete = [tuple(int(d) for d in shape if d is not None) for shape in shapes]
    total = sum(prod(s) for s in complete)
    if not complete or (size is not None and total != size):
        raise ModelError(f"expected bounds of {total} inputs {complete}, got {size}")
    return complete
