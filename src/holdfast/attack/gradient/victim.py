"""A model to be attacked: its pipeline and network as functions with a gradient, its losses, its judge."""

import contextlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from holdfast.attack.gradient.candidates import Candidates, candidates_of
from holdfast.attack.gradient.transforms import moved
from holdfast.attack.judge import open_judge, shortfall
from holdfast.attack.types import Goal, Method, Rule, Target
from holdfast.core.errors import HoldfastError, InputError, ModelError
from holdfast.core.frame import Frame, frame_of
from holdfast.core.model import Input, Model
from holdfast.core.pipeline import LoadedPipeline, Pipeline, Recolour, Resize
from holdfast.core.registry import lookup
from holdfast.core.types import Boxes, Detections, Floats, Image, Size, plain_name
from holdfast.graph.lower import lower_onnx
from holdfast.graph.torch import TorchNet
from holdfast.stages.deployed import DeployedInference, rewritten
from holdfast.stages.infer import open_onnx

STRICT = 0.2  # of the rule's score: how dead candidates shall be where others are to be fooled too


@dataclass(frozen=True, eq=False)
class Preparation:
    """The way of images of one size into one network's input.

    `rows` (new height, old height) and `columns` (new width, old width) are what the pipeline's own resize
    does along each side; None where it does nothing. `colour` is None where pixels stay as they are.
    """

    frame: Frame
    wanted: Input
    rows: Tensor | None
    columns: Tensor | None
    colour: Recolour | None

    def __call__(self, pixels: Tensor) -> Tensor:
        """The flat network inputs (b, n) of pixels (b, h, w, 3) in 0..255, in the card's layout."""
        if self.colour is not None:
            # The gradient passes as if the colour stage had not been there.
            whole = pixels.detach().round().clamp(0, 255).to(torch.uint8).numpy()
            seen = np.stack([self.colour(np.ascontiguousarray(image)) for image in whole])
            pixels = pixels + (torch.tensor(seen, dtype=pixels.dtype) - pixels).detach()
        picture = pixels.permute(0, 3, 1, 2)
        if self.rows is not None:
            picture = torch.einsum("rh,bchw->bcrw", self.rows, picture)
        if self.columns is not None:
            picture = torch.einsum("sw,bcrw->bcrs", self.columns, picture)
        if self.rows is not None or self.columns is not None:
            picture = picture.clamp(0, 255)  # as uint8 does to the overshoot of cubic and Lanczos kernels
        picture = self._placed(picture)
        if self.wanted.colour == "bgr":
            picture = picture.flip(1)
        std, mean = (
            torch.tensor(three, dtype=picture.dtype).reshape(1, -1, 1, 1)
            for three in (self.wanted.std, self.wanted.mean)
        )
        picture = picture * (self.wanted.scale / std) - mean / std
        return (picture if self.wanted.layout == "nchw" else picture.permute(0, 2, 3, 1)).flatten(1)

    def _placed(self, picture: Tensor) -> Tensor:
        """The resized picture (b, c, h, w) cut out or laid on its border, as `core.frame.place` does."""
        x, y, (width, height) = self.frame.offset_x, self.frame.offset_y, self.frame.network
        if self.wanted.policy in ("crop", "square"):
            return picture[:, :, -y : height - y, -x : width - x]
        if self.wanted.policy == "letterbox":
            sides = (x, width - self.frame.resized.width - x, y, height - self.frame.resized.height - y)
            return functional.pad(picture, sides, value=float(self.wanted.pad))
        return picture

    def boxes_to_image(self, boxes: Tensor) -> Tensor:
        """Boxes (..., 4) xyxy of the network's input in pixels of the image, clipped to it."""
        frame = self.frame
        pairs = (frame.offset_x, frame.offset_y), (frame.scale_x, frame.scale_y), frame.original
        shift, scale, limit = (torch.tensor([*pair, *pair], dtype=boxes.dtype) for pair in pairs)
        return ((boxes - shift) / scale).clamp(min=0).minimum(limit)


def preparation_of(machine: LoadedPipeline, size: Size, dtype: torch.dtype = torch.float32) -> Preparation:
    """The differentiable stand-in of the machine's stages for images of that size."""
    wanted = machine.fit(machine.model.card.input)
    frame = frame_of(size, wanted)
    sides = ((size.height, frame.resized.height), (size.width, frame.resized.width))
    weights = (resize_weights(machine.resize, old, new) for old, new in sides)
    rows, columns = (None if w is None else torch.tensor(w, dtype=dtype) for w in weights)
    colour = None if machine.pipeline.colour == "rgb" else machine.colour
    return Preparation(frame, wanted, rows, columns, colour)


def resize_weights(resize: Resize, old: int, new: int) -> Floats | None:
    """The matrix (new, old) by which a resize makes new rows of old ones; None if it leaves them alone.

    It is measured: a picture with a brighter pixel in every row and column is resized in height alone.
    """
    # Grey, so that negative weights show.
    ground, peak = 128.0, 127.0
    probe = np.full((old, old, 3), ground, np.uint8)
    probe[np.arange(old), np.arange(old)] = int(ground + peak)
    seen = resize(probe, Size(old, new))[:, :, 0].astype(np.float64)
    weights = (seen - ground) / peak
    weights[np.abs(weights) < 0.75 / peak] = 0.0
    weights /= weights.sum(axis=1, keepdims=True)
    return None if old == new and np.array_equal(weights, np.eye(old)) else weights


@dataclass(frozen=True, eq=False)
class Victim:
    """A model opened to be attacked; `machine` runs its pipeline at the rule's thresholds."""

    model: Model
    machine: LoadedPipeline
    rule: Rule
    judge: Callable[[Image], Detections]  # the truth: the pipeline behind the decoder, in its own runtime
    net: TorchNet
    outputs: Mapping[str, tuple[int, ...]]  # name -> shape without the batch, in the graph's order
    read: Callable[[Mapping[str, Tensor], Any], Candidates]
    _prepared: dict[Size, Preparation] = field(default_factory=dict, repr=False)

    def candidates(self, pixels: Tensor) -> Candidates:
        """All candidates of pixels (b, h, w, 3) in 0..255, with a gradient; boxes in pixels of the image."""
        size = Size(pixels.shape[2], pixels.shape[1])
        if size not in self._prepared:
            self._prepared[size] = preparation_of(self.machine, size, self.net.dtype)
        ready = self._prepared[size]
        flat = self.net(ready(pixels))
        parts = flat.split([prod(shape) for shape in self.outputs.values()], dim=1)
        shaped = zip(self.outputs.items(), parts, strict=True)
        raw = {name: part.reshape(-1, *shape) for (name, shape), part in shaped}
        found = self.read(raw, self.machine.model.card)
        return replace(found, boxes=ready.boxes_to_image(found.boxes))


def open_victim(
    model: Model, pipeline: Pipeline | None = None, rule: Rule | None = None, threads: int = 1
) -> Victim:
    """The model opened for gradients and for judging, by default with its card's pipeline and `Rule()`.

    A deployment that rewrites the graph is lowered as rewritten where that is possible; where it is not
    (integer and half precision), the gradient is that of the model itself, and the judge is the deployment.
    """
    read = candidates_of(model.card)
    judge = open_judge(model, pipeline, rule, threads)
    ruled, infer, lowered = judge.machine.model, judge.machine.pipeline.infer, None
    if isinstance(infer, DeployedInference) and infer.rewrites:
        with contextlib.suppress(HoldfastError):  # quantised nodes have no gradient
            lowered = _lowered(ruled, rewritten(ruled, infer.rewrites, infer.calibration).model)
    net, outputs = lowered or _lowered(ruled, None)
    return Victim(model, judge.machine, judge.rule, judge, net=net, outputs=outputs, read=read)


def _lowered(model: Model, proto: Any) -> tuple[TorchNet, dict[str, tuple[int, ...]]]:
    """The network in torch and the shapes of its outputs, of a parsed graph or of the model's own file."""
    net = lower_onnx(model.path if proto is None else proto)
    wanted = model.card.input
    width, height = wanted.size
    if net.inputs != 3 * width * height:
        raise ModelError(
            f"{model.path}: expected one image of {width}×{height} as input, got {net.inputs} numbers; "
            "export it with a batch of 1, or attack it as a black box"
        )
    source: bytes | str = str(model.path)  # not its bytes: weights may be in other files
    if proto is not None or model.path.suffix == ".gz":
        source = model.read() if proto is None else proto.SerializeToString()
    shape = (1, 3, height, width) if wanted.layout == "nchw" else (1, height, width, 3)
    found = open_onnx(source, model, 1)(np.zeros(shape, wanted.dtype))
    return TorchNet(net, torch.float32), {name: tuple(v.shape[1:]) for name, v in found.items()}


# Every loss is a sum over candidates that still stand against the goal; one that gave in adds nothing, so the
# gradient goes where it is needed. Losses are of energies (log-odds), which do not saturate.


@dataclass(frozen=True, eq=False)
class LossTarget:
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


def vanish(found: Candidates, aim: LossTarget) -> Tensor:
    """(b,): energy above the floor, over all candidates of a target's class that overlap it."""
    total = torch.zeros(len(found.scores), dtype=found.scores.dtype)
    for box, index in zip(aim.boxes, aim.classes, strict=True):
        live = (overlap(found.boxes, box[None])[..., 0] >= aim.near) & (found.scores[..., index] > aim.floor)
        # Energies of some heads are no exact log-odds: at least a little remains of whatever is alive.
        above = (found.energy[..., index] - odds(aim.floor)).clamp(min=0) + 0.01
        total = total + torch.where(live, above, torch.zeros_like(above)).sum(dim=1)
    return total


def mislabel(found: Candidates, aim: LossTarget) -> Tensor:
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


def fabricate(found: Candidates, aim: LossTarget) -> Tensor:
    """(b,): what the best candidate that would be a new detection still lacks."""
    taken = torch.zeros_like(found.scores, dtype=torch.bool)
    if len(aim.known):
        near = overlap(found.boxes, aim.known) >= 0.4  # below the rule's overlap: it must not slip back
        for column, index in enumerate(aim.known_classes.tolist()):
            taken[..., index] |= near[..., column]
    best = found.energy.masked_fill(taken, -torch.inf).flatten(1).amax(dim=1)
    return (odds(_ceiling(aim.floor)) - best).clamp(min=0)


LOSSES: dict[Goal, Callable[[Candidates, LossTarget], Tensor]] = {
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


def _ceiling(floor: float) -> float:
    """The score a wanted detection shall reach: as far above the rule's as odds allow."""
    return min(0.95, 1.1 * floor)


@dataclass(frozen=True, eq=False)
class VictimTarget:
    """One victim with the targets by its own classes."""

    victim: Victim
    target: Target
    aim: LossTarget


@dataclass(frozen=True, eq=False)
class Oracle:
    """All victims of one image."""

    parties: tuple[VictimTarget, ...]
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
        answers = itertools.chain([first], (party.victim.judge(image) for party in self.parties[1:]))
        pairs = zip(self.parties, answers, strict=True)
        goal = self.method.goal
        return all(shortfall(goal, p.target, said, p.victim.rule) == 0 for p, said in pairs), first

    def _moved(self, pixels: Tensor, aim: LossTarget, rng: np.random.Generator) -> tuple[Tensor, LossTarget]:
        """The pixels through a transform drawn from the method's, and the aim moved along."""
        names = self.method.transforms
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
    parties, strict = [], method.lasting
    for victim in victims:
        boxes, before, rule = target.boxes, target.before, victim.rule
        if victim is not victims[0]:
            boxes = _renamed(boxes, victims[0].model.card.classes, victim.model.card.classes)
            before = victim.judge(target.image)
        aim = LossTarget(
            torch.tensor(boxes.xyxy, dtype=victim.net.dtype),
            tuple(int(c) for c in boxes.classes),
            torch.tensor(before.boxes, dtype=victim.net.dtype),
            torch.tensor(before.classes),
            floor=rule.score * (STRICT if strict and method.goal == "vanish" else 1.0),
            near=rule.iou * (0.6 if strict else 0.8),
        )
        parties.append(VictimTarget(victim, Target(target.image, boxes, before), aim))
    return Oracle(tuple(parties), method)


def _renamed(boxes: Boxes, ours: tuple[str, ...], theirs: tuple[str, ...]) -> Boxes:
    """The boxes of classes that the other model knows too, by its numbers."""
    if ours == theirs:
        return boxes
    number = {plain_name(name): i for i, name in enumerate(theirs)}
    index = np.array([number.get(plain_name(ours[c]), -1) for c in boxes.classes], np.int64)
    return Boxes(boxes.xyxy[index >= 0], index[index >= 0])
