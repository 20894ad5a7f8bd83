"""Open domains of a branch and bound: how they are split, ordered, and carried over to tighter bounds."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any, TypeAlias

import torch

from holdfast.verify.linear.curves import Cut, ReluRelaxation
from holdfast.verify.linear.passes import BackwardPass, Region, RelaxedValues
from holdfast.verify.linear.shapes import curve
from holdfast.verify.linear.tune import Queries, bound

Tensor = Any
BYTES = 512 << 20  # memory of the halves of all candidates together
NARROWEST = 1e-3  # intervals of curves narrower than this are not cut


@dataclass(frozen=True, eq=False)
class BranchDomain:
    """A case with assumed signs: everything over the neurons of the root that can be split, flat (u,).

    A curve's neuron is cut at any point instead: `cuts` holds the assumed interval of its value. It
    has two parameters each in alpha and beta (p,), all lower ones of a layer before its upper ones.
    """

    case: int
    lower: float
    split: Tensor  # int8: 1 for z >= 0, -1 for z <= 0, 0 undecided or a curve's
    alpha: Tensor
    beta: Tensor
    mix: Tensor | None
    best: Tensor  # the neurons worth splitting, most promising first
    points: Tensor  # where each of them would be split
    cuts: Mapping[int, tuple[float, float]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class SearchRoot:
    """Shared by all domains of one box: the region, one query per case, and the layout of the neurons."""

    region: Region
    queries: Queries
    layers: tuple[int, ...]  # activation steps that can be split
    sizes: tuple[int, ...]  # neurons of each
    widths: tuple[int, ...]  # parameters of each: one per relu, two per curve

    def parts(self, flat: Tensor) -> dict[int, Tensor]:
        """(q, u) by layer."""
        return dict(zip(self.layers, flat.split(self.sizes, 1), strict=True))

    def tuned(self, flat: Tensor) -> dict[int, Tensor]:
        """Parameters (q, p) by layer: (q, m) of relus, (q, 2, m) of curves."""
        parts = zip(self.layers, flat.split(self.widths, 1), strict=True)
        return {at: part.unflatten(1, (2, -1)) if at in self.curved else part for at, part in parts}

    def flat(self, by_layer: Mapping[int, Tensor]) -> Tensor:
        """The reverse of `parts` and `tuned`."""
        return torch.cat([by_layer[at].flatten(1) for at in self.layers], 1)

    @property
    def curved(self) -> tuple[int, ...]:
        """The layers of curves. They can be cut any number of times, so their domains are never leaves."""
        return tuple(at for at in self.layers if isinstance(self.region.bends[at], Cut))

    def ends(self) -> tuple[Tensor, Tensor]:
        """The bounds (u,) of every neuron."""
        bends = [self.region.bends[at] for at in self.layers]
        lower, upper = ([b.lower[0, b.index] for b in bends], [b.upper[0, b.index] for b in bends])
        none = [torch.zeros(0)]
        return torch.cat(lower or none), torch.cat(upper or none)

    def at_once(self, requested: int) -> int:
        """Maximum number of domains split at once: with curves, each query has its own lines."""
        neurons = sum(n for at, n in zip(self.layers, self.sizes, strict=True) if at in self.curved)
        return max(4, min(requested, BYTES // (450 * neurons))) if neurons else requested


def plant(region: Region, queries: Queries) -> SearchRoot:
    """The root for queries whose parameters are tuned."""
    bends = {at: region.bends[at] for at in queries.theta}
    bends = {at: bend for at, bend in bends.items() if isinstance(bend, ReluRelaxation | Cut)}
    layers = tuple(at for at, bend in bends.items() if len(bend.index))
    sizes = tuple(len(bends[at].index) for at in layers)
    widths = tuple(n * (2 if isinstance(bends[at], Cut) else 1) for at, n in zip(layers, sizes, strict=True))
    return SearchRoot(region, queries, layers, sizes, widths)


def queries_of(root: SearchRoot, domains: list[BranchDomain]) -> Queries:
    """The domains' bounds as queries."""
    queries = root.queries.pick(torch.tensor([d.case for d in domains]))
    theta = dict(queries.theta)
    theta.update(root.tuned(torch.stack([d.alpha for d in domains])))
    if queries.mix is not None:
        queries = queries.mixed(torch.stack([d.mix for d in domains]))
    split = root.parts(torch.stack([d.split for d in domains]))
    beta = root.tuned(torch.stack([d.beta for d in domains]))
    if root.curved:
        lower, upper = (root.parts(v) for v in windows(root, domains))
        for at in root.curved:
            bend = root.region.bends[at]
            if isinstance(bend, Cut):
                split[at] = bend.assumed(lower[at], upper[at])
                theta[at] = bend.keep(theta[at], split[at])
    return replace(queries, theta=theta, split=split, beta=beta)


def windows(root: SearchRoot, domains: list[BranchDomain]) -> tuple[Tensor, Tensor]:
    """The assumed lower and upper bounds (q, u) of each neuron's value."""
    lower, upper = (end.expand(len(domains), -1).clone() for end in root.ends())
    cuts = [(q, n, *ends) for q, domain in enumerate(domains) for n, ends in domain.cuts.items()]
    if cuts:
        query, neuron, low, high = zip(*cuts, strict=True)
        lower[list(query), list(neuron)] = torch.tensor(low, dtype=lower.dtype)
        upper[list(query), list(neuron)] = torch.tensor(high, dtype=upper.dtype)
    return lower, upper


Split: TypeAlias = tuple[int, float]  # a neuron and where it is split


def children(root: SearchRoot, domains: list[BranchDomain], splits: list[Split]) -> list[BranchDomain]:
    """Each domain's two halves, one after the other: the upper one first."""
    halves = []
    lower, upper = root.ends()
    sizes = zip(root.layers, root.sizes, strict=True)
    curved = [at in root.curved for at, size in sizes for _ in range(size)]
    for domain, (neuron, point) in zip(domains, splits, strict=True):
        if curved[neuron]:
            low, high = domain.cuts.get(neuron, (float(lower[neuron]), float(upper[neuron])))
            point = point if low < point < high else (low + high) / 2
            parts = ((point, high), (low, point))
            halves += [replace(domain, cuts={**domain.cuts, neuron: ends}) for ends in parts]
            continue
        for sign in (1, -1):
            split = domain.split.clone()
            split[neuron] = sign
            halves.append(replace(domain, split=split))
    return halves


def promising(
    root: SearchRoot, domains: list[BranchDomain], traced: BackwardPass, relaxed: RelaxedValues, count: int
) -> tuple[Tensor, Tensor]:
    """The `count` best neurons (q, 2 count) by two measures in turn, -1 for none, and split points.

    The first measure is the loss of its line at the relaxed point, rows · (f(z) - line(z)). The second of a
    relu is the part of the upper line's offset in the bound (the larger half of the score of Bunel et al.
    2020), of a curve the loss of the line in the middle. A curve is cut at the relaxed point, but not close
    to an end.
    """
    loss, offset, points = [], [], []
    lower, upper = (root.parts(v) for v in windows(root, domains)) if root.curved else ({}, {})
    for at in root.layers:
        bend, rows, z = root.region.bends[at], traced.rows[at], relaxed.before[at]
        if isinstance(bend, ReluRelaxation):
            loss.append((rows * (curve(bend.step, z) - relaxed.after[at])).abs())
            offset.append(-rows.clamp(max=0) * bend.offset)
            points.append(torch.zeros_like(z))
            continue
        if not isinstance(bend, Cut):
            continue
        low, width = lower[at], upper[at] - lower[at]
        inside, middle = torch.minimum(torch.maximum(z, low), upper[at]), low + width / 2
        wide = width > NARROWEST
        for scores, place in ((loss, inside), (offset, middle)):
            gap = (rows * (curve(bend.step, place) - traced.lines[at].at(rows, place))).abs()
            scores.append(torch.where(wide, gap, -1.0))
        points.append(torch.maximum(torch.minimum(inside, low + 0.75 * width), low + 0.25 * width))
    free = torch.stack([d.split for d in domains]) == 0  # the others are decided
    each = min(count, free.shape[1])
    by_lost, by_offset = (torch.where(free, torch.cat(v, 1), -1.0).topk(each, 1) for v in (loss, offset))
    first = torch.where(by_lost.values >= 0, by_lost.indices, -1)
    second = torch.where(by_offset.values > 0, by_offset.indices, -1)
    best = torch.stack([first, second], 2).reshape(len(domains), -1)
    return best, torch.cat(points, 1).gather(1, best.clamp(min=0))


def choose(root: SearchRoot, domains: list[BranchDomain], count: int) -> list[Split]:
    """The split of each domain: among its most promising neurons, the one with the best worse half."""
    candidates = []
    for d in domains:
        pairs = zip(d.best.tolist(), d.points.tolist(), strict=True)
        candidates.append(list({n: (n, point) for n, point in pairs if n >= 0}.values())[:count])
    if count == 1:
        return [t[0] for t in candidates]
    owners = [d for d, some in zip(domains, candidates, strict=True) for _ in some]
    halves = children(root, owners, [n for some in candidates for n in some])
    lower = bound(root.region, queries_of(root, halves)).lower.reshape(-1, 2)
    # The worse half decides, the other one breaks ties; bounds above zero count as zero.
    value = lower.clamp(max=0.0)
    merits = iter((value.min(1).values + 0.2 * value.max(1).values).tolist())
    return [max(((next(merits), split) for split in some), key=itemgetter(0))[1] for some in candidates]


class DomainPool:
    """Open domains; the worst come first while there is room, then the best, so that the pool shrinks."""

    def __init__(self, room: int) -> None:
        self.room = room
        self._domains: dict[int, BranchDomain] = {}  # by number, in order of insertion
        self._number = itertools.count()

    def __len__(self) -> int:
        return len(self._domains)

    def add(self, domain: BranchDomain) -> None:
        """Add a domain."""
        self._domains[next(self._number)] = domain

    def lowest(self) -> float:
        """The lowest bound of the open domains."""
        return min((domain.lower for domain in self._domains.values()), default=float("inf"))

    def drain(self) -> list[BranchDomain]:
        """All domains; the pool is empty afterwards."""
        domains, self._domains = list(self._domains.values()), {}
        return domains

    def take(self, count: int) -> list[BranchDomain]:
        """The next domains to work on."""
        sign = 1 if len(self) < self.room else -1
        next_ = heapq.nsmallest(count, self._domains, lambda number: sign * self._domains[number].lower)
        return [self._domains.pop(number) for number in next_]


@dataclass(frozen=True, eq=False)
class RootMapping:
    """Mapping of the domains of one root to a root with tighter bounds and fewer unstable neurons."""

    undecided: Tensor  # (u',) the old number of each neuron that is still undecided
    tuned: Tensor  # (p',) the old number of each parameter that is still there
    new: Tensor  # (u,) the new number of each old neuron, or -1
    sign: Tensor  # (u,) int8: the sign of each old neuron that is decided now, else 0
    lower: Tensor  # (u',) the bounds now
    upper: Tensor

    @staticmethod
    def between(old: SearchRoot, new: SearchRoot) -> RootMapping:
        """The mapping from the old root's neurons to the new one's."""
        undecided, tuned, sign, number, parameter = [], [], [], 0, 0
        for at, size, width in zip(old.layers, old.sizes, old.widths, strict=True):
            was, now = old.region.bends[at], new.region.bends[at]
            still = torch.isin(was.index, now.index)
            place = still.nonzero().reshape(-1)
            undecided.append(number + place)
            tuned += [parameter + start + place for start in range(0, width, size)]
            decided = torch.where(now.lower[0, was.index] >= 0, 1, -1).to(torch.int8)
            sign.append(torch.where(still, torch.zeros_like(decided), decided))
            number, parameter = number + size, parameter + width
        index = torch.cat(undecided)
        back = torch.full((number,), -1, dtype=torch.int64)
        back[index] = torch.arange(len(index))
        return RootMapping(index, torch.cat(tuned), back, torch.cat(sign), *new.ends())

    def domain(self, domain: BranchDomain, case: int, rows: int) -> BranchDomain | None:
        """The domain over the new root; None if its assumptions contradict the new bounds.

        Such a domain contains at most inputs with z = 0, which lie in the other half as well; one whose cut
        lies outside the bounds contains none. `rows` is the number of rows a conjunction has now; further
        rows are padding that repeats its first one.
        """
        if bool((domain.split * self.sign < 0).any()):
            return None
        cuts = {}
        for neuron, (low, high) in domain.cuts.items():
            number = int(self.new[neuron])
            low, high = max(low, float(self.lower[number])), min(high, float(self.upper[number]))
            if low > high:
                return None
            cuts[number] = (low, high)
        best = self.new[domain.best.clamp(min=0)]
        valid = (domain.best >= 0) & (best >= 0)
        mix = None
        if domain.mix is not None and rows:
            mix = domain.mix[:rows].clone()
            mix[0] += domain.mix[rows:].sum()
        return replace(
            domain,
            case=case,
            mix=mix,
            split=domain.split[self.undecided],
            alpha=domain.alpha[self.tuned],
            beta=domain.beta[self.tuned],
            best=best[valid],
            points=domain.points[valid],
            cuts=cuts,
        )
