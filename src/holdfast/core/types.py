"""Images, boxes, detections, samples and predictions: frozen, checked, plain numpy inside."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import InputError

Image: TypeAlias = NDArray[np.uint8]  # (height, width, 3) RGB
Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]
Tensor: TypeAlias = NDArray[Any]


def plain_name(name: str) -> str:
    """The normalised name of a class for comparison: without case, spaces, hyphens and underscores."""
    return "".join(c for c in name.casefold() if c not in " -_")


class Size(NamedTuple):
    """Width and height in pixels."""

    width: int
    height: int


def _set_column(owner: object, name: str, value: Any, dtype: Any, *shape: int) -> None:
    """Set a field to a read-only array of this shape; InputError if the value is none."""
    field = f"{type(owner).__name__}.{name}"
    try:
        array = np.array(value, dtype=dtype, order="C")  # a copy: the caller may still modify the original
    except (ValueError, TypeError) as problem:
        raise InputError(f"{field}: expected numbers of shape {shape}, got: {problem}") from problem
    if array.size == 0 and 0 in shape:
        array = array.reshape(shape)
    if array.shape != shape:
        raise InputError(f"{field}: expected shape {shape}, got {array.shape}")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise InputError(f"{field}: expected finite numbers, got {array[~np.isfinite(array)][0]}")
    array.flags.writeable = False
    object.__setattr__(owner, name, array)


@dataclass(frozen=True, eq=False)
class Boxes:
    """Ground-truth boxes of one image: xyxy (n, 4) in pixels of the encoded image, classes (n,)."""

    xyxy: Floats
    classes: Ints
    crowd: Bools = field(default_factory=lambda: np.zeros(0, bool))
    difficult: Bools = field(default_factory=lambda: np.zeros(0, bool))
    areas: Floats = field(default_factory=lambda: np.zeros(0))

    def __post_init__(self) -> None:
        n = len(self.xyxy)
        _set_column(self, "xyxy", self.xyxy, np.float64, n, 4)
        sides = np.clip(self.xyxy[:, 2:] - self.xyxy[:, :2], 0, None)
        _set_column(self, "classes", self.classes, np.int64, n)
        _set_column(self, "crowd", self.crowd if len(self.crowd) else np.zeros(n), bool, n)
        _set_column(self, "difficult", self.difficult if len(self.difficult) else np.zeros(n), bool, n)
        _set_column(self, "areas", self.areas if len(self.areas) else sides.prod(axis=1), np.float64, n)

    def __len__(self) -> int:
        return len(self.xyxy)


@dataclass(frozen=True, eq=False)
class Detections:
    """Output of a detector for one image: boxes (n, 4) xyxy in pixels, scores (n,), classes (n,)."""

    boxes: Floats
    scores: Floats
    classes: Ints

    def __post_init__(self) -> None:
        n = len(self.boxes)
        _set_column(self, "boxes", self.boxes, np.float64, n, 4)
        _set_column(self, "scores", self.scores, np.float64, n)
        _set_column(self, "classes", self.classes, np.int64, n)

    def __len__(self) -> int:
        return len(self.boxes)

    def take(self, index: Any) -> Detections:
        """The detections picked by an index or mask, in its order."""
        return Detections(self.boxes[index], self.scores[index], self.classes[index])


def no_detections() -> Detections:
    """The detections of an image without objects."""
    return Detections(np.zeros((0, 4)), np.zeros(0), np.zeros(0, np.int64))


@dataclass(frozen=True)
class Label:
    """Ground truth of a classifier: one class."""

    index: int


@dataclass(frozen=True)
class MaskFile:
    """Ground truth of a segmenter: an encoded image (PNG) whose pixel values are class ids."""

    data: bytes = field(repr=False)


Truth: TypeAlias = Boxes | Label | MaskFile


@dataclass(frozen=True, eq=False)
class Scores:
    """Output of a classifier for one image: one score per class (k,)."""

    values: Floats

    def __post_init__(self) -> None:
        _set_column(self, "values", self.values, np.float64, np.size(self.values))


@dataclass(frozen=True, eq=False)
class LabelMap:
    """Output of a segmenter for one image: a class per pixel (height, width)."""

    classes: NDArray[np.uint16]


Prediction: TypeAlias = Detections | Scores | LabelMap


@dataclass(frozen=True)
class Sample:
    """One image as a system receives it, encoded, with its truth. `name` is unique in its dataset."""

    name: str
    data: bytes = field(repr=False)
    truth: Truth = field(repr=False)
    classes: tuple[str, ...] = field(default=(), repr=False)  # names that indices of the truth refer to
    task: str = field(default="", repr=False)  # of its dataset

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the classes of the truth, one per box; of a mask there are none."""
        if isinstance(self.truth, MaskFile):
            return ()
        indices = [self.truth.index] if isinstance(self.truth, Label) else self.truth.classes.tolist()
        return tuple(self.classes[i] if 0 <= i < len(self.classes) else str(i) for i in indices)
