"""Classification: how often the true class is among the k best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from holdfast.core.types import Floats, Ints


@dataclass(frozen=True, eq=False)
class ClassificationResult:
    """Top-k accuracies.

    `per_class` (classes,) is the top-1 accuracy of each class, NaN without images, and `images` (classes,)
    how many images it has.
    """

    top: dict[int, float]
    per_class: Floats
    images: Ints


def classification_result(
    place: Ints, labels: ArrayLike, classes: int, ks: Sequence[int] = (1, 5)
) -> ClassificationResult:
    """Accuracies from the place of each image's true class (n,), 0 where it is the first choice."""
    truth = np.asarray(labels, dtype=np.int64)
    images = np.bincount(truth, minlength=classes)
    first = np.bincount(truth[place == 0], minlength=classes)
    per_class: Floats = np.full(classes, np.nan)
    np.divide(first, images, out=per_class, where=images > 0)
    top = {k: float((place < k).mean()) if len(place) else float("nan") for k in ks}
    return ClassificationResult(top, per_class, images)
