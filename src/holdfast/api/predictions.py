"""What `model.predict` returns: predictions that know the names of their classes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from holdfast.core import types
from holdfast.core.model import Model
from holdfast.core.types import Bools, Ints


@dataclass(frozen=True, eq=False, repr=False)
class Detections(types.Detections):
    """Detections of one image: boxes (n, 4) xyxy in pixels, scores (n,), classes (n,) and their names."""

    names: tuple[str, ...] = ()

    def take(self, index: Any) -> Detections:
        """The detections picked by an index or mask, in its order."""
        names = tuple(np.asarray(self.names, object)[index].tolist()) if self.names else ()
        return Detections(self.boxes[index], self.scores[index], self.classes[index], names)

    def to_dict(self) -> dict[str, Any]:
        """The detections as plain values."""
        columns = {name: getattr(self, name).tolist() for name in ("boxes", "scores", "classes")}
        return {**columns, "names": list(self.names)}

    def __repr__(self) -> str:
        words = [f"{name} {score:.2f}" for name, score in zip(self.names, self.scores, strict=False)]
        more = f", and {len(words) - 5} more" if len(words) > 5 else ""
        return f"<Detections {len(self)}: {', '.join(words[:5]) or 'none'}{more}>"


@dataclass(frozen=True, eq=False, repr=False)
class Classification(types.Scores):
    """Scores of a classifier for one image, one per class (k,), with the names of the classes."""

    names: tuple[str, ...] = ()

    @property
    def index(self) -> int:
        """The class of the highest score."""
        return int(np.argmax(self.values))

    @property
    def score(self) -> float:
        """The highest score."""
        return float(self.values[self.index])

    @property
    def name(self) -> str:
        """The name of the class of the highest score."""
        return self.names[self.index] if self.names else str(self.index)

    def top(self, count: int = 5) -> list[tuple[str, float]]:
        """The classes of the highest scores with their scores, highest first."""
        order: Ints = np.argsort(-self.values, kind="stable")[:count]
        return [(self.names[i] if self.names else str(i), float(self.values[i])) for i in order.tolist()]

    def to_dict(self) -> dict[str, Any]:
        """The prediction as plain values."""
        return {"class": self.index, "name": self.name, "score": self.score, "scores": self.values.tolist()}

    def __repr__(self) -> str:
        return f"<Classification {self.name} {self.score:.2f}>"


@dataclass(frozen=True, eq=False, repr=False)
class Segmentation(types.LabelMap):
    """The label map of a segmenter for one image: a class per pixel (height, width), and the class names."""

    names: tuple[str, ...] = field(default=())

    def mask(self, name: str) -> Bools:
        """Where (height, width) the class of this name was predicted."""
        return np.asarray(self.classes == self.names.index(name))

    def to_dict(self) -> dict[str, Any]:
        """The prediction as plain values: the size and the number of pixels of each class."""
        height, width = self.classes.shape
        return {"width": width, "height": height, "pixels": self._pixels()}

    def _pixels(self) -> dict[str, int]:
        counts = Counter(self.classes.ravel().tolist())
        return {self.names[i] if i < len(self.names) else str(i): n for i, n in sorted(counts.items())}

    def __repr__(self) -> str:
        height, width = self.classes.shape
        return f"<Segmentation {width}×{height}: {', '.join(self._pixels())}>"


Prediction = Detections | Classification | Segmentation


def named(prediction: types.Prediction, model: Model, score: float) -> Prediction:
    """The prediction with the names of the model's classes, without detections below the score."""
    names = model.card.classes
    if isinstance(prediction, types.Detections):
        if model.card.task == "detect":  # a single-object detector always has one box
            prediction = prediction.take(prediction.scores >= score)
        each = tuple(names[i] if i < len(names) else str(i) for i in prediction.classes.tolist())
        return Detections(prediction.boxes, prediction.scores, prediction.classes, each)
    if isinstance(prediction, types.Scores):
        return Classification(prediction.values, names)
    return Segmentation(prediction.classes, names)
