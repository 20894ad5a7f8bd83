"""Run a network, or a part of one, on batches of pictures.

Many files fix the batch to 1: in the input's shape, in the target of a Reshape, or because the last nodes
select the only prediction. `open_batches` makes the batch dynamic in memory up to the last convolution or
matrix product. The few nodes after it run picture by picture. The modified graph is used only if it gives the
same values as single pictures.
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
SAME = 1e-4  # tolerance between batches and single pictures

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
    why: str = ""  # the reason why pictures run one by one

    def run(self, pictures: Tensor, other_inputs: Values) -> list[Tensor]:
        """Return the outputs of pictures (n, …), each flat, (n, m); all share `other_inputs`."""
        rows, values = [], {self.source: pictures[:, np.newaxis]}
        run = self.alone if self.many is None else self.tail
        remaining = [name for name in self.outputs if name not in self.cut]
        if self.many is not None:
            batch = zip(self.cut.items(), self.many({**other_inputs, self.source: pictures}), strict=True)
            values |= {name: value.reshape(len(pictures), *shape) for (name, shape), value in batch}
        for i in range(len(pictures)):
            row = {name: value[i] for name, value in values.items()}
            if run is not None:
                row |= zip(remaining, run({**other_inputs, **row}), strict=True)
            rows.append([row[name].ravel() for name in self.outputs])
        return [np.stack(column) for column in zip(*rows, strict=True)]


def open_batches(
    model: Any, source: str, outputs: Sequence[str], trial: Tensor, other_inputs: Values | None = None
) -> Batches:
    """Open the part of an ONNX model from the tensor `source` on.

    `trial` (BATCH, …) are different pictures. If a batch of them gives other values than single pictures,
    pictures run one by one.
    """
    other_inputs = other_inputs or {}
    batches = Batches(source, tuple(outputs), open_part(model, {**other_inputs, source: trial[:1]}, outputs))
    try:
        return _with_batches(model, batches, trial, other_inputs)
    except Exception as problem:  # noqa: BLE001 - the errors of onnx and onnxruntime have no common class
        return replace(batches, why=condense(problem, 200))


def _with_batches(model: Any, batches: Batches, trial: Tensor, other_inputs: Values) -> Batches:
    """Add `many` and `tail`; raise ModelError if the trial fails."""
    inputs = {**other_inputs, batches.source: trial[:1]}
    dims = [port.type.tensor_type.shape.dim[:1] for port in model.graph.input if port.name == batches.source]
    free = any(first.dim_value < 1 for dim in dims for first in dim)  # the file has a dynamic batch
    cut = batches.outputs if free else _last_products(model, batches)
    if not cut:
        raise ModelError("the network has no filter and no matrix product")
    part = part_of(model, inputs, cut)
    single = open_bytes(part.SerializeToString())
    many = open_bytes(_free_batch(part, batches.source).SerializeToString())
    rows = [single({**other_inputs, batches.source: picture[np.newaxis]}) for picture in trial]
    batched = many({**other_inputs, batches.source: trial})
    for name, values, batch in zip(cut, zip(*rows, strict=True), batched, strict=True):
        alone = np.stack(values)
        # A constant value could not reveal mixed-up pictures.
        if not free and not (np.ptp(alone, axis=0) > 10 * SAME * (1 + np.abs(alone).max(axis=0))).all():
            raise ModelError(f"{name!r} has values that do not depend on the picture")
        if batch.size != alone.size or not np.allclose(batch.reshape(alone.shape), alone, SAME, SAME):
            raise ModelError(f"a batch gives other values of {name!r} than single pictures")
    first = dict(zip(cut, rows[0], strict=True))
    remaining = [name for name in batches.outputs if name not in first]
    tail = open_part(model, {**inputs, **first}, remaining) if remaining else None
    return replace(batches, many=many, tail=tail, cut={name: value.shape for name, value in first.items()})


def open_part(model: Any, given: Values, outputs: Sequence[str]) -> Session:
    """Open the part of a model from the given tensors (examples of them) to the outputs."""
    return open_bytes(part_of(model, given, outputs).SerializeToString())


def open_bytes(model: bytes) -> Session:
    """Open an ONNX model in ONNX Runtime, with one thread."""
    session = session_of(model)
    names = [port.name for port in session.get_inputs()]

    def run(values: Values) -> list[Tensor]:
        outputs = session.run(None, {name: values[name] for name in names})
        return [np.asarray(value) for value in outputs]

    return run


def dependent(model: Any, source: str, outputs: Sequence[str]) -> list[Any]:
    """The nodes on the paths from a tensor to the outputs, in order."""
    reached, nodes = {source}, []
    for node in needed(model.graph, outputs, [source]):
        if reached.intersection(node.input):
            reached.update(node.output)
            nodes.append(node)
    return nodes


def _last_products(model: Any, batches: Batches) -> tuple[str, ...]:
    """The tensors between the last convolutions and products and the nodes after them, or the outputs."""
    upstream, read, produced = set[str](), set(batches.outputs), list[str]()
    for node in reversed(dependent(model, batches.source, batches.outputs)):
        if node.op_type in HEAVY or upstream.intersection(node.output):
            upstream.update(node.input)
            produced += node.output
        else:
            read.update(node.input)
    return tuple(name for name in produced if name in read)


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
    """Run batches of the items in `jobs` threads; return the concatenated arrays (n, …)."""
    parts = [items[begin : begin + BATCH] for begin in range(0, len(items), BATCH)]
    with ThreadPoolExecutor(max(jobs, 1)) as pool:  # onnxruntime releases the interpreter while it computes
        rows = list(pool.map(run, parts))
    return [np.concatenate(values) for values in zip(*rows, strict=True)]


def noise(*shape: int) -> Tensor:
    """BATCH different pictures of this shape: random values in 0 … 1 of different brightness."""
    rng = np.random.default_rng(0)
    brightness = rng.random((BATCH, *([1] * len(shape))))
    return np.asarray(rng.random((BATCH, *shape)) * brightness, np.float32)
