"""The graph after the cuts in two: a cheap head run for every cell, and a tail for what is new after it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.verify.finite.trace import Trace

# Where real work begins: a head ends before these.
_PRODUCTS = ("Einsum", "Gemm", "MatMul", "MatMulInteger", "QLinearMatMul")
_FILTERS = ("Conv", "ConvInteger", "ConvTranspose", "DeformConv", "QLinearConv")
HEAVY = frozenset((*_PRODUCTS, *_FILTERS, "GRU", "LSTM", "RNN"))


@dataclass(frozen=True, eq=False)
class Split:
    """The tensors between the parts, by name.

    `alone` are, for each free input, the tensors of the head that depend on nothing else and go where more
    is mixed in; `joint` are those the tail reads or the graph gives out.
    """

    alone: Mapping[int, tuple[str, ...]]
    joint: tuple[str, ...]
    late: tuple[str, ...]  # outputs of the graph that the tail computes


def split(proto: Any, trace: Trace) -> Split:
    """How the graph after the cuts is parted into head and tail."""
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
    return Split(singles, tuple(name for name in early if name in joint), late_outputs)
