"""An ONNX file opened for training: its weights, its steps, and a comparison with ONNX Runtime."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import Any, Final

from onnx import ModelProto, TensorProto, inliner, numpy_helper

from holdfast.core.errors import ModelError
from holdfast.graph.lower import OperatorTable, load_complete_proto, lower_nodes
from holdfast.graph.lower import moves as lower
from holdfast.graph.lower.values import Value
from holdfast.graph.nodes import needed
from holdfast.train.onnx import arithmetic, layers, moves
from holdfast.train.onnx.export import check_alike
from holdfast.train.onnx.net import ForwardPlan, Normalisation, Symbol, Tape, Trainable
from holdfast.train.onnx.restore import own_normalisation_weights

# Constants keep their type: for these two operators, lowering would return a view of floats.
_MOVES = {operator: move for operator, move in lower.OPERATORS.items() if operator not in ("Where", "Pad")}
_OPERATORS = {**layers.OPERATORS, **arithmetic.OPERATORS, **moves.OPERATORS}
TABLE = OperatorTable(_OPERATORS, _MOVES, "trained", "there is no differentiable operator for it")
_ENDINGS = ("Identity", "Flatten", "Reshape", "Squeeze")  # operators allowed after the last Softmax
QUANTISED: Final = (
    "QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul",
    "ConvInteger", "MatMulInteger",
)  # fmt: skip
# Operator -> inputs that are weights.
WEIGHTS: Final[Mapping[str, tuple[int, ...]]] = {
    "Conv": (1, 2),
    "ConvTranspose": (1, 2),
    "Gemm": (0, 1, 2),
    "MatMul": (0, 1),
    "Einsum": (0, 1, 2),
    "Gather": (0,),
    "PRelu": (1,),
    "BatchNormalization": (1, 2),
    "InstanceNormalization": (1, 2),
    "LayerNormalization": (1, 2),
    "GroupNormalization": (1, 2),
    "RMSNormalization": (1,),
}
STATISTICS: Final[Mapping[str, tuple[int, ...]]] = {"BatchNormalization": (3, 4)}
# Operators that only move values: a weight stays a weight behind them.
MOVES: Final = frozenset(
    ("Identity", "Dropout", "Cast", "Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Expand",
     "Tile", "Slice", "Split", "Concat")
)  # fmt: skip
ARITHMETIC: Final = frozenset(("Add", "Sub", "Mul", "Div", "Sum"))


def open_trainable(
    model: Path | Any, output: str = "", shape: tuple[int, ...] | None = None, *, own: bool = False
) -> Trainable:
    """The network of an ONNX file (a path or a parsed proto), in evaluation mode, with the file's statistics.

    `output` names the scores (the first output if empty), `shape` is that of one image, for files without a
    fixed shape. A last Softmax is dropped. With `own`, normalisations do not share scale and bias through
    Identity nodes; the network can then not be written back. Raise ModelError with the name of a node that
    cannot be trained.
    """
    if not isinstance(model, str | Path):
        return _opened(model, output, shape, own)
    try:
        return _opened(load_complete_proto(Path(model)), output, shape, own)
    except ModelError as problem:
        if str(problem).startswith(str(model)):
            raise
        raise type(problem)(f"{model}: {problem}") from problem


def _opened(proto: Any, output: str, shape: tuple[int, ...] | None, own: bool) -> Trainable:
    inlined = inliner.inline_local_functions(proto) if proto.functions else proto
    names = [port.name for port in inlined.graph.output]
    if output and output not in names:
        raise ModelError(f"expected an output {output!r}, got {', '.join(names)}")
    name = output or names[0]
    cut, dropped = _up_to_logits(inlined, name)
    _constants_to_initializers(cut.graph, {name for node in proto.graph.node for name in node.output})
    if own:
        own_normalisation_weights(cut.graph)
    nodes = needed(cut.graph)
    check_not_quantised(nodes)
    roles = roles_of(cut.graph, nodes)
    if not roles.weights:
        raise ModelError("no weights to train: expected float32 initializers that layers use, found none")
    arrays = {w.name: w for w in cut.graph.initializer}
    tape = Tape()
    fixed, image_shape, input_name = _entry(cut, arrays, shape)
    image_input = tape.symbol(batched=True)
    symbols = {key: tape.symbol() for key in (*roles.weights, *roles.statistics)}
    numbers = {key: symbol.number for key, symbol in symbols.items()}
    values: dict[str, Value] = {input_name: image_input, **symbols}
    values |= {n: numpy_helper.to_array(w) for n, w in arrays.items() if n not in numbers}
    (scores,) = lower_nodes(cut, tape, values, TABLE)
    if not isinstance(scores, Symbol) or not scores.batched:
        raise ModelError(f"output {name!r} does not depend on the image; expected a classifier")
    plan = ForwardPlan(
        proto=proto,
        steps=tuple(tape.tape),
        input=image_input.number,
        numbers=numbers,
        result=scores.number,
        shape=image_shape,
        fixed=fixed,
        output=name,
        dropped=dropped,
        normalisations=tuple(_normalisations(tape, numbers)),
        untrained=roles.untrained,
    )
    weights, statistics = (
        {n: numpy_helper.to_array(arrays[n]) for n in names} for names in (roles.weights, roles.statistics)
    )
    net = Trainable(plan, weights, statistics)
    net.eval()
    problems = []
    # With the batch of the file; with a batch of 1, which some files with a dynamic batch need; one by one.
    attempts = [plan] if plan.fixed else [plan, replace(plan, fixed=1)]
    for attempt in (*attempts, replace(plan, fixed=plan.fixed or 1, one_by_one=True)):
        net.plan = attempt
        try:
            check_alike(net, proto)
        except ModelError as problem:
            problems.append(problem)
        else:
            return net
    raise problems[0]


def _normalisations(tape: Tape, numbers: Mapping[str, int]) -> Iterator[Normalisation]:
    names: dict[Any, str] = {number: name for name, number in numbers.items()}
    for step in tape.tape:
        if step.node.operator.endswith("Normalization") and step.node.operator in WEIGHTS:
            weights = [names.get(given, "") for given in step.inputs[1:5]]
            yield Normalisation(step.node.name, step.node.operator, *weights)


def _constants_to_initializers(graph: Any, known: set[str]) -> None:
    """Convert float tensors of the file's Constant nodes to initializers: they may be weights."""
    for node in [n for n in graph.node if n.op_type == "Constant" and n.output[0] in known]:
        tensors = [a.t for a in node.attribute if a.name == "value"]
        if tensors and tensors[0].data_type == TensorProto.FLOAT and len(tensors[0].dims):
            initializer = graph.initializer.add()
            initializer.CopyFrom(tensors[0])
            initializer.name = node.output[0]
            graph.node.remove(node)


def _up_to_logits(proto: Any, output: str) -> tuple[Any, str]:
    """A copy that ends at that output, before a last Softmax, and the operator of this Softmax."""
    cut = ModelProto()
    cut.CopyFrom(proto)
    port = next(o for o in proto.graph.output if o.name == output)
    del cut.graph.output[:]
    cut.graph.output.add().CopyFrom(port)
    producers = {name: node for node in cut.graph.node for name in node.output}
    reader, name = None, output
    while name in producers and producers[name].op_type in _ENDINGS:
        reader = producers[name]
        name = reader.input[0]
    last = producers.get(name)
    if last is None or last.op_type not in ("Softmax", "LogSoftmax"):
        return cut, ""
    if reader is None:
        cut.graph.output[0].name = last.input[0]
    else:
        reader.input[0] = last.input[0]
    return cut, str(last.op_type)


def _entry(
    proto: Any, weights: dict[str, Any], shape: tuple[int, ...] | None
) -> tuple[int, tuple[int, ...], str]:
    """The fixed batch of the file (0: any), the shape of one image, and the name of the input."""
    inputs = [i for i in proto.graph.input if i.name not in weights]
    if len(inputs) != 1:
        raise ModelError(f"expected one input, the image, got {', '.join(i.name for i in inputs) or 'none'}")
    kind = inputs[0].type.tensor_type
    if kind.elem_type not in (TensorProto.FLOAT, TensorProto.UINT8):
        got = TensorProto.DataType.Name(kind.elem_type).lower()
        expected = f"expected float32 or uint8, got {got}; train the float32 file"
        raise ModelError(f"input {inputs[0].name!r}: {expected}")
    sizes = [d.dim_value if d.HasField("dim_value") else 0 for d in kind.shape.dim]
    image = shape or tuple(sizes[1:])
    if not sizes or 0 in image:
        raise ModelError(f"input {inputs[0].name!r}: expected a fixed size beyond the batch, got {sizes}")
    return sizes[0], image, inputs[0].name


def check_not_quantised(nodes: Sequence[Any]) -> None:
    """Raise ModelError with the first node if the model is quantised."""
    for node in nodes:
        if node.op_type in QUANTISED:
            raise ModelError(
                f"node {node.name or node.output[0]!r}: operator {node.op_type} cannot be trained: the model "
                "is quantised, and rounding has no gradient; train the float32 model it was made from"
            )


@dataclass(frozen=True)
class Roles:
    """Names of initializers: trained weights, running statistics, and untrained float constants."""

    weights: tuple[str, ...]
    statistics: tuple[str, ...]
    untrained: tuple[str, ...]


@dataclass
class _GraphFacts:
    """Facts about the values of a graph, collected node by node."""

    readers: dict[str, list[tuple[Any, int]]] = field(default_factory=dict)
    constant: set[str] = field(default_factory=set)
    # Values that depend on the input, before the first layer with weights.
    raw: set[str] = field(default_factory=set)


def roles_of(graph: Any, nodes: list[Any]) -> Roles:
    """The roles of the float32 initializers of a graph.

    A weight is an input of a layer (see WEIGHTS), directly or through moves; or it has more than one element
    and is added to or multiplied with values after the first layer. Factors and offsets before the first
    layer belong to the preprocessing and are no weights; neither are limits, scales, sizes and exponents.
    """
    floats = {w.name: w for w in graph.initializer if w.data_type == TensorProto.FLOAT}
    facts = _read(graph, nodes)
    statistics = [n for n in floats if _used(n, facts, STATISTICS)]
    weights = [n for n in floats if n not in statistics and _is_weight(n, prod(floats[n].dims), facts)]
    rest = [n for n in floats if n not in weights and n not in statistics]
    return Roles(tuple(weights), tuple(statistics), tuple(rest))


def _read(graph: Any, nodes: list[Any]) -> _GraphFacts:
    facts = _GraphFacts(constant={w.name for w in graph.initializer})
    facts.raw = {i.name for i in graph.input} - facts.constant
    for node in nodes:
        for index, name in enumerate(node.input):
            facts.readers.setdefault(name, []).append((node, index))
        live = [name for name in node.input if name and name not in facts.constant]
        if not live:
            facts.constant.update(node.output)
        elif node.op_type not in WEIGHTS and all(name in facts.raw for name in live):
            facts.raw.update(node.output)
    return facts


def _used(name: str, facts: _GraphFacts, table: Mapping[str, tuple[int, ...]]) -> bool:
    """Whether the value is an input listed in the table, directly or through an Identity."""
    for node, index in facts.readers.get(name, ()):
        if index in table.get(node.op_type, ()):
            return True
        if node.op_type == "Identity" and _used(node.output[0], facts, table):
            return True
    return False


def _is_weight(name: str, size: int, facts: _GraphFacts) -> bool:
    return _used(name, facts, WEIGHTS) or any(
        _takes_weight(node, name, size, facts) for node, _ in facts.readers.get(name, ())
    )


def _takes_weight(node: Any, name: str, size: int, facts: _GraphFacts) -> bool:
    """Whether that input of a moving or arithmetic node is a weight."""
    others = [i for i in node.input if i and i != name and i not in facts.constant]
    if not others:  # a moved or changed constant may be an input of a layer
        moved = node.op_type in MOVES or node.op_type in ARITHMETIC
        return moved and any(_is_weight(out, size, facts) for out in node.output)
    if node.op_type == "Concat":  # a token is joined to computed values
        return True
    return node.op_type in ARITHMETIC and size > 1 and not all(other in facts.raw for other in others)
