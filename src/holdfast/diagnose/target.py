"""Diagnosis of a target from dumps of its input: causes, repairs, and the remaining difference."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np

from holdfast.core.errors import HoldfastError, InputError
from holdfast.core.model import Input, Model
from holdfast.core.pipeline import Pipeline, pipeline_of
from holdfast.core.types import Bools, Floats, Image, Size, Tensor
from holdfast.data.images import sniff
from holdfast.diagnose.cause import Cause, Comparison
from holdfast.diagnose.causes import causes_of
from holdfast.diagnose.fit import Fit, fit, padded
from holdfast.diagnose.moves import installed
from holdfast.diagnose.preparation import Preparation, Start, fitted, tensor, trained, turned_size

EXPLAINED_MEAN = 0.75  # mean difference in levels of an explained dump, besides its own rounding
EXPLAINED_SHARE = 0.03  # share of values that may differ by more than OUTLIER levels
OUTLIER = 2.5
NEEDLESS = 1.1  # a change is dropped if the mean difference without it is at most this multiple
NEEDLESS_UNEXPLAINED = 2.0
ONE_LEVEL = 1.05  # largest difference in levels up to which another order of rounding may be the reason
STAGES = ("decode", "colour", "resize")
FINER = ("decode", "colour", "resize", "expanded", "gamma", "gamma_last")


@dataclass(frozen=True)
class Remainder:
    """The difference between the dumps and the fitted preparation, in pixel levels (0 to 255)."""

    largest: float
    mean: float
    share: float  # of values that differ by more than OUTLIER levels
    where: str


@dataclass(frozen=True)
class Pictures:
    """An input as the model wants it, the same input as the target feeds it, and the amplified remainder."""

    wanted: Image
    fed: Image
    remaining: Image
    factor: float  # by which the remainder is amplified


@dataclass(frozen=True)
class InputDiagnosis:
    """Why the input of a target differs from the model's; no causes and `explained`: it does not differ."""

    causes: tuple[Cause, ...]
    explained: bool
    before: float | None  # largest difference as fed, in the model's units; None if the shapes differ
    after: float  # largest difference after the repairs, in the model's units
    mean_before: float | None
    mean_after: float
    remainder: Remainder
    dumps: int
    pictures: Pictures
    note: str = ""

    @property
    def verdict(self) -> str:
        """The causes with their repair, the differences before and after it, and what remains."""
        return " ".join(self.lines)

    @property
    def lines(self) -> list[str]:
        """The sentences of the verdict, one cause per line."""
        lines = [cause.text for cause in self.causes]
        left, exact = self.remainder, self.explained and self.remainder.largest < 1.0
        if self.causes:
            lines.append(self._improvement())
        elif exact:
            lines.append(f"The target feeds what the model wants (largest difference {size(self.after)}).")
        elif self.explained:
            lines.append("The target feeds what the model wants, apart from small differences.")
        else:
            lines.append("No known cause explains the difference between this dump and the model's input.")
        if not exact:
            lead = "What remains is small" if self.explained else "What remains is not explained"
            rest = f"on average {left.mean:.2f} of 255 levels, at most {left.largest:.0f}, {left.where}"
            lines.append(f"{lead}: {rest}.")
        return [*lines, self.note] if self.note else lines

    def to_dict(self) -> dict[str, Any]:
        """All but the pictures, as plain values."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("pictures", "causes")}
        plain = {**values, "remainder": asdict(self.remainder), "verdict": self.verdict}
        return {"causes": [asdict(cause) for cause in self.causes], **plain}

    def _improvement(self) -> str:
        repaired = "Repaired" if len(self.causes) == 1 else "With all of this repaired"
        if self.before is None or self.mean_before is None:
            return f"{repaired}, the largest difference is {size(self.after)}."
        if self.remainder.largest <= OUTLIER:
            return f"{repaired}, the largest difference falls from {size(self.before)} to {size(self.after)}."
        return (
            f"{repaired}, the mean difference falls from {size(self.mean_before)} to {size(self.mean_after)}."
        )


def size(value: float) -> str:
    """A difference with three significant digits; 0 if it is only rounding."""
    return "0" if value < 1e-6 else f"{value:.3g}"


def diagnose_input(
    model: Model,
    images: Sequence[bytes],
    dumps: Sequence[Tensor],
    train: Pipeline | None = None,
    *,
    train_exif: bool = False,
) -> InputDiagnosis:
    """Explain the dumped inputs of a target (one per image) by differences from the training pipeline.

    Pipelines take pixels as stored; with `train_exif` the training applies the EXIF orientation of the files.
    """
    spec, pipeline = model.card.input, train or pipeline_of(model.card)

    def start(image: Size, net: Size, planes: int) -> Preparation:
        return trained(replace(spec, size=net), pipeline, image, planes)

    fits, used = _fitted(images, dumps, spec, start, train_exif)
    fits = simplify(agree(fits), start)
    turned = [k for k, one in enumerate(fits) if one.preparation.orientation != 1]
    shown = turned[0] if turned else 0  # an EXIF orientation concerns some of the files
    found = fits[shown]
    comparison = Comparison(
        spec=spec,
        dtype=str(used[shown][1].dtype),
        fit=found,
        expected=expected(start, found),
        exif=sniff(used[shown][0]).exif_orientation,
        train_exif=train_exif,
    )
    leftover = remainder(fits)
    explained = is_explained(leftover, found)
    causes = [
        replace(cause, equivalent=equivalents(found, cause.kind)) if cause.kind in STAGES else cause
        for cause in causes_of(comparison)
    ]
    if not explained:
        causes = recognised(causes, found, leftover)
    if not explained and not causes:  # what remains is the difference from the training pipeline
        plain = [replace(one, preparation=start(*_sizes(one), len(one.reading.planes))) for one in fits]
        found, leftover = plain[0], remainder(plain)
    model_gain = float(np.abs(comparison.expected.gain).mean())
    before = difference_before(found, start, spec)
    return InputDiagnosis(
        causes=tuple(causes),
        explained=explained,
        before=None if before is None else float(before.max()),
        after=leftover.largest * model_gain,
        mean_before=None if before is None else float(before.mean()),
        mean_after=leftover.mean * model_gain,
        remainder=leftover,
        dumps=len(fits),
        pictures=_pictures(found, start),
        note="" if train_exif or turned else exif_note(data for data, _ in used),
    )


def _fitted(
    images: Sequence[bytes], dumps: Sequence[Tensor], spec: Input, start: Start, train_exif: bool
) -> tuple[list[Fit], list[tuple[bytes, Tensor]]]:
    """The fits of the dumps that can be compared with their image, and these images and dumps."""
    fits: list[Fit] = []
    used: list[tuple[bytes, Tensor]] = []
    for data, dump in zip(images, dumps, strict=True):
        try:
            fits.append(fit(data, dump, spec, start, sniff(data).exif_orientation if train_exif else 1))
            used.append((data, dump))
        except HoldfastError:
            if len(images) == 1:
                raise
    if not fits:
        raise InputError(f"none of the {len(images)} dumps can be compared with its image")
    return fits, used


def exif_note(images: Iterable[bytes]) -> str:
    """A remark if a file that the target takes as stored has an EXIF orientation; empty if none has."""
    tag = next((tag for data in images if (tag := sniff(data).exif_orientation) != 1), 1)
    if tag == 1:
        return ""
    return (
        f"The file has the EXIF orientation {tag}; the target takes the pixels as stored, and so does the "
        "model's pipeline here. If the training applied the orientation (cv2.imread does), this is a "
        "mistake of the target: repeat with --train-exif."
    )


def agree(fits: Sequence[Fit]) -> list[Fit]:
    """The fits with the decoder, colour, resize and gamma that are best for all dumps together."""
    if len(fits) == 1:
        return list(fits)
    options = {tuple(getattr(one.preparation, name) for name in FINER) for one in fits}
    best: tuple[float, list[Fit]] = (float("inf"), list(fits))
    for values in sorted(options, key=str):
        finer = dict(zip(FINER, values, strict=True))
        joint = [_refitted(one, replace(one.preparation, **finer)) for one in fits]
        best = min(best, (sum(one.score for one in joint), joint), key=lambda pair: pair[0])
    return best[1]


def equivalents(found: Fit, kind: str) -> tuple[str, ...]:
    """The other installed options of a stage that reproduce the dump as well."""
    others = [name for name in installed(kind) if name != getattr(found.preparation, kind)]
    changes: list[dict[str, Any]] = [{kind: name} for name in others]
    scores = [fitted(found.target, replace(found.preparation, **change))[1] for change in changes]
    equal = [name for name, score in zip(others, scores, strict=True) if score <= found.score + 1e-6]
    return tuple(f"{kind}={name}" for name in equal)


def _refitted(found: Fit, prep: Preparation) -> Fit:
    new, score = fitted(found.target, prep)
    return replace(found, preparation=padded(found.target, new), score=score)


def simplify(fits: list[Fit], start: Start) -> list[Fit]:
    """The fits without the changes from training that do not lower the mean difference."""
    limit = NEEDLESS if is_explained(remainder(fits), fits[0]) else NEEDLESS_UNEXPLAINED
    plain = [start(*_sizes(one), len(one.reading.planes)) for one in fits]
    reverts: list[Callable[[Preparation, Preparation], Preparation]] = [
        lambda prep, want: replace(prep, colour=want.colour),
        lambda prep, want: replace(prep, decode=want.decode),
        lambda prep, _: replace(prep, expanded=False),
        lambda prep, _: replace(prep, first=""),
        lambda prep, _: replace(prep, through=None, first=""),
        lambda prep, _: replace(prep, window=None),
        lambda prep, _: replace(prep, gamma=1.0, gamma_last=False),
        lambda prep, want: replace(prep, resize=want.resize),
        lambda prep, _: replace(prep, sampling="filter", placement=prep.placement.rounded()),
        lambda prep, _: replace(prep, orientation=1),
        lambda prep, want: replace(prep, channels=want.channels),
        lambda prep, _: replace(prep, sampling="filter", window=None),
    ]
    for place, revert in enumerate(reverts):
        total, last = sum(one.score for one in fits), place == len(reverts) - 1
        simpler = []
        for one, want in zip(fits, plain, strict=True):
            new = revert(one.preparation, want)
            policy = expected(start, one).placement
            if last or one.preparation.placement == policy:  # placed by the training policy
                new = replace(new, placement=expected(start, replace(one, preparation=new)).placement)
            simpler.append(new)
        if simpler == [one.preparation for one in fits]:
            continue
        joint = [_refitted(one, prep) for one, prep in zip(fits, simpler, strict=True)]
        enough = sum(one.score for one in joint) <= limit * total + 0.01 * len(fits)
        exact = all(_levels_apart(one).max() <= 0.05 for one in fits)  # not by chance
        if enough or (not exact and all(_is_rounding(one) for one in joint)):
            fits = joint
    return fits


def _is_rounding(found: Fit) -> bool:
    """Whether no value differs by more than one level, besides the rounding of the dump itself."""
    return bool(_levels_apart(found).max() <= ONE_LEVEL + _rounding(found))


def _rounding(found: Fit) -> float:
    """The largest rounding error of a dumped value, in levels."""
    return found.target.rounding / max(float(np.abs(found.preparation.gain).min()), 1e-30)


def expected(start: Start, found: Fit) -> Preparation:
    """The training pipeline for the image as the target turns and, if it resizes twice, first resizes it."""
    prep = found.preparation
    return start(
        prep.through or turned_size(found.target, prep), found.target.size, len(found.reading.planes)
    )


def _sizes(found: Fit) -> tuple[Size, Size]:
    """The size of the decoded image, and of the dump."""
    return turned_size(found.target, replace(found.preparation, orientation=1)), found.target.size


def recognised(causes: Sequence[Cause], found: Fit, leftover: Remainder) -> list[Cause]:
    """The causes to name of a dump that is not explained: definite ones, if it shows the image."""
    if leftover.mean > 40.0 or leftover.share > 0.9:
        return [cause for cause in causes if cause.kind in ("layout", "batch", "size")]
    return [cause for cause in causes if cause.definite]


def is_explained(leftover: Remainder, found: Fit) -> bool:
    """Whether what remains is about as small as rounding."""
    return leftover.mean <= EXPLAINED_MEAN + _rounding(found) and leftover.share <= EXPLAINED_SHARE


def _levels_apart(found: Fit) -> Floats:
    """The difference (c, h, w) between a dump and its fitted preparation, in levels."""
    prep = found.preparation
    gain = np.abs(np.array(prep.gain))[:, None, None]
    return np.asarray(np.abs(found.target.planes - tensor(found.target, prep)) / np.maximum(gain, 1e-30))


def remainder(fits: Sequence[Fit]) -> Remainder:
    """What the fits do not explain; rounding of the dump is not counted as an outlier."""
    apart = [_levels_apart(one) for one in fits]
    shares = []
    for one, levels in zip(fits, apart, strict=True):
        shares.append(float((levels > OUTLIER + _rounding(one)).mean()))
    return Remainder(
        largest=max(float(levels.max()) for levels in apart),
        mean=float(np.mean([levels.mean() for levels in apart])),
        share=float(np.mean(shares)),
        where=where(apart[0], fits[0]),
    )


def where(apart: Floats, found: Fit) -> str:
    """The place of most of the difference (c, h, w), in words."""
    total = float(apart.sum())
    if total <= 0.0:
        return "nowhere"
    height, width = apart.shape[1:]
    rows, columns = found.preparation.placement.rounded().inside((height, width))
    inside = np.zeros((height, width), bool)
    inside[rows, columns] = True
    inner = np.zeros((height, width), bool)
    inner[rows.start + 2 : rows.stop - 2, columns.start + 2 : columns.stop - 2] = True
    plane = apart.sum(axis=0)

    def part(mask: Bools) -> float:
        return float(plane[mask].sum()) / total

    if part(~inside) > 0.8:
        return "in the padding"
    if part(inside & ~inner) > 0.6:
        return "at the border of the image"
    shares = apart.sum(axis=(1, 2)) / total
    if len(shares) == 3 and shares.max() > 0.8:
        return f"in channel {int(shares.argmax())}"
    halves = {
        "in the left half": np.s_[:, : width // 2],
        "in the right half": np.s_[:, width // 2 :],
        "in the upper half": np.s_[: height // 2],
        "in the lower half": np.s_[height // 2 :],
    }
    for name, half in halves.items():
        if float(plane[half].sum()) / total > 0.85:
            return name
    down, across = np.gradient(found.target.planes.mean(axis=0))
    slope = np.hypot(down, across)
    steep = slope > np.quantile(slope[inside], 0.8) if inside.any() else inside
    return "along edges" if part(steep) > 0.5 else "everywhere"


def difference_before(found: Fit, start: Start, spec: Input) -> Floats | None:
    """The difference (c, h, w) between a dump as fed and the model's input; None if the shapes differ."""
    planes = found.target.planes
    if found.reading.layout != spec.layout or found.target.size != spec.size or len(planes) != 3:
        return None
    return np.asarray(np.abs(planes - tensor(found.target, start(*_sizes(found), 3))))


def _pictures(found: Fit, start: Start) -> Pictures:
    want = start(*_sizes(found), len(found.reading.planes))
    apart = _levels_apart(found)
    factor = float(np.clip(255.0 / max(float(np.quantile(apart, 0.999)), 1.0), 1.0, 32.0))
    gain, offset = (np.array(v)[:, None, None] for v in (want.gain, want.offset))
    sources = np.array(want.channels)

    def drawn(planes: Floats) -> Image:
        levels = (planes - offset) / gain
        rgb = (
            np.tensordot(np.linalg.pinv(sources), levels, (1, 0)) if len(levels) == 3 else levels.repeat(3, 0)
        )
        return np.ascontiguousarray(np.clip(np.round(rgb), 0, 255).astype(np.uint8).transpose(1, 2, 0))

    remaining = np.clip(apart.max(axis=0) * factor, 0, 255).astype(np.uint8)
    return Pictures(
        drawn(tensor(found.target, want)),
        drawn(found.target.planes),
        np.repeat(remaining[:, :, None], 3, 2),
        factor,
    )
