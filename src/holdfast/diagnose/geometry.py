"""Registration: the orientation, scale and offset of an image in a dumped input, to a fraction of a pixel.

The brightness of the dump is compared with that of the decoded image by normalised correlation, which a
change of gain, offset or channel order does not affect. Usual placements give the starting point;
Gauss-Newton on scale and offset of both axes gives the answer.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image as Pictures

from holdfast.core.types import Floats, Size

COARSE = 96  # pixels of the long side at which starting points are compared
LEAST_CONTENT = 0.05  # share of the input that the image must cover
BLUR = 1.5  # a placement is searched within this many pixels

# How stored pixels (h, w, …) are turned: as EXIF numbers them.
ORIENTATIONS: dict[int, Callable[[Any], Any]] = {
    1: lambda a: a,
    2: lambda a: a[:, ::-1],
    3: lambda a: a[::-1, ::-1],
    4: lambda a: a[::-1],
    5: lambda a: a.swapaxes(0, 1),
    6: lambda a: a[::-1].swapaxes(0, 1),
    7: lambda a: a[::-1, ::-1].swapaxes(0, 1),
    8: lambda a: a[:, ::-1].swapaxes(0, 1),
}


@dataclass(frozen=True)
class Placement:
    """The rectangle of the network input, in pixels, onto which the whole image is resized."""

    left: float
    top: float
    width: float
    height: float

    def rounded(self) -> "Placement":
        """The nearest rectangle of whole pixels."""
        return Placement(*(float(round(v)) for v in (self.left, self.top, self.width, self.height)))

    def inside(self, shape: tuple[int, int]) -> tuple[slice, slice]:
        """The rows and columns of an input (h, w) that show the image."""
        top, left = max(0, round(self.top)), max(0, round(self.left))
        bottom, right = round(self.top + self.height), round(self.left + self.width)
        return slice(top, min(shape[0], bottom)), slice(left, min(shape[1], right))


@dataclass(frozen=True)
class Registration:
    """An orientation (as EXIF numbers it), a placement, and the correlation with the dump."""

    orientation: int
    placement: Placement
    correlation: float


def brightness(planes: Floats) -> Floats:
    """The mean of the planes (c, h, w), each scaled to the same spread; a constant plane counts nothing."""
    spread = planes.std(axis=(1, 2))
    used = planes[spread > 1e-6 * max(float(spread.max()), 1e-30)]
    if not len(used):
        return np.zeros(planes.shape[1:])
    centred = used - used.mean(axis=(1, 2), keepdims=True)
    return np.asarray((centred / used.std(axis=(1, 2), keepdims=True)).mean(axis=0))


def content(plane: Floats) -> Placement:
    """The rectangle of a plane (h, w) inside its constant borders; the whole plane if it has none."""
    rows = np.flatnonzero(np.ptp(plane, axis=1) > 1e-6 * max(float(np.ptp(plane)), 1e-30))
    columns = np.flatnonzero(np.ptp(plane, axis=0) > 1e-6 * max(float(np.ptp(plane)), 1e-30))
    if not len(rows) or not len(columns):
        return Placement(0.0, 0.0, float(plane.shape[1]), float(plane.shape[0]))
    left, top = int(columns[0]), int(rows[0])
    return Placement(float(left), float(top), float(columns[-1] + 1 - left), float(rows[-1] + 1 - top))


def usual_placements(image: Size, net: Size) -> Iterator[Placement]:
    """Stretch, letterboxes and crops of several sizes, in the centre and at two corners."""
    yield Placement(0.0, 0.0, float(net.width), float(net.height))
    inside = min(net.width / image.width, net.height / image.height)
    cover = max(net.width / image.width, net.height / image.height)
    for ratio in (inside, cover, cover * 256 / 224, cover * 1.3, 1.0):
        width, height = image.width * ratio, image.height * ratio
        spaces = net.width - width, net.height - height
        for across, down in ((0.5, 0.5), (0.0, 0.0), (1.0, 1.0)):
            yield Placement(spaces[0] * across, spaces[1] * down, width, height)


def coarse(image: Floats, dump: Floats) -> list[Registration]:
    """The usual placement that fits best, per orientation, best first; image and dump (h, w): brightness."""
    net = Size(dump.shape[1], dump.shape[0])
    factor = max(1.0, max(net) / COARSE)
    small_dump = resized(dump, Size(max(8, round(net.width / factor)), max(8, round(net.height / factor))))
    measured = content(dump)
    ratio = min(1.0, 4 * COARSE / max(image.shape))
    small = resized(image, Size(*(max(8, round(side * ratio)) for side in image.shape[::-1])))
    found = []
    for orientation, turn in ORIENTATIONS.items():
        turned, (height, width) = np.ascontiguousarray(turn(small)), turn(image).shape
        options = [*usual_placements(Size(width, height), net), measured]
        scored = [(_coarse_match(turned, small_dump, one, net), one) for one in options]
        score, placement = max(scored, key=lambda pair: pair[0])
        found.append(Registration(orientation, placement, score))
    return sorted(found, key=lambda one: -one.correlation)


def register(image: Floats, dump: Floats, starts: list[Registration]) -> list[Registration]:
    """The three best starting points, refined; best first."""
    found = []
    for start in starts[:3]:
        turned = np.ascontiguousarray(ORIENTATIONS[start.orientation](image))
        found.append(Registration(start.orientation, *refine(turned, dump, start.placement)))
    return sorted(found, key=lambda one: -one.correlation)


def _coarse_match(image: Floats, dump: Floats, placement: Placement, net: Size) -> float:
    x, y = dump.shape[1] / net.width, dump.shape[0] / net.height
    small = Placement(placement.left * x, placement.top * y, placement.width * x, placement.height * y)
    return _correlation(*_overlap(image, dump, small))


def _overlap(image: Floats, dump: Floats, placement: Placement) -> tuple[Floats, Floats]:
    """The image as it would appear in the dump, and the dump, where they overlap."""
    rows, columns = placement.inside((dump.shape[0], dump.shape[1]))
    whole = placement.rounded()
    small = resized(image, Size(max(1, int(whole.width)), max(1, int(whole.height))))
    top, left = rows.start - int(whole.top), columns.start - int(whole.left)
    shown = small[top : top + rows.stop - rows.start, left : left + columns.stop - columns.start]
    return shown, dump[rows, columns][: shown.shape[0], : shown.shape[1]]


def _correlation(one: Floats, other: Floats) -> float:
    if one.size < 16 or one.shape != other.shape:
        return -1.0
    a, b = one - one.mean(), other - other.mean()
    norm = float(np.sqrt((a * a).sum() * (b * b).sum()))
    return float((a * b).sum()) / norm if norm > 0 else -1.0


def resized(plane: Floats, size: Size) -> Floats:
    """A plane (h, w) resized with an antialiasing filter."""
    picture = Pictures.fromarray(np.ascontiguousarray(plane, np.float32))
    return np.asarray(picture.resize((size.width, size.height), Pictures.Resampling.BILINEAR), np.float64)


def refine(image: Floats, dump: Floats, start: Placement) -> tuple[Placement, float]:
    """The placement near a starting point that correlates best, by Gauss-Newton, and its correlation."""
    best, score = start, -1.0
    for factor in (4, 2, 1):
        if min(dump.shape) < 32 * factor and factor > 1:
            continue
        net = Size(round(dump.shape[1] / factor), round(dump.shape[0] / factor))
        x, y = net.width / dump.shape[1], net.height / dump.shape[0]
        target = resized(dump, net) if factor > 1 else dump
        small = Placement(best.left * x, best.top * y, best.width * x, best.height * y)
        small, score = _gauss_newton(image, target, small)
        best = Placement(small.left / x, small.top / y, small.width / x, small.height / y)
    return best, score


def _gauss_newton(image: Floats, dump: Floats, start: Placement) -> tuple[Placement, float]:
    """Scale and offset of both axes by least squares of dump ≈ gain · image + offset."""
    size = Size(max(2, round(start.width)), max(2, round(start.height)))
    if size.width * size.height < LEAST_CONTENT * dump.size or max(size) > 8 * max(dump.shape):
        return start, -1.0
    picture = Pictures.fromarray(np.asarray(resized(image, size), np.float32))
    best, best_score = start, -1.0
    current = start
    for _ in range(12):
        rows, columns = _interior(current, (dump.shape[0], dump.shape[1]))
        shown = _sampled(picture, size, current, rows, columns)
        target = dump[rows, columns]
        score = _correlation(shown, target)
        if score > best_score:
            best, best_score = current, score
        if shown.size < 64 or score < 0.1:
            break
        step = _step(shown, target, rows, columns, current)
        current = Placement(
            current.left + step[0], current.top + step[1], current.width + step[2], current.height + step[3]
        )
        if np.abs(step).max() < 1e-3 or current.width < 4 or current.height < 4:
            break
    return best, best_score


def _interior(placement: Placement, shape: tuple[int, int]) -> tuple[slice, slice]:
    rows, columns = placement.inside(shape)
    inset = [2 if part.stop - part.start > 24 else 0 for part in (rows, columns)]
    rows, columns = (
        slice(part.start + d, part.stop - d) for part, d in zip((rows, columns), inset, strict=True)
    )
    return rows, columns


def _sampled(
    picture: Pictures.Image, size: Size, placement: Placement, rows: slice, columns: slice
) -> Floats:
    """The picture as a placement shows it, sampled in those rows and columns of the input."""
    across, down = size.width / placement.width, size.height / placement.height
    shape = columns.stop - columns.start, rows.stop - rows.start
    if min(shape) < 1:
        return np.zeros((0, 0))
    start = (columns.start - placement.left) * across, (rows.start - placement.top) * down
    grid = (across, 0.0, start[0], 0.0, down, start[1])
    drawn = picture.transform(shape, Pictures.Transform.AFFINE, grid, Pictures.Resampling.BICUBIC)
    return np.asarray(drawn, np.float64)


def _step(shown: Floats, target: Floats, rows: slice, columns: slice, placement: Placement) -> Floats:
    """One Gauss-Newton step of (left, top, width, height)."""
    down, across = np.gradient(shown)
    x = (np.arange(columns.start, columns.stop) + 0.5 - placement.left) / placement.width
    y = (np.arange(rows.start, rows.stop) + 0.5 - placement.top) / placement.height
    terms = [-across, -down, -across * x[None, :], -down * y[:, None], shown, np.ones_like(shown)]
    every = max(1, shown.size // 30_000)
    system = np.stack([term.ravel()[::every] for term in terms], axis=1)
    values = target.ravel()[::every]
    found = np.linalg.lstsq(system.T @ system, system.T @ values, rcond=None)[0]
    gain = float(found[4]) if abs(found[4]) > 1e-6 else 1.0
    return np.asarray(np.clip(found[:4] / gain, -BLUR * 2, BLUR * 2))
