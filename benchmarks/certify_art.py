"""ART's ObjectSeeker around a holdfast model, what it calls certified, and a patch that hides it.

Boxes, masks, pruning, clustering and `certify` are ART's own code; only the detector inside is ours. The
patch is one grey square of the certified size on a certified box.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from art.estimators.certification.object_seeker.object_seeker import ObjectSeekerMixin
from art.estimators.certification.object_seeker.pytorch import PyTorchObjectSeeker

from holdfast.core.dataset import Dataset
from holdfast.core.model import Model
from holdfast.core.pipeline import load_pipeline, pipeline_of
from holdfast.core.types import Size
from holdfast.stages.defence import GREY, detections_of, ioa
from holdfast.stages.masks import PatchSize

PATCH = 0.01  # share of the image's area
LINES = 30


class RandomDetector(ObjectSeekerMixin):  # type: ignore[misc]
    """Boxes that have nothing to do with the image."""

    def __init__(self, boxes: int) -> None:
        super().__init__(num_lines=LINES)
        corners = np.random.default_rng(0).uniform(0, 416, (boxes, 2, 2))
        self.found = {
            "boxes": np.concatenate([corners.min(axis=1), corners.max(axis=1)], axis=1),
            "labels": np.arange(boxes),
            "scores": np.ones(boxes),
        }

    def _image_dimensions(self) -> tuple[int, int]:
        return 416, 416

    def _masked_predictions(
        self, x_i: Any, batch_size: int = 128, **_: Any
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        return self.found, {name: values[:0] for name, values in self.found.items()}


class ObjectSeeker(ObjectSeekerMixin):  # type: ignore[misc]
    """A holdfast model in ART's ObjectSeeker; images are (h, w, 3) of 0..255."""

    channels_first = False

    def __init__(self, model: Model, size: Size) -> None:
        super().__init__(num_lines=LINES)
        self.input_shape = (*size[::-1], 3)
        self.detector = _Detector(load_pipeline(pipeline_of(model.card), model, 1))

    def _image_dimensions(self) -> tuple[int, int]:
        return self.input_shape[0], self.input_shape[1]

    def _masked_predictions(
        self, x_i: Any, batch_size: int = 128, **_: Any
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        found: tuple[dict[str, Any], dict[str, Any]] = PyTorchObjectSeeker._masked_predictions(self, x_i)
        return found


class _Detector:
    """The `predict` of an ART detector."""

    def __init__(self, machine: Any) -> None:
        self.machine = machine

    def predict(self, x: Any, batch_size: int = 128, **_: Any) -> list[dict[str, Any]]:
        found = [detections_of(self.machine, self.machine.prepare_pixels(image.copy())) for image in x]
        return [{"boxes": one.boxes, "labels": one.classes, "scores": one.scores} for one in found]


def random_certificates(boxes: int) -> dict[str, int]:
    """How many random boxes ART calls certified."""
    (certified,) = RandomDetector(boxes).certify(np.zeros((1, 416, 416, 3), np.float32), patch_size=PATCH)
    return {"boxes": boxes, "certified": int(certified.sum())}


def broken_certificates(model: Model, data: Dataset) -> dict[str, Any]:
    """How many boxes ART calls certified, and how many of these a grey patch hides from ART's detector.

    A box is hidden if no box of its class meets it any more.
    """
    counts = {"images": len(data.entries), "boxes": 0, "certified": 0, "hidden": 0}
    for entry in data.entries:
        pixels = load_pipeline(pipeline_of(model.card), model, 1).decode(entry.load().data)
        size = Size(pixels.shape[1], pixels.shape[0])
        seeker = ObjectSeeker(model, size)
        (found,), (certified,) = seeker.predict(pixels[None]), seeker.certify(pixels[None], patch_size=PATCH)
        counts["boxes"] += len(certified)
        counts["certified"] += int(certified.sum())
        for box, label in zip(found["boxes"][certified], found["labels"][certified], strict=True):
            (after,) = seeker.predict(patched(pixels, box, PatchSize(share=PATCH).side(size))[None])
            same = after["boxes"][after["labels"] == label].reshape(-1, 4)
            counts["hidden"] += not (ioa(np.asarray(box)[None], same) > 0).any()
    return counts


def patched(pixels: Any, box: Any, side: int) -> Any:
    """The image with a grey square in the middle of a box."""
    height, width = pixels.shape[:2]
    left = int(np.clip(round((box[0] + box[2] - side) / 2), 0, width - side))
    top = int(np.clip(round((box[1] + box[3] - side) / 2), 0, height - side))
    out = pixels.copy()
    out[top : top + side, left : left + side] = GREY
    return out
