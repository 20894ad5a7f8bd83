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

OperatorRun: TypeAlias = Callable[
    ..., Any
]  # (net, node, *inputs) -> a tensor, or as many as the node has outputs
_NOWHERE: Final = np.zeros(0, np.int64)
Statistics: TypeAlias = Literal["file", "batch", "moving"]
# What torch raises for values that do not fit an operator; the node is then named.
_TORCH_ERRORS: Final = (RuntimeError, ValueError, IndexError, TypeError, KeyError, ZeroDivisionError)


@dataclass(frozen=True, eq=False)
class Symbol(View):
    """A tensor of the forward pass by its number; to the walk it is a view, so that it is not folded.

    `batched` says that it depends on the network's input.
    """

    number: int = 0
    batched: bool = False


@dataclass(frozen=True, eq=False)
class GraphStep:
    """One node of the forward pass: what it runs on, and the numbers of what it makes."""

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
    """The steps in the order in which the walk came to them."""

    def __init__(self) -> None:
        super().__init__((), np.dtype(np.float32))
        self.tape: list[GraphStep] = []
        self.count = 0

    def symbol(self, batched: bool = False) -> Symbol:
        """A new value."""
        self.count += 1
        return Symbol(_NOWHERE, None, self.count - 1, batched)

    def normal(self, view: View) -> Value:
        """The value as it is."""
        return view

    def record(self, node: Node, run: OperatorRun) -> list[Value]:
        """The values of the outputs of a new step."""
        batched = any(map(is_batched, node.inputs))
        made = [self.symbol(batched) for _ in range(node.outputs)]
        # Arrays are copied: those of a parsed file may not be written to.
        inputs = tuple(
            v.number if isinstance(v, Symbol) else None if v is None else torch.from_numpy(np.array(v))
            for v in node.inputs
        )
        self.tape.append(GraphStep(replace(node, inputs=()), run, inputs, tuple(one.number for one in made)))
        return list(made)


def record_operators(runs: Mapping[str, OperatorRun]) -> dict[str, Lowering]:
    """The lowerings that each put one step with the function of the operator on the tape."""

    def lowering(run: OperatorRun) -> Lowering:
        return lambda node, build: tape_of(build).record(node, run)

    return {operator: lowering(run) for operator, run in runs.items()}


def plain(function: Callable[..., Tensor]) -> OperatorRun:
    """The step of a function of its inputs alone."""
    return lambda net, node, *inputs: function(*inputs)


def tape_of(build: StepBuilder) -> Tape:
    """The build as the tape it is: operators for training know no other."""
    if not isinstance(build, Tape):
        raise TypeError(f"expected a tape, got {type(build).__name__}")
    return build


def is_batched(value: Value | None) -> bool:
    """Whether a value depends on the network's input."""
    return isinstance(value, Symbol) and value.batched


@dataclass(frozen=True, eq=False)
class ForwardPlan:
    """What a forward pass does: steps, the numbers of input, weights and output, and what they belong to."""

    proto: Any  # the file as it was opened
    steps: tuple[GraphStep, ...]
    given: int
    numbers: Mapping[str, int]  # weights and statistics by name
    result: int
    shape: tuple[int, ...]  # of one image
    fixed: int  # the batch that is written into the file; 0: any
    output: str
    dropped: str  # the operator of a last Softmax that is dropped; empty: none
    normalisations: tuple[Normalisation, ...]
    kept: tuple[str, ...]
    one_by_one: bool = False  # the batch of the file stands where it cannot be made another


class Trainable(nn.Module):
    """The network of an ONNX file; parameters and buffers have the names of the file's initializers.

    It never writes to the file it came from; `written` makes a new one of it.
    """

    def __init__(
        self, plan: ForwardPlan, weights: Mapping[str, NDArray[Any]], statistics: Mapping[str, NDArray[Any]]
    ) -> None:
        super().__init__()
        self.plan = plan
        self.mode: Statistics = "file"
        self.count = 1  # images of the forward pass at hand
        # Put in directly: names of ONNX hold dots, which torch's own door refuses.
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
        """The same network, from now on normalising batches by these statistics.

        "file": the file's running averages, unchanged. "batch": the batch's own, nothing is kept. "moving":
        in training the batch's own, by which the running averages are moved; else the running averages.
        """
        if mode not in get_args(Statistics):
            raise InputError(f"statistics: expected {', '.join(get_args(Statistics))}, got {mode!r}")
        batched = any(one.operator == "BatchNormalization" for one in self.normalisations)
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
        for one in self.normalisations:
            if one.operator != "BatchNormalization":
                continue
            for name in (one.mean, one.variance):
                if not name:
                    raise InputError(
                        f"node {one.node!r}: its running statistics are no float32 initializers of the file, "
                        'so they cannot be moved; use statistics "file"'
                    )
                other = owners.setdefault(name, one.node)
                if other != one.node:
                    raise InputError(
                        f"nodes {other!r} and {one.node!r} share the running statistics {name!r}, so they "
                        'cannot be moved; use statistics "file"'
                    )

    def to(self, *args: Any, **kwargs: Any) -> Any:
        """The network after torch's own `to`; memory formats are for weights of four axes alone."""
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
        own: dict[str, Any] = {**self._parameters, **self._buffers}
        values: dict[int, Tensor] = {number: own[name] for name, number in self.plan.numbers.items()}
        values[self.plan.given] = x
        for step in self.plan.steps:
            inputs = [values[v] if isinstance(v, int) else v for v in step.inputs]
            try:
                made = step.run(self, step.node, *inputs)
            except HoldfastError:
                raise
            except _TORCH_ERRORS as problem:
                raise step.node.fail(f"{type(problem).__name__}: {problem}") from problem
            values.update(zip(step.outputs, made if isinstance(made, tuple) else (made,), strict=True))
        result = values[self.plan.result]
        return result.flatten(1) if result.ndim > 2 else result

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        # torch's own takes a name with a dot for one of a child.
        own: dict[str, Any] = {**self._parameters, **self._buffers}
        missing_keys += [prefix + name for name in own if prefix + name not in state_dict]
        unexpected_keys += [k for k in state_dict if k.startswith(prefix) and k[len(prefix) :] not in own]
        with torch.no_grad():
            for name, value in own.items():
                if prefix + name in state_dict:
                    value.copy_(state_dict[prefix + name])
