"""A graph made for one picture, changed so that it takes any number at once.

Most files fix a batch of 1, some by constants deep inside: a Reshape to (48, 2, 16), a Gather that takes the
first and only answer. Here the place of the batch is followed from the input through every node. It is
either an axis of the tensor (which had the size 1, or is that many times as long), or, once the file has
dropped that axis, a new one in front.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray


class NotBatched(Exception):
    """A node that cannot take several pictures at once; the message names it."""


@dataclass(frozen=True)
class Place:
    """Where the batch lies in a tensor: on this axis of the file's tensor, or on a new one in front."""

    axis: int
    extra: bool = False


@dataclass
class Follow:
    """What is known on the walk: shapes for one picture, constants, and the batch's place so far."""

    graph: Any
    shapes: Mapping[str, tuple[int, ...]]
    constants: dict[str, NDArray[Any]]
    opset: int
    places: dict[str, Place] = field(default_factory=dict)
    made: int = 0

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor for one picture."""
        if name not in self.shapes:
            raise NotBatched(f"the shape of {name!r} is not known")
        return self.shapes[name]

    def constant(self, node: Any, index: int) -> NDArray[Any]:
        """The value of a node's input, which must be constant."""
        name = node.input[index] if index < len(node.input) else ""
        if name not in self.constants:
            raise NotBatched(f"{node.op_type} {node.output[0]!r}: its input {index} is computed")
        return self.constants[name]

    def put(self, node: Any, index: int, value: NDArray[Any]) -> None:
        """Nothing is returned: the node has a constant of its own as this input."""
        from onnx import numpy_helper

        self.made += 1
        name = f"batch/{self.made}/{node.output[0]}"
        self.graph.initializer.append(numpy_helper.from_array(value, name))
        self.constants[name] = value
        node.input.extend([""] * (index + 1 - len(node.input)))
        node.input[index] = name


Rule: TypeAlias = Callable[[Follow, Any, Place], Sequence[Place | None] | Place | None]


def batched(part: bytes) -> bytes:
    """The same graph for any number of pictures at once; NotBatched says what stands in the way.

    Its one input has a batch of 1 in front, and so have its outputs afterwards.
    """
    import onnx

    model = onnx.load_from_string(part)
    try:
        seen = onnx.shape_inference.infer_shapes(model, data_prop=True)
    except Exception as problem:  # noqa: BLE001 - onnx raises several kinds
        raise NotBatched(f"its shapes cannot be inferred: {problem}") from None
    walk = _begun(model, seen)
    entry = model.graph.input[0]
    if walk.shape(entry.name)[:1] != (1,):
        raise NotBatched(f"input {entry.name!r} has no batch of 1 in front")
    walk.places[entry.name] = Place(0)
    for node in model.graph.node:
        _step(walk, node)
    for output in model.graph.output:
        place = walk.places.get(output.name)
        if place is None or place.axis:
            raise NotBatched(f"output {output.name!r} is not one for each picture")
        output.ClearField("type")
    entry.type.tensor_type.shape.dim[0].dim_param = "n"
    del model.graph.value_info[:]
    made: bytes = model.SerializeToString()
    return made


def _begun(model: Any, seen: Any) -> Follow:
    from onnx import numpy_helper

    shapes = {}
    for value in (*seen.graph.value_info, *seen.graph.output, *seen.graph.input):
        kind = value.type.tensor_type
        if kind.HasField("shape") and all(d.HasField("dim_value") for d in kind.shape.dim):
            shapes[value.name] = tuple(int(d.dim_value) for d in kind.shape.dim)
    constants = {w.name: numpy_helper.to_array(w) for w in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value":
            constants[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)
    shapes |= {name: tuple(value.shape) for name, value in constants.items()}
    opset = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 0)
    return Follow(model.graph, shapes, constants, opset)


def _step(walk: Follow, node: Any) -> None:
    from holdfast.patchbench.positions.batch_rules import RULES

    first = next((walk.places[name] for name in node.input if name in walk.places), None)
    if first is None:
        return
    rule = RULES.get(node.op_type)
    if rule is None or node.domain not in ("", "ai.onnx"):
        raise NotBatched(f"{node.op_type} {node.output[0]!r} is not known to take several pictures")
    found = rule(walk, node, first)
    places = [found] * len(node.output) if found is None or isinstance(found, Place) else found
    for name, place in zip(node.output, places, strict=False):
        if name and place is not None:
            walk.places[name] = place


def attributes(node: Any) -> dict[str, Any]:
    """The numbers and lists of numbers a node is told."""
    from onnx import AttributeProto, helper

    wanted = (AttributeProto.INT, AttributeProto.INTS, AttributeProto.STRING, AttributeProto.FLOAT)
    return {a.name: helper.get_attribute_value(a) for a in node.attribute if a.type in wanted}


def set_attribute(node: Any, name: str, value: Any) -> None:
    """Nothing is returned: the node's attribute has another value."""
    from onnx import helper

    kept = [a for a in node.attribute if a.name != name]
    del node.attribute[:]
    node.attribute.extend([*kept, helper.make_attribute(name, np.asarray(value).tolist())])
