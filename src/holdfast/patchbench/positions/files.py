"""A benchmark's own file: the cells of its position inputs, and the picture that it makes at each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import InputError
from holdfast.core.model import Network as File
from holdfast.core.property import Property
from holdfast.core.types import Ints, Tensor
from holdfast.graph.inspect import inputs_of, read_proto
from holdfast.graph.nodes import check_deterministic
from holdfast.patchbench.positions.batches import (
    Batches,
    Session,
    dependent,
    noise,
    open_batches,
    open_part,
)
from holdfast.patchbench.positions.types import Bar
from holdfast.verify.domain import Domain, domain_of, first_float, last_float
from holdfast.verify.finite.cells import Cells, TooMany, cells_of, check_range, stairs_of
from holdfast.verify.finite.machine import digest
from holdfast.verify.finite.split import Split, split
from holdfast.verify.finite.trace import NotFinite, Trace, traced
from holdfast.verify.replay import Runner, runner_of

LIMIT = 100_000  # cells along one direction
Point = NDArray[np.float32]  # values of the two position inputs


@dataclass
class Network:
    """A benchmark's file, read once for all its instances, and the sessions opened so far."""

    model: Any  # onnx.ModelProto
    heads: dict[tuple[str, ...], Session] = field(default_factory=dict)  # by the tensors that they give
    batches: Batches | None = None


def read_network(file: File) -> Network:
    """Read the file of a benchmark's network; raise ModelError if it is no ONNX model."""
    return Network(read_proto(file.path))


@dataclass(frozen=True, eq=False)
class Instance:
    """One question of a benchmark opened: which cells its two position inputs have, and how it is run."""

    network: Network
    domain: Domain
    trace: Trace
    parts: Split
    cells: tuple[Cells, Cells]
    bar: Bar
    runner: Runner

    @property
    def picture(self) -> str:
        """The tensor with the patch on the picture: all that depends on the position reads it."""
        return self.parts.joint[0]

    @property
    def name(self) -> str:
        """The network's one input."""
        return self.runner.name

    @property
    def pixels(self) -> int:
        """How many values of the flat input, from the first on, are the picture."""
        return int(self.domain.free.min())

    @property
    def told(self) -> dict[str, Tensor]:
        """What the network reads besides the picture: the flat input, for its target."""
        return {self.name: self.domain.template.reshape(self.domain.box.lower.shape)}

    def point(self, place: Sequence[int]) -> Point:
        """A position in this cell of each position input."""
        return np.array([cells.middle[i] for cells, i in zip(self.cells, place, strict=True)], np.float32)

    def with_picture(self, picture: Tensor | np.float32) -> Tensor:
        """The flat input of the question with another picture, or all its pixels of one value."""
        made = self.domain.template.copy()
        made[: self.pixels] = np.ravel(picture)
        return made

    def whole(self, point: Point, flat: Tensor | None = None) -> Tensor:
        """The input with this position; `flat` replaces the values of the question."""
        made = (self.domain.template if flat is None else flat).copy()
        made[self.domain.free] = point
        return made.reshape(self.domain.box.lower.shape)

    def exact(self, point: Point, flat: Tensor | None = None) -> float:
        """The output of the original file at a position."""
        return float(self.runner.outputs(self.whole(point, flat)[np.newaxis])[0, 0])

    def picture_at(self, point: Point, flat: Tensor | None = None) -> Tensor:
        """The picture (1, …) that the file makes at a position."""
        return self.tensors_at(point, (self.picture,), flat)[0]

    def tensors_at(self, point: Point, names: tuple[str, ...], flat: Tensor | None = None) -> list[Tensor]:
        """Tensors of the file at a position, by name."""
        whole, heads = self.whole(point, flat), self.network.heads
        if names not in heads:
            heads[names] = open_part(self.network.model, {self.name: whole}, names)
        return heads[names]({self.name: whole})


def open_instance(question: Property, network: Network) -> Instance:
    """Open a benchmark's question; raise InputError if its free inputs are no position of a patch."""
    where, model = question.model.path, network.model
    domain = domain_of(question)
    if len(domain.free) != 2:
        raise InputError(
            f"{where}: expected two free inputs, the position of the patch, got {len(domain.free)}; "
            "what has other free inputs is for holdfast verify"
        )
    if domain.dtype != np.float32:
        raise InputError(f"{where}: expected an input of float32, got {domain.dtype.name}")
    check_deterministic(model, str(where))
    shape = domain.box.lower.shape
    try:
        trace = traced(model, inputs_of(model)[0].name, domain.free, domain.template.reshape(shape))
        low, high = (first_float(domain.within(None)[0]), last_float(domain.within(None)[1]))
        check_range(trace, [low, high])
        first, second = (cells_of(stairs_of(trace, i), low[i], high[i], LIMIT) for i in range(2))
    except (NotFinite, TooMany) as problem:
        raise InputError(f"{where}: positions cannot be counted one by one: {problem}") from None
    parts = split(model, trace)
    if len(parts.joint) != 1 or not parts.late:
        raise InputError(f"{where}: expected one picture that the position changes, got {len(parts.joint)}")
    return Instance(
        network, domain, trace, parts, (first, second), _bar(question), runner_of(question, domain)
    )


def _bar(question: Property) -> Bar:
    """The threshold of a specification that says Y_0 <= t, or < t."""
    if len(question.unsafe) == 1:
        rows = question.unsafe[0]
        if rows.matrix.shape == (1, 1) and rows.matrix[0, 0] == 1 and rows.inputs is None:
            bound = float(rows.bound[0])
            above = float(np.nextafter(bound, np.inf))  # a strict bound is read as the number just below it
            strict = float(np.float32(above)) == above and float(np.float32(bound)) != bound
            return Bar(above if strict else bound, strict)
    raise InputError(f"{question.model.path}: expected a specification that says only Y_0 <= threshold")


def open_network(instance: Instance) -> Batches:
    """Open the network behind the patch, once for all instances of a file.

    Its outputs are the file's own, and after them what every ArgMax reads.
    """
    network = instance.network
    if network.batches is None:
        outputs = [port.name for port in network.model.graph.output]
        nodes = dependent(network.model, instance.picture, outputs)
        scores = [node.input[0] for node in nodes if node.op_type == "ArgMax"]
        corner = instance.point((0, 0))
        trial = [
            instance.picture_at(corner, instance.with_picture(picture)) for picture in noise(instance.pixels)
        ]
        network.batches = open_batches(
            network.model, instance.picture, [*outputs, *scores], np.concatenate(trial), instance.told
        )
    return network.batches


def kinds(instance: Instance, free: int) -> Ints:
    """For each cell of one position input the first cell that the file cannot tell from it."""
    cells, trace = instance.cells[free], instance.trace
    every = np.arange(len(cells))
    names = instance.parts.alone[free]
    shared = [cut for name, cut in trace.cuts.items() if len(trace.needs[name]) > 1]
    if any(free in trace.roots[cut.view.index[cut.view.index >= 0]] for cut in shared):
        return every
    if not names:
        return np.zeros(len(cells), np.int64)
    seen: dict[bytes, int] = {}
    for i in range(len(cells)):
        place = (i, 0) if free == 0 else (0, i)
        every[i] = seen.setdefault(digest(instance.tensors_at(instance.point(place), names)), i)
    return every
