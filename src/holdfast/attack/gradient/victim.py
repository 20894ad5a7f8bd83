"""Models under attack: the truth of their pipelines, their candidates with a gradient, the loss over all."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from holdfast.attack.gradient.loss import LOSSES, Aim, succeeded
from holdfast.attack.gradient.outputs import Candidates, candidates_of
from holdfast.attack.gradient.prepare import Preparation, preparation_of
from holdfast.attack.gradient.transforms import moved
from holdfast.attack.judge import open_judge, target_in
from holdfast.attack.types import Method, Rule, Target
from holdfast.core.errors import HoldfastError, InputError, ModelError
from holdfast.core.model import Model
from holdfast.core.pipeline import Machine, Pipeline
from holdfast.core.registry import lookup
from holdfast.core.types import Boxes, Detections, Floats, Image, Size, plain_name
from holdfast.graph.inspect import load_proto
from holdfast.graph.lower import lower_onnx
from holdfast.graph.torch import TorchNet
from holdfast.stages.deployed import Deployed, rewritten
from holdfast.stages.infer import open_onnx

STRICT = 0.2  # of the rule's score: how dead candidates shall be where others are to be fooled too


@dataclass(frozen=True, eq=False)
class Victim:
    """A model opened to be attacked; `machine` runs its pipeline at the rule's thresholds."""

    model: Model
    machine: Machine
    rule: Rule
    judge: Callable[[Image], Detections]  # the truth: the pipeline behind the decoder, in its own runtime
    net: TorchNet
    outputs: Mapping[str, tuple[int, ...]]  # name -> shape without the batch, in the graph's order
    read: Callable[[Mapping[str, Tensor], Any], Candidates]
    _prepared: dict[Size, Preparation] = field(default_factory=dict, repr=False)

    def candidates(self, pixels: Tensor) -> Candidates:
        """All candidates of pixels (b, h, w, 3) in 0..255, with a gradient; boxes in pixels of the image."""
        ready = self.preparation(Size(pixels.shape[2], pixels.shape[1]))
        flat = self.net(ready(pixels))
        parts = flat.split([prod(shape) for shape in self.outputs.values()], dim=1)
        raw = {
            name: part.reshape(-1, *shape)
            for (name, shape), part in zip(self.outputs.items(), parts, strict=True)
        }
        found = self.read(raw, self.machine.model.card)
        return dataclasses.replace(found, boxes=ready.boxes_to_image(found.boxes))

    def preparation(self, size: Size) -> Preparation:
        """The differentiable way into the network for images of that size, made once."""
        if size not in self._prepared:
            self._prepared[size] = preparation_of(self.machine, size, self.net.dtype)
        return self._prepared[size]


def open_victim(
    model: Model, pipeline: Pipeline | None = None, rule: Rule | None = None, threads: int = 1
) -> Victim:
    """The model opened for gradients and for judging, by default with its card's pipeline and `Rule()`.

    A deployment that rewrites the graph is lowered as rewritten where that is possible; where it is not
    (integer and half precision), the gradient is that of the model itself, and the judge is the deployment.
    """
    read = candidates_of(model.card)
    judge = open_judge(model, pipeline, rule, threads)
    net, outputs = _lowered(judge.machine.model, judge.machine.pipeline)
    return Victim(model, judge.machine, judge.rule, judge, net, outputs, read)


def _lowered(model: Model, pipeline: Pipeline) -> tuple[TorchNet, dict[str, tuple[int, ...]]]:
    infer = pipeline.infer
    if isinstance(infer, Deployed) and infer.rewrites:
        with contextlib.suppress(HoldfastError):  # quantised nodes have no gradient
            return _opened(model, rewritten(model, infer.rewrites, infer.calibration).model)
    return _opened(model, None)


def _opened(model: Model, proto: Any) -> tuple[TorchNet, dict[str, tuple[int, ...]]]:
    """The network in torch and the shapes of its outputs, of a parsed graph or of the model's own file."""
    net = lower_onnx(model.path if proto is None else proto)
    wanted = model.card.input
    width, height = wanted.size
    if net.inputs != 3 * width * height:
        raise ModelError(
            f"{model.path}: expected one image of {width}×{height} as input, got {net.inputs} numbers; "
            "export it with a batch of 1, or attack it as a black box"
        )
    source = str(model.path) if proto is None else proto.SerializeToString()
    if proto is None and model.path.suffix == ".gz":
        source = load_proto(model.path).SerializeToString()
    shape = (1, 3, height, width) if wanted.layout == "nchw" else (1, height, width, 3)
    found = open_onnx(source, model, 1)(np.zeros(shape, wanted.dtype))
    return TorchNet(net, torch.float32), {name: tuple(v.shape[1:]) for name, v in found.items()}


def target_of(victim: Victim, image: Image, boxes: Boxes) -> Target | None:
    """The true boxes that the victim finds in the clean image; None if it recognises none of them."""
    return target_in(victim.judge, image, boxes, victim.rule)


def use_threads(count: int) -> None:
    """Let torch compute with this many threads from now on."""
    torch.set_num_threads(max(1, count))


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
