"""An attacked model: differentiable pipeline and network, losses, and judge."""

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
from holdfast.attack.types import Method, Rule, Target
from holdfast.core.errors import HoldfastError, InputError, ModelError, NoGradients
from holdfast.core.model import Input, Model
from holdfast.core.pipeline import LETTERBOXES, Frame, LoadedPipeline, Pipeline, Recolour, Resize, frame_of
from holdfast.core.registry import lookup
from holdfast.core.types import Boxes, Detections, Floats, Image, Size, plain_name
from holdfast.graph.inspect import load_proto
from holdfast.graph.lower import lower_onnx
from holdfast.graph.quantised import quantisation_of
from holdfast.graph.torch import TorchNet
from holdfast.stages.deployed import DeployedInference, rewritten
from holdfast.stages.infer import open_onnx

STRICT = 0.2  # factor on the score threshold if the attack must transfer


@dataclass(frozen=True, eq=False)
class Preparation:
    """Differentiable preprocessing of images of one size for one network.

    `rows` (new height, old height) and `columns` (new width, old width) are the weights of the pipeline's
    resize along each side; None if it changes nothing. `colour` is None if pixels stay unchanged.
    """

    frame: Frame
    input: Input
    rows: Tensor | None
    columns: Tensor | None
    colour: Recolour | None

    def __call__(self, pixels: Tensor) -> Tensor:
        """The flat network inputs (b, n) of pixels (b, h, w, 3) in 0..255, in the card's layout."""
        if self.colour is not None:
            # Straight-through gradient of the colour stage.
            quantised = pixels.detach().round().clamp(0, 255).to(torch.uint8).numpy()
            recoloured = np.stack([self.colour(np.ascontiguousarray(image)) for image in quantised])
            pixels = pixels + (torch.tensor(recoloured, dtype=pixels.dtype) - pixels).detach()
        picture = pixels.permute(0, 3, 1, 2)
        if self.rows is not None:
            picture = torch.einsum("rh,bchw->bcrw", self.rows, picture)
        if self.columns is not None:
            picture = torch.einsum("sw,bcrw->bcrs", self.columns, picture)
        if self.rows is not None or self.columns is not None:
            picture = picture.clamp(0, 255)  # as uint8 does to the overshoot of cubic and Lanczos kernels
        picture = self._placed(picture)
        if self.input.colour == "bgr":
            picture = picture.flip(1)
        std, mean = torch.tensor([self.input.std, self.input.mean], dtype=picture.dtype)[..., None, None]
        picture = picture * (self.input.scale / std) - mean / std
        return (picture if self.input.layout == "nchw" else picture.permute(0, 2, 3, 1)).flatten(1)

    def _placed(self, picture: Tensor) -> Tensor:
        """The resized picture (b, c, h, w) cropped or padded as in `core.pipeline.place`."""
        x, y, (width, height) = self.frame.offset_x, self.frame.offset_y, self.frame.network
        if self.input.policy in ("crop", "square"):
            return picture[:, :, -y : height - y, -x : width - x]
        if self.input.policy in LETTERBOXES:
            sides = (x, width - self.frame.resized.width - x, y, height - self.frame.resized.height - y)
            return functional.pad(picture, sides, value=float(self.input.pad))
        return picture

    def boxes_to_image(self, boxes: Tensor) -> Tensor:
        """Boxes (..., 4) xyxy of the network's input in pixels of the image, clipped to it."""
        frame = self.frame
        pairs = (frame.offset_x, frame.offset_y), (frame.scale_x, frame.scale_y), frame.original
        shift, scale, limit = (torch.tensor([*pair, *pair], dtype=boxes.dtype) for pair in pairs)
        return ((boxes - shift) / scale).clamp(min=0).minimum(limit)


def preparation_of(machine: LoadedPipeline, size: Size, dtype: torch.dtype = torch.float32) -> Preparation:
    """Differentiable preprocessing equivalent to the stages of a pipeline, for images of that size."""
    network_input = machine.fit(machine.model.card.input)
    frame = frame_of(size, network_input)
    sides = ((size.height, frame.resized.height), (size.width, frame.resized.width))
    weights = (resize_weights(machine.resize, old, new) for old, new in sides)
    rows, columns = (None if w is None else torch.tensor(w, dtype=dtype) for w in weights)
    colour = None if machine.pipeline.colour == "rgb" else machine.colour
    return Preparation(frame, network_input, rows, columns, colour)


def resize_weights(resize: Resize, old: int, new: int) -> Floats | None:
    """The matrix (new, old) that maps old rows to new rows; None if the resize changes nothing.

    It is measured by resizing a picture with one brighter pixel per row and column in height only.
    """
    base, peak = 128.0, 127.0  # grey, so that negative weights are visible
    probe = np.full((old, old, 3), base, np.uint8)
    probe[np.arange(old), np.arange(old)] = int(base + peak)
    response = resize(probe, Size(old, new))[:, :, 0].astype(np.float64)
    weights = (response - base) / peak
    weights[np.abs(weights) < 0.75 / peak] = 0.0
    weights /= weights.sum(axis=1, keepdims=True)
    return None if old == new and np.array_equal(weights, np.eye(old)) else weights


@dataclass(frozen=True, eq=False)
class Victim:
    """A model opened to be attacked; `machine` runs its pipeline at the rule's thresholds."""

    model: Model
    machine: LoadedPipeline
    rule: Rule
    judge: Callable[[Image], Detections]  # the reference: the pipeline after the decoder, in its own runtime
    net: TorchNet
    outputs: Mapping[str, tuple[int, ...]]  # name -> shape without the batch, in the graph's order
    read: Callable[[Mapping[str, Tensor], Any], Candidates]
    _prepared: dict[Size, Preparation] = field(default_factory=dict, repr=False)

    def candidates(self, pixels: Tensor) -> Candidates:
        """All candidates of pixels (b, h, w, 3) in 0..255, with a gradient; boxes in pixels of the image."""
        size = Size(pixels.shape[2], pixels.shape[1])
        if size not in self._prepared:
            self._prepared[size] = preparation_of(self.machine, size, self.net.dtype)
        prepare = self._prepared[size]
        parts = self.net(prepare(pixels)).split([prod(shape) for shape in self.outputs.values()], dim=1)
        shaped = zip(self.outputs.items(), parts, strict=True)
        raw = {name: part.reshape(-1, *shape) for (name, shape), part in shaped}
        candidates = self.read(raw, self.machine.model.card)
        return replace(candidates, boxes=prepare.boxes_to_image(candidates.boxes))


def open_victim(
    model: Model, pipeline: Pipeline | None = None, rule: Rule | None = None, threads: int = 1
) -> Victim:
    """Open a model for gradients and for judging, by default with its card's pipeline and `Rule()`.

    If a deployment rewrites the graph, the rewritten graph is lowered. If that is not possible (integer and
    half precision), gradients come from the original model, and the judge is the deployment.
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
    if quantised := quantisation_of(load_proto(model.path) if proto is None else proto):
        advice = f"use --black-box, or attack the float model with --unseen {model.path.name}"
        raise NoGradients(f"{model.path}: {quantised.reason}, so it has no gradients; {advice}")
    net = lower_onnx(model.path if proto is None else proto)
    network_input = model.card.input
    width, height = network_input.size
    if net.inputs != 3 * width * height:
        raise ModelError(
            f"{model.path}: expected one image of {width}×{height} as input, got {net.inputs} numbers; "
            "export it with a batch of 1, or attack it as a black box"
        )
    source: bytes | str = str(model.path)  # not its bytes: weights may be in other files
    if proto is not None or model.path.suffix == ".gz":
        source = model.read() if proto is None else proto.SerializeToString()
    shape = (1, 3, height, width) if network_input.layout == "nchw" else (1, height, width, 3)
    outputs = open_onnx(source, model, 1)(np.zeros(shape, network_input.dtype))
    return TorchNet(net, torch.float32), {name: tuple(v.shape[1:]) for name, v in outputs.items()}


# Every loss is a sum over the candidates that still violate the goal; the others add 0, so the gradient acts
# where it is needed. Losses are computed on energies (log-odds), which do not saturate.


@dataclass(frozen=True, eq=False)
class LossTarget:
    """Parameters of the loss for one victim.

    `floor` is the score below which a candidate counts as suppressed, `near` the overlap from which it
    belongs to a target; both may be stricter than the rule, so that the attack transfers.
    """

    boxes: Tensor  # (m, 4) the targets, in pixels of the image
    classes: tuple[int, ...]  # (m,) by the victim's class numbers
    known: Tensor  # (d, 4) the victim's detections in the clean image
    known_classes: Tensor  # (d,)
    floor: float
    near: float


def vanish(candidates: Candidates, aim: LossTarget) -> Tensor:
    """(b,): energy above the floor, over all candidates of a target's class that overlap it."""
    total = torch.zeros(len(candidates.scores), dtype=candidates.scores.dtype)
    for box, index in zip(aim.boxes, aim.classes, strict=True):
        near = overlap(candidates.boxes, box[None])[..., 0] >= aim.near
        live = near & (candidates.scores[..., index] > aim.floor)
        # Energies of some heads are not exact log-odds: every live candidate adds a minimum.
        above = (candidates.energy[..., index] - odds(aim.floor)).clamp(min=0) + 0.01
        total = total + torch.where(live, above, 0.0).sum(dim=1)
    return total


def mislabel(candidates: Candidates, aim: LossTarget) -> Tensor:
    """(b,): the vanish loss, plus the missing energy of the best other class at each target."""
    total = vanish(candidates, aim)
    for box, index in zip(aim.boxes, aim.classes, strict=True):
        near = overlap(candidates.boxes, box[None])[..., 0] >= max(aim.near, 0.5)
        other = candidates.energy.clone()
        other[..., index] = -torch.inf
        best = other.amax(dim=2).masked_fill(~near, -torch.inf).amax(dim=1)
        missing = odds(_ceiling(aim.floor)) - best
        total = total + torch.where(torch.isfinite(missing), missing.clamp(min=0), 0.0)
    return total


def fabricate(candidates: Candidates, aim: LossTarget) -> Tensor:
    """(b,): the missing energy of the best candidate for a new detection."""
    known = torch.zeros_like(candidates.scores, dtype=torch.bool)
    if len(aim.known):
        near = overlap(candidates.boxes, aim.known) >= 0.4  # below the rule's overlap: it must not slip back
        for column, index in enumerate(aim.known_classes.tolist()):
            known[..., index] |= near[..., column]
    best = candidates.energy.masked_fill(known, -torch.inf).flatten(1).amax(dim=1)
    return (odds(_ceiling(aim.floor)) - best).clamp(min=0)


LOSSES = {"vanish": vanish, "mislabel": mislabel, "fabricate": fabricate}


def overlap(boxes: Tensor, others: Tensor) -> Tensor:
    """IoU (b, n, m) of boxes (b, n, 4) with others (m, 4), without a gradient: it only selects candidates."""
    boxes, others = boxes.detach()[:, :, None], others[None, None]
    sides = torch.minimum(boxes[..., 2:], others[..., 2:]) - torch.maximum(boxes[..., :2], others[..., :2])
    inter = sides.clamp(min=0).prod(dim=-1)
    areas = [(b[..., 2:] - b[..., :2]).clamp(min=0).prod(dim=-1) for b in (boxes, others)]
    return inter / (areas[0] + areas[1] - inter).clamp(min=1e-9)


def odds(score: float) -> float:
    """The log-odds of a score."""
    return float(np.log(score) - np.log1p(-score))


def _ceiling(floor: float) -> float:
    """The score that a fabricated detection has to reach, above the rule's."""
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

        With transforms, every victim gets the image through a random one of them. A patch of a shape meets a
        random one of the deployments at every step, as it meets a random transform. `floor` is a factor on
        the score below which a candidate counts as suppressed.
        """
        total, slope = 0.0, np.zeros(image.shape)
        parties = self._drawn(rng)
        for party in parties:
            pixels = torch.tensor(image[np.newaxis], dtype=party.victim.net.dtype, requires_grad=True)
            transformed, aim = self._moved(pixels, party.aim, rng)
            aim = replace(aim, floor=aim.floor * floor)
            loss = LOSSES[self.method.goal](party.victim.candidates(transformed), aim).sum()
            value = float(loss.detach())
            if value == 0.0 or not np.isfinite(value):
                continue
            (gradient,) = torch.autograd.grad(loss, pixels)
            # An overflow of float32 somewhere in a network must not hide all other gradients.
            share = np.nan_to_num(gradient[0].numpy().astype(np.float64), posinf=0.0, neginf=0.0)
            total, size = total + value, max(float(np.abs(share).sum()), 1e-30)
            slope += share * (value / size if len(parties) == 1 else 1.0 / size)
        return total, slope

    def _drawn(self, rng: np.random.Generator) -> Sequence[VictimTarget]:
        """The victims of a step: all, or for a shape one deployment of the model and all surrogates."""
        own = [party for party in self.parties if party.victim.model is self.parties[0].victim.model]
        if len(own) == 1 or not (self.method.shaped and self.method.lasting):
            return self.parties
        others = [party for party in self.parties if party.victim.model is not own[0].victim.model]
        return [own[int(rng.integers(len(own)))], *others]

    def judged(self, image: Image) -> tuple[bool, Detections]:
        """Whether every victim is fooled, and the detections of the first."""
        first = self.parties[0].victim.judge(image)
        detections = itertools.chain([first], (party.victim.judge(image) for party in self.parties[1:]))
        pairs = zip(self.parties, detections, strict=True)
        goal = self.method.goal
        return all(shortfall(goal, p.target, after, p.victim.rule) == 0 for p, after in pairs), first

    def _moved(self, pixels: Tensor, aim: LossTarget, rng: np.random.Generator) -> tuple[Tensor, LossTarget]:
        """The pixels through a transform drawn from the method's, and the loss target moved along."""
        names = self.method.transforms
        applied = [names[int(rng.integers(len(names)))]] if names else []
        applied += ["diverse"] if self.method.diversity and "diverse" not in applied else []
        for name in applied:
            pixels, matrix = lookup("transform", name)(pixels, rng)
            both = aim.boxes, aim.known
            boxes, known = (torch.tensor(moved(b.numpy(), matrix), dtype=b.dtype) for b in both)
            aim = replace(aim, boxes=boxes, known=known)
        return pixels, aim


def open_oracle(victims: Sequence[Victim], target: Target, method: Method) -> Oracle:
    """The oracle of an image; targets are mapped to the classes of other victims by name."""
    if not victims:
        raise InputError("expected a victim, got none")
    parties = []
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
            floor=rule.score * (STRICT if method.lasting and method.goal == "vanish" else 1.0),
            near=rule.iou * (0.6 if method.lasting else 0.8),
        )
        parties.append(VictimTarget(victim, Target(target.image, boxes, before), aim))
    return Oracle(tuple(parties), method)


def _renamed(boxes: Boxes, ours: tuple[str, ...], theirs: tuple[str, ...]) -> Boxes:
    """The boxes of classes that the other model shares, by its class numbers."""
    if ours == theirs:
        return boxes
    number = {plain_name(name): i for i, name in enumerate(theirs)}
    index = np.array([number.get(plain_name(ours[c]), -1) for c in boxes.classes], np.int64)
    return Boxes(boxes.xyxy[index >= 0], index[index >= 0])
