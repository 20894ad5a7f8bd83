"""A specification made a property of a network."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from holdfast.core.errors import InputError, ModelError
from holdfast.core.model import Network
from holdfast.core.property import Box, Property, Rows
from holdfast.core.types import Floats
from holdfast.graph.inspect import TensorInfo, inputs_of, outputs_of, read_proto
from holdfast.verify.domain import first_float, input_type
from holdfast.verify.vnnlib.spec import Disjunct, Spec


def property_of(spec: Spec, network: Network) -> Property:
    """The question a specification asks of a network, after a check that it has as many inputs and outputs.

    An interval without any number of the input's floating-point type, such as one decimal given as lower and
    upper bound of a float32, becomes the nearest one: that is what a runtime can be fed. The property's note
    reports it.
    """
    proto = read_proto(network.path)
    shape, dtype = _shape(network, spec, proto), input_type(proto, network.path)
    boxes: dict[tuple[int, int], Box] = {}
    moved = 0
    for case in spec.cases:
        if _key(case) not in boxes:
            lower, upper, count = _representable(case.lower, case.upper, dtype)
            boxes[_key(case)] = Box(lower.reshape(shape), upper.reshape(shape))
            moved = max(moved, count)
    threat = _around(list(boxes.values()), shape)
    unsafe = tuple(_rows(case, None if len(boxes) == 1 else boxes[_key(case)]) for case in spec.cases)
    notes = list(spec.notes)
    if moved:
        notes.append(f"{moved:,} fixed inputs are no {dtype.name}: the nearest one was taken")
    return Property(network, threat, unsafe, "; ".join(notes))


def _key(case: Disjunct) -> tuple[int, int]:
    return id(case.lower), id(case.upper)


def _representable(lower: Floats, upper: Floats, dtype: np.dtype[Any]) -> tuple[Floats, Floats, int]:
    """The box with intervals that hold no number of the type moved to the nearest one, and how many."""
    empty = first_float(lower, dtype).astype(np.float64) > upper
    if not empty.any():
        return lower, upper, 0
    with np.errstate(over="ignore"):
        middle = ((lower + upper) / 2).astype(dtype).astype(np.float64)
    if not np.isfinite(middle[empty]).all():
        at = int(np.flatnonzero(empty & ~np.isfinite(middle))[0])
        raise InputError(f"expected inputs within the range of {dtype.name}, got X_{at} = {lower[at]!r}")
    return np.where(empty, middle, lower), np.where(empty, middle, upper), int(empty.sum())


def _around(boxes: list[Box], shape: tuple[int, ...]) -> Box:
    """The box around all boxes; any point will do where there are none, since nothing is unsafe then."""
    if not boxes:
        return Box(np.zeros(shape), np.zeros(shape))
    if len(boxes) == 1:
        return boxes[0]
    lower, upper = boxes[0].lower.copy(), boxes[0].upper.copy()
    for box in boxes[1:]:
        np.minimum(lower, box.lower, out=lower)
        np.maximum(upper, box.upper, out=upper)
    return Box(lower, upper)


def _rows(case: Disjunct, within: Box | None) -> Rows:
    # Outputs are floats: less than a bound is at most the number before it.
    bound = np.where(case.strict, np.nextafter(case.bound, -np.inf), case.bound)
    return Rows(case.rows, bound, case.inputs, within)


def _shape(network: Network, spec: Spec, proto: Any) -> tuple[int, ...]:
    inputs = inputs_of(proto)
    if len(inputs) != 1:
        names = ", ".join(tensor.name for tensor in inputs) or "none"
        raise ModelError(f"{network.path}: expected a network with one input, got {len(inputs)}: {names}")
    shape = _filled(_dims(inputs[0]), spec.inputs)
    got = prod(shape)
    sizes = [_dims(tensor) for tensor in outputs_of(proto)]
    known = all(all(dims[1:]) and dims != (0,) for dims in sizes)  # the first may be a free batch of 1
    outputs = sum(prod(size or 1 for size in dims) for dims in sizes) if known else spec.outputs
    if (got, outputs) != (spec.inputs, spec.outputs):
        raise InputError(
            f"{network.path}: expected {spec.inputs} inputs and {spec.outputs} outputs as in the "
            f"specification, got {got} and {outputs}; is it the specification of another network?"
        )
    return shape


def _dims(tensor: TensorInfo) -> tuple[int, ...]:
    """The shape of a tensor, 0 where it is free."""
    return tuple(size if isinstance(size, int) and size > 0 else 0 for size in tensor.shape)


def _filled(dims: tuple[int, ...], size: int) -> tuple[int, ...]:
    """The shape with free dimensions set: a batch to 1, and another single one to whatever fits `size`."""
    filled = [1 if i == 0 and not d and len(dims) > 1 else d for i, d in enumerate(dims)]
    free = [i for i, d in enumerate(filled) if not d]
    known = prod(d for d in filled if d)
    if len(free) == 1 and size % known == 0:
        filled[free[0]] = size // known
    return tuple(d or 1 for d in filled)
