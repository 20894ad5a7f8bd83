"""Classification: how often the true class is among the k best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from holdfast.core.errors import InputError
from holdfast.core.types import Bools, Floats, Ints


@dataclass(frozen=True, eq=False)
class ClassificationResult:
    """Top-k accuracies and the place of the true class of every image.

    `place` (n,) is 0 where the true class is the first choice. `per_class` (classes,) is the top-1 accuracy
    of each class, NaN without images, and `images` (classes,) how many images it has.
    """

    top: dict[int, float]
    place: Ints
    per_class: Floats
    images: Ints

    def hits(self, k: int = 1) -> Bools:
        """Whether each image's true class is among the k best, (n,)."""
        return self.place < k


def place_of_truth(scores: ArrayLike, labels: ArrayLike) -> Ints:
    """The place, from 0, of each true class when classes are sorted by falling score, (n,).

    Equal scores keep the order of classes, as a stable sort gives it.
    """
    values, truth = np.asarray(scores), np.asarray(labels)
    if values.ndim != 2 or truth.shape != values.shape[:1]:
        raise InputError(
            f"expected scores (n, classes) and labels (n,), got {values.shape} and {truth.shape}"
        )
    if np.isnan(values).any():
        row = int(np.flatnonzero(np.isnan(values).any(axis=1))[0])
        raise InputError(f"scores of image {row}: expected numbers, got NaN")
    wrong = np.flatnonzero((truth < 0) | (truth >= values.shape[1]))
    if len(wrong):
        raise InputError(
            f"label of image {wrong[0]}: expected 0 to {values.shape[1] - 1}, got {truth[wrong[0]]}"
        )
    own = values[np.arange(len(truth)), truth][:, None]
    earlier = np.arange(values.shape[1])[None, :] < truth[:, None]
    return np.asarray(((values > own) | ((values == own) & earlier)).sum(axis=1), dtype=np.int64)


def classify(scores: ArrayLike, labels: ArrayLike, ks: Sequence[int] = (1, 5)) -> ClassificationResult:
    """Top-k accuracy for each k, and per class."""
    return classification_result(place_of_truth(scores, labels), labels, np.asarray(scores).shape[1], ks)


def classification_result(
    place: Ints, labels: ArrayLike, classes: int, ks: Sequence[int] = (1, 5)
) -> ClassificationResult:
    """The result from places kept image by image, so that scores need not be kept."""
    truth = np.asarray(labels, dtype=np.int64)
    images = np.bincount(truth, minlength=classes)
    first = np.bincount(truth[place == 0], minlength=classes)
    per_class: Floats = np.full(classes, np.nan)
    np.divide(first, images, out=per_class, where=images > 0)
    top = {k: float((place < k).mean()) if len(place) else float("nan") for k in ks}
    return ClassificationResult(top, place, per_class, images)
