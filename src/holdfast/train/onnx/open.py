"""An ONNX file opened for training: parsed once, compared with ONNX Runtime before it is handed out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from holdfast.core.errors import ModelError
from holdfast.graph.lower import walked, whole_proto
from holdfast.graph.lower.values import Value
from holdfast.graph.nodes import needed
from holdfast.train.onnx.check import check_alike
from holdfast.train.onnx.net import Plan, Trainable
from holdfast.train.onnx.operators import TABLE
from holdfast.train.onnx.operators.quantised import check_not_quantised
from holdfast.train.onnx.roles import roles_of
from holdfast.train.onnx.tape import Symbol, Tape

_ENDINGS = ("Identity", "Flatten", "Reshape", "Squeeze")  # what may stand behind the last Softmax


def open_trainable(model: Path | Any, output: str = "", shape: tuple[int, ...] | None = None) -> Trainable:
    """The network of an ONNX file (a path or a parsed proto), in evaluation mode, by the file's statistics.

    `output` names the scores (the first output if empty), `shape` is that of one image, for files that leave
    it open. A last Softmax is left out. A node that cannot be trained raises a ModelError that names it.
    """
    if not isinstance(model, str | Path):
        return _opened(model, output, shape)
    try:
        return _opened(whole_proto(Path(model)), output, shape)
    except ModelError as problem:
        if str(problem).startswith(str(model)):
            raise
        raise type(problem)(f"{model}: {problem}") from problem


def _opened(proto: Any, output: str, shape: tuple[int, ...] | None) -> Trainable:
    from onnx import inliner, numpy_helper

    whole = inliner.inline_local_functions(proto) if proto.functions else proto
    name = _output(whole, output)
    cut, dropped = _up_to_logits(whole, name)
    _take_constants(cut.graph, {name for node in proto.graph.node for name in node.output})
    nodes = needed(cut.graph)
    check_not_quantised(nodes)
    roles = roles_of(cut.graph, nodes)
    if not roles.weights:
        raise ModelError("no weights to train: expected float32 initializers that layers use, found none")
    arrays = {w.name: w for w in cut.graph.initializer}
    tape, values = Tape(), dict[str, Value]()
    fixed, image, entry = _entry(cut, arrays, shape)
    given = tape.symbol(batched=True)
    values[entry] = given
    numbers = {}
    for key in (*roles.weights, *roles.statistics):
        symbol = tape.symbol(key)
        values[key], numbers[key] = symbol, symbol.number
    values |= {n: numpy_helper.to_array(w) for n, w in arrays.items() if n not in numbers}
    (found,) = walked(cut, tape, values, TABLE)
    if not isinstance(found, Symbol) or not found.batched:
        raise ModelError(f"output {name!r} does not depend on the image; expected a classifier")
    plan = Plan(
        proto, tape.steps_to(found.number), given.number, numbers, found.number, image, fixed, name, dropped,
        tuple(tape.normalisations), roles.kept,
    )  # fmt: skip
    held = [
        {n: numpy_helper.to_array(arrays[n]) for n in names} for names in (roles.weights, roles.statistics)
    ]
    net = Trainable(plan, *held)
    net.eval()
    problems = []
    for attempt in _attempts(plan):
        net.plan = attempt
        try:
            check_alike(net, proto)
        except ModelError as problem:
            problems.append(problem)
        else:
            return net
    raise problems[0]


def _attempts(plan: Plan) -> Iterator[Plan]:
    """The plan as the file states its batch; then as if it were made for one image; then one by one."""
    yield plan
    if not plan.fixed:  # a file may say that it takes any batch and yet have been made for one image
        yield replace(plan, fixed=1)
    yield replace(plan, fixed=plan.fixed or 1, one_by_one=True)


def _take_constants(graph: Any, known: set[str]) -> None:
    """Nothing; float tensors that Constant nodes of the file hold are initializers, as weights may be."""
    from onnx import TensorProto

    for node in [n for n in graph.node if n.op_type == "Constant" and n.output[0] in known]:
        held = [a.t for a in node.attribute if a.name == "value"]
        if held and held[0].data_type == TensorProto.FLOAT and len(held[0].dims):
            taken = graph.initializer.add()
            taken.CopyFrom(held[0])
            taken.name = node.output[0]
            graph.node.remove(node)


def _output(proto: Any, wanted: str) -> str:
    names = [o.name for o in proto.graph.output]
    if wanted and wanted not in names:
        raise ModelError(f"expected an output {wanted!r}, got {', '.join(names)}")
    return wanted or names[0]


def _up_to_logits(proto: Any, output: str) -> tuple[Any, str]:
    """A copy that ends at that output, before a Softmax if that is the last thing done, and its operator."""
    import onnx

    cut = onnx.ModelProto()
    cut.CopyFrom(proto)
    kept = next(o for o in proto.graph.output if o.name == output)
    del cut.graph.output[:]
    cut.graph.output.add().CopyFrom(kept)
    makers = {name: node for node in cut.graph.node for name in node.output}
    reader, name = None, output
    while name in makers and makers[name].op_type in _ENDINGS:
        reader = makers[name]
        name = reader.input[0]
    last = makers.get(name)
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
    """The batch written into the file (0: any), the shape of one image, and the name of the input."""
    from onnx import TensorProto

    given = [i for i in proto.graph.input if i.name not in weights]
    if len(given) != 1:
        raise ModelError(f"expected one input, the image, got {', '.join(i.name for i in given) or 'none'}")
    kind = given[0].type.tensor_type
    if kind.elem_type not in (TensorProto.FLOAT, TensorProto.UINT8):
        got = TensorProto.DataType.Name(kind.elem_type).lower()
        raise ModelError(
            f"input {given[0].name!r}: expected float32 or uint8, got {got}; train the float32 file"
        )
    sizes = [d.dim_value if d.HasField("dim_value") else 0 for d in kind.shape.dim]
    image = shape or tuple(sizes[1:])
    if not sizes or 0 in image:
        raise ModelError(f"input {given[0].name!r}: expected a fixed size beyond the batch, got {sizes}")
    return sizes[0], image, given[0].name
