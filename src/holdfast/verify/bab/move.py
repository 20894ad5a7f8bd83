"""Domains carried over to a root with tighter bounds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from holdfast.verify.bab.tree import Domain, Root

Tensor = Any


@dataclass(frozen=True, eq=False)
class Move:
    """How domains of one root become those of a root with tighter bounds, which has fewer neurons."""

    kept: Tensor  # (u',) the old number of each neuron that is still undecided
    tuned: Tensor  # (p',) the old number of each parameter that is still there
    new: Tensor  # (u,) the new number of each old neuron, or -1
    sign: Tensor  # (u,) int8: the sign of each old neuron that is decided now, else 0
    lower: Tensor  # (u',) the bounds now
    upper: Tensor

    @staticmethod
    def between(old: Root, new: Root) -> Move:
        """The move from the old root's neurons to the new one's."""
        kept, tuned, sign, number, parameter = [], [], [], 0, 0
        for at, size, width in zip(old.layers, old.sizes, old.widths, strict=True):
            was, now = old.region.bends[at], new.region.bends[at]
            still = torch.isin(was.index, now.index)
            place = still.nonzero().reshape(-1)
            kept.append(number + place)
            tuned += [parameter + start + place for start in range(0, width, size)]
            decided = torch.where(now.lower[0, was.index] >= 0, 1, -1).to(torch.int8)
            sign.append(torch.where(still, torch.zeros_like(decided), decided))
            number, parameter = number + size, parameter + width
        index = torch.cat(kept)
        back = torch.full((number,), -1, dtype=torch.int64)
        back[index] = torch.arange(len(index))
        return Move(index, torch.cat(tuned), back, torch.cat(sign), *new.ends())

    def domain(self, domain: Domain, case: int, rows: int) -> Domain | None:
        """The domain over the new root; None when what it assumes is now known to be wrong.

        Such a domain holds at most inputs with z = 0, and those lie in the other half as well; one whose cut
        lies outside the bounds holds none. `rows` is how many rows a conjunction has now; those beyond are
        its first one said again, to fill up.
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
        known = (domain.best >= 0) & (best >= 0)
        mix = None
        if domain.mix is not None and rows:
            mix = domain.mix[:rows].clone()
            mix[0] += domain.mix[rows:].sum()
        return replace(
            domain,
            case=case,
            mix=mix,
            split=domain.split[self.kept],
            alpha=domain.alpha[self.tuned],
            beta=domain.beta[self.tuned],
            best=best[known],
            points=domain.points[known],
            cuts=cuts,
        )
