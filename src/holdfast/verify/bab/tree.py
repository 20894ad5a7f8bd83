"""Open domains of a branch and bound, and how they are split."""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass, replace
from typing import Any

import torch

from holdfast.verify.linear.curves import Hinge, curve
from holdfast.verify.linear.passes import Region, Relaxed, Traced
from holdfast.verify.linear.pieces import Pieces
from holdfast.verify.linear.tune import Queries, bound

Tensor = Any


@dataclass(frozen=True, eq=False)
class Domain:
    """A case with assumed signs: everything over the unstable neurons of the root, flat (u,)."""

    case: int
    lower: float
    split: Tensor  # int8: 1 for z >= 0, -1 for z <= 0, 0 undecided
    alpha: Tensor
    beta: Tensor
    mix: Tensor | None
    best: Tensor  # the neurons worth splitting, most promising first


@dataclass(frozen=True, eq=False)
class Root:
    """What all domains of one box share: the region, one query a case, and where each layer's neurons are."""

    region: Region
    asked: Queries
    layers: tuple[int, ...]  # activation steps that can be split
    sizes: tuple[int, ...]

    def parts(self, flat: Tensor) -> dict[int, Tensor]:
        """(q, u) by layer."""
        return dict(zip(self.layers, flat.split(self.sizes, 1), strict=True))

    def flat(self, by_layer: dict[int, Tensor]) -> Tensor:
        """The reverse of `parts`."""
        return torch.cat([by_layer[at] for at in self.layers], 1)


def plant(region: Region, asked: Queries) -> Root:
    """The root for queries whose parameters are tuned."""
    hinges = {at: region.bends[at] for at in asked.theta if isinstance(region.bends[at], Hinge)}
    layers = tuple(at for at, bend in hinges.items() if len(bend.index))
    return Root(region, asked, layers, tuple(len(region.bends[at].index) for at in layers))


def queries(root: Root, domains: list[Domain]) -> Queries:
    """The domains' bounds as queries."""
    case = torch.tensor([d.case for d in domains])
    asked = root.asked.pick(case)
    theta = dict(asked.theta)
    theta.update(root.parts(torch.stack([d.alpha for d in domains])))
    if asked.mix is not None:
        asked = asked.mixed(torch.stack([d.mix for d in domains]))
    split = root.parts(torch.stack([d.split for d in domains]))
    beta = root.parts(torch.stack([d.beta for d in domains]))
    return replace(asked, theta=theta, split=split, beta=beta)


def children(domains: list[Domain], neurons: list[int]) -> list[Domain]:
    """Each domain's two halves, one after the other."""
    halves = []
    for domain, neuron in zip(domains, neurons, strict=True):
        for sign in (1, -1):
            split = domain.split.clone()
            split[neuron] = sign
            halves.append(replace(domain, split=split))
    return halves


def scores(root: Root, split: Tensor, traced: Traced, relaxed: Relaxed) -> tuple[Tensor, Tensor]:
    """Two measures (q, u) of what each undecided neuron costs the bound.

    The first is what its line lost at the relaxed point, rows · (f(z) - line(z)); the second is the part of
    the upper line's offset in the bound (the larger half of the score of Bunel et al. 2020).
    """
    lost, offset = [], []
    for at in root.layers:
        bend = root.region.bends[at]
        chord = bend.offset if isinstance(bend, Hinge) else 0.0
        rows, z = traced.rows[at], relaxed.before[at]
        lost.append((rows * (curve(bend.step, z) - relaxed.after[at])).abs())
        offset.append(-rows.clamp(max=0) * chord)
    free = split == 0
    return torch.where(free, torch.cat(lost, 1), -1.0), torch.where(free, torch.cat(offset, 1), -1.0)


def promising(root: Root, split: Tensor, traced: Traced, relaxed: Relaxed, count: int) -> Tensor:
    """The `count` most promising neurons (q, count) of each query, by both measures in turn; -1 for none."""
    lost, offset = scores(root, split, traced, relaxed)
    each = min(count, lost.shape[1])
    by_lost, by_offset = lost.topk(each, 1), offset.topk(each, 1)
    first = torch.where(by_lost.values >= 0, by_lost.indices, -1)
    second = torch.where(by_offset.values > 0, by_offset.indices, -1)
    return torch.stack([first, second], 2).reshape(len(split), -1)


def choose(pieces: Pieces, root: Root, domains: list[Domain], count: int) -> list[int]:
    """The neuron each domain is split at: of its most promising ones that whose worse half is best."""
    tried = [list(dict.fromkeys(i for i in d.best.tolist() if i >= 0))[:count] for d in domains]
    if count == 1:
        return [t[0] for t in tried]
    owners = [d for d, some in zip(domains, tried, strict=True) for _ in some]
    halves = children(owners, [n for some in tried for n in some])
    lower = bound(pieces, root.region, queries(root, halves)).lower.reshape(-1, 2)
    # The worse half decides, the other one breaks ties; a half that is closed already is worth no more.
    value = lower.clamp(max=0.0)
    merit = (value.min(1).values + 0.2 * value.max(1).values).tolist()
    chosen, start = [], 0
    for some in tried:
        part = merit[start : start + len(some)]
        chosen.append(some[max(range(len(some)), key=part.__getitem__)])
        start += len(some)
    return chosen


@dataclass(frozen=True, eq=False)
class Move:
    """How domains of one root become those of a root with tighter bounds, which has fewer neurons."""

    kept: Tensor  # (u',) the old number of each neuron that is still undecided
    new: Tensor  # (u,) the new number of each old neuron, or -1
    sign: Tensor  # (u,) int8: the sign of each old neuron that is decided now, else 0

    @staticmethod
    def between(old: Root, new: Root) -> Move:
        """The move from the old root's neurons to the new one's."""
        kept, sign, number = [], [], 0
        for at, size in zip(old.layers, old.sizes, strict=True):
            was, now = old.region.bends[at], new.region.bends[at]
            still = torch.isin(was.index, now.index)
            kept.append(number + still.nonzero().reshape(-1))
            decided = torch.where(now.lower[0, was.index] >= 0, 1, -1).to(torch.int8)
            sign.append(torch.where(still, torch.zeros_like(decided), decided))
            number += size
        index = torch.cat(kept)
        back = torch.full((number,), -1, dtype=torch.int64)
        back[index] = torch.arange(len(index))
        return Move(index, back, torch.cat(sign))

    def domain(self, domain: Domain, case: int, rows: int) -> Domain | None:
        """The domain over the new root; None when its assumed signs are now known to be wrong.

        Such a domain holds at most inputs with z = 0, and those lie in the other half as well. `rows` is how
        many rows a conjunction has now; those beyond are its first one said again, to fill up.
        """
        if bool((domain.split * self.sign < 0).any()):
            return None
        best = domain.best[domain.best >= 0]
        best = self.new[best]
        mix = None
        if domain.mix is not None and rows:
            mix = domain.mix[:rows].clone()
            mix[0] += domain.mix[rows:].sum()
        return replace(
            domain,
            case=case,
            mix=mix,
            split=domain.split[self.kept],
            alpha=domain.alpha[self.kept],
            beta=domain.beta[self.kept],
            best=best[best >= 0],
        )


class Pool:
    """Open domains; the worst come first while there is room, then the best, so that the pool shrinks."""

    def __init__(self, room: int) -> None:
        self.room = room
        self._worst: list[tuple[float, int]] = []
        self._best: list[tuple[float, int]] = []
        self._domains: dict[int, Domain] = {}
        self._number = itertools.count()

    def __len__(self) -> int:
        return len(self._domains)

    def add(self, domain: Domain) -> None:
        """Put a domain in."""
        number = next(self._number)
        self._domains[number] = domain
        heapq.heappush(self._worst, (domain.lower, number))
        heapq.heappush(self._best, (-domain.lower, number))

    def lowest(self) -> float:
        """The lowest bound of all that are open."""
        while self._worst and self._worst[0][1] not in self._domains:
            heapq.heappop(self._worst)
        return self._worst[0][0] if self._worst else float("inf")

    def drain(self) -> list[Domain]:
        """All domains; the pool is empty afterwards."""
        domains = list(self._domains.values())
        self._domains, self._worst, self._best = {}, [], []
        return domains

    def take(self, count: int) -> list[Domain]:
        """The next domains to work on."""
        heap = self._worst if len(self) < self.room else self._best
        taken: list[Domain] = []
        while heap and len(taken) < count:
            domain = self._domains.pop(heapq.heappop(heap)[1], None)
            if domain is not None:
                taken.append(domain)
        return taken
