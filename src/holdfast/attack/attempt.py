"""One image attacked: what was changed, what it cost, what the models say before and after."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from holdfast.core.patch import Patch
from holdfast.core.types import Boxes, Detections, Floats, Size
from holdfast.data.patchfile import files_of, patch_of
from holdfast.engine.records import Failed, Found, from_plain, to_plain


@dataclass(frozen=True)
class Pair:
    """What a model says of the clean and of the attacked image, by its own class numbers."""

    before: Detections
    after: Detections


@dataclass(frozen=True, eq=False)
class Attempt:
    """What became of one image. Without a target (nothing true was found) it is left as it is."""

    name: str
    size: Size
    truth: Boxes  # by the data's class numbers
    model: Pair
    targets: int  # true boxes that were found before
    left: int  # those of them that are still found
    success: bool
    pixels: int
    amplitude: int
    regions: int
    psnr: float | None  # None: nothing was changed
    ssim: float
    steps: int
    seconds: float
    patch: Patch
    image_sha256: str  # of the PNG that was written
    unseen: Mapping[str, Pair] = field(default_factory=dict)
    trail: tuple[tuple[int, bool], ...] = ()
    note: str = ""
    features: Floats | None = None  # (2, d): of the clean and of the attacked image

    def record(self, pair: Pair, after: bool) -> Found:
        """The image as a record of an evaluation, before or after."""
        return Found(self.name, self.size, self.truth, pair.after if after else pair.before)


PLAIN = (
    "targets", "left", "success", "pixels", "amplitude", "regions", "psnr", "ssim", "steps", "seconds",
    "note", "image_sha256",
)  # fmt: skip


def attempt_to_plain(attempt: Attempt | Failed) -> dict[str, Any]:
    """The attempt as JSON values."""
    if isinstance(attempt, Failed):
        return to_plain(attempt)
    png, toml = files_of(attempt.patch)
    features = attempt.features
    return {
        **{name: getattr(attempt, name) for name in PLAIN},
        "record": to_plain(attempt.record(attempt.model, after=False)),
        "after": _plain(attempt.model.after),
        "unseen": {n: [_plain(p.before), _plain(p.after)] for n, p in attempt.unseen.items()},
        "trail": [list(step) for step in attempt.trail],
        "patch": [base64.b64encode(png).decode(), toml.decode()],
        "features": None if features is None else [list(features.shape), _packed(features)],
    }


def attempt_from_plain(plain: dict[str, Any]) -> Attempt | Failed:
    """The attempt that `attempt_to_plain` wrote."""
    if "failed" in plain:
        return Failed(plain["failed"], plain["reason"])
    record = from_plain(plain["record"])
    if not isinstance(record, Found):
        raise TypeError(f"expected a detector's record, got {type(record).__name__}")
    features = None
    if plain["features"] is not None:
        shape, packed = plain["features"]
        features = np.frombuffer(base64.b64decode(packed), "<f8").reshape(shape)
    png, toml = plain["patch"]
    return Attempt(
        record.name,
        record.size,
        record.truth,
        Pair(record.detections, _detections(plain["after"])),
        patch=patch_of(base64.b64decode(png), toml.encode()),
        unseen={n: Pair(*map(_detections, pair)) for n, pair in plain["unseen"].items()},
        trail=tuple((int(pixels), bool(good)) for pixels, good in plain["trail"]),
        features=features,
        **{name: plain[name] for name in PLAIN},
    )


def row_of(attempt: Attempt) -> dict[str, Any]:
    """The attempt as a row of the table of images."""
    return {
        "name": attempt.name,
        "width": attempt.size.width,
        "height": attempt.size.height,
        **{name: getattr(attempt, name) for name in PLAIN},
        "detections_before": len(attempt.model.before),
        "detections_after": len(attempt.model.after),
    }


def _plain(found: Detections) -> dict[str, Any]:
    return {f.name: getattr(found, f.name).tolist() for f in dataclasses.fields(found)}


def _detections(plain: dict[str, Any]) -> Detections:
    boxes = np.array(plain["boxes"], np.float64).reshape(-1, 4)
    return Detections(boxes, np.array(plain["scores"]), np.array(plain["classes"], np.int64))


def _packed(values: Floats) -> str:
    return base64.b64encode(np.ascontiguousarray(values, "<f8").tobytes()).decode()
