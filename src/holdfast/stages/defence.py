"""Defences against patches: a model that sees the image many times, each time with another part masked.

A mask that covers the whole patch removes it, whatever it shows, so what the model predicts there cannot be
changed by it. `certify` proves from these predictions what no patch can do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np

from holdfast.core.errors import InputError, ModelError, UnknownName
from holdfast.core.pipeline import LoadedPipeline, PreparedImage, place
from holdfast.core.types import Bools, Detections, Floats, Image, Ints, Prediction, Size, no_detections
from holdfast.stages.masks import HalfPlanes, MaskFamily, PatchSize, SquareMasks

GREY = 127  # of masked pixels, in every channel
MOST = 500  # lines or squares on an axis
Where: TypeAlias = Literal["scene", "input"]
KEYS = ("lines", "squares", "widen", "patch", "alpha", "beta", "score", "prune", "join", "where")
KEYS_COUNTED = (("lines", "30"), ("squares", "0"), ("widen", "0"))


def masked(
    machine: LoadedPipeline, pixels: Image, masks: Ints, where: Where = "scene"
) -> Iterator[PreparedImage]:
    """The image with each of the masks (n, 4), or with each set of them (n, k, 4), ready for the network.

    The pixels of a mask are those of the decoded image, before the colour and resize stages, or those of the
    network's input with its borders.
    """
    if where == "scene":
        for mask in masks:
            yield machine.prepare_pixels(hidden(pixels, mask))
        return
    spec = machine.fit(machine.model.card.input)
    small, frame = place(machine.colour(pixels.copy()), spec, machine.resize)
    for mask in masks:
        yield PreparedImage(machine.normalise(hidden(small, mask), spec)[np.newaxis], frame)


def hidden(pixels: Image, masks: Ints) -> Image:
    """A copy of the pixels with one mask (4,) or several (k, 4)."""
    image = pixels.copy()
    for x1, y1, x2, y2 in masks.reshape(-1, 4).tolist():
        image[y1:y2, x1:x2] = GREY
    return image


def masked_size(machine: LoadedPipeline, pixels: Image, where: Where) -> Size:
    """The size of what masks hide: the decoded image, or the network's input."""
    if where == "input":
        return machine.fit(machine.model.card.input).size
    return Size(pixels.shape[1], pixels.shape[0])


@dataclass(frozen=True)
class MaskDefence:
    """A detector that also reports objects it finds only on masked images (ObjectSeeker).

    A detection on a masked image counts above `mask_score`. It is dropped if a detection of its class on the
    whole image, above `score`, covers at least `prune` of its area. The others are joined where one covers at
    least `join` of the other.
    """

    families: tuple[MaskFamily, ...] = (HalfPlanes(),)
    alpha: float = 0.8
    beta: float = 0.5
    score: float = 0.25  # of detections on the whole image
    prune: float = 0.6
    join: float = 0.9
    where: Where = "scene"

    @classmethod
    def parse(cls, text: str) -> MaskDefence:
        """The defence of a text such as lines=30,squares=8,patch=1%,alpha=0.6; the rest is the default."""
        values = settings_of(text, KEYS)
        numbers = {name: _number(name, values[name]) for name in KEYS[4:-1] if name in values}
        lines, count, widen = (count_of(name, values.get(name, default)) for name, default in KEYS_COUNTED)
        families: list[MaskFamily] = [HalfPlanes(lines)] if lines else []
        if count:
            families.append(SquareMasks(PatchSize.parse(values.get("patch", "1%")), count, widen))
        if not families:
            raise InputError("expected a defence with lines or squares, got none of them")
        return cls(tuple(families), where=where_of(values), **numbers)

    def __str__(self) -> str:
        """The text that `parse` reads."""
        lines = sum(family.lines for family in self.families if isinstance(family, HalfPlanes))
        texts = [f"lines={lines}"]
        for family in self.families:
            if isinstance(family, SquareMasks):
                texts += [f"squares={family.per_axis}"] + [f"widen={family.widen}"] * (family.widen > 0)
                texts.append(f"patch={family.patch.text}")
        texts += [f"{name}={getattr(self, name):g}" for name in KEYS[4:-1]]
        return ",".join([*texts, f"where={self.where}"])

    @property
    def mask_score(self) -> float:
        """The score above which a detection on a masked image counts: max(α, c + (1 − c) β)."""
        return max(self.alpha, self.score + (1 - self.score) * self.beta)

    def masks(self, size: Size) -> Ints:
        """The masks (n, 4) of an image of that size."""
        return np.concatenate([family.masks(size) for family in self.families])

    def __call__(self, machine: LoadedPipeline, pixels: Image) -> Prediction:
        """The detections on the whole image, and those that only masked images have."""
        clean = detections_of(machine, machine.prepare_pixels(pixels.copy()))
        masks = self.masks(masked_size(machine, pixels, self.where))
        found = [no_detections()]
        for prepared in masked(machine, pixels, masks, self.where):
            one = detections_of(machine, prepared)
            found.append(one.take(one.scores > self.mask_score))
        return self.combine(clean, joined(found))

    def combine(self, clean: Detections, on_masked: Detections) -> Detections:
        """All detections on the whole image and, behind them, the joined detections of masked images."""
        counted = on_masked.take(on_masked.scores > self.mask_score)
        trusted = clean.take(clean.scores > self.score)
        left = counted.take(~pruned(counted, trusted, self.prune))
        return joined([clean, join_boxes(left, self.join)])


def detections_of(machine: LoadedPipeline, prepared: PreparedImage) -> Detections:
    """The detections of a prepared image; ModelError if the model gives another kind of prediction."""
    prediction = machine.predict(prepared)
    if not isinstance(prediction, Detections):
        name, got = machine.model.name, type(prediction).__name__
        raise ModelError(f"{name}: expected a model with detections, got {got}")
    return prediction


def settings_of(text: str, keys: tuple[str, ...]) -> dict[str, str]:
    """The settings of a text such as lines=30,alpha=0.6; UnknownName for one that does not exist."""
    values: dict[str, str] = {}
    for word in filter(None, text.split(",")):
        name, _, value = word.strip().partition("=")
        if name not in keys:
            raise UnknownName("setting of a defence", name, keys)
        values[name] = value
    return values


def where_of(values: Mapping[str, str]) -> Where:
    """The place of the masks among settings."""
    where = values.get("where", "scene")
    if where not in get_args(Where):
        raise UnknownName("place of masks", where, get_args(Where))
    return "input" if where == "input" else "scene"


def _number(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise InputError(f"defence: {name}: expected a number from 0 to 1, got {text!r}")
    return value


def count_of(name: str, text: str) -> int:
    """The whole number of a setting."""
    if not (text.isascii() and text.isdigit() and int(text) <= MOST):
        raise InputError(f"defence: {name}: expected a whole number from 0 to {MOST}, got {text!r}")
    return int(text)


def joined(parts: list[Detections]) -> Detections:
    """The detections of all parts, one part after the other."""
    columns = ([getattr(d, name) for d in parts] for name in ("boxes", "scores", "classes"))
    return Detections(*map(np.concatenate, columns))


def ioa(boxes: Floats, others: Floats) -> Floats:
    """The share of the area of each box (n, 4) that each of the others (m, 4) covers, (n, m)."""
    low = np.maximum(boxes[:, None, :2], others[None, :, :2])
    high = np.minimum(boxes[:, None, 2:], others[None, :, 2:])
    inner = np.maximum(high - low, 0.0).prod(axis=2)
    own = np.maximum(boxes[:, 2:] - boxes[:, :2], 0.0).prod(axis=1)[:, None]
    return np.asarray(np.divide(inner, own, out=np.zeros_like(inner), where=own > 0))


def pruned(on_masked: Detections, trusted: Detections, share: float) -> Bools:
    """Whether a trusted detection of its class covers at least this share of each detection, (n,)."""
    same = on_masked.classes[:, None] == trusted.classes[None, :]
    return np.asarray((same & (ioa(on_masked.boxes, trusted.boxes) >= share)).any(axis=1))


def join_boxes(boxes: Detections, share: float) -> Detections:
    """The enclosing box and the best score of each connected component of overlapping boxes of one class.

    Two boxes are connected if one covers at least `share` of the other.
    """
    groups, xyxy = components(boxes, share), boxes.boxes
    return Detections(
        np.array([[*xyxy[g, :2].min(axis=0), *xyxy[g, 2:].max(axis=0)] for g in groups]).reshape(-1, 4),
        np.array([boxes.scores[g].max() for g in groups]),
        np.array([boxes.classes[g[0]] for g in groups], np.int64),
    )


def components(boxes: Detections, share: float) -> list[list[int]]:
    """The indices of the boxes of each connected component, in the order of their first boxes."""
    free, groups = np.ones(len(boxes), bool), []
    for first in range(len(boxes)):
        if not free[first]:
            continue
        free[first] = False
        group = [first]
        for at in group:  # grows while it is walked
            near = np.flatnonzero(free & (boxes.classes == boxes.classes[at]))
            one, others = boxes.boxes[[at]], boxes.boxes[near]
            linked = np.maximum(ioa(one, others)[0], ioa(others, one)[:, 0]) >= share
            group += near[linked].tolist()
            free[near[linked]] = False
        groups.append(group)
    return groups
