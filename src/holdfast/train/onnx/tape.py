"""What a value is while a graph is read for training, and the steps that a forward pass runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import numpy as np
import torch
from torch import Tensor

from holdfast.graph.lower.values import Build, Lowering, Node, Value, View

Run: TypeAlias = Callable[..., Any]  # (net, *inputs) -> a tensor, or a tuple of as many as the node has
_NOWHERE: Final = np.zeros(0, np.int64)


@dataclass(frozen=True, eq=False)
class Symbol(View):
    """A tensor of the forward pass by its number; to the walk it is a view, so that it is not folded.

    `name` is the weight it is, if it is one as the file holds it. `batched` says that it depends on the
    network's input.
    """

    number: int = 0
    name: str = ""
    batched: bool = False


@dataclass(frozen=True, eq=False)
class Step:
    """One node of the forward pass: what it runs on, which numbers it makes, which nobody reads after it."""

    node: Node
    run: Run
    inputs: tuple[int | Tensor | None, ...]
    outputs: tuple[int, ...]
    done: tuple[int, ...] = ()


@dataclass(frozen=True)
class Normalisation:
    """A normalising node and the weights it reads; an empty name: none, or not one of the file's weights."""

    node: str
    operator: str
    scale: str = ""
    bias: str = ""
    mean: str = ""
    variance: str = ""


class Tape(Build):
    """The steps in the order in which the walk came to them."""

    def __init__(self) -> None:
        super().__init__((), np.dtype(np.float32))
        self.tape: list[Step] = []
        self.normalisations: list[Normalisation] = []
        self.count = 0

    def symbol(self, name: str = "", batched: bool = False) -> Symbol:
        """A new value."""
        self.count += 1
        return Symbol(_NOWHERE, None, self.count - 1, name, batched)

    def normal(self, view: View) -> Value:
        """The value as it is."""
        return view

    def record(self, node: Node, run: Run) -> list[Value]:
        """The values of the outputs of a new step."""
        batched = any(isinstance(v, Symbol) and v.batched for v in node.inputs)
        made = [self.symbol(batched=batched) for _ in range(node.outputs)]
        inputs = tuple(_held(value) for value in node.inputs)
        numbers = tuple(symbol.number for symbol in made)
        self.tape.append(Step(replace(node, inputs=()), run, inputs, numbers))
        return list(made)

    def steps_to(self, last: int) -> tuple[Step, ...]:
        """The steps, each with the numbers that nobody reads after it; `last` is kept."""
        reads = ((value, at) for at, step in enumerate(self.tape) for value in step.inputs)
        uses = {value: at for value, at in reads if isinstance(value, int)}
        ends: dict[int, list[int]] = {}
        for number, at in uses.items():
            if number != last:
                ends.setdefault(at, []).append(number)
        return tuple(replace(step, done=tuple(ends.get(at, ()))) for at, step in enumerate(self.tape))


def recorded(makers: Mapping[str, Callable[[Node], Run]]) -> dict[str, Lowering]:
    """The lowerings that put one step on the tape, which runs what the node is made into."""

    def lowering(make: Callable[[Node], Run]) -> Lowering:
        return lambda node, build: tape_of(build).record(node, make(node))

    return {operator: lowering(make) for operator, make in makers.items()}


def tape_of(build: Build) -> Tape:
    """The build as the tape it is: operators for training know no other."""
    if not isinstance(build, Tape):
        raise TypeError(f"expected a tape, got {type(build).__name__}")
    return build


def is_batched(value: Value | None) -> bool:
    """Whether a value depends on the network's input."""
    return isinstance(value, Symbol) and value.batched


def name_of(node: Node, at: int) -> str:
    """The name of the weight that is input `at`; empty if it is none."""
    found = node.inputs[at] if at < len(node.inputs) else None
    return found.name if isinstance(found, Symbol) else ""


def _held(value: Value | None) -> int | Tensor | None:
    if value is None or isinstance(value, Symbol):
        return None if value is None else value.number
    return torch.from_numpy(np.array(value))  # a copy: arrays of a parsed file may not be written to
