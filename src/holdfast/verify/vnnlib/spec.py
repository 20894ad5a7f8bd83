"""Specifications: boxes of inputs with linear rows of unsafe outputs, their text, and their properties."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import reduce
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import InputError, ModelError
from holdfast.core.model import Network
from holdfast.core.property import InputBox, LinearConstraints, Property
from holdfast.core.types import Floats
from holdfast.graph.inspect import TensorInfo, inputs_of, outputs_of, read_proto
from holdfast.verify.problem import first_float, input_type


@dataclass(frozen=True, eq=False)
class Disjunct:
    """Inputs of [lower, upper] (n,) with rows (m, k) @ y + inputs (m, n) @ x <= bound (m,) are unsafe.

    `inputs` is None when no row names an input. Where `strict` (m,) is set the row was written with < or >.
    Cases of one specification share their arrays where they are equal.
    """

    lower: Floats
    upper: Floats
    rows: Floats
    bound: Floats
    strict: NDArray[np.bool_]
    inputs: Floats | None = None

    def __eq__(self, other: object) -> bool:
        """Whether the other disjunct is equal, number by number."""
        if not isinstance(other, Disjunct):
            return NotImplemented
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return all(a is b or (a is not None and b is not None and np.array_equal(a, b)) for a, b in pairs)

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True)
class Spec:
    """A VNN-LIB query: whether an input of one of the cases has an output that meets all its rows."""

    inputs: int
    outputs: int
    cases: tuple[Disjunct, ...]
    notes: tuple[str, ...] = field(default=(), compare=False)  # such as that a case was dropped


def print_vnnlib(spec: Spec) -> str:
    """The specification as VNN-LIB 1.0 text that reads back as exactly the same one."""
    lines = [f"(declare-const X_{i} Real)" for i in range(spec.inputs)]
    lines += [f"(declare-const Y_{i} Real)" for i in range(spec.outputs)]
    common = _common(spec)
    lines += [f"(assert {bound})" for bound in _bounds_text(*common)]
    if len(spec.cases) == 1:
        lines += [f"(assert {row})" for row in _rows_text(spec.cases[0])]
    else:
        lines.append("(assert (or")
        for case in spec.cases:
            sides = zip(common, (case.lower, case.upper), strict=True)
            own = [np.where(np.isnan(shared), bound, np.nan) for shared, bound in sides]
            lines.append(f"  (and {' '.join([*_bounds_text(*own), *_rows_text(case)])})")
        lines.append("))")
    return "\n".join(lines) + "\n"


def _common(spec: Spec) -> tuple[Floats, Floats]:
    """The bounds that all cases share; NaN where they differ."""
    if not spec.cases:
        return np.zeros(spec.inputs), np.zeros(spec.inputs)  # any box: no case is in it
    sides = []
    for bounds in ([case.lower for case in spec.cases], [case.upper for case in spec.cases]):
        other = np.stack(list({id(bound): bound for bound in bounds}.values()))
        sides.append(np.where((other == bounds[0]).all(axis=0), bounds[0], np.nan))
    return sides[0], sides[1]


def _bounds_text(lower: Floats, upper: Floats) -> Iterator[str]:
    """The bounds of each input, without those that are NaN."""
    for i, (low, high) in enumerate(zip(lower.tolist(), upper.tolist(), strict=True)):
        if low == low:
            yield f"(>= X_{i} {low!r})"
        if high == high:
            yield f"(<= X_{i} {high!r})"


def _rows_text(case: Disjunct) -> Iterator[str]:
    for i, bound in enumerate(case.bound.tolist()):
        sign = "" if case.strict[i] else "="
        named = [(f"Y_{j}", float(case.rows[i, j])) for j in np.flatnonzero(case.rows[i])]
        if case.inputs is not None:
            named += [(f"X_{j}", float(case.inputs[i, j])) for j in np.flatnonzero(case.inputs[i])]
        match named:
            case [(name, 1.0)]:
                yield f"(<{sign} {name} {bound!r})"
            case [(name, -1.0)]:
                yield f"(>{sign} {name} {0.0 - bound!r})"
            case [(less, 1.0), (more, -1.0)] | [(more, -1.0), (less, 1.0)] if bound == 0.0:
                yield f"(<{sign} {less} {more})"
            case _:
                terms = " ".join(f"(* {weight!r} {name})" for name, weight in named)
                yield f"(<{sign} (+ {terms}) {bound!r})"


def property_of(spec: Spec, network: Network) -> Property:
    """The property of a network, after a check that it has as many inputs and outputs as the specification.

    An interval without any number of the input's type, such as one decimal given as lower and upper bound of
    a float32, becomes the nearest one, which a runtime can accept. The property's note reports it.
    """
    proto = read_proto(network.path)
    shape, dtype = _shape(network, spec, proto), input_type(proto, network.path)
    keys = [(id(case.lower), id(case.upper)) for case in spec.cases]
    boxes: dict[tuple[int, int], InputBox] = {}
    moved = 0
    for key, case in dict(zip(keys, spec.cases, strict=True)).items():
        lower, upper, count = _representable(case.lower, case.upper, dtype)
        boxes[key] = InputBox(lower.reshape(shape), upper.reshape(shape))
        moved = max(moved, count)
    around = list(boxes.values()) or [InputBox(np.zeros(shape), np.zeros(shape))]  # any: nothing is unsafe
    lowest = reduce(np.minimum, [box.lower for box in around])
    highest = reduce(np.maximum, [box.upper for box in around])
    unsafe = []
    for key, case in zip(keys, spec.cases, strict=True):
        # Outputs are floats: less than a bound is at most the number before it.
        bound = np.where(case.strict, np.nextafter(case.bound, -np.inf), case.bound)
        own = None if len(boxes) == 1 else boxes[key]
        unsafe.append(LinearConstraints(case.rows, bound, case.inputs, own))
    notes = list(spec.notes)
    if moved:
        notes.append(f"{moved:,} fixed inputs are not {dtype.name} values; the nearest ones were used")
    return Property(network, InputBox(lowest, highest), tuple(unsafe), "; ".join(notes))


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


def _shape(network: Network, spec: Spec, proto: Any) -> tuple[int, ...]:
    inputs = inputs_of(proto)
    if len(inputs) != 1:
        names = ", ".join(tensor.name for tensor in inputs) or "none"
        raise ModelError(f"{network.path}: expected a network with one input, got {len(inputs)}: {names}")
    shape = _filled(_dims(inputs[0]), spec.inputs)
    got = prod(shape)
    sizes = [_dims(tensor) for tensor in outputs_of(proto)]
    static = all(all(dims[1:]) and dims != (0,) for dims in sizes)  # the first may be a free batch of 1
    outputs = sum(prod(size or 1 for size in dims) for dims in sizes) if static else spec.outputs
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
    fixed = prod(d for d in filled if d)
    if len(free) == 1 and size % fixed == 0:
        filled[free[0]] = size // fixed
    return tuple(d or 1 for d in filled)
