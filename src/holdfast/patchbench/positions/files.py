"""What a benchmark's own file does with its position input: the picture it makes at every position."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import InputError, ModelError
from holdfast.core.property import Property
from holdfast.core.types import Bools, Floats, Ints, Tensor
from holdfast.graph.determinism import check_deterministic
from holdfast.graph.wire import WireGraph, read_graph, write_part
from holdfast.patchbench.positions.local import Crops
from holdfast.patchbench.positions.trunk import Trunk, open_trunk
from holdfast.patchbench.positions.types import Bar
from holdfast.verify.domain import Domain, domain_of, first_float, last_float
from holdfast.verify.finite.cells import Cells, TooMany, cells_of, check_range, stairs_of
from holdfast.verify.finite.split import Split, split
from holdfast.verify.finite.trace import NotFinite, Trace, cut_tensors, traced
from holdfast.verify.replay import Runner, runner_of, session_of

LIMIT = 100_000  # cells along one direction


@dataclass(frozen=True, eq=False)
class Instance:
    """One question of a benchmark opened: which cells its two position inputs have, and how it is run."""

    question: Property
    graph: WireGraph
    domain: Domain
    trace: Trace
    parts: Split
    cells: tuple[Cells, Cells]
    bar: Bar
    runner: Runner

    @property
    def picture(self) -> str:
        """The tensor that is the picture with the patch on it: the one all that depends on them reads."""
        return self.parts.joint[0]

    @property
    def name(self) -> str:
        """The network's one input."""
        return self.graph.inputs[0].name

    def exact(self, point: NDArray[np.float32], whole: NDArray[np.float32] | None = None) -> float:
        """The output of the original file at a position, of this whole flat input if one is given."""
        flat = (self.domain.template if whole is None else whole).copy()
        flat[self.domain.free] = point
        found = self.runner.outputs(flat.reshape(1, *self.domain.box.lower.shape))
        return float(found[0, 0])


@dataclass
class Network:
    """What is kept between the instances of one file: its trunk, its crops by size of the patch."""

    graph: WireGraph
    trunk: Trunk | None = None
    crops: dict[tuple[int, int], Crops | None] = field(default_factory=dict)


def open_instance(question: Property, graph: WireGraph | None = None) -> Instance:
    """A benchmark's question opened; InputError if its free inputs are no position of a patch."""
    where = question.model.path
    domain = domain_of(question)
    if len(domain.free) != 2:
        raise InputError(
            f"{where}: expected two free inputs, the position of the patch, got {len(domain.free)}; "
            "what has other free inputs is for holdfast verify"
        )
    if domain.dtype != np.float32:
        raise InputError(f"{where}: expected an input of float32, got {domain.dtype.name}")
    graph = graph or read_graph(question.model.read())
    if len(graph.inputs) != 1:
        raise ModelError(f"{where}: expected one input, got {len(graph.inputs)}")
    check_deterministic(graph, str(where))
    shape = domain.box.lower.shape
    try:
        trace = traced(graph, graph.inputs[0].name, domain.free, domain.template.reshape(shape))
        low, high = (first_float(domain.within(None)[0]), last_float(domain.within(None)[1]))
        check_range(trace, [low, high])
        first, second = (cells_of(stairs_of(trace, i), low[i], high[i], LIMIT) for i in range(2))
    except (NotFinite, TooMany) as problem:
        raise InputError(f"{where}: positions cannot be counted one by one: {problem}") from None
    parts = split(graph, trace)
    if len(parts.joint) != 1 or not parts.late:
        raise InputError(f"{where}: expected one picture that the position changes, got {len(parts.joint)}")
    return Instance(
        question, graph, domain, trace, parts, (first, second), _bar(question), runner_of(question, domain)
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


def open_network(instance: Instance, network: Network) -> Trunk:
    """The network behind the patch, opened once for all instances of a file.

    Its outputs are the file's own, and behind them what every ArgMax reads.
    """
    if network.trunk is None:
        graph, head = instance.graph, Head(instance)
        example = head.at(np.array([cells.middle[0] for cells in instance.cells]))
        outputs = [output.name for output in graph.outputs]
        after = [node.inputs[0] for node in instance.trace.nodes if node.operator == "ArgMax"]
        network.trunk = open_trunk(graph, instance.picture, example, [*outputs, *after], told(instance))
    return network.trunk


def told(instance: Instance) -> dict[str, Tensor]:
    """What the network reads besides the picture: the flat input, for its target."""
    shape = instance.domain.box.lower.shape
    return {instance.name: instance.domain.template.reshape(shape)}


class Head:
    """The part of a file before the picture is read: it gives the picture at a position."""

    def __init__(self, instance: Instance, whole: NDArray[np.float32] | None = None) -> None:
        self._instance = instance
        flat = instance.domain.template if whole is None else whole
        self._given: Mapping[str, Any] = {instance.name: flat.reshape(instance.domain.box.lower.shape)}
        self._sessions: dict[tuple[str, ...], Any] = {}

    def at(self, point: NDArray[np.float32]) -> Tensor:
        """The picture, a batch of one, at a position."""
        return self.tensors(point, (self._instance.picture,))[0]

    def tensors(self, point: NDArray[np.float32], names: tuple[str, ...]) -> list[Tensor]:
        """Tensors of the part at a position, by name."""
        cuts = cut_tensors(self._instance.trace, point)
        wanted = tuple(name for name in names if name not in cuts)
        found: dict[str, Tensor] = dict(cuts)
        if wanted:
            if wanted not in self._sessions:
                part = write_part(self._instance.graph, {**cuts, **self._given}, wanted, {})
                self._sessions[wanted] = session_of(part)
            session = self._sessions[wanted]
            given = {**cuts, **self._given}
            read = {value.name: given[value.name] for value in session.get_inputs()}
            found |= dict(zip(wanted, session.run(None, read), strict=True))
        return [found[name] for name in names]


def kinds(instance: Instance, free: int) -> Ints:
    """For each cell of one position input the first cell that makes the same of it."""
    cells = instance.cells[free]
    every = np.arange(len(cells))
    names = instance.parts.alone[free]
    shared = [cut for name, cut in instance.trace.cuts.items() if len(instance.trace.needs[name]) > 1]
    if any(free in instance.trace.roots[cut.view.index[cut.view.index >= 0]] for cut in shared):
        return every
    if not names:
        return np.zeros(len(cells), np.int64)
    head, seen, start = Head(instance), dict[bytes, int](), _middle(instance)
    for i, value in enumerate(cells.middle):
        point = start.copy()
        point[free] = value
        every[i] = seen.setdefault(digest(head.tensors(point, names)), i)
    return every


def _middle(instance: Instance) -> NDArray[np.float32]:
    return np.array([cells.middle[0] for cells in instance.cells], np.float32)


def pictures(instance: Instance) -> Iterator[tuple[int, int, Tensor]]:
    """The picture at every pair of cells that may differ from all before it, with the numbers of both."""
    head, first, second = Head(instance), kinds(instance, 0), kinds(instance, 1)
    rows, columns = np.unique(first).tolist(), np.unique(second).tolist()
    for i in rows:
        for j in columns:
            point = np.array([instance.cells[0].middle[i], instance.cells[1].middle[j]], np.float32)
            yield i, j, head.at(point)


def digest(tensors: list[Tensor]) -> bytes:
    """A key that is the same for the same tensors."""
    made = hashlib.blake2b(digest_size=16)
    for value in tensors:
        made.update(f"{value.dtype.str}{value.shape}".encode())
        made.update(np.ascontiguousarray(value).data)
    return made.digest()


@dataclass(frozen=True, eq=False)
class Effect:
    """What the position input does to the picture: `order` is how it is read, None if it places no square.

    `clean` is the picture without a patch, `content` what the first position puts there, if a rectangle.
    """

    order: str | None  # "column, row" or "row, column"
    patch: tuple[int, int]
    words: str
    clean: Tensor | None
    content: Tensor | None


def effect(instance: Instance) -> Effect:
    """What the position input does, seen from the file itself: which values it puts no picture in."""
    ends = [(0, 0), tuple(len(cells) - 1 for cells in instance.cells)]
    probe = tuple(len(cells) // 3 + i for i, cells in enumerate(instance.cells))
    masks = {place: _overwritten(instance, place) for place in (*ends, probe)}
    first, last = masks[ends[0]], masks[ends[1]]
    clean = _outside(instance)
    if clean is None and not (first & last).any():
        pictures = [Head(instance).at(_point(instance, place)) for place in ends]
        clean = np.where(first, pictures[1], pictures[0])
    squares = {place: _square(mask) for place, mask in masks.items()}
    rows = np.flatnonzero(first[0].any(axis=(0, 2)))
    size = (len(rows), len(rows))
    order = _order(squares, instance)
    words = _words(first, masks[probe], _point(instance, probe))
    square = squares[ends[0]]
    if square is None or clean is None:
        return Effect(None, size, words, clean, None)
    row, column, height, width = square[:4]
    there = np.s_[:, row : row + height, column : column + width]
    content: Tensor = Head(instance).at(_point(instance, ends[0]))[0][there]
    if not first[0][there].all():
        content = np.ma.array(content, mask=~first[0][there])
    return Effect(order, (height, width), words, clean, content)


def _outside(instance: Instance) -> Tensor | None:
    """The picture at a position far outside of it, if the file then changes nothing; None if it does."""
    far = np.array([4.0 * max(cells.last[-1], 64.0) for cells in instance.cells], np.float32)
    try:
        if _overwritten_at(instance, far).any():
            return None
        return Head(instance).at(far)
    except Exception:  # noqa: BLE001 - a file need not take such a position, and onnxruntime has no one class
        return None


def _point(instance: Instance, place: tuple[int, ...]) -> NDArray[np.float32]:
    return np.array([cells.middle[i] for cells, i in zip(instance.cells, place, strict=True)], np.float32)


def _overwritten(instance: Instance, place: tuple[int, ...]) -> Bools:
    return _overwritten_at(instance, _point(instance, place))


def _overwritten_at(instance: Instance, point: NDArray[np.float32]) -> Bools:
    """Where the picture at a position does not depend on the picture that was given."""
    made = []
    for grey in (0.25, 0.75):
        whole = instance.domain.template.copy()
        whole[: instance.domain.free.min()] = grey
        made.append(Head(instance, whole).at(point))
    return np.asarray(made[0] == made[1])


def _square(mask: Bools) -> tuple[int, int, int, int, bytes] | None:
    """Row, column, height and width of what a mask (1, c, h, w) is in all channels, and its form there."""
    if mask.ndim != 4 or not mask.any() or (mask != mask[:, :1]).any():
        return None
    rows, columns = np.flatnonzero(mask[0, 0].any(axis=1)), np.flatnonzero(mask[0, 0].any(axis=0))
    height, width = int(rows[-1] - rows[0]) + 1, int(columns[-1] - columns[0]) + 1
    form = mask[0, 0][rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    return int(rows[0]), int(columns[0]), height, width, form.tobytes()


def _order(squares: Mapping[tuple[int, ...], Any], instance: Instance) -> str | None:
    """Which input is the row and which the column, if the squares lie where the position says."""
    for order, turn in (("column, row", (1, 0)), ("row, column", (0, 1))):
        fits = []
        for place, square in squares.items():
            point = _point(instance, place).astype(np.int64)
            fits.append(square is not None and square[:2] == (point[turn[0]], point[turn[1]]))
        if all(fits) and len({square[2:] for square in squares.values()}) == 1:
            return order
    return None


def _words(first: Bools, probe: Bools, point: NDArray[np.float32]) -> str:
    """The change in words: at the first position, and at one in the middle."""
    said = [f"at the first position {_change(first)}"]
    at = ", ".join(f"{v:g}" for v in point)
    return "; ".join([*said, f"at ({at}) {_change(probe)}"])


def _change(mask: Bools) -> str:
    if not mask.any():
        return "nothing"
    if mask.ndim != 4:
        return f"{int(mask.sum())} values"
    spans = []
    for axis, what in ((1, "channels"), (2, "rows"), (3, "columns")):
        others = tuple(i for i in range(4) if i != axis)
        hit = np.flatnonzero(mask.any(axis=others))
        whole = len(hit) == mask.shape[axis]
        spans.append(f"all {what}" if whole else f"{what} {hit[0]}–{hit[-1]}")
    return ", ".join(spans)


def axis_values(cells: Cells) -> Floats:
    """The positions along one direction as numbers: one value of every cell."""
    return cells.middle.astype(np.float64)
