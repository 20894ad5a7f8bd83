"""Search for few inputs: boxes decided by forms and small programs, split by inputs and relus."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.core.extras import check
from holdfast.graph.ir import Array
from holdfast.verify.lowdim import tables
from holdfast.verify.lowdim.layers import LayerStack, layers_of, picked
from holdfast.verify.lowdim.tables import STATE, BoxStack, LayerTable, LinearProgram, Workspace, allocate
from holdfast.verify.problem import Case, Deadline, EngineResult, VerificationProblem, narrowest, same_box
from holdfast.verify.rounding import EXTRA, MERGED, SURE, UNIT, gamma

ENGINE = "boxes"
CLIMBS = 32  # before the first box of a group
PARKED = 256  # undecided boxes after which the search ends
ROUNDED = 8  # the same for a proof with rounding: one undecided box means that the proof has failed
COMPILING = 55.0  # remaining seconds required if kernels must be compiled first
WORK = 1 << 28  # products for the forms of one box, at most; more symbols are pooled
PHASES = 1024  # rows of fixed phases in a program, at most
CUTS = 32  # room for cuts
DEPTH = 64  # boxes on a new stack
FIRST, USUAL = 32, 512  # boxes at a time, in the beginning and later
# Symbols per local search, at first and later: a box with 40 takes about as long as a local search.
EARLY, SYMBOLS_A_CLIMB = 1 << 19, (80, 400)
PATIENCE = 0.15  # seconds a call of the kernel may take, about
_OPEN = ("lower", "upper", "phase", "alive")  # arrays with a row for each box on the stack


def search(problem: VerificationProblem, clock: Deadline) -> EngineResult:
    """Whether a case can be met, for a net of few inputs made of linear steps and relus; else unknown.

    "holds" is proven for every evaluation of the net's `roundoff`, all rounding of the proof accounted for.
    """
    cases = [case for case in problem.cases if not (case.lower > case.upper).any()]  # NaN is no proof
    layers = layers_of(problem.net, inputs=any(case.inputs is not None for case in cases))
    if layers is None:
        return EngineResult("unknown", ENGINE, note="not a small network of linear layers and ReLUs")
    if clock.left < COMPILING and not ready():
        note = "the time limit is too short to compile the kernels; run `holdfast vnncomp warm` once"
        return EngineResult("unknown", ENGINE, note=note)
    with ThreadPoolExecutor(max(1, clock.budget.jobs)) as pool:
        return _Search(problem, clock, layers, pool).run(cases)


class _Search:
    """A running search: the smallest proven margin, and the numbers of visited and undecided boxes."""

    def __init__(
        self, problem: VerificationProblem, clock: Deadline, layers: LayerStack, pool: ThreadPoolExecutor
    ) -> None:
        self.problem, self.clock, self.layers, self.pool = problem, clock, layers, pool
        self.margin, self.visited, self.parked = np.inf, 0, 0

    def run(self, cases: Sequence[Case]) -> EngineResult:
        for numbers in same_box(cases):
            group = [cases[number] for number in numbers]
            for case in group:
                if not len(case.bound):  # every point of its box is a witness
                    point = 0.5 * case.lower + 0.5 * case.upper
                    if self.problem.violates(point[None])[0]:
                        return EngineResult("violated", ENGINE, point)
                    self.parked += 1
            answer = self.group([case for case in group if len(case.bound)])
            if answer is not None:
                return answer
        note = f"{self.visited:,} boxes"
        if self.parked:
            note = f"{note}, {self.parked} of them at the resolution of float64"
            return EngineResult("unknown", ENGINE, note=note, at_limit=True)
        margin = float(self.margin) if np.isfinite(self.margin) else None
        return EngineResult("holds", ENGINE, margin=margin, note=note)

    def group(self, cases: Sequence[Case]) -> EngineResult | None:
        """The result if the cases, all of one box, decide it; otherwise None."""
        if not cases:
            return None
        net, target = table_of(self.layers, cases), _target(self.layers, cases)
        jobs, seed, kind = max(1, self.clock.budget.jobs), self.clock.budget.seed, self.problem.dtype
        walkers, climbs = [BoxWalker(net, cases, target, seed, kind)], CLIMBS
        walkers[0].put_box(cases[0])
        while any(walker.open for walker in walkers):
            if self.clock.left <= 0:
                visited = self.visited + sum(walker.visited for walker in walkers)
                return EngineResult("timeout", ENGINE, note=f"{visited:,} boxes")
            busy = [walker for walker in walkers if walker.open]
            codes = self.pool.map(partial(BoxWalker.walk, climbs=climbs), busy)
            for walker, code in zip(busy, codes, strict=True):
                answer = self.check_pause(walker, code)
                if answer is not None:
                    return answer
            climbs = walkers[0].fair_climbs()
            if jobs > len(walkers) and walkers[0].open > 1 and walkers[0].visited > 256:
                walkers.append(BoxWalker(net, cases, target, seed + 7919 * len(walkers), kind))
            for walker in walkers:
                richest = max(walkers, key=lambda w: w.open)
                if not walker.open and richest.open > 1:
                    richest.share(walker)
            worst = min(float(walker.state.worst) for walker in walkers)
            self.clock.tell("splitting boxes", sum(walker.open for walker in walkers), worst)
        self.margin = min(self.margin, *(float(walker.state.margin) for walker in walkers))
        self.visited += sum(walker.visited for walker in walkers)
        return None

    def check_pause(self, walker: BoxWalker, code: int) -> EngineResult | None:
        """The result if the walker paused at a counterexample or has too many undecided boxes, else None."""
        if code not in (tables.FOUND, tables.LEAF):
            return None
        point: Array = walker.stack.point.copy()
        if self.problem.violates(point[None])[0]:
            return EngineResult("violated", ENGINE, point, note=f"{self.visited + walker.visited:,} boxes")
        if code == tables.FOUND:
            # Pause again only at a point with a larger violation.
            state = walker.state
            state.goal = min(state.goal, 2.0 * state.best - 1e-9)
            return None
        self.parked += 1
        if self.parked < (ROUNDED if self.layers.roundoff else PARKED):
            return None
        note = f"{self.parked} boxes at the resolution of float64"
        return EngineResult("unknown", ENGINE, note=note, at_limit=True)


def _target(layers: LayerStack, cases: Sequence[Case]) -> float:
    """The bound at which a box counts as decided, small relative to the rows at the centre of the box."""
    values = 0.5 * cases[0].lower + 0.5 * cases[0].upper
    start = values
    for layer in layers.hidden:
        values = layer.weight @ values + layer.bias
        values = np.maximum(values, layer.slope * values)
    values = layers.output.weight @ values + layers.output.bias
    rows = [case.rows @ values - case.bound for case in cases]
    rows += [case.inputs @ start for case in cases if case.inputs is not None]
    return min(SURE, 1e-3 * float(np.abs(np.concatenate(rows)).max()) + 1e-12)


@cache
def kernel() -> Any:
    """The compiled walk, which takes a walker's arrays. Compilation takes half a minute."""
    walk = _walk()
    walk.compile(_signature())
    return walk


def ready() -> bool:
    """Whether compiled kernels are in memory or in the cache."""
    walk = _walk()
    return bool(walk.overloads) or walk._cache.load_overload(_signature(), walk.targetctx) is not None


@cache
def _walk() -> Any:
    check("a proof", "numba", extra="verify")
    from holdfast.verify.lowdim.walk import cached_walk

    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return cached_walk(digest.hexdigest())


@cache
def _signature() -> tuple[Any, ...]:
    """The argument types of the walk: those of the arrays of any net."""
    from numba import typeof

    case = Case(np.zeros(1), np.zeros(1), np.ones((1, 1)), np.zeros(1))
    smallest = BoxWalker(table_of(LayerStack((), picked(0, 1), None), [case]), [case])
    return tuple(typeof(array) for array in smallest.arrays)


def table_of(layers: LayerStack, cases: Sequence[Case]) -> LayerTable:
    """The net, its last layer giving the rows of the cases."""
    rows = np.concatenate([case.rows for case in cases])
    bound = np.concatenate([case.bound for case in cases])
    ties = [np.zeros((len(c.bound), len(c.lower))) if c.inputs is None else c.inputs for c in cases]
    tied = any(case.inputs is not None for case in cases)
    parts = [*layers.hidden, layers.rows(rows, np.concatenate(ties) if tied else None, bound)]
    sizes = [parts[0].weight.shape[1], *(len(part.bias) for part in parts)]
    unit = [
        2.0 * UNIT * (max(part.weight.shape) + part.terms + MERGED + 8)
        + gamma(part.weight.shape[1] + part.terms + EXTRA, layers.roundoff)
        for part in parts
    ]
    return LayerTable(
        sizes=np.array(sizes),
        first=np.cumsum([0, *sizes[1:]]),
        at=np.cumsum([0, *(part.weight.size for part in parts)]),
        weight=np.concatenate([part.weight.ravel() for part in parts]),
        column=np.concatenate([part.weight.T.ravel() for part in parts]),
        size=np.concatenate([part.size.T.ravel() for part in parts]),
        bias=np.concatenate([part.bias for part in parts]),
        bias_size=np.concatenate([part.bias_size for part in parts]),
        slope=np.concatenate([part.slope for part in parts]),
        unit=np.array(unit),
        start=np.cumsum([0, *(len(case.bound) for case in cases)]),
    )


class BoxWalker:
    """A stack of open boxes that `walk` processes, with the best point and bounds found."""

    def __init__(
        self,
        net: LayerTable,
        cases: Sequence[Case],
        target: float = SURE,
        seed: int = 0,
        dtype: np.dtype[Any] | type = np.float32,
    ) -> None:
        """An empty stack for cases of one box; witnesses are of the input's type."""
        inputs, hidden, neurons = int(net.sizes[0]), int(net.first[-2]), len(net.bias)
        symbols = inputs + max(1, min(hidden, max(16, WORK // max(len(net.weight), 1))))
        sizes = {
            "neurons": neurons,
            "levels": len(net.sizes),
            "cases": len(net.start) - 1,
            "inputs": inputs,
            "widest": int(net.sizes.max()),
            "symbols": symbols,
            "columns": symbols + 1,
            "forms": symbols * neurons,
            "rows": 2 * int(np.diff(net.start).max()) + min(hidden, PHASES) + CUTS,
            "depth": DEPTH,
        }
        self.net, self.space, self.lp = net, allocate(Workspace, sizes), allocate(LinearProgram, sizes)
        self.stack, self.state = allocate(BoxStack, sizes), np.zeros(1, STATE).view(np.recarray)[0]
        self.boxes = FIRST
        state, stack, case = self.state, self.stack, cases[0]
        low, high = case.ends(dtype)
        possible = bool((low <= high).all())
        stack.lower32[:] = low if possible else case.lower
        stack.upper32[:] = high if possible else case.upper
        stack.floor[:] = narrowest(case.lower, case.upper)
        state.margin = state.worst = state.best = np.inf
        state.goal, state.target = 0.0 if possible else -np.inf, target
        state.top, state.random = -1, 1 + seed % 2147483645

    @property
    def arrays(self) -> tuple[Any, ...]:
        """The arguments of the kernel."""
        return self.net, self.space, self.lp, self.stack, self.state

    def put_box(self, case: Case) -> None:
        """Push the whole box of the cases, widened by one unit in the last place."""
        self.state.top += 1
        top, stack = self.state.top, self.stack
        stack.lower[top] = np.nextafter(case.lower, -np.inf)
        stack.upper[top] = np.nextafter(case.upper, np.inf)
        stack.phase[top] = 0
        stack.alive[top] = 1

    def deepen(self) -> None:
        """Double the capacity of the stack."""
        blocks = {name: getattr(self.stack, name) for name in _OPEN}
        larger = {name: np.concatenate([block, np.zeros_like(block)]) for name, block in blocks.items()}
        self.stack = self.stack._replace(**larger)

    def walk(self, climbs: int) -> int:
        """Run the kernel for some local searches and boxes; return why it paused."""
        state = self.state
        state.most, state.climbs = self.boxes, climbs
        state.worst = state.best = np.inf
        began, before = time.monotonic(), self.visited
        while (code := kernel()(*self.arrays)) == tables.FULL:
            self.deepen()
            state.climbs = 0
        took = time.monotonic() - began
        if took > PATIENCE:
            self.boxes = max(1, self.boxes // 2)
        elif self.visited - before == self.boxes < USUAL and took < PATIENCE / 4:
            self.boxes *= 2
        return int(code)

    def fair_climbs(self) -> int:
        """Number of local searches for the next boxes: a third of the time at first, less later."""
        symbols, visited = int(self.state.symbols), max(self.visited, 1)
        return 1 + self.boxes * symbols // visited // SYMBOLS_A_CLIMB[symbols > EARLY]

    @property
    def open(self) -> int:
        """How many boxes are on the stack."""
        return int(self.state.top) + 1

    @property
    def visited(self) -> int:
        """Number of boxes processed."""
        return int(self.state.visited)

    def share(self, other: BoxWalker) -> None:
        """Move the lower half of the stack, mostly the larger boxes, to a walker without boxes."""
        while len(other.stack.lower) < self.open + 2:
            other.deepen()
        open_count, count = self.open, self.open // 2
        for name in _OPEN:
            block = getattr(self.stack, name)
            getattr(other.stack, name)[:count] = block[:count]
            block[: open_count - count] = block[count:open_count].copy()
        self.state.top, other.state.top = open_count - count - 1, count - 1
