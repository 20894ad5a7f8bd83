"""A patch of any content at every position of a picture, decided for a single-object network.

At each position the values under the patch are free between the input's smallest and largest value; all
others are fixed. A position is certified if bounds prove that no content changes the class or moves the box
to an IoU at or below the threshold, in every evaluation of the file in its own precision. It is violated if a
content was found that does, and that does so again in ONNX Runtime on the user's original file.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from holdfast.core.errors import CardError, InputError
from holdfast.core.fingerprint import generator
from holdfast.core.property import Budget, InputBox
from holdfast.core.types import Bools, Floats, Ints, Tensor
from holdfast.graph.inspect import read_proto
from holdfast.graph.ir import Net
from holdfast.graph.lower import lower_onnx
from holdfast.graph.nodes import check_deterministic
from holdfast.graph.torch import TorchNet
from holdfast.patchbench.layout import Target
from holdfast.patchbench.positions.margins import Readout, readout_for, with_margins
from holdfast.patchbench.positions.models import BatchDetector
from holdfast.patchbench.positions.sweep import SafetyRule
from holdfast.verify.bab.decide import decide
from holdfast.verify.build import raise_bounds
from holdfast.verify.linear.batch import exact_steps, intervals, least_values
from holdfast.verify.linear.pieces import LinearSteps, full_precision, threads
from holdfast.verify.problem import Case, Deadline, InputDomain, VerificationProblem
from holdfast.verify.rounding import TYPES, rounding_of

Status: TypeAlias = Literal["unknown", "certified", "violated"]
STATES: tuple[Status, ...] = ("unknown", "certified", "violated")
UNKNOWN, CERTIFIED, VIOLATED = range(3)
BATCH = 64  # positions bounded or attacked at once
STEPS = 24  # of a descent
NEAR = 1e-4  # a margin up to which a content is replayed
SHARE = 0.4  # of the time that is left, for the attack
SECONDS = 5.0  # for splitting at one position
ROUNDED = 1e-12  # more than the error of an overlap computed in float64


@dataclass(frozen=True, eq=False)
class PositionCertificates:
    """The state of every position (rows, columns) of a patch's top left corner on one picture.

    `bounds` are proven lower bounds of IoU × equal (NaN where none is known); `witnesses` are contents in the
    network's input by (row, column), and `outputs` the IoU × equal that the user's file gives with them.
    """

    side: int
    target: Target
    bar: SafetyRule
    states: NDArray[np.int8]
    bounds: Floats
    witnesses: Mapping[tuple[int, int], Tensor]
    outputs: Mapping[tuple[int, int], float]
    split: int  # positions certified only by splitting
    seconds: float

    def count(self, status: Status) -> int:
        """The number of positions in a state."""
        return int((self.states == STATES.index(status)).sum())

    def share(self, status: Status) -> float:
        """The share of positions in a state."""
        return self.count(status) / self.states.size


@dataclass(frozen=True, eq=False)
class ExactNetwork:
    """A lowered network from a picture to a box and scores, and the user's file, which confirms violations.

    `graph` is the ONNX file or a parsed part of it; `ends` are the smallest and the largest picture, in the
    form of the network's input, with channels `last` or first.
    """

    where: str
    graph: Any
    net: Net
    ends: tuple[Tensor, Tensor]
    last: bool
    readout: Callable[[Target], Readout]
    output: Callable[[Tensor, Target], float]  # IoU × equal in the user's file for a picture (1, …)

    @cached_property
    def pieces(self) -> LinearSteps:
        """The linear steps of the net in float64."""
        return exact_steps(self.net)


def open_network(detector: BatchDetector) -> ExactNetwork:
    """The network of a detector with the head `landmark`; raise ModelError naming a node without bounds."""
    path, card, ports = detector.model.path, detector.model.card, detector.ports
    if ports is None or card.head.name != "landmark":
        raise CardError(
            f"{path}: expected a detector with the head 'landmark' (a box and class scores), got the head "
            f"{card.head.name!r}; only its outputs are bounded"
        )
    check_deterministic(read_proto(path), str(path))
    width, height = card.input.size
    black, white = (detector.tensor(np.full((height, width, 3), v, np.uint8)) for v in (0, 255))
    first = detector.batches.outputs[0] == ports.box
    readout = partial(
        readout_for, scale=ports.scale, classes=len(card.classes), box_first=first, where=str(path)
    )
    ends = np.minimum(black, white), np.maximum(black, white)
    net, last = lower_onnx(path, as_evaluated=True), card.input.layout == "nhwc"
    return ExactNetwork(str(path), path, net, ends, last, readout=readout, output=detector.output)


def certify_positions(
    network: ExactNetwork, clean: Tensor, target: Target, side: int, *,
    bar: SafetyRule | None = None, budget: Budget | None = None, split_seconds: float = SECONDS,
) -> PositionCertificates:  # fmt: skip
    """Decide every position of a side × side patch on a picture (the network's input, without the batch).

    Positions not decided within the time are unknown; splitting has at most `split_seconds` for each (0: no
    splitting).
    """
    shape = network.ends[0].shape
    if clean.shape != shape:
        raise InputError(f"expected a picture of shape {shape}, got {clean.shape}")
    most = min(shape[:2] if network.last else shape[1:])
    if not 1 <= side <= most:
        raise InputError(f"expected a patch of 1 to {most} pixels (the network's input), got {side}")
    budget = budget or Budget()
    with threads(budget.jobs), full_precision():
        return _Search(network, clean, target, side, bar or SafetyRule(), budget=budget).run(split_seconds)


class _Search:
    """The positions of one picture while they are being decided."""

    def __init__(
        self, network: ExactNetwork, clean: Tensor, target: Target, side: int, bar: SafetyRule, budget: Budget
    ) -> None:
        self.network, self.clean, self.target, self.side, self.bar = network, clean, target, side, bar
        self.clock = Deadline(budget, time.monotonic())
        self.readout = network.readout(target)
        places: Ints = np.arange(clean.size).reshape(clean.shape)
        self.places: Ints = np.moveaxis(places, -1, 0) if network.last else places  # (channels, h, w)
        _, height, width = self.places.shape
        self.shape = height - side + 1, width - side + 1
        self.states = np.zeros(self.shape, np.int8)
        self.bounds: Floats = np.full(self.shape, np.nan)
        self.margins: Floats = np.zeros(self.shape)  # the least of the interval bounds' margins
        self.witnesses: dict[tuple[int, int], Tensor] = {}
        self.outputs: dict[tuple[int, int], float] = {}

    def run(self, split_seconds: float) -> PositionCertificates:
        """Bound all positions, attack and then split those that are not certified."""
        for spots in self._batches():
            self._bound(spots)
        self._attack()
        spots = self._open()[::-1].tolist() if split_seconds else []  # the nearest to a proof first
        split = sum(self._split(spot, split_seconds) for spot in spots if self.clock.left > 0)
        return PositionCertificates(
            self.side, self.target, self.bar, self.states, self.bounds, witnesses=self.witnesses,
            outputs=self.outputs, split=split, seconds=time.monotonic() - self.clock.started,
        )  # fmt: skip

    def _open(self) -> Ints:
        """The undecided positions (n, 2), those with the lowest bounds first."""
        spots = np.argwhere(self.states == UNKNOWN)
        return spots[np.argsort(self.margins[tuple(spots.T)], kind="stable")]

    def _batches(self) -> Iterator[Ints]:
        spots = self._open()
        for begin in range(0, len(spots), BATCH):
            if self.clock.left <= 0:
                return
            yield spots[begin : begin + BATCH]

    def _free(self, row: int, column: int) -> Ints:
        """The flat places of the input under the patch, channel by channel."""
        return self.places[:, row : row + self.side, column : column + self.side].ravel()

    def _boxes(self, spots: Ints) -> tuple[Tensor, Tensor]:
        """The corners (q, inputs) of the inputs with a free patch at each position."""
        lower = np.repeat(self.clean.reshape(1, -1), len(spots), axis=0)
        upper = lower.copy()
        for at, (row, column) in enumerate(spots.tolist()):
            free = self._free(row, column)
            lower[at, free], upper[at, free] = (end.ravel()[free] for end in self.network.ends)
        return lower, upper

    def _bound(self, spots: Ints) -> None:
        """Certify positions by interval bounds."""
        pieces, rows = self.network.pieces, self.readout.rows
        lower, upper = (end.astype(np.float64) for end in self._boxes(spots))
        with torch.no_grad():
            region = intervals(pieces, lower, upper)
            least = least_values(region, np.concatenate([rows, -rows[:4]]))
        least -= np.abs(np.concatenate([rows, -rows[:4]])) @ self._underflow
        classes, low, high = least[:, 4 : len(rows)], least[:, :4], -least[:, len(rows) :]
        overlap = self.readout.least_iou(low, high)
        iou = np.where((classes > 0).all(axis=1), overlap, 0.0)
        at = tuple(spots.T)
        self.bounds[at] = np.maximum(iou, 0.0)
        self.margins[at] = np.minimum(overlap - self.bar.threshold, classes.min(axis=1, initial=np.inf))
        self.states[tuple(spots[iou > self.bar.threshold].T)] = CERTIFIED

    @cached_property
    def _underflow(self) -> Floats:
        """What underflow may change in each output; infinite if values may leave the range of their type."""
        ends = [end.astype(np.float64).ravel() for end in self.network.ends]
        net = self.network.net
        rounding = rounding_of(net, *ends)
        fits = rounding.largest < float(TYPES[net.roundoff].max) / 2
        return rounding.underflow if fits else np.full(net.outputs, np.inf)

    def _attack(self) -> None:
        """Search contents by gradient descent on the margins, and replay those that may be violations."""
        function = TorchNet(with_margins(self.network.net, self.readout, self.bar.threshold))
        stop = self.clock.left * (1 - SHARE)
        for start in range(4):
            for spots in self._batches():
                if self.clock.left < stop:
                    return
                self._descend(function, spots, start)

    def _descend(self, function: TorchNet, spots: Ints, start: int) -> None:
        """One descent of a batch: from black, from white, then from random contents."""
        lower, upper = (torch.from_numpy(end) for end in self._boxes(spots))
        rng = generator(self.clock.budget.seed, "positions", start, *map(int, spots[0]))
        random = torch.from_numpy(rng.random(tuple(lower.shape), np.float32))
        points = lower + (upper - lower) * (random if start > 1 else float(start))
        best, worst = points.clone(), torch.full((len(points),), torch.inf)
        for step in range(STEPS + 1):
            points = points.detach().requires_grad_()
            margins = function(points)
            least = margins.detach().min(1).values
            better = least < worst
            worst, best[better] = torch.where(better, least, worst), points.detach()[better]
            # The nearest constraint of each point, and the others a little: it may not be reachable.
            (slope,) = torch.autograd.grad((margins.min(1).values + 0.05 * margins.sum(1)).sum(), points)
            size = 0.5 * (1 - step / (STEPS + 1)) + 0.02
            points = torch.clamp(points.detach() - size * (upper - lower) * slope.sign(), lower, upper)
        for at in np.flatnonzero((worst <= NEAR).numpy()):
            row, column = spots[at].tolist()
            self._replay((row, column), best[at].numpy())

    def _replay(self, place: tuple[int, int], point: Tensor) -> bool:
        """Whether the content of a whole input at this place violates the property in the user's file."""
        free = self._free(*place)
        content = np.clip(point.ravel()[free], *(end.ravel()[free] for end in self.network.ends))
        whole = self.clean.ravel().copy()
        whole[free] = content
        output = self.network.output(whole.reshape(1, *self.clean.shape), self.target)
        if not self.bar.unsafe(np.array([output]))[0]:
            return False
        self.states[place] = VIOLATED
        self.witnesses[place] = content.reshape(-1, self.side, self.side)
        self.outputs[place] = output
        return True

    def _split(self, spot: list[int], seconds: float) -> bool:
        """Whether branch and bound certifies a position; a violation that it finds is recorded."""
        place = spot[0], spot[1]
        low, high = (end[0] for end in self._boxes(np.array([place])))
        shape = (1, *self.clean.shape)
        box = InputBox(low.astype(np.float64).reshape(shape), high.astype(np.float64).reshape(shape))
        domain = InputDomain(box, np.flatnonzero(low < high), low)
        net = lower_onnx(self.network.graph, low, high, as_evaluated=True)
        net = with_margins(net, self.readout, self.bar.threshold)
        ends = domain.within(None)
        eye, bound = np.eye(net.outputs), np.full(1, ROUNDED)
        cases = raise_bounds(net, tuple(Case(*ends, eye[[i]], bound) for i in range(len(eye))), domain, "")

        def violates(points: NDArray[np.floating]) -> Bools:
            return np.array([self._replay(place, whole[0]) for whole in domain.whole(points)], bool)

        seconds = min(seconds, self.clock.left)
        answer = decide(
            VerificationProblem(net, cases, violates, domain.dtype),
            Deadline(replace(self.clock.budget, seconds=seconds), time.monotonic()),
        )
        if answer.status != "holds" or self.states[place] == VIOLATED:
            return False
        self.states[place] = CERTIFIED
        self.bounds[place] = max(self.bounds[place], self.bar.threshold)
        return True
