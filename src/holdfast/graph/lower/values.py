"""Values of the ONNX graph during lowering, and the builder of the steps.

A value is a constant, or a `View` of elements of earlier steps. Every element of every step has one number
(its step's offset + its place in the step), so an operator that only moves values about is a numpy operation
on an array of such numbers and needs no step. A `Selection` is emitted only where arithmetic needs elements
in an order in which no step holds them.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from onnx import AttributeProto, GraphProto, TensorProto, helper, numpy_helper

from holdfast.core.errors import ModelError
from holdfast.graph.ir import Activation, Array, Curve, FreeInputs, Selection, Step, curve_of
from holdfast.graph.nodes import RANDOM, node_alone
from holdfast.graph.session import condense, open_session

Index: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class View:
    """Elements of steps by their numbers, in the ONNX shape; `fill` holds the constants where index is -1."""

    index: Index
    fill: Array | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The ONNX shape, batch included."""
        return self.index.shape

    def filled(self) -> Array:
        """The constants as an array of the view's shape, 0 where there are none."""
        return np.zeros(self.shape) if self.fill is None else self.fill

    def moved(self, move: Callable[[NDArray[Any]], NDArray[Any]]) -> View:
        """The view after a function that only moves values about."""
        return View(move(self.index), None if self.fill is None else move(self.fill))


Value: TypeAlias = View | NDArray[Any]


@dataclass(frozen=True, eq=False)
class Node:
    """One node with its inputs' values; an omitted input is None."""

    operator: str
    name: str
    attributes: Mapping[str, Any]
    inputs: tuple[Value | None, ...]
    outputs: int
    opset: int
    last: bool = False  # whether an output of the graph
    aim: str = "lowered"  # what was to be done with it

    def fail(self, reason: str) -> ModelError:
        """The error that names this node, its operator and the reason."""
        return ModelError(f"node {self.name!r}: operator {self.operator} cannot be {self.aim}: {reason}")

    def value(self, at: int = 0) -> Value:
        """A required input."""
        operand = self.inputs[at] if at < len(self.inputs) else None
        if operand is None:
            raise self.fail(f"expected an input {at}, got none")
        return operand

    def values(self) -> list[Value]:
        """All inputs, which must be given."""
        return [self.value(at) for at in range(len(self.inputs))]

    def view(self) -> View:
        """The first input, which must depend on the network's input."""
        value = self.value(0)
        if not isinstance(value, View):
            raise self.fail("input 0 is constant, which is not supported here")
        return value

    def constant(self, at: int, what: str) -> NDArray[Any] | None:
        """An input that must be constant, or None if it is omitted."""
        value = self.inputs[at] if at < len(self.inputs) else None
        if isinstance(value, View):
            raise self.fail(f"its {what} depends on the network's input; expected a constant")
        return value

    def required_constant(self, at: int, what: str) -> NDArray[Any]:
        """A required constant input."""
        value = self.constant(at, what)
        if value is None:
            raise self.fail(f"expected {what}, got none")
        return value

    def number(self, name: str, default: float) -> float:
        """A number attribute, rounded to float32, as is the standard's default."""
        return float(np.float32(self.attributes.get(name, default)))

    def ints(self, name: str, at: int | None = None) -> tuple[int, ...] | None:
        """Integers given as an attribute or, in newer opsets, as input `at`; None if in neither."""
        if name in self.attributes:
            return tuple(int(v) for v in np.atleast_1d(self.attributes[name]))
        value = None if at is None else self.constant(at, name)
        return None if value is None else tuple(int(v) for v in value.ravel())


@dataclass(eq=False)
class StepBuilder:
    """The steps emitted so far, and where the numbers of their elements begin."""

    free: tuple[int, ...]
    dtype: np.dtype[Any]
    drop_softmax: bool = False
    as_evaluated: bool = False  # what depends on a fixed input is computed by steps, not folded
    steps: list[Step] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._end = 0
        self._selections: dict[tuple[tuple[int, ...], bytes], int] = {}
        self.emit(FreeInputs(self.free))

    def emit(self, step: Step) -> int:
        """The number of a new step."""
        self.steps.append(step)
        self.offsets.append(self._end)
        self._end += prod(step.shape)
        return len(self.steps) - 1

    def all_of(self, step: int, shape: tuple[int, ...]) -> View:
        """All elements of a step, in order, as a value of this shape."""
        size = prod(self.steps[step].shape)
        return View(np.arange(self.offsets[step], self.offsets[step] + size, dtype=np.int64).reshape(shape))

    def owner(self, element: int) -> int:
        """The step that holds this element (empty steps hold none)."""
        return bisect_right(self.offsets, element) - 1

    def identical(self, index: Index) -> int | None:
        """The step whose elements these are, all and in order; None if there is none."""
        if not index.size or index.flat[0] < 0:
            return None
        flat = index.ravel()
        step = self.owner(int(flat[0]))
        first, size = self.offsets[step], prod(self.steps[step].shape)
        if flat.size != size or flat[0] != first or flat[-1] != first + size - 1:
            return None
        return step if bool((np.diff(flat) == 1).all()) else None

    def step_holding(self, view: View, shape: tuple[int, ...] | None = None) -> int:
        """A step that holds the view's elements in the view's order, in this shape (None: any)."""
        step = self.identical(view.index)
        if step is not None and (shape is None or self.steps[step].shape == shape):
            return step
        shape = natural(view.shape) if shape is None else shape
        index = view.index.ravel()
        live = index >= 0
        owners = np.searchsorted(np.asarray(self.offsets), index, side="right") - 1
        sources = np.unique(owners[live]) if live.any() else np.zeros(1, np.int64)
        sizes = [prod(self.steps[s].shape) for s in sources]
        starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        place = np.clip(np.searchsorted(sources, owners), 0, len(sources) - 1)
        shift = starts[:-1] - np.asarray(self.offsets, np.int64)[sources]
        local = np.where(live, index + shift[place], -1)
        fill = None if view.fill is None else np.where(live, 0.0, view.fill.ravel()).reshape(shape)
        parts = (sources, local) if fill is None else (sources, local, fill)
        digest = hashlib.sha1(b"".join(part.tobytes() for part in parts), usedforsecurity=False).digest()
        if (shape, digest) not in self._selections:
            selection = Selection(tuple(int(s) for s in sources), local.reshape(shape), fill, shape)
            self._selections[shape, digest] = self.emit(selection)
        return self._selections[shape, digest]

    def step_covering(self, view: View) -> tuple[int, Index]:
        """A step with every element of the view at least once, and where in it the view's elements are.

        An element-wise operator acts on that step. It therefore commutes with transposes and copies (no
        Selection for them, no duplicate neurons) and leaves constants unchanged.
        """
        step = self.identical(view.index)
        if step is None and view.fill is not None and self.as_evaluated:
            step = self.step_holding(view)
        if step is not None:
            return step, np.arange(view.index.size, dtype=np.int64).reshape(view.shape)
        live = view.index >= 0
        unique, inverse = np.unique(view.index[live], return_inverse=True)
        step = self.identical(unique)
        if step is None and len(unique) == view.index.size:
            step, inverse = self.step_holding(view), np.arange(len(unique))
        elif step is None:
            step = self.step_holding(View(unique))
        place = np.full(view.shape, -1, np.int64)
        place[live] = inverse
        return step, place

    def curve(self, value: Value, curve: Curve, slope: float = 0.0) -> Value:
        """The curve of every element, of constants as well."""
        view = as_view(value)
        step, place = self.step_covering(view)
        activation = Activation(step, curve, self.steps[step].shape, slope)
        fill = curve_of(activation, view.fill) if (place < 0).any() and view.fill is not None else None
        return self.placed(self.emit(activation), place, fill)

    def placed(self, step: int, place: Index, fill: Array | None = None) -> View:
        """The elements at these places of a step, constants where a place is -1."""
        return View(np.where(place < 0, -1, place + self.offsets[step]), fill)

    def normal(self, view: View) -> Value:
        """The view without an unneeded fill, or the constant that it is."""
        if view.fill is None:
            return view
        constant = view.index < 0
        if constant.all() and not self.as_evaluated:
            return view.fill.astype(self.dtype)
        return view if constant.any() else View(view.index)


Lowering: TypeAlias = Callable[[Node, StepBuilder], list[Value]]


def natural(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape without a leading batch of 1."""
    return shape[1:] if len(shape) > 1 and shape[0] == 1 else shape


def as_view(value: Value) -> View:
    """The value as a view, a constant as one that is nothing but fill."""
    if isinstance(value, View):
        return value
    return View(np.full(value.shape, -1, np.int64), np.asarray(value, np.float64))


def node_of(
    node: Any, inputs: tuple[Value | None, ...], opset: int, outputs: set[str], aim: str = "lowered"
) -> Node:
    """A node of the file with its attributes read and the values of its inputs."""
    name = node.name or (node.output[0] if node.output else node.op_type)
    attributes: dict[str, Any] = {}
    for attribute in node.attribute:
        value = helper.get_attribute_value(attribute)
        if attribute.type == AttributeProto.TENSOR:
            if value.data_location == TensorProto.EXTERNAL:
                raise ModelError(f"node {name!r}: expected {attribute.name!r} in the model's own file")
            value = numpy_helper.to_array(value)
        elif isinstance(value, bytes):
            value = value.decode(errors="replace")
        attributes[attribute.name] = value
    last = any(o in outputs for o in node.output)
    return Node(node.op_type, name, attributes, inputs, len(node.output), opset, last, aim)


def constant_of(node: Node) -> NDArray[Any]:
    """The value of a Constant node."""
    for name, value in node.attributes.items():
        if name == "value":
            return np.asarray(value)
        if name in ("value_float", "value_floats", "value_int", "value_ints"):
            return np.asarray(value, np.float32 if "float" in name else np.int64)
    raise node.fail(f"expected a numeric value, got {', '.join(node.attributes) or 'none'}")


def moved(value: Value, move: Callable[[NDArray[Any]], NDArray[Any]]) -> Value:
    """The value after a function that only moves values about."""
    return value.moved(move) if isinstance(value, View) else move(value)


# Plain enough that numpy and ONNX agree; saves a session for each of the many nodes that compute shapes.
_PLAIN: Mapping[str, Callable[..., NDArray[Any]]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Equal": np.equal,
    "Where": np.where,
    "Relu": lambda x: np.maximum(x, 0),
}


def folded(node: Node) -> list[NDArray[Any]]:
    """The outputs of a node all of whose inputs are constant."""
    if node.operator in _PLAIN:
        return [np.asarray(_PLAIN[node.operator](*node.inputs))]
    return run(node, node.inputs)


def run(node: Node, inputs: tuple[Any, ...]) -> list[NDArray[Any]]:
    """The outputs ONNX Runtime gives for this node on these arrays; None is an omitted input."""
    nested = [v.SerializeToString() for v in node.attributes.values() if isinstance(v, GraphProto)]
    if any(name.encode() in inside for inside in nested for name in (*RANDOM, "Dropout")):
        raise node.fail("it may draw random numbers inside")
    names = [f"i{i}" if value is not None else "" for i, value in enumerate(inputs)]
    outputs = [f"o{i}" for i in range(node.outputs)]
    arrays = {k: numpy_helper.from_array(v) for k, v in node.attributes.items() if isinstance(v, np.ndarray)}
    proto = helper.make_node(node.operator, names, outputs, **{**node.attributes, **arrays})
    feeds = {n: np.asarray(v) for n, v in zip(names, inputs, strict=True) if v is not None}
    model = node_alone(proto, feeds, opset_imports=[helper.make_opsetid("", node.opset)], ir_version=8)
    try:
        session = open_session(model.SerializeToString(), threads=1)
        return [np.asarray(v) for v in session.run(None, feeds)]
    except Exception as problem:  # noqa: BLE001 - onnxruntime's errors have no common class
        raise node.fail(f"onnxruntime could not run it by itself ({condense(problem)})") from None
