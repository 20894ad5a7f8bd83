"""Threats: sets of inputs. An attack searches one for a bad input, a verifier shows there is none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import InputError
from holdfast.core.types import Floats


@runtime_checkable
class Threat(Protocol):
    """A set of inputs that can say whether it contains a point, with the reason when it does not."""

    def excludes(self, point: NDArray[np.floating]) -> str:
        """Why the point is not in the set; empty if it is."""
        ...


@dataclass(frozen=True, eq=False)
class Box:
    """All inputs between `lower` and `upper`, end points included."""

    lower: Floats
    upper: Floats

    def __post_init__(self) -> None:
        lower, upper = (np.asarray(v, np.float64) for v in (self.lower, self.upper))
        if lower.shape != upper.shape:
            raise InputError(f"Box: expected bounds of one shape, got {lower.shape} and {upper.shape}")
        if not (lower <= upper).all():
            at = np.argwhere(~(lower <= upper))[0].tolist()
            raise InputError(f"Box: expected lower <= upper, got {lower[*at]} > {upper[*at]} at {at}")
        object.__setattr__(self, "lower", lower)
        object.__setattr__(self, "upper", upper)

    def excludes(self, point: NDArray[np.floating]) -> str:
        """Why the point is outside the box; empty if it is inside."""
        if point.shape != self.lower.shape:
            return f"shape {point.shape} is not {self.lower.shape}"
        inside = (self.lower <= point) & (point <= self.upper)
        if inside.all():
            return ""
        at = np.argwhere(~inside)[0].tolist()
        return f"value {point[*at]!r} at {at} is outside [{self.lower[*at]!r}, {self.upper[*at]!r}]"


def linf_ball(centre: Floats, radius: float, low: float = -np.inf, high: float = np.inf) -> Box:
    """All inputs whose every value is within `radius` of the centre's and inside [low, high]."""
    centre = np.asarray(centre, np.float64)
    return Box(np.clip(centre - radius, low, high), np.clip(centre + radius, low, high))


@dataclass(frozen=True, eq=False)
class PatchAnywhere:
    """An image (c, h, w) with one rectangle, anywhere inside, filled with values of [low, high]."""

    image: Floats
    height: int
    width: int
    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        image = np.asarray(self.image, np.float64)
        if image.ndim != 3 or not (0 < self.height <= image.shape[1] and 0 < self.width <= image.shape[2]):
            raise InputError(
                f"PatchAnywhere: expected a patch inside an image (c, h, w), got "
                f"{self.height}×{self.width} in {image.shape}"
            )
        object.__setattr__(self, "image", image)

    def excludes(self, point: NDArray[np.floating]) -> str:
        """Why the point is not the image with one such patch; empty if it is."""
        if point.shape != self.image.shape:
            return f"shape {point.shape} is not {self.image.shape}"
        # The network sees the image in the point's precision: 0.1 in float32 is not 0.1 in float64.
        changed = point != self.image.astype(point.dtype)
        if not changed.any():
            return ""
        rows, columns = (np.flatnonzero(changed.any(axis=axes)) for axes in ((0, 2), (0, 1)))
        extent = (int(rows[-1] - rows[0] + 1), int(columns[-1] - columns[0] + 1))
        if extent[0] > self.height or extent[1] > self.width:
            return f"changed extent {extent[0]}×{extent[1]} is larger than {self.height}×{self.width}"
        values = point[changed]
        if not ((self.low <= values) & (values <= self.high)).all():
            return f"patch values {values.min()}..{values.max()} leave [{self.low}, {self.high}]"
        return ""
