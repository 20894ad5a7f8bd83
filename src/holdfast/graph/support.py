"""Which nodes of an ONNX file verification supports, how each is lowered, and why others are not."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from onnx import helper

from holdfast.core.errors import ModelError
from holdfast.graph.inspect import inspect, known_shapes, opset_of
from holdfast.graph.ir import Activation, FreeInputs, Product, ScaleShift, Selection, Step, sources_of
from holdfast.graph.lower import load_complete_proto, lowered, prepare_graph
from holdfast.graph.lower.values import Node, StepBuilder, Value, View, node_of
from holdfast.graph.nodes import needed

_ROUNDING = ("Floor", "Ceil", "Round")
_ENUMERATED = "enumerated: evaluated in ONNX Runtime for every value of its rounded inputs"
_SOFTMAX = "last layer: the constraints are rewritten for its input"


@dataclass(frozen=True)
class NodeSupport:
    """One node and how it is lowered, or why it is not supported."""

    name: str
    operator: str
    supported: bool
    how: str


@dataclass(frozen=True)
class Support:
    """Every node of a network in order; `enumerated` says that inputs which are not rounded must be fixed."""

    nodes: tuple[NodeSupport, ...]
    inputs: int
    neurons: Mapping[str, int]

    @property
    def supported(self) -> bool:
        """Whether every node is supported."""
        return all(node.supported for node in self.nodes)

    @property
    def enumerated(self) -> bool:
        """Whether some nodes can only be decided value by value."""
        return any(node.how == _ENUMERATED for node in self.nodes)

    def summary(self) -> str:
        """One-line summary."""
        count = len(self.nodes)
        if bad := sum(not node.supported for node in self.nodes):
            return f"not supported: {bad} of {count} nodes; only a search for counterexamples is possible"
        if self.enumerated:
            return f"supported: all {count} nodes, if the property fixes every input that is not rounded"
        curves = ", ".join(f"{n:,} {curve}" for curve, n in self.neurons.items())
        return f"supported: all {count} nodes; {self.inputs:,} inputs, {curves or 'no'} neurons"

    def lines(self) -> list[str]:
        """One line for the nodes of an operator that are treated alike; those not supported first."""
        groups: dict[tuple[bool, str, str], list[str]] = {}
        for node in self.nodes:
            groups.setdefault((node.supported, node.operator, node.how), []).append(node.name)
        kind = max((len(node.operator) for node in self.nodes), default=0)
        count = max((len(str(len(names))) for names in groups.values()), default=0)
        lines = []
        for (supported, operator, how), names in sorted(groups.items(), key=lambda group: group[0][0]):
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            which = "" if supported else f"{names[0]}{more}: "
            mark = "yes" if supported else "NO "
            lines.append(f"{mark}  {operator:{kind}}  {len(names):{count}} ×  {which}{how}")
        return lines

    def to_dict(self) -> dict[str, Any]:
        """Every node and the counts as plain values."""
        return {"supported": self.supported, "summary": self.summary(), **asdict(self)}


def report(path: Path) -> tuple[str, Support]:
    """A file's support as text: the summary, inputs and outputs, the operators; and the support itself."""
    nodes, info = support(path), inspect(path)
    tensors = [f"input    {tensor}" for tensor in info.inputs] + [f"output   {t}" for t in info.outputs]
    return "\n".join([nodes.summary(), *tensors, *nodes.lines()]), nodes


def support(model: Any) -> Support:
    """Support of each node of an ONNX file (a path or a parsed proto), all inputs free.

    The graph is lowered as it would be for a proof. After an unsupported node the walk continues
    with a value of the shape ONNX infers, so that all unsupported nodes are reported together.
    """
    proto = load_complete_proto(Path(model)) if isinstance(model, str | Path) else model
    entry = prepare_graph(proto, drop_softmax=True)
    walk = _SupportCheck(entry.proto, entry.build, entry.values)
    required = {name for node in needed(entry.proto.graph) for name in node.output}
    nodes = []
    for node in entry.proto.graph.node:
        used = required.intersection(node.output)
        outcome = walk.visit(node) if used else (True, "unused: no output needs it")
        nodes.append(NodeSupport(_name(node), node.op_type, *outcome))
    neurons: Counter[str] = Counter()
    for step in (step for step in entry.build.steps if isinstance(step, Activation)):
        neurons[step.curve] += prod(step.shape)
    return Support(tuple(nodes), len(entry.free), neurons)


def _name(node: Any) -> str:
    return str(node.name or (node.output[0] if node.output else node.op_type))


class _SupportCheck:
    """Values so far; names in `rounded` depend on a rounding, those in `unknown` on unknown values."""

    def __init__(self, proto: Any, build: StepBuilder, values: dict[str, Value]) -> None:
        self.build, self.values = build, values
        self.opset = opset_of(proto) or 1
        self.outputs = {o.name for o in proto.graph.output}
        self.shapes = known_shapes(proto)
        self.rounded: set[str] = set()
        self.unknown: dict[str, str] = {}

    def visit(self, proto: Any) -> tuple[bool, str]:
        """Record the values of a node's outputs; return whether it is supported and how it is lowered."""
        if self.rounded.intersection(proto.input):
            self.rounded.update(proto.output)
            return True, _ENUMERATED
        unknown = next((self.unknown[i] for i in proto.input if i in self.unknown), None)
        if unknown is not None:
            self.unknown.update(dict.fromkeys(proto.output, unknown))
            return False, f"not reached: {unknown} has an unknown shape"
        inputs = tuple(self.values.get(i) if i else None for i in proto.input)
        node = node_of(proto, inputs, self.opset, self.outputs)
        before = len(self.build.steps)
        try:
            outputs = lowered(node, proto.domain, self.build)
        except ModelError as problem:
            if self._rounds(node):
                self.rounded.update(proto.output)
                return True, _ENUMERATED
            # the walk continues with fresh values in place of the node's outputs, where their shape is known
            for output in proto.output:
                if output in self.shapes:
                    shape = self.shapes[output]
                    self.values[output] = self.build.all_of(self.build.emit(FreeInputs(shape)), shape)
                else:
                    self.unknown[output] = f"node {_name(proto)!r}"
            return False, str(problem).split("cannot be lowered: ", 1)[-1]
        for output, value in zip(proto.output, outputs, strict=False):
            self.values[output] = self.build.normal(value) if isinstance(value, View) else value
        return True, _how(node, self.build.steps[before:])

    def _rounds(self, node: Node) -> bool:
        """Whether a node rounds values that come from one input each: those can be enumerated."""
        view = node.inputs[0] if node.inputs else None
        rounds = node.operator in _ROUNDING
        if node.operator == "Cast":
            to = helper.tensor_dtype_to_np_dtype(int(node.attributes["to"]))
            rounds = np.dtype(to).kind in "iub"
        if not isinstance(view, View) or not rounds:
            return False
        live = view.index[view.index >= 0]
        return all(self._single(step) for step in {self.build.owner(int(i)) for i in live})

    def _single(self, step: int) -> bool:
        """Whether each element of a step depends on one element of the inputs."""
        source = self.build.steps[step]
        if isinstance(source, FreeInputs):
            return step == 0
        relu = isinstance(source, Activation) and source.curve == "relu"
        elementwise = relu or isinstance(source, ScaleShift | Selection)
        return elementwise and all(self._single(s) for s in sources_of(source))


def _how(node: Node, emitted: list[Step]) -> str:
    """How a node was lowered, judged by the steps it produced."""
    if node.operator in ("Softmax", "LogSoftmax") and any(isinstance(v, View) for v in node.inputs):
        return _SOFTMAX
    if not any(isinstance(v, View) for v in node.inputs):
        return "constant: folded"
    curves = {step.curve: 0 for step in emitted if isinstance(step, Activation)}
    if any(isinstance(step, Product) for step in emitted):
        return "product of two values" + "".join(f", {curve}" for curve in curves)
    if curves:
        return ", ".join(curves)
    if all(isinstance(step, Selection) for step in emitted):
        return "reshaped: no arithmetic"
    return "linear"
