"""The engine for finite domains: every cell of the free inputs is tried in ONNX Runtime, exactly."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.core.property import Box, Property, Rows
from holdfast.core.types import Floats
from holdfast.graph.inspect import inputs_of
from holdfast.verify.domain import Domain, first_float, last_float
from holdfast.verify.finite.cells import Cells, TooMany, cells_of, check_range, stairs_of
from holdfast.verify.finite.machine import Machine, choose, kinds_of, on_original, outputs_of
from holdfast.verify.finite.split import split
from holdfast.verify.finite.trace import NotFinite, traced
from holdfast.verify.problem import Answer, Clock
from holdfast.verify.replay import Runner

ENGINE = "enumerate"
LIMIT = 5_000_000  # cells of one box
DOUBT = 1e-4  # a slack nearer to 0 may have the other sign on another runtime


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

    Before it says `holds` the tightest cell has been run on the original file, by `runner`, and agreed.
    """
    template = domain.template.reshape(domain.box.lower.shape)
    name = _input(proto)
    trace = traced(proto, name, domain.free, template)
    boxes = _boxes(question, domain)
    check_range(trace, [end for low, high, _ in boxes for end in (low, high)])
    machine = Machine(proto, trace, split(proto, trace), {name: template}, domain, runner)
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
            return Answer("timeout", ENGINE, note=f"{machine.runs:,} different cells of {total:,} were tried")
        tally.cells += total
        if tally.slack < -DOUBT:
            break
    if tally.slack > 0 and not tally.strange and not machine.direct and not _confirmed(machine, tally):
        return Answer("unknown", ENGINE, note="the tightest cell has another output on the original file")
    return _answer(machine, tally)


def _input(proto: Any) -> str:
    """The name of the network's one input, which must be float32."""
    inputs = inputs_of(proto)
    if len(inputs) != 1 or inputs[0].dtype != "float32":
        raise NotFinite("the network has not one input of float32")
    return inputs[0].name


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
        first, last = first_float(lower), last_float(upper)
        middle = domain.template.copy()
        middle[domain.free] = first
        inside = box is None or not box.excludes(middle.reshape(box.lower.shape))
        if inside and (first <= last).all():  # no float32 lies in the others
            boxes.append((first, last, cases))
    return boxes


def _tried(machine: Machine, cells: Sequence[Cells], cases: list[Rows], tally: _Tally, clock: Clock) -> bool:
    """Whether all cells of a box were tried before the time was up; the tally is kept."""
    start = np.array([row.middle[0] for row in cells], np.float32)
    kinds = [kinds_of(machine, start, i, row.middle) for i, row in enumerate(cells)]
    left, judged = prod(map(len, kinds)), set[bytes]()
    choose(machine, left)
    for values in itertools.product(*kinds):
        if not left % 64:
            clock.tell("cells", left, tally.slack)
        if clock.left <= 0:
            return False
        left -= 1
        point = np.array(values, np.float32)
        key, output = outputs_of(machine, point)
        if key in judged:
            continue
        judged.add(key)
        _judge(point, output, cases, tally)
        if tally.slack < -DOUBT:
            break
    return True


def _confirmed(machine: Machine, tally: _Tally) -> bool:
    """Whether the original file gives the tightest cell the output that the parts of the graph gave it."""
    if tally.point is None:
        return True  # no box holds a float32
    output = on_original(machine, tally.point)
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


def _answer(machine: Machine, tally: _Tally) -> Answer:
    tried = f"{tally.cells:,} cells, {machine.runs:,} of them different"
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
