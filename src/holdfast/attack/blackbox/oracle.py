"""What a search asks: the slope of the loss over all victims, and their own judgement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from holdfast.attack.gradient.loss import LOSSES, Aim, succeeded
from holdfast.attack.gradient.transforms import moved
from holdfast.attack.gradient.victim import Victim
from holdfast.attack.types import Method, Target
from holdfast.core.errors import InputError
from holdfast.core.registry import lookup
from holdfast.core.types import Boxes, Detections, Floats, Image, plain_name

STRICT = 0.2  # of the rule's score: how dead candidates shall be where others are to be fooled too


@dataclass(frozen=True, eq=False)
class Party:
    """One victim with the targets by its own classes."""

    victim: Victim
    target: Target
    aim: Aim


@dataclass(frozen=True, eq=False)
class Oracle:
    """All victims of one image."""

    parties: tuple[Party, ...]
    method: Method

    def slope(self, image: Image, rng: np.random.Generator, floor: float = 1.0) -> tuple[float, Floats]:
        """The loss, and its gradient (h, w, 3) with each victim's share of one size.

        With transforms every victim sees the image through one of them, drawn anew at each call. `floor` is
        a factor on the score at which a candidate counts as dead.
        """
        total, slope = 0.0, np.zeros(image.shape)
        for party in self.parties:
            pixels = torch.tensor(image[np.newaxis], dtype=party.victim.net.dtype, requires_grad=True)
            seen, aim = self._moved(pixels, party.aim, rng)
            aim = replace(aim, floor=aim.floor * floor)
            loss = LOSSES[self.method.goal](party.victim.candidates(seen), aim).sum()
            value = float(loss.detach())
            if value == 0.0 or not np.isfinite(value):
                continue
            (found,) = torch.autograd.grad(loss, pixels)
            # A value beyond float32 somewhere in a network must not blind the search to all the others.
            share = np.nan_to_num(found[0].numpy().astype(np.float64), posinf=0.0, neginf=0.0)
            total, size = total + value, max(float(np.abs(share).sum()), 1e-30)
            slope += share * (value / size if len(self.parties) == 1 else 1.0 / size)
        return total, slope

    def judged(self, image: Image) -> tuple[bool, Detections]:
        """Whether every victim is fooled, and what the first says."""
        first = self.parties[0].victim.judge(image)
        fooled = self._fooled(self.parties[0], first)
        for party in self.parties[1:]:
            fooled = fooled and self._fooled(party, party.victim.judge(image))
        return fooled, first

    def _fooled(self, party: Party, said: Detections) -> bool:
        if not len(party.target.boxes) and self.method.goal != "fabricate":
            return True
        return succeeded(self.method.goal, party.target, party.target.boxes, said, party.victim.rule)

    def _moved(self, pixels: Tensor, aim: Aim, rng: np.random.Generator) -> tuple[Tensor, Aim]:
        """The pixels through a transform drawn from the method's, and the aim moved along."""
        names = list(self.method.transforms)
        chosen = [names[int(rng.integers(len(names)))]] if names else []
        chosen += ["diverse"] if self.method.diversity and "diverse" not in chosen else []
        for name in chosen:
            pixels, matrix = lookup("transform", name)(pixels, rng)
            boxes, known = (
                torch.tensor(moved(b.numpy(), matrix), dtype=b.dtype) for b in (aim.boxes, aim.known)
            )
            aim = replace(aim, boxes=boxes, known=known)
        return pixels, aim


def open_oracle(victims: Sequence[Victim], target: Target, method: Method) -> Oracle:
    """The oracle of an image; targets of other victims are found by the names of their classes."""
    if not victims:
        raise InputError("expected a victim, got none")
    return Oracle(tuple(_party(v, victims[0], target, method) for v in victims), method)


def _party(victim: Victim, first: Victim, target: Target, method: Method) -> Party:
    boxes = target.boxes
    before = target.before if victim is first else victim.judge(target.image)
    if victim is not first:
        boxes = _renamed(boxes, first.model.card.classes, victim.model.card.classes)
    strict = method.diversity or bool(method.transforms)
    rule = victim.rule
    aim = Aim(
        torch.tensor(boxes.xyxy, dtype=victim.net.dtype),
        tuple(int(c) for c in boxes.classes),
        torch.tensor(before.boxes, dtype=victim.net.dtype),
        torch.tensor(before.classes),
        floor=rule.score * (STRICT if strict and method.goal == "vanish" else 1.0),
        near=rule.iou * (0.6 if strict else 0.8),
    )
    return Party(victim, Target(target.image, boxes, before), aim)


def _renamed(boxes: Boxes, ours: tuple[str, ...], theirs: tuple[str, ...]) -> Boxes:
    """The boxes of classes that the other model knows too, by its numbers."""
    if ours == theirs:
        return boxes
    number = {plain_name(name): i for i, name in enumerate(theirs)}
    index = np.array([number.get(plain_name(ours[c]), -1) for c in boxes.classes], np.int64)
    return Boxes(boxes.xyxy[index >= 0], index[index >= 0])
