"""What an attack drives down.

Every loss is a sum over candidates that still stand against the goal; a candidate that gave in adds nothing,
so the gradient goes where it is needed. Losses are of energies (log-odds), which do not saturate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from holdfast.attack.gradient.candidates import Candidates
from holdfast.attack.types import Goal


@dataclass(frozen=True, eq=False)
class Aim:
    """What is asked of one victim's candidates.

    `floor` is the score at which a candidate counts as dead, `near` the overlap from which it belongs to a
    target; both may be stricter than the rule, so that what is found holds elsewhere too.
    """

    boxes: Tensor  # (m, 4) the targets, in pixels of the image
    classes: tuple[int, ...]  # (m,) by the victim's own numbers
    known: Tensor  # (d, 4) what the victim says of the clean image
    known_classes: Tensor  # (d,)
    floor: float
    near: float


def vanish(found: Candidates, aim: Aim) -> Tensor:
    """(b,): energy above the floor, over all candidates of a target's class that overlap it."""
    total = torch.zeros(len(found.scores), dtype=found.scores.dtype)
    for box, index in zip(aim.boxes, aim.classes, strict=True):
        live = (overlap(found.boxes, box[None])[..., 0] >= aim.near) & (found.scores[..., index] > aim.floor)
        total = total + _above(found.energy[..., index], live, aim.floor)
    return total


def mislabel(found: Candidates, aim: Aim) -> Tensor:
    """(b,): what stands of the target's class, and what the best other class at the target still lacks."""
    total = vanish(found, aim)
    for box, index in zip(aim.boxes, aim.classes, strict=True):
        near = overlap(found.boxes, box[None])[..., 0] >= max(aim.near, 0.5)
        other = found.energy.clone()
        other[..., index] = -torch.inf
        best = other.amax(dim=2).masked_fill(~near, -torch.inf).amax(dim=1)
        lacking = odds(_ceiling(aim.floor)) - best
        total = total + torch.where(torch.isfinite(lacking), lacking.clamp(min=0), torch.zeros_like(total))
    return total


def fabricate(found: Candidates, aim: Aim) -> Tensor:
    """(b,): what the best candidate that would be a new detection still lacks."""
    taken = torch.zeros_like(found.scores, dtype=torch.bool)
    if len(aim.known):
        near = overlap(found.boxes, aim.known) >= 0.4  # below the rule's overlap: it must not slip back
        for column, index in enumerate(aim.known_classes.tolist()):
            taken[..., index] |= near[..., column]
    best = found.energy.masked_fill(taken, -torch.inf).flatten(1).amax(dim=1)
    return (odds(_ceiling(aim.floor)) - best).clamp(min=0)


LOSSES: dict[Goal, Callable[[Candidates, Aim], Tensor]] = {
    "vanish": vanish,
    "mislabel": mislabel,
    "fabricate": fabricate,
}


def overlap(boxes: Tensor, others: Tensor) -> Tensor:
    """IoU (b, n, m) of boxes (b, n, 4) with others (m, 4), without a gradient: it only says who is near."""
    boxes, others = boxes.detach()[:, :, None], others[None, None]
    sides = torch.minimum(boxes[..., 2:], others[..., 2:]) - torch.maximum(boxes[..., :2], others[..., :2])
    inter = sides.clamp(min=0).prod(dim=-1)
    areas = [(b[..., 2:] - b[..., :2]).clamp(min=0).prod(dim=-1) for b in (boxes, others)]
    return inter / (areas[0] + areas[1] - inter).clamp(min=1e-9)


def odds(score: float) -> float:
    """The log-odds of a score."""
    return float(np.log(score) - np.log1p(-score))


def _above(energy: Tensor, live: Tensor, floor: float) -> Tensor:
    # Energies of some heads are no exact log-odds: at least a little remains of whatever is alive.
    return torch.where(live, (energy - odds(floor)).clamp(min=0) + 0.01, torch.zeros_like(energy)).sum(dim=1)


def _ceiling(floor: float) -> float:
    """The score a wanted detection shall reach: as far above the rule's as odds allow."""
    return min(0.95, 1.1 * floor)
