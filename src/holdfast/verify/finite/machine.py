"""What a network with cuts gives for a cell: run as a whole, or in parts run no oftener than needed."""

from __future__ import annotations

import hashlib
import itertools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.core.types import Floats
from holdfast.graph.nodes import part_of
from holdfast.graph.session import runtime
from holdfast.verify.domain import Domain
from holdfast.verify.finite.split import Split
from holdfast.verify.finite.trace import Trace, cut_tensors
from holdfast.verify.replay import Runner, session_of

_SHORT = 0.5  # seconds for which it does not pay to take the graph apart


@dataclass
class Machine:
    """The network and its parts as sessions, opened when first needed, and what they gave so far."""

    model: Any  # onnx.ModelProto
    trace: Trace
    split: Split
    constants: Mapping[str, NDArray[Any]]
    domain: Domain
    runner: Callable[[], Runner]
    direct: bool = False  # run the original file for every cell
    runs: int = 0
    alone: Any = None
    head: Any = None
    tails: dict[tuple[Any, ...], Any] = field(default_factory=dict)
    seen: dict[bytes, Floats] = field(default_factory=dict)


def choose(machine: Machine, cells: int) -> None:
    """Nothing is returned: the machine runs the original file if that takes not long for so many cells."""
    whole, runner = machine.domain.template.reshape(machine.domain.box.lower.shape), machine.runner()
    began = time.perf_counter()
    for _ in range(2):
        runner.run(whole)
    machine.direct = cells * (time.perf_counter() - began) / 2 < _SHORT


def on_original(machine: Machine, point: NDArray[np.float32]) -> Floats:
    """The flat outputs of the original file for these free inputs (n,)."""
    outputs: Floats = machine.runner().outputs(machine.domain.whole(point[None]))[0]
    return outputs


def kinds_of(
    machine: Machine, start: NDArray[np.float32], free: int, values: NDArray[np.float32]
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
        if machine.alone is None:
            machine.alone = _Part(machine, tensors, itertools.chain(*machine.split.alone.values()))
        found.setdefault(digest(machine.alone.run(names, tensors)), value)
    return list(found.values())


def outputs_of(machine: Machine, point: NDArray[np.float32]) -> tuple[bytes, Floats]:
    """The flat outputs of a cell, computed only if what the tail reads is new, and the key of that."""
    if machine.direct:
        machine.runs += 1
        return point.tobytes(), on_original(machine, point)
    tensors = cut_tensors(machine.trace, point)
    names = machine.split.joint
    if machine.head is None:
        machine.head = _Part(machine, tensors, names)
    joint = dict(zip(names, machine.head.run(names, tensors), strict=True))
    key = digest(joint.values())
    if key not in machine.seen:
        machine.runs += 1
        kind = tuple((value.dtype.str, value.shape) for value in joint.values())
        if kind not in machine.tails:
            machine.tails[kind] = _Part(machine, joint, machine.split.late)
        found = {
            **joint,
            **dict(zip(machine.split.late, machine.tails[kind].run(machine.split.late, joint), strict=True)),
        }
        order = [output.name for output in machine.model.graph.output]
        machine.seen[key] = np.concatenate([np.asarray(found[name], np.float64).ravel() for name in order])
    return key, machine.seen[key]


class _Part:
    """A part of the graph that is fed no more than it reads and runs no more than is asked for."""

    def __init__(self, machine: Machine, given: Mapping[str, NDArray[Any]], names: Iterable[str]) -> None:
        outputs = [name for name in dict.fromkeys(names) if name not in given]
        self._session = None
        if outputs:
            part = part_of(machine.model, given, outputs, machine.constants)
            self._session = session_of(part.SerializeToString())
            self._reads = [value.name for value in self._session.get_inputs()]
            self._options = runtime().RunOptions()
            self._options.only_execute_path_to_fetches = True

    def run(self, names: Sequence[str], given: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        """These tensors, computed from those given or one of them."""
        wanted = [name for name in names if name not in given]
        if not wanted or self._session is None:
            return [given[name] for name in names]
        feed = {name: given[name] for name in self._reads}
        found = dict(zip(wanted, self._session.run(wanted, feed, self._options), strict=True))
        return [given[name] if name in given else found[name] for name in names]


def digest(tensors: Iterable[NDArray[Any]]) -> bytes:
    """A key that is the same for the same tensors."""
    made = hashlib.blake2b(digest_size=16)
    for value in tensors:
        made.update(f"{value.dtype.str}{value.shape}".encode())
        made.update(np.ascontiguousarray(value).data)
    return made.digest()
