"""A detector whose answers are known: it finds an object if and only if enough of its pixels are visible.

Whoever controls a visible pixel of the patch controls all detections: the worst case of any detector.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from holdfast.certify.certificate import ImageCertificate, ObjectCertificate, gains_of
from holdfast.core.model import Card, Head, Input, Model
from holdfast.core.pipeline import LoadedPipeline, load_pipeline, pipeline_of
from holdfast.core.types import Detections, Size, no_detections
from holdfast.stages.defence import detections_of, ioa, joined, masked

FIRST = 10  # value of the pixels of the first object; the next has 11
TRIGGER = 255  # value of the patch's pixels
SLICES = (0.395, 0.55)  # parts of an object that the attacker reports, from each side


@dataclass(frozen=True)
class World:
    """Objects on an image: boxes of whole pixels, their classes, and the share that must be visible."""

    size: Size
    boxes: tuple[tuple[int, int, int, int], ...]
    classes: tuple[int, ...]
    visible: float = 0.2

    @cached_property
    def image(self) -> np.ndarray:
        """The image without a patch."""
        pixels = np.zeros((self.size.height, self.size.width, 3), np.uint8)
        for number, (x1, y1, x2, y2) in enumerate(self.boxes):
            pixels[y1:y2, x1:x2] = FIRST + number
        return pixels

    def patched(self, x: int, y: int, side: int, attack: int) -> np.ndarray:
        """The image with a patch; `attack` is what the attacker reports where a pixel of it is visible."""
        pixels = self.image.copy()
        pixels[y : y + side, x : x + side] = (TRIGGER, attack, 0)
        return pixels

    @property
    def attacks(self) -> int:
        """How many attacks there are: nothing is reported, every object, or one slice of every object."""
        return 2 + 4 * len(SLICES)

    def detect(self, pixels: np.ndarray) -> Detections:
        """The detections: the bounding boxes of what is visible, or what the attacker wants."""
        trigger = np.argwhere(pixels[..., 0] == TRIGGER)
        if len(trigger):
            return self.attacked(int(pixels[tuple(trigger[0])][1]))
        rows = []
        image = self.image[..., 0]
        for number, label in enumerate(self.classes):
            mine = pixels[..., 0] == FIRST + number
            share = mine.sum() / max(1, (image == FIRST + number).sum())
            if share >= self.visible and mine.any():
                y, x = np.nonzero(mine)
                box = (x.min(), y.min(), x.max() + 1, y.max() + 1)
                rows.append((box, 0.9 + 0.1 * share, label))
        return Detections(*map(list, zip(*rows, strict=True))) if rows else no_detections()

    def attacked(self, attack: int) -> Detections:
        """What the attacker reports."""
        if attack == 0:
            return no_detections()
        share, side = (*SLICES, 1.0)[(attack - 1) // 4], (attack - 1) % 4
        boxes = []
        for x1, y1, x2, y2 in self.boxes:
            w, h = share * (x2 - x1), share * (y2 - y1)
            left, right = (x1, y1, x1 + w, y2), (x2 - w, y1, x2, y2)
            upper, lower = (x1, y1, x2, y1 + h), (x1, y2 - h, x2, y2)
            boxes.append((left, right, upper, lower)[side])
        # The first class for all: where classes are not kept apart, it hides the others.
        return Detections(boxes, [1.0] * len(boxes), [self.classes[0]] * len(boxes))

    def open(self) -> LoadedPipeline:
        """The detector as a pipeline on decoded pixels."""
        names = tuple(f"class {n}" for n in range(max(self.classes, default=0) + 1))
        card = Card("detect", Input(self.size), Head("boxes"), names)
        model = Model("visible", Path("visible.onnx"), card, "")
        pipeline = pipeline_of(card).replace(
            decode=lambda data: np.frombuffer(data, np.uint8).reshape(self.size.height, self.size.width, 3),
            resize=lambda image, size: image,
            normalise=lambda image, spec: image,
            infer=lambda model, threads: lambda tensor: {"pixels": tensor},
            post=lambda raw, frame, card: self.detect(raw["pixels"][0]),
        )
        return load_pipeline(pipeline, model)


def certificate_of(world, defence):
    """The certificate of the objects of a world, from the passes over the clean image."""
    machine, masks = world.open(), defence.masks(world.size)
    seen = [detections_of(machine, one) for one in masked(machine, world.image, masks)]
    found, numbers = joined(seen), np.repeat(np.arange(len(masks)), [len(d) for d in seen])
    keep = found.scores > defence.mask_score
    boxes, labels = np.array(world.boxes, float).reshape(-1, 4), np.array(world.classes, int)
    gains = gains_of(boxes, labels, found.take(keep), numbers[keep], count=len(masks), share=defence.prune)
    objects = tuple(
        ObjectCertificate(str(label), tuple(box), 1.0, tuple(own), tuple(every))
        for label, box, own, every in zip(labels, boxes.tolist(), *(g.tolist() for g in gains), strict=True)
    )
    return ImageCertificate("image", world.size, tuple(map(tuple, masks.tolist())), objects)


def hidden(world, output, number, overlap, *, matched=True):
    """Whether no box of the output covers more than the overlap of an object."""
    same = output.take(output.classes == world.classes[number]) if matched else output
    covered = ioa(np.array([world.boxes[number]], float), same.boxes)
    return not (covered > overlap - 1e-9).any()


def violations(world, defence, side, overlap, *, matched=True):
    """Yield certified places at which an attack hides the object all the same."""
    proof, machine = certificate_of(world, defence), world.open()
    width, height = world.size
    places = [(x, y) for x in range(width - side + 1) for y in range(height - side + 1)]
    for number in range(len(world.boxes)):
        certified = proof.is_certified(number, places, side, overlap, matched=matched)
        for place in np.array(places)[certified].tolist():
            for attack in range(world.attacks):
                output = defence(machine, world.patched(*place, side, attack))
                if hidden(world, output, number, overlap, matched=matched):
                    yield number, *place, attack
