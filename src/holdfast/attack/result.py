"""The results of an attack: every image, mAP before and after, and mAP by pixel budget."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.attack.survival import total_survival
from holdfast.attack.types import Sticker
from holdfast.core.errors import InputError
from holdfast.core.patch import Patch, Survival
from holdfast.core.result import Result
from holdfast.core.text import printable
from holdfast.core.types import Boxes, Detections, Floats, Image, Size
from holdfast.data.patchfile import files_of, patch_of
from holdfast.engine.cells import CellSet
from holdfast.engine.records import DetectionRecord, FailedImage, from_plain, to_plain
from holdfast.evaluate.classes import Alignment, realign
from holdfast.evaluate.score import Settings, score_records
from holdfast.metrics.frechet import frechet

PLAIN = (
    "targets", "left", "success", "pixels", "amplitude", "regions", "psnr", "ssim", "steps", "seconds",
    "note", "image_sha256",
)  # fmt: skip
BUDGETS = (0, 5, 10, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700, 1000, 1500, 2000, 3000)


@dataclass(frozen=True)
class Pair:
    """The detections in the clean and in the attacked image, by the model's class numbers."""

    before: Detections
    after: Detections


@dataclass(frozen=True, eq=False)
class Attempt:
    """The attack on one image. Without a target (no true object is detected) the image is unchanged."""

    name: str
    size: Size
    truth: Boxes  # by the data's class numbers
    model: Pair
    targets: int  # true boxes detected before
    left: int  # true boxes still detected after
    success: bool
    pixels: int
    amplitude: int
    regions: int
    psnr: float | None  # None: the image is unchanged
    ssim: float
    steps: int
    seconds: float
    patch: Patch
    image_sha256: str  # of the written PNG
    unseen: Mapping[str, Pair] = field(default_factory=dict)
    trail: tuple[tuple[int, bool], ...] = ()
    note: str = ""
    features: Floats | None = None  # (2, d): of the clean and of the attacked image
    stickers: tuple[Sticker, ...] = ()  # the patches of a shape, one per target
    survival: tuple[Survival, ...] = ()  # of patches that hide every target

    def record(self, pair: Pair, after: bool) -> DetectionRecord:
        """The image as a record of an evaluation, before or after."""
        return DetectionRecord(self.name, self.size, self.truth, pair.after if after else pair.before)


def attempt_to_plain(attempt: Attempt | FailedImage) -> dict[str, Any]:
    """The attempt as JSON values."""
    if isinstance(attempt, FailedImage):
        return to_plain(attempt)
    features = None
    if attempt.features is not None:
        packed = base64.b64encode(np.ascontiguousarray(attempt.features, "<f8").tobytes()).decode()
        features = [list(attempt.features.shape), packed]
    return {
        **{name: getattr(attempt, name) for name in PLAIN},
        "record": to_plain(attempt.record(attempt.model, after=False)),
        "after": _plain(attempt.model.after),
        "unseen": {n: [_plain(p.before), _plain(p.after)] for n, p in attempt.unseen.items()},
        "trail": [list(step) for step in attempt.trail],
        "patch": patch_to_plain(attempt.patch),
        "features": features,
        **{
            name: [dataclasses.asdict(one) for one in values]
            for name in ("stickers", "survival")
            if (values := getattr(attempt, name))
        },
    }


def attempt_from_plain(plain: dict[str, Any]) -> Attempt | FailedImage:
    """The attempt that `attempt_to_plain` wrote."""
    if "failed" in plain:
        return FailedImage(plain["failed"], plain["reason"])
    record = from_plain(plain["record"])
    if not isinstance(record, DetectionRecord):
        raise TypeError(f"expected a detector's record, got {type(record).__name__}")
    features = None
    if plain["features"] is not None:
        shape, packed = plain["features"]
        features = np.frombuffer(base64.b64decode(packed), "<f8").reshape(shape)
    return Attempt(
        record.name,
        record.size,
        record.truth,
        Pair(record.detections, Detections(**plain["after"])),
        patch=patch_from_plain(plain["patch"]),
        unseen={n: Pair(*(Detections(**d) for d in pair)) for n, pair in plain["unseen"].items()},
        trail=tuple((int(pixels), bool(good)) for pixels, good in plain["trail"]),
        features=features,
        stickers=tuple(Sticker(**s) for s in plain.get("stickers", ())),
        survival=tuple(Survival(**s) for s in plain.get("survival", ())),
        **{name: plain[name] for name in PLAIN},
    )


def patch_to_plain(patch: Patch) -> list[str]:
    """The PNG and the TOML of a patch as JSON values."""
    png, toml = files_of(patch)
    return [base64.b64encode(png).decode(), toml.decode()]


def patch_from_plain(plain: list[str]) -> Patch:
    """The patch that `patch_to_plain` wrote."""
    return patch_of(base64.b64decode(plain[0]), plain[1].encode())


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


def _plain(detections: Detections) -> dict[str, Any]:
    return {f.name: getattr(detections, f.name).tolist() for f in dataclasses.fields(detections)}


@dataclass(frozen=True)
class Effect:
    """The effect on one model: mAP before and after, and S_e = 1 − after / before."""

    model: str
    before: float
    after: float

    @property
    def effect(self) -> float | None:
        """S_e of the contest; None if the model detects nothing before."""
        return 1.0 - self.after / self.before if self.before > 0 else None


@dataclass(frozen=True)
class BudgetPoint:
    """One point of the curves: images that need more than `budget` pixels stay clean."""

    budget: int
    attacked: int  # images
    pixels: float  # mean over all images with a target
    map: float
    distance: float | None


@dataclass(frozen=True, repr=False)
class AttackResult(Result):
    """An attack on a dataset, or on one image of it.

    `contiguous` is the same attack with contiguous squares, if it was run.
    """

    attempts: tuple[Attempt, ...]
    failed: tuple[FailedImage, ...]
    effects: tuple[Effect, ...]  # the attacked model first, then the models that were not attacked
    points: tuple[BudgetPoint, ...]
    distance: str  # name of the Fréchet distance; empty: not computed
    alignment: Alignment
    about: dict[str, Any] = field(default_factory=dict)
    cells: CellSet | None = field(default=None, repr=False)
    files: Mapping[str, str] = field(default_factory=dict, repr=False)  # image -> its name in the folder
    contiguous: AttackResult | None = field(default=None, repr=False)

    @property
    def aimed(self) -> tuple[Attempt, ...]:
        """The attacked images: those with a target, or all if the goal is to fabricate objects."""
        return tuple(a for a in self.attempts if a.targets or a.steps)

    def mean(self, of: Callable[[Attempt], float]) -> float | None:
        """The mean over the images with a target."""
        values = [of(a) for a in self.aimed]
        return float(np.mean(values)) if values else None

    @property
    def success(self) -> float | None:
        """The share of attacked images in which the attack succeeded."""
        return self.mean(lambda a: float(a.success))

    @property
    def survival(self) -> tuple[Survival, ...]:
        """In how many random views the patches that hide every target of their image still do so."""
        return total_survival([attempt.survival for attempt in self.attempts])

    @property
    def image(self) -> Image:
        """The attacked image, (h, w, 3) uint8 RGB, of an attack on one image."""
        from holdfast.stages.decode.libjpeg import pillow

        return pillow(self.image_path(self._only().name).read_bytes())

    @property
    def patch(self) -> Patch:
        """The changed pixels of an attack on one image."""
        return self._only().patch

    def image_path(self, name: str) -> Path:
        """The PNG of an attacked image, by the name of the image in the dataset."""
        if self.folder is None:
            raise InputError("the attack was not saved; there are no attacked images")
        return self.folder / "images" / f"{self.files[printable(name)]}.png"

    def _only(self) -> Attempt:
        if len(self.attempts) != 1:
            raise InputError(
                f"expected an attack on one image, got {len(self.attempts)}; see attempts, image_path(name)"
            )
        return self.attempts[0]

    def to_dict(self) -> dict[str, Any]:
        """The outcome as plain values, as `--json` writes them."""
        from holdfast.attack.run import as_plain

        return as_plain(self)

    def _summary(self) -> str:
        hit, aimed, effect = sum(a.success for a in self.aimed), len(self.aimed), self.effects[0]
        pixels = self.mean(lambda a: a.pixels)
        mean = "" if pixels is None else f", {pixels:.0f} pixels on average"
        change = f"mAP {effect.before:.3f} → {effect.after:.3f}"
        return f"{effect.model}: success on {hit} of {aimed} images with a target{mean}, {change}"

    def _rows(self) -> list[dict[str, Any]]:
        return [row_of(attempt) for attempt in self.attempts]


def effect_of(
    attempts: Sequence[Attempt], name: str, pairs: Sequence[Pair], alignment: Alignment, settings: Settings
) -> Effect:
    """The effect on the model with these detections."""
    clean, attacked = [False] * len(attempts), [True] * len(attempts)
    return Effect(name, *(_map(attempts, pairs, after, alignment, settings) for after in (clean, attacked)))


def _map(
    attempts: Sequence[Attempt],
    pairs: Sequence[Pair],
    after: Sequence[bool],
    alignment: Alignment,
    settings: Settings,
) -> float:
    """The mAP with the attacked image where `after` is true, else the clean one."""
    records = [a.record(p, attacked) for a, p, attacked in zip(attempts, pairs, after, strict=True)]
    metrics = score_records(realign(records, alignment), "detect", alignment.names, settings)["metrics"]
    return float(metrics.get("mAP", metrics.get("AP50")) or 0.0)


def points_of(
    attempts: Sequence[Attempt], alignment: Alignment, settings: Settings, limit: int
) -> tuple[BudgetPoint, ...]:
    """The mAP and the Fréchet distance by pixel budget."""
    largest = max((a.pixels for a in attempts), default=0)
    budgets = sorted({b for b in BUDGETS if b < largest} | {min(largest, limit)}) if largest else [0]
    pairs = [a.model for a in attempts]
    aimed = max(1, sum(a.targets > 0 or a.steps > 0 for a in attempts))
    features = [a.features for a in attempts if a.features is not None]
    stacked = np.stack(features) if len(features) >= max(2, len(attempts)) else None
    points = []
    for budget in budgets:
        after = [0 < a.pixels <= budget for a in attempts]
        pixels = sum(a.pixels for a, attacked in zip(attempts, after, strict=True) if attacked)
        value = _map(attempts, pairs, after, alignment, settings)
        distance = None
        if stacked is not None:
            distance = frechet(stacked[:, 0], stacked[np.arange(len(after)), np.array(after, int)])
        points.append(BudgetPoint(budget, sum(after), pixels / aimed, value, distance))
    return tuple(points)
