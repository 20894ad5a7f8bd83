"""The engine for finite domains: every cell of the free inputs is tried in ONNX Runtime, exactly."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.core.property import Property, Rows
from holdfast.core.threat import Box
from holdfast.core.types import Floats
from holdfast.graph.inspect import runtime
from holdfast.verify.domain import Domain, first_float32, last_float32
from holdfast.verify.finite.cells import Cells, TooMany, cells_of, check_range, stairs_of
from holdfast.verify.finite.split import Split, part, split
from holdfast.verify.finite.trace import NotFinite, Trace, cut_tensors, traced
from holdfast.verify.problem import Answer, Clock
from holdfast.verify.replay import Runner, session_of

ENGINE = "enumerate"
LIMIT = 5_000_000  # cells of one box
DOUBT = 1e-4  # a slack nearer to 0 may have the other sign on another runtime


@dataclass
class _Machine:
    """The parts of the graph as sessions, opened when first needed, and what they gave so far."""

    proto: Any
    trace: Trace
    split: Split
    constants: Mapping[str, NDArray[Any]]
    head: Any = None
    tails: dict[tuple[Any, ...], Any] = field(default_factory=dict)
    seen: dict[bytes, Floats] = field(default_factory=dict)


@dataclass
class _Tally:
    """The worst cell so far, those in doubt, and how much was tried."""

    slack: float = inf
    point: NDArray[np.float32] | None = None
    output: Floats = field(default_factory=lambda: np.zeros(0))
    doubtful: list[str] = field(default_factory=list)
    cells: int = 0
    strange: int = 0


def enumerated(
    question: Property, proto: Any, domain: Domain, runner: Callable[[], Runner], clock: Clock
) -> Answer:
    """The exact answer for a property whose free inputs are all rounded; NotFinite if one is not.

    Before it says `holds` the tightest cell is run on the original file, by `runner`, and must agree.
    """
    template = domain.template.reshape(domain.box.lower.shape)
    name = _input(proto)
    trace = traced(proto, name, domain.free, template)
    boxes = _boxes(question, domain)
    check_range(trace, [end for low, high, _ in boxes for end in (low, high)])
    machine = _Machine(proto, trace, split(proto, trace), {name: template})
    tally = _Tally()
    for low, high, rows in boxes:
        try:
            cells = [cells_of(stairs_of(trace, i), low[i], high[i], LIMIT) for i in range(len(low))]
        except TooMany:
            return Answer("unknown", ENGINE, note=f"more than {LIMIT:,} cells of one input")
        total = prod(map(len, cells))
        if total > LIMIT:
            return Answer("unknown", ENGINE, note=f"{total:,} cells, more than the {LIMIT:,} that are tried")
        if not _tried(machine, cells, rows, tally, clock):
            return Answer("timeout", ENGINE, note=f"{len(machine.seen):,} different cells of {total:,} tried")
        tally.cells += total
        if tally.slack < -DOUBT:
            break
    if tally.slack > 0 and not tally.strange and not _confirmed(domain, runner(), tally):
        return Answer("unknown", ENGINE, note="the tightest cell has another output on the original file")
    return _answer(machine, tally)


def _input(proto: Any) -> str:
    """The name of the network's one input, which must be float32."""
    weights = {w.name for w in proto.graph.initializer}
    inputs = [value for value in proto.graph.input if value.name not in weights]
    if len(inputs) != 1 or inputs[0].type.tensor_type.elem_type != 1:
        raise NotFinite("the network has not one input of float32")
    return str(inputs[0].name)


def _boxes(
    question: Property, domain: Domain
) -> list[tuple[NDArray[np.float32], NDArray[np.float32], list[Rows]]]:
    """The float32 ends of every box of free inputs, with the rows that are meant for it."""
    fixed = domain.template.astype(np.float64)
    fixed[domain.free] = 0.0
    groups: dict[int, tuple[Box | None, list[Rows]]] = {}
    for rows in question.unsafe:
        bound = rows.bound
        if rows.inputs is not None:
            if rows.inputs[:, domain.free].any():
                raise NotFinite("a constraint ties outputs to a free input")
            bound = bound - rows.inputs @ fixed
        groups.setdefault(id(rows.within), (rows.within, []))[1].append(Rows(rows.matrix, bound))
    boxes = []
    for box, cases in groups.values():
        lower, upper = domain.within(box)
        first, last = first_float32(lower), last_float32(upper)
        if (first <= last).all():  # no float32 lies in the others
            boxes.append((first, last, cases))
    return boxes


def _tried(machine: _Machine, cells: Sequence[Cells], cases: list[Rows], tally: _Tally, clock: Clock) -> bool:
    """Whether all cells of a box were tried before the time was up; the tally is kept."""
    start = np.array([row.middle[0] for row in cells], np.float32)
    kinds = [_kinds(machine, start, i, row.middle) for i, row in enumerate(cells)]
    left, judged = prod(map(len, kinds)), set[bytes]()
    for values in itertools.product(*kinds):
        if not left % 64:
            clock.tell("cells", left, tally.slack)
        if clock.left <= 0:
            return False
        left -= 1
        point = np.array(values, np.float32)
        key, output = _outputs(machine, point)
        if key in judged:
            continue
        judged.add(key)
        _judge(point, output, cases, tally)
        if tally.slack < -DOUBT:
            break
    return True


def _confirmed(domain: Domain, runner: Runner, tally: _Tally) -> bool:
    """Whether the original file gives the tightest cell the output that the parts of the graph gave it."""
    if tally.point is None:
        return True  # no box holds a float32
    output = runner.outputs(domain.whole(tally.point[None]))[0]
    return output.shape == tally.output.shape and bool(
        np.allclose(output, tally.output, rtol=1e-4, atol=DOUBT)
    )


def _judge(point: NDArray[np.float32], output: Floats, cases: list[Rows], tally: _Tally) -> None:
    if not np.isfinite(output).all():
        tally.strange += 1
        return
    slack = min(rows.slack(output) for rows in cases)
    if abs(slack) <= DOUBT:
        tally.doubtful.append(f"({', '.join(f'{v:g}' for v in point)}) by {slack:.1e}")
    if slack < tally.slack:
        tally.slack, tally.point, tally.output = slack, point, output


def _kinds(
    machine: _Machine, start: NDArray[np.float32], free: int, values: NDArray[np.float32]
) -> Sequence[np.float32]:
    """Those values of one input that differ in what they make of the tensors that depend on it alone."""
    names = machine.split.alone[free]
    shared = [cut for name, cut in machine.trace.cuts.items() if len(machine.trace.needs[name]) > 1]
    if any(free in machine.trace.roots[cut.view.index[cut.view.index >= 0]] for cut in shared):
        return list(values)
    if not names:
        return list(values[:1])  # nothing depends on it
    found: dict[bytes, np.float32] = {}
    for value in values:
        point = start.copy()
        point[free] = value
        tensors = cut_tensors(machine.trace, point)
        found.setdefault(_digest(_fetched(machine, names, tensors)), value)
    return list(found.values())


def _fetched(
    machine: _Machine, names: Sequence[str], tensors: Mapping[str, NDArray[Any]]
) -> list[NDArray[Any]]:
    """These tensors of the head, computed from the cuts and nothing more than they need."""
    computed = [name for name in names if name not in tensors]
    if not computed:
        return [tensors[name] for name in names]
    if machine.head is None:
        wanted = dict.fromkeys([*machine.split.joint, *itertools.chain(*machine.split.alone.values())])
        outputs = [name for name in wanted if name not in tensors]
        machine.head = _Session(part(machine.proto, tensors, outputs, machine.constants))
    found = dict(zip(computed, machine.head.run(computed, tensors), strict=True))
    return [tensors[name] if name in tensors else found[name] for name in names]


def _outputs(machine: _Machine, point: NDArray[np.float32]) -> tuple[bytes, Floats]:
    """The flat outputs of a cell, computed only if what the tail reads is new, and the key of that."""
    tensors = cut_tensors(machine.trace, point)
    joint = dict(zip(machine.split.joint, _fetched(machine, machine.split.joint, tensors), strict=True))
    key = _digest(joint.values())
    if key not in machine.seen:
        kind = tuple((value.dtype.str, value.shape) for value in joint.values())
        late = machine.split.late
        if late and kind not in machine.tails:
            machine.tails[kind] = _Session(part(machine.proto, joint, late, machine.constants))
        found = dict(zip(late, machine.tails[kind].run(late, joint), strict=True)) if late else {}
        order = [output.name for output in machine.proto.graph.output]
        whole = [np.asarray(found[n] if n in found else joint[n], np.float64).ravel() for n in order]
        machine.seen[key] = np.concatenate(whole)
    return key, machine.seen[key]


class _Session:
    """A part of the graph in ONNX Runtime that is fed only what it reads and runs only what is asked for."""

    def __init__(self, model: bytes) -> None:
        self._session = session_of(model)
        self._reads = [value.name for value in self._session.get_inputs()]
        self._options = runtime().RunOptions()
        self._options.only_execute_path_to_fetches = True

    def run(self, names: Sequence[str], tensors: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        feed = {name: tensors[name] for name in self._reads}
        return list(self._session.run(names, feed, self._options))


def _digest(tensors: Iterable[NDArray[Any]]) -> bytes:
    made = hashlib.blake2b(digest_size=16)
    for value in tensors:
        made.update(f"{value.dtype.str}{value.shape}".encode())
        made.update(np.ascontiguousarray(value).data)
    return made.digest()


def _answer(machine: _Machine, tally: _Tally) -> Answer:
    tried = f"{tally.cells:,} cells, {len(machine.seen):,} of them different"
    doubt = ""
    if tally.doubtful:
        more = f" and {len(tally.doubtful) - 3} others" if len(tally.doubtful) > 3 else ""
        doubt = f"; within {DOUBT:g} of the threshold, so it depends on the runtime: "
        doubt += ", ".join(tally.doubtful[:3]) + more
    if tally.slack <= 0:
        return Answer("violated", ENGINE, tally.point, note=f"found among {tried}{doubt}")
    if tally.strange:
        return Answer("unknown", ENGINE, note=f"{tried}; {tally.strange} with outputs that are not finite")
    return Answer("holds", ENGINE, margin=tally.slack, note=f"{tried}{doubt}")
