"""Benchmark files: their positions, the picture at each of them, and maps of the outputs."""

import contextlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import InputError
from holdfast.core.property import Property
from holdfast.core.types import Bools, Floats, Ints, Tensor
from holdfast.graph.inspect import inputs_of
from holdfast.graph.nodes import check_deterministic
from holdfast.patchbench.positions import batches
from holdfast.patchbench.positions.sweep import PositionMap, SafetyRule, confirm, pasted, sweep, ties
from holdfast.verify import finite
from holdfast.verify.enumerate import first_alike
from holdfast.verify.problem import InputDomain, domain_of, first_float, last_float
from holdfast.verify.replay import Runner, runner_of

LIMIT = 100_000  # cells along one direction
Point = NDArray[np.float32]  # values of the two position inputs


@dataclass
class Network:
    """A benchmark's file, read once for all its instances, and the sessions opened so far."""

    model: Any  # onnx.ModelProto
    heads: dict[tuple[str, ...], batches.Session] = field(default_factory=dict)  # by output names
    after_patch: batches.Batches | None = None  # the network after the patch


@dataclass(frozen=True, eq=False)
class Instance:
    """An opened instance of a benchmark: the cells of its two position inputs, and its runner."""

    network: Network
    domain: InputDomain
    trace: finite.RoundingTrace
    parts: finite.GraphSplit
    cells: tuple[finite.InputCells, finite.InputCells]
    bar: SafetyRule
    runner: Runner

    @property
    def picture(self) -> str:
        """The tensor of the picture with the patch; everything that depends on the position reads it."""
        return self.parts.joint[0]

    @property
    def pixels(self) -> int:
        """Number of values of the picture, which come first in the flat input."""
        return int(self.domain.free.min())

    @property
    def other_inputs(self) -> dict[str, Tensor]:
        """The other inputs of the network: the flat input, for its target."""
        return {self.runner.name: self.domain.template.reshape(self.domain.box.lower.shape)}

    def point(self, place: Sequence[int]) -> Point:
        """A position in this cell of each position input."""
        return np.array([cells.middle[i] for cells, i in zip(self.cells, place, strict=True)], np.float32)

    def with_picture(self, picture: Tensor | np.float32) -> Tensor:
        """The flat input of the instance with another picture, or with all pixels of one value."""
        flat = self.domain.template.copy()
        flat[: self.pixels] = np.ravel(picture)
        return flat

    def whole(self, point: Point, flat: Tensor | None = None) -> Tensor:
        """The input with this position; `flat` replaces the values of the instance."""
        values = (self.domain.template if flat is None else flat).copy()
        values[self.domain.free] = point
        return values.reshape(self.domain.box.lower.shape)

    def exact(self, point: Point, flat: Tensor | None = None) -> float:
        """The output of the original file at a position."""
        return float(self.runner.outputs(self.whole(point, flat)[np.newaxis])[0, 0])

    def picture_at(self, point: Point, flat: Tensor | None = None) -> Tensor:
        """The picture (1, …) with the patch at a position."""
        return self.tensors_at(point, (self.picture,), flat)[0]

    def tensors_at(self, point: Point, names: tuple[str, ...], flat: Tensor | None = None) -> list[Tensor]:
        """Tensors of the file at a position, by name."""
        whole, heads = self.whole(point, flat), self.network.heads
        if names not in heads:
            heads[names] = batches.open_part(self.network.model, {self.runner.name: whole}, names)
        return heads[names]({self.runner.name: whole})


def open_instance(question: Property, network: Network, bar: SafetyRule) -> Instance:
    """Open an instance of a benchmark; raise InputError if its free inputs are no position of a patch."""
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
    whole, (lower, upper) = domain.template.reshape(domain.box.lower.shape), domain.within(None)
    low, high = first_float(lower), last_float(upper)
    try:
        trace = finite.traced(model, inputs_of(model)[0].name, domain.free, whole)
        finite.check_range(trace, [low, high])
        first, second = (
            finite.cells_of(finite.step_function_of(trace, i), low[i], high[i], LIMIT) for i in range(2)
        )
    except (finite.NotFinite, finite.TooMany) as problem:
        raise InputError(f"{where}: positions cannot be counted one by one: {problem}") from None
    parts = finite.split(model, trace)
    if len(parts.joint) != 1 or not parts.late:
        raise InputError(f"{where}: expected one picture that the position changes, got {len(parts.joint)}")
    return Instance(network, domain, trace, parts, (first, second), bar, runner_of(question, domain))


def open_network(instance: Instance) -> batches.Batches:
    """Open the network after the patch, once per file: its own outputs, then the inputs of every ArgMax."""
    network = instance.network
    if network.after_patch is None:
        outputs = [port.name for port in network.model.graph.output]
        nodes = batches.dependent(network.model, instance.picture, outputs)
        scores = [node.input[0] for node in nodes if node.op_type == "ArgMax"]
        inputs = map(instance.with_picture, batches.noise(instance.pixels))
        trial = np.concatenate([instance.picture_at(instance.point((0, 0)), flat) for flat in inputs])
        names, others = [*outputs, *scores], instance.other_inputs
        network.after_patch = batches.open_batches(network.model, instance.picture, names, trial, others)
    return network.after_patch


def kinds_of(instance: Instance, free: int) -> Ints:
    """For each cell of one position input, the first cell with the same effect."""

    def tensors(number: int) -> list[Tensor]:
        point = instance.point((number, 0) if free == 0 else (0, number))
        return instance.tensors_at(point, instance.parts.alone[free])

    return first_alike(instance.trace, instance.parts, free, len(instance.cells[free]), tensors)


@dataclass(frozen=True, eq=False)
class Effect:
    """The effect of the position input on the picture, in words.

    `clean` is the picture without a patch, `content` the patch at the first position, if it is a rectangle.
    """

    words: str
    clean: Tensor | None
    content: Tensor | None


def effect(instance: Instance) -> Effect:
    """The effect of the position input, measured on the file by the values that ignore the picture."""
    last_cells = [len(cells) - 1 for cells in instance.cells]
    between = [min((last + 1) // 3 + i, last) for i, last in enumerate(last_cells)]
    begin, end, probe = (instance.point(place) for place in ((0, 0), last_cells, between))
    first, last = _overwritten(instance, begin), _overwritten(instance, end)
    clean: Tensor | None = None
    outside = np.array([4.0 * max(cells.last[-1], 64.0) for cells in instance.cells], np.float32)
    with contextlib.suppress(Exception):  # a file may reject such a position; its errors have no common class
        if not _overwritten(instance, outside).any():
            clean = instance.picture_at(outside)
    if clean is None and not (first & last).any():
        clean = np.where(first, instance.picture_at(end), instance.picture_at(begin))
    at = ", ".join(f"{value:g}" for value in probe)
    change = _change(_overwritten(instance, probe))
    words = f"at the first position {_change(first)}; at ({at}) {change}"
    # Not a patch if channels differ.
    if clean is None or first.ndim != 4 or not first.any() or (first != first[:, :1]).any():
        return Effect(words, clean, None)
    rows, columns = np.flatnonzero(first[0, 0].any(axis=1)), np.flatnonzero(first[0, 0].any(axis=0))
    region = slice(None), slice(rows[0], rows[-1] + 1), slice(columns[0], columns[-1] + 1)
    content: Tensor = instance.picture_at(begin)[0][region]
    if not first[0][region].all():
        content = np.ma.array(content, mask=~first[0][region])
    return Effect(words, clean, content)


def _overwritten(instance: Instance, point: Point) -> Bools:
    """Where the picture at a position does not depend on the input picture."""
    greys = (instance.with_picture(np.float32(grey)) for grey in (0.25, 0.75))
    dark, light = (instance.picture_at(point, flat) for flat in greys)
    return np.asarray(dark == light)


def _change(mask: Bools) -> str:
    """The part of the picture that a mask covers, in words."""
    if not mask.any():
        return "nothing"
    if mask.ndim != 4:
        return f"{int(mask.sum())} values"
    spans = []
    for axis, unit in enumerate(("channels", "rows", "columns"), 1):
        changed = np.unique(np.nonzero(mask)[axis])
        complete = len(changed) == mask.shape[axis]
        spans.append(f"all {unit}" if complete else f"{unit} {changed[0]}–{changed[-1]}")
    return ", ".join(spans)


def file_map(instance: Instance, measured: Effect, jobs: int = 1) -> tuple[PositionMap, bool]:
    """Map the output at every cell of the position inputs; the file itself places the patch.

    The second value is whether every picture is the clean one with the patch at the given position. If so,
    the map is over rows and columns of the picture, else over (first input, second input).
    """
    after_patch, other_inputs = open_network(instance), instance.other_inputs
    kinds = (kinds_of(instance, free) for free in range(2))
    (first, down), (second, across) = (np.unique(kind, return_inverse=True) for kind in kinds)
    places = list(itertools.product(first.tolist(), second.tolist()))

    def run(batch: Sequence[tuple[int, int]]) -> list[Tensor]:
        pictures = [instance.picture_at(instance.point(place)) for place in batch]
        clean = measured.clean
        same = [clean is not None and np.array_equal(picture, clean) for picture in pictures]
        square = [_is_described(instance, measured, *pair) for pair in zip(batch, pictures, strict=True)]
        return [np.array(same), np.array(square), *after_patch.run(np.concatenate(pictures), other_inputs)]

    same, square, *values = batches.in_batches(run, places, jobs)

    def replay(number: int) -> float:
        return instance.exact(instance.point(places[number]))

    confirmed = confirm(*_read(values), instance.bar, replay, after_patch.many is not None)

    def over_cells(values: Tensor) -> Tensor:
        return values.reshape(len(first), len(second))[down][:, across]

    outputs, unchanged = over_cells(confirmed.outputs), int(over_cells(same).sum())
    rows, columns = (cells.middle.astype(np.float64) for cells in instance.cells)
    column_row, row_column = (len(places) == outputs.size and bool(described.all()) for described in square.T)
    if column_row:
        outputs, rows, columns = outputs.T, columns, rows
    clean = float("nan")  # unless the picture without a patch is known
    if measured.clean is not None:
        clean = on_file(instance, measured.clean, neutral_of(instance, measured.clean))
    facts = vars(confirmed) | {"outputs": outputs, "unchanged": unchanged}
    position_map = PositionMap(rows=rows, columns=columns, bar=instance.bar, clean=clean, **facts)
    return position_map, column_row or row_column


def _is_described(
    instance: Instance, measured: Effect, place: tuple[int, int], picture: Tensor
) -> tuple[bool, bool]:
    """Whether a picture is the clean one with the whole patch at (column, row), or at (row, column)."""
    position, clean, content = instance.point(place).astype(np.int64), measured.clean, measured.content
    if clean is None or content is None:
        return False, False

    def is_at(corner: Ints) -> bool:
        inside = (corner >= 0).all() and (corner + content.shape[1:] <= picture.shape[2:]).all()
        return bool(inside) and np.array_equal(pasted(clean, content, corner[np.newaxis]), picture)

    return is_at(position[::-1]), is_at(position)


def described_map(instance: Instance, clean: Tensor, content: Tensor, jobs: int = 1) -> PositionMap:
    """Map an actual square patch (c, k, k) at every position of the clean picture, in the file's network."""
    neutral = neutral_of(instance, clean)

    def replay(picture: Tensor) -> float:
        return on_file(instance, picture, neutral)

    after_patch, other_inputs = open_network(instance), instance.other_inputs
    bar = instance.bar
    return sweep(after_patch, clean, content, _read, replay, bar=bar, other_inputs=other_inputs, jobs=jobs)


def on_file(instance: Instance, picture: Tensor, neutral: tuple[int, int] | None) -> float:
    """The output for a picture (1, …) without a patch.

    It is computed by the original file at the position `neutral`, which changes nothing, or else by the part
    of the file after the patch.
    """
    if neutral is not None:
        return instance.exact(instance.point(neutral), instance.with_picture(picture))
    after_patch = open_network(instance)
    return float(after_patch.alone({**instance.other_inputs, after_patch.source: picture})[0].ravel()[0])


def neutral_of(instance: Instance, clean: Tensor) -> tuple[int, int] | None:
    """A pair of cells at which the file leaves the picture unchanged; None if there is none."""
    if not np.array_equal(clean.ravel(), instance.domain.template[: instance.pixels]):
        return None  # the network reads another form of the picture
    ramp = np.linspace(0.2, 0.8, instance.pixels, dtype=np.float32)
    flat = instance.with_picture(ramp)
    for place in itertools.product(*({0, len(cells) // 2, len(cells) - 1} for cells in instance.cells)):
        if np.array_equal(instance.picture_at(instance.point(place), flat).ravel(), ramp):
            return place[0], place[1]
    return None


def _read(values: Sequence[Tensor]) -> tuple[Floats, Bools]:
    """The file's output for every picture (n,), and where the class is nearly tied.

    Without an ArgMax ties are unknown, and all outputs are doubtful.
    """
    outputs, *scores = (np.asarray(value, np.float64) for value in values)
    doubtful = [ties(classes) for classes in scores] or [np.ones(len(outputs), np.bool_)]
    return outputs[:, 0], np.any(doubtful, axis=0)
