"""An ONNX classifier as a torch module: its own graph, its own weights, in native torch operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from holdfast.core.errors import HoldfastError, InputError
from holdfast.graph.lower.values import Lowering, Node, StepBuilder, Value, View

OperatorRun: TypeAlias = Callable[..., Any]  # (net, node, *inputs) -> one tensor per output of the node
_NOWHERE: Final = np.zeros(0, np.int64)
Statistics: TypeAlias = Literal["file", "batch", "moving"]
# Errors of torch for invalid values of an operator; they are reported with the node.
_TORCH_ERRORS: Final = (RuntimeError, ValueError, IndexError, TypeError, KeyError, ZeroDivisionError)


@dataclass(frozen=True, eq=False)
class Symbol(View):
    """A tensor of the forward pass by its number; it is a view, so that lowering does not fold it.

    `batched`: it depends on the network's input.
    """

    number: int = 0
    batched: bool = False


@dataclass(frozen=True, eq=False)
class GraphStep:
    """One node of the forward pass: its inputs, and the numbers of its outputs."""

    node: Node
    run: OperatorRun
    inputs: tuple[int | Tensor | None, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True)
class Normalisation:
    """A normalising node and the weights it reads; an empty name: none, or not one of the file's weights."""

    node: str
    operator: str
    scale: str = ""
    bias: str = ""
    mean: str = ""
    variance: str = ""


class Tape(StepBuilder):
    """The recorded steps in the order of the graph."""

    def __init__(self) -> None:
        super().__init__((), np.dtype(np.float32))
        self.tape: list[GraphStep] = []
        self.count = 0

    def symbol(self, batched: bool = False) -> Symbol:
        """A new value."""
        self.count += 1
        return Symbol(_NOWHERE, None, self.count - 1, batched)

    def normal(self, view: View) -> Value:
        """The unchanged value."""
        return view

    def record(self, node: Node, run: OperatorRun) -> list[Value]:
        """Record a new step and return the values of its outputs."""
        batched = any(map(is_batched, node.inputs))
        symbols = [self.symbol(batched) for _ in range(node.outputs)]
        # Arrays are copied, because those of a parsed file are read-only.
        inputs = tuple(
            v.number if isinstance(v, Symbol) else None if v is None else torch.from_numpy(np.array(v))
            for v in node.inputs
        )
        outputs = tuple(symbol.number for symbol in symbols)
        self.tape.append(GraphStep(replace(node, inputs=()), run, inputs, outputs))
        return list(symbols)


def record_operators(runs: Mapping[str, OperatorRun]) -> dict[str, Lowering]:
    """The lowerings that record one step with the function of the operator."""

    def lowering(run: OperatorRun) -> Lowering:
        return lambda node, build: tape_of(build).record(node, run)

    return {operator: lowering(run) for operator, run in runs.items()}


def plain(function: Callable[..., Tensor]) -> OperatorRun:
    """The step of a function that needs only its inputs."""
    return lambda net, node, *inputs: function(*inputs)


def tape_of(build: StepBuilder) -> Tape:
    """The builder as a tape. Raise TypeError for any other builder."""
    if not isinstance(build, Tape):
        raise TypeError(f"expected a tape, got {type(build).__name__}")
    return build


def is_batched(value: Value | None) -> bool:
    """Whether a value depends on the network's input."""
    return isinstance(value, Symbol) and value.batched


@dataclass(frozen=True, eq=False)
class ForwardPlan:
    """The forward pass: steps, the numbers of input, weights and output, and facts about the file."""

    proto: Any  # the opened file
    steps: tuple[GraphStep, ...]
    input: int
    numbers: Mapping[str, int]  # weights and statistics by name
    result: int
    shape: tuple[int, ...]  # of one image
    fixed: int  # the fixed batch of the file; 0: any
    output: str
    dropped: str  # the operator of a last Softmax that is dropped; empty: none
    normalisations: tuple[Normalisation, ...]
    untrained: tuple[str, ...]  # float constants that are no weights
    one_by_one: bool = False  # the batch of the file cannot be changed


class Trainable(nn.Module):
    """The network of an ONNX file; parameters and buffers have the names of the file's initializers.

    The file is never modified; `export_trained` creates a new one.
    """

    def __init__(
        self, plan: ForwardPlan, weights: Mapping[str, NDArray[Any]], statistics: Mapping[str, NDArray[Any]]
    ) -> None:
        super().__init__()
        self.plan = plan
        self.mode: Statistics = "file"
        self.count = 1  # images of the current forward pass
        # Set directly: ONNX names contain dots, which register_parameter rejects.
        for name, value in weights.items():
            self._parameters[name] = nn.Parameter(torch.from_numpy(np.array(value)))
        for name, value in statistics.items():
            self._buffers[name] = torch.from_numpy(np.array(value))

    @property
    def weights(self) -> dict[str, Tensor]:
        """The trained weights by the names they have in the file."""
        return {name: value for name, value in self._parameters.items() if value is not None}

    @property
    def normalisations(self) -> tuple[Normalisation, ...]:
        """The normalising nodes of the graph, in its order."""
        return self.plan.normalisations

    def statistics(self, mode: Statistics) -> Trainable:
        """Set the statistics of batch normalisation and return the network.

        "file": the running averages of the file, unchanged. "batch": those of the batch, not stored.
        "moving": in training those of the batch, which update the running averages; otherwise the running
        averages.
        """
        if mode not in get_args(Statistics):
            raise InputError(f"statistics: expected {', '.join(get_args(Statistics))}, got {mode!r}")
        batched = any(norm.operator == "BatchNormalization" for norm in self.normalisations)
        if mode != "file" and batched and self.plan.one_by_one:
            raise InputError(
                f"the file is made for a batch of {self.plan.fixed}, so there are no statistics of a batch; "
                'export the model with a free batch, or use statistics "file"'
            )
        if mode == "moving":
            self._check_movable()
        self.mode = mode
        return self

    def _check_movable(self) -> None:
        owners: dict[str, str] = {}
        reason, hint = "", 'so they cannot be moved; use statistics "file"'
        batch = (op for op in self.normalisations if op.operator == "BatchNormalization")
        for node, name in ((op.node, name) for op in batch for name in (op.mean, op.variance)):
            if not name:
                reason = f"node {node!r}: its running statistics are no float32 initializers of the file"
            elif (other := owners.setdefault(name, node)) != node:
                reason = f"nodes {other!r} and {node!r} share the running statistics {name!r}"
            if reason:
                raise InputError(f"{reason}, {hint}")

    def to(self, *args: Any, **kwargs: Any) -> Any:
        """The network after `nn.Module.to`; memory formats apply to weights with four axes only."""
        form = kwargs.pop("memory_format", None)
        if form is not None:
            for value in self.weights.values():
                value.data = value.data.to(memory_format=form) if value.ndim == 4 else value.data
        return super().to(*args, **kwargs) if args or kwargs else self

    def forward(self, x: Tensor) -> Tensor:
        """The scores (n, k) before a last Softmax, of images (n, …) in the model's layout."""
        if self.plan.one_by_one and len(x) > self.plan.fixed:
            return torch.cat([self._run(part) for part in x.split(self.plan.fixed)])
        return self._run(x)

    def _run(self, x: Tensor) -> Tensor:
        self.count = len(x)
        tensors: dict[str, Any] = {**self._parameters, **self._buffers}
        values: dict[int, Tensor] = {number: tensors[name] for name, number in self.plan.numbers.items()}
        values[self.plan.input] = x
        for step in self.plan.steps:
            inputs = [values[v] if isinstance(v, int) else v for v in step.inputs]
            try:
                outputs = step.run(self, step.node, *inputs)
            except HoldfastError:
                raise
            except _TORCH_ERRORS as problem:
                raise step.node.fail(f"{type(problem).__name__}: {problem}") from problem
            outputs = outputs if isinstance(outputs, tuple) else (outputs,)
            values.update(zip(step.outputs, outputs, strict=True))
        result = values[self.plan.result]
        return result.flatten(1) if result.ndim > 2 else result

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        # torch would look for names with a dot in a child module.
        _metadata, _strict, missing_keys, unexpected_keys, _errors = rest
        tensors: dict[str, Any] = {**self._parameters, **self._buffers}
        missing_keys += [prefix + name for name in tensors if prefix + name not in state_dict]
        unexpected_keys += [k for k in state_dict if k.startswith(prefix) and k[len(prefix) :] not in tensors]
        with torch.no_grad():
            for name, value in tensors.items():
                if prefix + name in state_dict:
                    value.copy_(state_dict[prefix + name])
