"""Shapes before and after a change: the outputs of one node from its inputs, and axes as products of runs.

A run of 52 cells that became 53 is `AxisCells(52, 53)`. Flattening a 52×52 map gives an axis of two runs; the
axis keeps them through Transpose and Concat, and a Reshape that unflattens it finds them again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, defs, helper, numpy_helper, shape_inference

from holdfast.graph.inspect import opset_of
from holdfast.graph.nodes import RANDOM, attributes_of, node_alone, subgraphs
from holdfast.graph.session import open_session


@dataclass(frozen=True)
class PoolWindow:
    """How a pool looks along one axis; `before` and `after` are cells of padding."""

    kernel: int
    stride: int = 1
    before: int = 0
    after: int = 0
    dilation: int = 1

    @property
    def reach(self) -> int:
        """Cells from the first to the last that one window sees."""
        return self.dilation * (self.kernel - 1) + 1


def pooled(cells: int, window: PoolWindow, ceil: bool) -> int:
    """The number of windows over `cells` cells: eq. 8 of the SysNoise paper, with its last window checked.

    O = ⌊(W − K + P_before + P_after) / S⌋ + 1, or ⌈…⌉ in ceil mode; in ceil mode the last window is dropped
    if it would begin in the padding after the input: (O − 1)·S ≥ W + P_before.
    """
    free = cells + window.before + window.after - window.reach
    if free < 0:
        return 0
    if not ceil:
        return free // window.stride + 1
    count = -(-free // window.stride) + 1
    return count - 1 if (count - 1) * window.stride >= cells + window.before else count


def windows_of(node: Any) -> list[PoolWindow] | None:
    """How a pool node looks along each of its spatial axes; None if it pads to ⌈W/S⌉ whatever its mode."""
    attributes = attributes_of(node)
    if attributes.get("auto_pad") in (b"SAME_UPPER", b"SAME_LOWER"):
        return None
    kernel = attributes["kernel_shape"]
    rank = len(kernel)
    strides, dilations = (attributes.get(name) or [1] * rank for name in ("strides", "dilations"))
    pads = attributes.get("pads") if attributes.get("auto_pad") != b"VALID" else None
    pads = pads or [0] * (2 * rank)
    return [PoolWindow(kernel[i], strides[i], pads[i], pads[i + rank], dilations[i]) for i in range(rank)]


def ceils(node: Any) -> bool:
    """Whether a pool node rounds up, as ONNX Runtime does with ceil_mode = 1 for padding VALID too."""
    return bool(attributes_of(node).get("ceil_mode") == 1)


Array: TypeAlias = NDArray[Any]
Shape: TypeAlias = tuple[int, ...]

POOLS = ("MaxPool", "AveragePool", "LpPool")
SMALL = 64  # numbers: targets, sizes, pads; what shape inference may want to see


@dataclass(frozen=True)
class TensorFacts:
    """Element type, shape and value of a tensor; the last two are None if unknown."""

    kind: int
    shape: Shape | None
    value: Array | None = None


def outputs_of(node: Any, inputs: Mapping[str, TensorFacts], model: Any) -> list[TensorFacts]:
    """Facts about each output of a node; raise ValueError if its inputs are inconsistent."""
    attributes, array = attributes_of(node), None
    if node.op_type == "Constant" and "value" in attributes:
        array = numpy_helper.to_array(attributes["value"])
    elif node.op_type == "Shape" and (shape := inputs[node.input[0]].shape) is not None:
        array = np.array(shape[attributes.get("start") : attributes.get("end")], np.int64)
    if array is not None:
        return [TensorFacts(kind_of(array), array.shape, array)]
    if node.op_type in POOLS:
        return _pool(node, inputs[node.input[0]])
    sources = [inputs[name] for name in node.input if name]
    if sources and all(k.value is not None for k in sources) and node.op_type not in RANDOM:
        values = run_alone(node, {n: inputs[n].value for n in node.input if n}, model)
        if values is not None:
            return [TensorFacts(kind_of(v), v.shape, v) for v in values]
    return _inferred(node, inputs, model)


def kind_of(value: Array) -> int:
    """The ONNX element type of an array."""
    return int(helper.np_dtype_to_tensor_dtype(value.dtype))


def _pool(node: Any, source: TensorFacts) -> list[TensorFacts]:
    shape = None
    if source.shape is not None:
        windows, cells = windows_of(node), source.shape[2:]
        if windows is None:
            strides = attributes_of(node).get("strides") or [1] * len(cells)
            sizes = [-(-c // s) for c, s in zip(cells, strides, strict=True)]
        else:
            sizes = [pooled(c, w, ceils(node)) for c, w in zip(cells, windows, strict=True)]
        if min(sizes) < 1:
            raise ValueError(f"its window is larger than its input of {'×'.join(map(str, cells))} cells")
        shape = (*source.shape[:2], *sizes)
    kinds = (source.kind, TensorProto.INT64)
    return [TensorFacts(kind, shape) for _, kind in zip(node.output, kinds, strict=False)]


def _inferred(node: Any, inputs: Mapping[str, TensorFacts], model: Any) -> list[TensorFacts]:
    """By ONNX's own shape inference; where the operator has none there, by running it on zeros."""
    unknown = [TensorFacts(0, None) for _ in node.output]
    if subgraphs(node):
        return unknown  # If, Loop, Scan: what they give depends on more than their inputs
    types = {n: helper.make_tensor_type_proto(k.kind, k.shape) for n, k in inputs.items() if n and k.kind}
    known = {n: k.value for n, k in inputs.items() if n and k.value is not None}
    small = {n: numpy_helper.from_array(value, n) for n, value in known.items() if value.size <= SMALL}
    inferred: Mapping[str, Any] = {}
    if len(types) == len({n for n in node.input if n}):
        try:
            schema = defs.get_schema(node.op_type, opset_of(model) or 1, node.domain)
            versions = {"opset_imports": list(model.opset_import), "ir_version": model.ir_version}
            inferred = shape_inference.infer_node_outputs(schema, node, types, small, **versions)
        except defs.SchemaError:
            pass
        except shape_inference.InferenceError as problem:
            raise ValueError(str(problem).rsplit("] ", 1)[-1]) from None
    shapes = [_facts_of(inferred.get(name)) for name in node.output]
    if all(k.shape is not None for k, name in zip(shapes, node.output, strict=True) if name):
        return shapes
    if node.op_type in ("NonMaxSuppression", "NonZero", "Unique", "Compress"):
        return shapes  # the shape depends on the data
    feed: dict[str, Array] = {}
    for name, each in inputs.items():
        if each.value is not None:
            feed[name] = each.value
        elif each.shape is not None and each.kind:
            feed[name] = np.zeros(each.shape, helper.tensor_dtype_to_np_dtype(each.kind))
        else:
            return shapes
    return [TensorFacts(kind_of(v), v.shape) for v in run_alone(node, feed, model) or ()] or shapes


def _facts_of(inferred: Any) -> TensorFacts:
    if inferred is None or not inferred.HasField("tensor_type"):
        return TensorFacts(0, None)
    kind = inferred.tensor_type
    dims = list(kind.shape.dim) if kind.HasField("shape") else None
    static = dims is not None and all(d.HasField("dim_value") for d in dims)
    return TensorFacts(kind.elem_type, tuple(d.dim_value for d in dims or ()) if static else None)


def run_alone(node: Any, feed: Mapping[str, Any], model: Any) -> Sequence[Array] | None:
    """The outputs of one node run in ONNX Runtime on these inputs, not optimised; None if it fails."""
    facts = {"opset_imports": model.opset_import, "ir_version": model.ir_version}
    alone = node_alone(node, feed, functions=model.functions, **facts)
    try:
        session = open_session(alone.SerializeToString(), threads=1, optimise="none")
        outputs: Sequence[Array] = session.run(None, dict(feed))
    except Exception:  # noqa: BLE001 - onnxruntime has no common error class
        return None
    return outputs


@dataclass(frozen=True)
class AxisCells:
    """Cells in a row: how many there were and are; `parts` if they are several axes one after the other."""

    old: int
    new: int
    parts: tuple[tuple[AxisCells, ...], ...] = ()

    @property
    def changed(self) -> bool:
        """Whether there are now more or fewer, in all or in a part."""
        return self.old != self.new or any(run.changed for part in self.parts for run in part)


Axis: TypeAlias = tuple[AxisCells, ...]  # the product of its runs, the first one outermost


def axis(old: int, new: int) -> Axis:
    """An axis with a size but no further structure."""
    return (AxisCells(old, new),)


def old_size(runs: Axis) -> int:
    """How long the axis was."""
    return prod(run.old for run in runs)


def new_size(runs: Axis) -> int:
    """How long the axis is."""
    return prod(run.new for run in runs)


def changed(runs: Axis) -> bool:
    """Whether the axis is another one now."""
    return any(run.changed for run in runs)


def joined(parts: Sequence[Axis]) -> Axis:
    """The axis that has these one after the other."""
    if not any(changed(part) for part in parts):
        total = sum(old_size(part) for part in parts)
        return axis(total, total)
    old, new = sum(map(old_size, parts)), sum(map(new_size, parts))
    return (AxisCells(old, new, tuple(parts)),)


def offset(runs: Axis, at: int) -> int | None:
    """Where the cell with `at` old cells before it is now; None if it is inside of a part that changed."""
    if at == 0 or not changed(runs):
        return at
    if at >= old_size(runs):
        return new_size(runs)
    if len(runs) == 1 and runs[0].parts:
        before_old = before_new = 0
        for part in runs[0].parts:
            if at < before_old + old_size(part):
                inside = offset(part, at - before_old)
                return None if inside is None else before_new + inside
            before_old, before_new = before_old + old_size(part), before_new + new_size(part)
    return None


def regrouped(axes: Sequence[Axis], shape: Sequence[int]) -> tuple[Axis, ...] | AxisCells:
    """The axes of a Reshape to the old `shape`, or the changed run that the new axes would cut through."""
    remaining = _merged(axes)
    out: list[Axis] = []
    for i, size in enumerate(shape):
        runs: list[AxisCells] = []
        rest = size
        while rest > 1 and remaining:
            run = remaining.pop(0)
            if rest % run.old == 0:
                rest //= run.old
                runs.append(run)
            elif not run.changed and run.old % rest == 0:
                runs.append(AxisCells(rest, rest))
                remaining.insert(0, AxisCells(run.old // rest, run.old // rest))
                rest = 1
            else:
                return next((r for r in (run, *remaining) if r.changed), run)
        # Runs of one cell that grew (1×1 maps) go to an axis of one cell if there is one, else they stay.
        last = i + 1 == len(shape)
        while remaining and remaining[0].old == 1:
            if not (last or (not runs if size == 1 else shape[i + 1] != 1)):
                break
            runs.append(remaining.pop(0))
        out.append(tuple(runs) or axis(1, 1))
    return tuple(out) if not remaining else remaining[0]


def _merged(axes: Sequence[Axis]) -> list[AxisCells]:
    """All runs in order, unchanged neighbours as one: how those are cut does not matter."""
    runs: list[AxisCells] = []
    for run in (run for each in axes for run in each):
        if not run.changed and runs and not runs[-1].changed:
            runs[-1] = AxisCells(runs[-1].old * run.old, runs[-1].new * run.new)
        elif run.changed or run.old != 1:
            runs.append(run)
    return runs


STRAIGHT = 1e-4  # of the step: how far a float32 grid may be from a straight line


def extended(values: Array, axes: Sequence[Axis]) -> Array | None:
    """The constant along axes (aligned from the right; an axis of one cell stays); None if it is no grid.

    Fewer cells: the first ones. More cells: the straight line is continued, if there is one.
    """
    for place in range(-values.ndim, 0):
        if len(axes) < -place or not changed(axes[place]) or values.shape[place] == 1:
            continue
        if values.shape[place] != old_size(axes[place]):
            return None
        moved = _along(np.moveaxis(values, place, 0), axes[place])
        if moved is None:
            return None
        values = np.moveaxis(moved, 0, place)
    return np.ascontiguousarray(values)


def _along(values: Array, runs: Axis) -> Array | None:
    """Values whose first axis is this one."""
    rest = values.shape[1:]
    grid = values.reshape(*(run.old for run in runs), *rest)
    for i, run in enumerate(runs):
        if run.changed:
            moved = _continued(np.moveaxis(grid, i, 0), run)
            if moved is None:
                return None
            grid = np.moveaxis(moved, 0, i)
    return grid.reshape(new_size(runs), *rest)


def _continued(values: Array, run: AxisCells) -> Array | None:
    if run.parts:
        cuts = np.cumsum([old_size(part) for part in run.parts])[:-1]
        parts = [_along(piece, part) for piece, part in zip(np.split(values, cuts), run.parts, strict=True)]
        continued = [piece for piece in parts if piece is not None]
        return np.concatenate(continued) if len(continued) == len(parts) else None
    if run.new <= run.old:
        return values[: run.new]
    if run.old < 2 or values.dtype.kind not in "fiu":
        return None
    line = values.astype(np.float64)
    step = (line[-1] - line[0]) / (run.old - 1)
    ideal = line[0] + np.arange(run.new).reshape(-1, *[1] * (values.ndim - 1)) * step
    slack = STRAIGHT * np.maximum(np.abs(step), np.abs(line).max(initial=0.0) * 1e-3)
    if not (np.abs(ideal[: run.old] - line) <= slack).all():
        return None
    more = np.rint(ideal[run.old :]) if values.dtype.kind in "iu" else ideal[run.old :]
    return np.concatenate([values, more.astype(values.dtype)])
