"""A network, or a part of one, on batches of pictures.

Many files fix the batch to 1: in the input's shape, in the target of a Reshape, or because the last nodes
pick the only answer. `open_batches` frees the batch in memory up to the last filter or matrix product. The
few nodes after it run picture by picture. The freed graph is used only if it gives what single pictures give.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, TypeVar

import numpy as np

from holdfast.core.errors import ModelError
from holdfast.core.types import Tensor
from holdfast.graph.nodes import needed, part_of
from holdfast.graph.session import condense
from holdfast.verify.finite import HEAVY
from holdfast.verify.replay import session_of

BATCH = 64  # pictures at once
SAME = 1e-4  # values that differ by more than this are not from the same network

Values: TypeAlias = Mapping[str, Tensor]
Session: TypeAlias = Callable[[Values], list[Tensor]]  # ignores values that it does not read
Item = TypeVar("Item")


@dataclass(frozen=True, eq=False)
class Batches:
    """The part of a graph from a picture (1, …) to its outputs."""

    source: str
    outputs: tuple[str, ...]
    alone: Session  # runs the part on one picture
    many: Session | None = None  # runs a batch up to the tensors of `cut`
    tail: Session | None = None  # continues from there picture by picture, to the outputs not in `cut`
    cut: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # names, and shapes for one picture
    why: str = ""  # pictures run alone

    def run(self, pictures: Tensor, other_inputs: Values) -> list[Tensor]:
        """Return the outputs of pictures (n, …), each flat, (n, m); all share `other_inputs`."""
        rows, values = [], {self.source: pictures[:, np.newaxis]}
        run = self.alone if self.many is None else self.tail
        late = [name for name in self.outputs if name not in self.cut]
        if self.many is not None:
            batch = zip(self.cut.items(), self.many({**other_inputs, self.source: pictures}), strict=True)
            values |= {name: value.reshape(len(pictures), *shape) for (name, shape), value in batch}
        for i in range(len(pictures)):
            row = {name: value[i] for name, value in values.items()}
            if run is not None:
                row |= zip(late, run({**other_inputs, **row}), strict=True)
            rows.append([row[name].ravel() for name in self.outputs])
        return [np.stack(column) for column in zip(*rows, strict=True)]


def open_batches(
    model: Any, source: str, outputs: Sequence[str], trial: Tensor, other_inputs: Values | None = None
) -> Batches:
    """Open the part of an ONNX model from the tensor `source` on.

    `trial` (BATCH, …) are pictures that differ. If a batch of them gives other values than each picture
    alone, pictures will run one by one.
    """
    other_inputs = other_inputs or {}
    made = Batches(source, tuple(outputs), open_part(model, {**other_inputs, source: trial[:1]}, outputs))
    try:
        return _with_batches(model, made, trial, other_inputs)
    except Exception as problem:  # noqa: BLE001 - the errors of onnx and onnxruntime have no common class
        return replace(made, why=condense(problem, 200))


def _with_batches(model: Any, made: Batches, trial: Tensor, other_inputs: Values) -> Batches:
    """Add `many` and `tail`; raise ModelError if the trial fails."""
    given = {**other_inputs, made.source: trial[:1]}
    dims = [port.type.tensor_type.shape.dim[:1] for port in model.graph.input if port.name == made.source]
    free = any(first.dim_value < 1 for dim in dims for first in dim)  # an input of the file that takes any
    cut = made.outputs if free else _last_products(model, made)
    if not cut:
        raise ModelError("the network has no filter and no matrix product")
    part = part_of(model, given, cut)
    single = open_bytes(part.SerializeToString())
    many = open_bytes(_free_batch(part, made.source).SerializeToString())
    rows = [single({**other_inputs, made.source: picture[np.newaxis]}) for picture in trial]
    found = many({**other_inputs, made.source: trial})
    for name, values, batch in zip(cut, zip(*rows, strict=True), found, strict=True):
        alone = np.stack(values)
        # A value that does not vary would not show that pictures are mixed up.
        if not free and not (np.ptp(alone, axis=0) > 10 * SAME * (1 + np.abs(alone).max(axis=0))).all():
            raise ModelError(f"{name!r} has values that do not depend on the picture")
        if batch.size != alone.size or not np.allclose(batch.reshape(alone.shape), alone, SAME, SAME):
            raise ModelError(f"a batch gives other values of {name!r} than single pictures")
    first = dict(zip(cut, rows[0], strict=True))
    late = [name for name in made.outputs if name not in first]
    tail = open_part(model, {**given, **first}, late) if late else None
    return replace(made, many=many, tail=tail, cut={name: value.shape for name, value in first.items()})


def open_part(model: Any, given: Values, outputs: Sequence[str]) -> Session:
    """Open the part of a model from the given tensors (examples of them) to the outputs."""
    return open_bytes(part_of(model, given, outputs).SerializeToString())


def open_bytes(model: bytes) -> Session:
    """Open an ONNX model in ONNX Runtime, with one thread."""
    session = session_of(model)
    names = [port.name for port in session.get_inputs()]

    def run(values: Values) -> list[Tensor]:
        found = session.run(None, {name: values[name] for name in names})
        return [np.asarray(value) for value in found]

    return run


def dependent(model: Any, source: str, outputs: Sequence[str]) -> list[Any]:
    """Return the nodes that lead from a tensor to the outputs, in order."""
    reached, kept = {source}, []
    for node in needed(model.graph, outputs, [source]):
        if reached.intersection(node.input):
            reached.update(node.output)
            kept.append(node)
    return kept


def _last_products(model: Any, made: Batches) -> tuple[str, ...]:
    """The tensors that lead from the filters and products to the nodes after them, or to the outputs."""
    wanted, read, inside = set[str](), set(made.outputs), list[str]()
    for node in reversed(dependent(model, made.source, made.outputs)):
        if node.op_type in HEAVY or wanted.intersection(node.output):
            wanted.update(node.input)
            inside += node.output
        else:
            read.update(node.input)
    return tuple(name for name in inside if name in read)


def _free_batch(part: Any, source: str) -> Any:
    """Free the batch of the source and of every Reshape that has a constant target; return the part."""
    from onnx import numpy_helper

    for port in part.graph.input:
        if port.name == source:
            port.type.tensor_type.shape.dim[0].dim_param = "batch"
    constants = {weight.name: weight for weight in part.graph.initializer}
    for node in part.graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            constants[node.output[0]] = node.attribute[0].t
    for node in dependent(part, source, [port.name for port in part.graph.output]):
        if node.op_type == "Reshape" and node.input[1] in constants:
            target = numpy_helper.to_array(constants[node.input[1]]).copy()
            # The batch was 1; the trial shows whether this is the right axis.
            if -1 in target:
                target[:1][target[:1] == 1] = 0  # 0: as in the input
            elif len(target):
                target[1 if target[0] != 1 and target[1:2] == 1 else 0] = -1
            node.input[1] = f"batch/{node.output[0]}"
            part.graph.initializer.append(numpy_helper.from_array(target, node.input[1]))
    return part


def in_batches(
    run: Callable[[Sequence[Item]], Sequence[Tensor]], items: Sequence[Item], jobs: int
) -> list[Tensor]:
    """Run batches of the items in `jobs` threads; return the arrays (n, …) that `run` gives, joined."""
    parts = [items[begin : begin + BATCH] for begin in range(0, len(items), BATCH)]
    with ThreadPoolExecutor(max(jobs, 1)) as pool:  # onnxruntime releases the interpreter while it computes
        rows = list(pool.map(run, parts))
    return [np.concatenate(values) for values in zip(*rows, strict=True)]


def noise(*shape: int) -> Tensor:
    """Return BATCH different pictures of this shape, random values in 0 … 1 of different brightness."""
    rng = np.random.default_rng(0)
    brightness = rng.random((BATCH, *([1] * len(shape))))
    return np.asarray(rng.random((BATCH, *shape)) * brightness, np.float32)
