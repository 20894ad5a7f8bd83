"""Engine for finite domains: exact enumeration of all cells of the free inputs in ONNX Runtime."""

import hashlib
import itertools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from holdfast.core.property import InputBox, LinearConstraints, Property
from holdfast.core.types import Floats
from holdfast.graph.inspect import inputs_of
from holdfast.graph.nodes import part_of
from holdfast.graph.session import runtime
from holdfast.verify import finite
from holdfast.verify.finite import GraphSplit, InputCells, NotFinite, RoundingTrace, Values, cut_tensors
from holdfast.verify.problem import Deadline, EngineResult, InputDomain, ends_of
from holdfast.verify.replay import Runner, session_of

Cases: TypeAlias = list[LinearConstraints]
Tensors: TypeAlias = Mapping[str, NDArray[Any]]
TensorsOfCell: TypeAlias = Callable[[int], Iterable[NDArray[Any]]]
_SHORT = 0.5  # seconds below which splitting the graph does not pay off
ENGINE = "enumerate"
LIMIT = 5_000_000  # cells of one box
DOUBT = 1e-4  # a slack nearer to 0 may have the other sign on another runtime


@dataclass
class CellEvaluator:
    """Sessions of the network and its parts, opened on first use, with a cache of their outputs."""

    model: Any  # onnx.ModelProto
    trace: RoundingTrace
    split: GraphSplit
    constants: Tensors
    domain: InputDomain
    runner: Callable[[], Runner]
    direct: bool = False  # run the original file for every cell
    runs: int = 0
    alone: Any = None
    head: Any = None
    tails: dict[tuple[Any, ...], Any] = field(default_factory=dict)
    outputs: dict[bytes, Floats] = field(default_factory=dict)


def choose(machine: CellEvaluator, cells: int) -> None:
    """Run the original file directly if that is fast enough for this many cells."""
    sample, runner = machine.domain.template.reshape(machine.domain.box.lower.shape), machine.runner()
    began = time.perf_counter()
    for _ in range(2):
        runner.run(sample)
    machine.direct = cells * (time.perf_counter() - began) / 2 < _SHORT


def on_original(machine: CellEvaluator, point: Values) -> Floats:
    """The flat outputs of the original file for these free inputs (n,)."""
    return np.asarray(machine.runner().outputs(machine.domain.whole(point[None]))[0])


def first_alike(
    trace: RoundingTrace, split: GraphSplit, free: int, count: int, tensors: TensorsOfCell
) -> NDArray[np.int64]:
    """The first cell with the same outputs, (count,); `tensors` are those that depend on this input alone."""
    first = np.arange(count)
    shared = [cut for name, cut in trace.cuts.items() if len(trace.needs[name]) > 1]
    if any(free in trace.roots[cut.view.index[cut.view.index >= 0]] for cut in shared):
        return first
    if not split.alone[free]:
        return np.zeros_like(first)  # nothing depends on it
    first_cell: dict[bytes, int] = {}
    for i in range(count):
        first[i] = first_cell.setdefault(_digest(tensors(i)), i)
    return first


def _different(machine: CellEvaluator, cells: Sequence[InputCells], free: int) -> Values:
    """A value in each cell of one input whose outputs differ from those of earlier cells."""
    start = np.array([row.middle[0] for row in cells], np.float32)
    values = cells[free].middle

    def tensors(number: int) -> Iterable[NDArray[Any]]:
        point = start.copy()
        point[free] = values[number]
        cuts = cut_tensors(machine.trace, point)
        if machine.alone is None:
            machine.alone = _Subgraph(machine, cuts, itertools.chain(*machine.split.alone.values()))
        tensors_alone: dict[str, NDArray[Any]] = machine.alone.run(machine.split.alone[free], cuts)
        return tensors_alone.values()

    return values[np.unique(first_alike(machine.trace, machine.split, free, len(values), tensors))]


def outputs_of(machine: CellEvaluator, point: Values) -> tuple[bytes, Floats]:
    """The cache key and the flat outputs of a cell, computed only if the tail's inputs are new."""
    if machine.direct:
        machine.runs += 1
        return point.tobytes(), on_original(machine, point)
    tensors = cut_tensors(machine.trace, point)
    if machine.head is None:
        machine.head = _Subgraph(machine, tensors, machine.split.joint)
    joint = machine.head.run(machine.split.joint, tensors)
    key = _digest(joint.values())
    if key not in machine.outputs:
        machine.runs += 1
        kind = tuple((value.dtype.str, value.shape) for value in joint.values())
        if kind not in machine.tails:
            machine.tails[kind] = _Subgraph(machine, joint, machine.split.late)
        computed = joint | machine.tails[kind].run(machine.split.late, joint)
        outputs = [computed[output.name] for output in machine.model.graph.output]
        machine.outputs[key] = np.concatenate([np.asarray(value, np.float64).ravel() for value in outputs])
    return key, machine.outputs[key]


class _Subgraph:
    """A part of the graph that gets only the inputs it reads and computes only the requested outputs."""

    def __init__(self, machine: CellEvaluator, inputs: Tensors, names: Iterable[str]) -> None:
        outputs = [name for name in dict.fromkeys(names) if name not in inputs]
        self._session = None
        if outputs:
            part = part_of(machine.model, inputs, outputs, machine.constants)
            self._session = session_of(part.SerializeToString())
            self._reads = [value.name for value in self._session.get_inputs()]
            self._options = runtime().RunOptions()
            self._options.only_execute_path_to_fetches = True

    def run(self, names: Sequence[str], inputs: Tensors) -> dict[str, NDArray[Any]]:
        """These tensors in order, computed from `inputs` or among them."""
        values, missing = dict(inputs), [name for name in names if name not in inputs]
        if missing and self._session is not None:
            feed = {name: inputs[name] for name in self._reads}
            values |= zip(missing, self._session.run(missing, feed, self._options), strict=True)
        return {name: values[name] for name in names}


def _digest(tensors: Iterable[NDArray[Any]]) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for value in tensors:
        digest.update(f"{value.dtype.str}{value.shape}".encode())
        digest.update(np.ascontiguousarray(value).data)
    return digest.digest()


@dataclass
class _Tally:
    """The worst cell so far, the doubtful cells, and the number of cells evaluated."""

    slack: float = inf
    point: Values | None = None
    output: Floats = field(default_factory=lambda: np.zeros(0))
    doubtful: list[str] = field(default_factory=list)
    cells: int = 0
    strange: int = 0


def enumerated(
    question: Property, proto: Any, domain: InputDomain, runner: Callable[[], Runner], clock: Deadline
) -> EngineResult:
    """The exact result for a property whose free inputs are all rounded; raise NotFinite if one is not.

    `holds` is returned only after `runner` has confirmed the tightest cell on the original file.
    """
    template = domain.template.reshape(domain.box.lower.shape)
    inputs = inputs_of(proto)
    if len(inputs) != 1 or inputs[0].dtype != "float32":
        raise NotFinite("the network does not have exactly one float32 input")
    trace = finite.traced(proto, inputs[0].name, domain.free, template)
    boxes = _boxes(question, domain)
    finite.check_range(trace, [end for low, high, _ in boxes for end in (low, high)])
    constants = {inputs[0].name: template}
    machine = CellEvaluator(proto, trace, finite.split(proto, trace), constants, domain, runner)
    tally = _Tally()
    for low, high, rows in boxes:
        try:
            step_functions = [finite.step_function_of(trace, i) for i in range(len(low))]
            cells = [finite.cells_of(*ends, LIMIT) for ends in zip(step_functions, low, high, strict=True)]
        except finite.TooMany:
            return EngineResult("unknown", ENGINE, note=f"more than {LIMIT:,} cells of one input")
        total = prod(map(len, cells))
        if total > LIMIT:
            return EngineResult("unknown", ENGINE, note=f"{total:,} cells, more than the limit of {LIMIT:,}")
        if not _evaluate_box(machine, cells, rows, tally, clock):
            note = f"{machine.runs:,} different cells of {total:,} were evaluated"
            return EngineResult("timeout", ENGINE, note=note)
        tally.cells += total
        if tally.slack < -DOUBT:
            break
    if tally.slack > 0 and not tally.strange and not machine.direct and not _confirmed(machine, tally):
        note = "the cell with the smallest margin has another output in the original file"
        return EngineResult("unknown", ENGINE, note=note)
    return _result(machine, tally)


def _boxes(question: Property, domain: InputDomain) -> list[tuple[Values, Values, Cases]]:
    """The float32 ends of every box of free inputs, with the rows that apply to it."""
    fixed = domain.template.astype(np.float64)
    fixed[domain.free] = 0.0
    groups: dict[int, tuple[InputBox | None, Cases]] = {}
    for rows in question.unsafe:
        bound = rows.bound
        if rows.inputs is not None:
            if rows.inputs[:, domain.free].any():
                raise NotFinite("a constraint ties outputs to a free input")
            bound = bound - rows.inputs @ fixed
        groups.setdefault(id(rows.within), (rows.within, []))[1].append(LinearConstraints(rows.matrix, bound))
    boxes = []
    for box, cases in groups.values():
        lower, upper = domain.within(box)
        first, last = ends_of(lower, upper)
        middle = domain.template.copy()
        middle[domain.free] = first
        inside = box is None or not box.excludes(middle.reshape(box.lower.shape))
        if inside and (first <= last).all():  # no float32 lies in the others
            boxes.append((first, last, cases))
    return boxes


def _evaluate_box(
    machine: CellEvaluator, cells: list[InputCells], cases: Cases, tally: _Tally, clock: Deadline
) -> bool:
    """Evaluate the cells of a box into the tally; return whether all of them fit into the time limit."""
    kinds = [_different(machine, cells, free) for free in range(len(cells))]
    remaining, judged = prod(map(len, kinds)), set[bytes]()
    choose(machine, remaining)
    for values in itertools.product(*kinds):
        if not remaining % 64:
            clock.tell("cells", remaining, tally.slack)
        if clock.left <= 0:
            return False
        remaining -= 1
        point = np.array(values, np.float32)
        key, output = outputs_of(machine, point)
        if key in judged:
            continue
        judged.add(key)
        if not np.isfinite(output).all():
            tally.strange += 1
            continue
        slack = min(rows.slack(output) for rows in cases)
        if abs(slack) <= DOUBT:
            tally.doubtful.append(f"({', '.join(f'{v:g}' for v in point)}) by {slack:.1e}")
        if slack < tally.slack:
            tally.slack, tally.point, tally.output = slack, point, output
        if tally.slack < -DOUBT:
            break
    return True


def _confirmed(machine: CellEvaluator, tally: _Tally) -> bool:
    """Whether the original file and the split graph agree on the output of the tightest cell."""
    if tally.point is None:
        return True  # no box holds a float32
    original = on_original(machine, tally.point)
    same_shape = original.shape == tally.output.shape
    return same_shape and bool(np.allclose(original, tally.output, rtol=1e-4, atol=DOUBT))


def _result(machine: CellEvaluator, tally: _Tally) -> EngineResult:
    counts, doubt = f"{tally.cells:,} cells, {machine.runs:,} of them distinct", ""
    if tally.doubtful:
        more = f" and {len(tally.doubtful) - 3} others" if len(tally.doubtful) > 3 else ""
        doubt = f"; within {DOUBT:g} of the threshold, so the verdict may depend on the runtime: "
        doubt += ", ".join(tally.doubtful[:3]) + more
    if tally.slack <= 0:
        return EngineResult("violated", ENGINE, tally.point, note=f"found among {counts}{doubt}")
    if tally.strange:
        return EngineResult("unknown", ENGINE, note=f"{counts}; {tally.strange} with non-finite outputs")
    return EngineResult("holds", ENGINE, margin=tally.slack, note=f"{counts}{doubt}")
