"""Fit a target's preparation to a dump of its input: layout, geometry, values, then the finer choices."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from holdfast.core.errors import InputError
from holdfast.core.model import Input
from holdfast.core.types import Floats, Size, Tensor
from holdfast.diagnose import moves
from holdfast.diagnose.geometry import Placement, Registration, brightness, coarse, register, resized
from holdfast.diagnose.preparation import GREY, GREY_709, Preparation, Start, Target, fitted, turned_size

EXACT = 0.02  # mean difference in levels at which no finer choice is tried
ROUNDED = 0.26  # mean difference in levels that rounding to whole levels leaves
HOPELESS = 25.0  # mean difference in levels above which no finer choice explains a dump
JOINT = 4.0  # mean difference in levels up to which pairs of finer choices are tried
BETTER = 0.98  # a choice is taken if it lowers the mean difference to this share
SOURCES = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0), GREY, GREY_709, (1 / 3, 1 / 3, 1 / 3))
SEARCHED = 15_000  # pixels that the search compares
THREADS = 2  # the libraries release the lock while they resize
UNRELATED = 0.3  # correlation below which the dump does not show the image


@dataclass(frozen=True)
class Reading:
    """A way to read the array of a dump as planes (c, h, w)."""

    layout: str  # "nchw", "nhwc", "nchw holding nhwc", ...
    planes: Floats
    batch: int = 1  # images in the dump
    index: int = 0  # of the image in the dump
    batched: bool = True  # the dump has a batch axis


@dataclass(frozen=True)
class Fit:
    """A fitted preparation, the reading of the dump it is for, and the mean difference in levels."""

    reading: Reading
    preparation: Preparation
    target: Target
    score: float

    @property
    def turned(self) -> Size:
        """The size of the decoded image after its orientation."""
        return turned_size(self.target, self.preparation)


def readings(dump: Tensor, spec: Input) -> list[Reading]:
    """Every way to read a dump as images: with or without a batch axis, channels first, last or misread."""
    array = np.asarray(dump, np.float64)
    if array.ndim == 1:
        w, h = spec.size
        if array.size % (w * h) or array.size // (w * h) not in (1, 3):
            raise InputError(f"the dump has {array.size} values in one row; expected 3×{h}×{w} or its shape")
        array = array.reshape(array.size // (w * h), h, w)
    while array.ndim > 4 and array.shape[0] == 1:
        array = array[0]
    if array.ndim == 2:
        array = array[np.newaxis]
    images = array if array.ndim == 4 else array[np.newaxis]
    shape = "×".join(map(str, dump.shape))
    if images.ndim != 4 or not len(images) or min(images.shape[1:]) < 1:
        raise InputError(
            f"the dump is {shape}; expected the input tensor of one image, such as 1×3×h×w or h×w×3"
        )
    found = [one for index, image in enumerate(images[:16]) for one in _orders(image, len(images), index)]
    if not found:
        raise InputError(f"the dump is {shape}; expected an axis of 1, 3 or 4 channels")
    found = [replace(one, batched=dump.ndim != 3) for one in found if min(one.planes.shape[1:]) >= 8]
    if not found:
        raise InputError(f"the dump is {shape}; expected an input of at least 8×8 pixels")
    return found


def _orders(image: Floats, batch: int, index: int) -> Iterator[Reading]:
    """The readings of one image (3 axes) of a dump, by the order of its axes and of its values."""
    first, last = image.shape[0], image.shape[2]
    if first in (1, 3, 4):
        yield Reading("nchw", image[:3], batch, index)
        if first == 3:
            mixed = image.reshape(*image.shape[1:], 3).transpose(2, 0, 1)
            yield Reading("nchw holding nhwc", mixed, batch, index)
    if last in (1, 3, 4):
        yield Reading("nhwc", image.transpose(2, 0, 1)[:3], batch, index)
        if last == 3:
            yield Reading("nhwc holding nchw", image.reshape(3, *image.shape[:2]), batch, index)


def fit(data: bytes, dump: Tensor, spec: Input, start: Start, exif: int = 1) -> Fit:
    """The preparation that gives the dump most nearly; `exif`: orientation that the training applies."""
    step = float(np.finfo(dump.dtype).eps * max(np.abs(dump).max(), 1e-30)) if dump.dtype.kind == "f" else 0.5
    possible = readings(dump, spec)
    first = start(spec.size, spec.size, possible[0].planes.shape[0])
    probe = Target(data, possible[0].planes, exif=exif)
    pixels = probe.decoded(first.decode, first.colour)
    image = Size(pixels.shape[1], pixels.shape[0])
    plane = brightness(np.moveaxis(pixels.astype(np.float64), 2, 0))
    bound = 2 * max(possible[0].planes.shape[1:])
    if max(plane.shape) > bound:
        ratio = bound / max(plane.shape)
        plane = resized(plane, Size(max(8, round(image.width * ratio)), max(8, round(image.height * ratio))))
    starts = [(one, coarse(plane, brightness(one.planes))) for one in possible]
    most = max(options[0].correlation for _, options in starts)
    matches = [
        (one, register(plane, brightness(one.planes), options))
        for one, options in starts
        if options[0].correlation > most - 0.15
    ]
    reading, found = max(matches, key=lambda match: match[1][0].correlation)
    if found[0].correlation < UNRELATED:  # no order of the values shows the image: read it as its shape says
        reading = possible[0]
    target = Target(data, reading.planes, step, probe.pixels, exif)
    begin = start(image, target.size, len(reading.planes))
    best = min((fitted(target, one, SOURCES) for one in _starts(begin, found)), key=lambda pair: pair[1])
    related = found[0].correlation >= UNRELATED
    prep, score = _descend(target, begin, *best) if related else best
    return Fit(reading, padded(target, prep), target, score)


def _starts(prep: Preparation, matches: list[Registration]) -> Iterator[Preparation]:
    """The training placement, and those of the registrations that correlate nearly as well as the best."""
    yield prep
    for match in matches:
        if match.correlation < max(UNRELATED, matches[0].correlation - 0.02):
            continue
        turned = replace(prep, orientation=match.orientation)
        yield replace(turned, placement=match.placement.rounded())
        at, whole = match.placement, match.placement.rounded()
        x, y = (
            (round(4 * (a + size / 2 - b - full / 2)) / 4)
            for a, size, b, full in (
                (at.left, at.width, whole.left, whole.width),
                (at.top, at.height, whole.top, whole.height),
            )
        )
        if x % 1 or y % 1:
            moved = Placement(whole.left + x, whole.top + y, whole.width, whole.height)
            yield replace(turned, placement=moved, sampling="shift")
            yield replace(turned, placement=moved, sampling="grid")


def _descend(
    target: Target, begin: Preparation, prep: Preparation, score: float
) -> tuple[Preparation, float]:
    """Change one choice at a time as long as the difference falls."""
    costly = (moves.samplings, moves.intermediates, moves.first_resizes)
    cheap = (moves.windows, moves.placements, moves.gammas, moves.ranges, moves.decoders, moves.colours)
    tried = set[Preparation]()  # the difference only falls, so no candidate needs a second try
    with ThreadPoolExecutor(THREADS) as pool:
        for _ in range(4):
            before = score
            prep, score = fitted(target, prep, SOURCES, SEARCHED)
            for move in (moves.resizes, *cheap, *costly, moves.joint):
                if move is moves.intermediates and score > HOPELESS:
                    continue
                enough = max(ROUNDED, _rounding(target, prep)) if move in costly else _rounding(target, prep)
                if score <= enough or (move is moves.joint and score > JOINT):
                    continue
                candidates = {replace(one, gain=(), offset=()): one for one in move(target, begin, prep)}
                options = [one for key, one in candidates.items() if key not in tried]
                tried.update(candidates)
                for new, far in pool.map(partial(fitted, target, pixels_at_most=SEARCHED), options):
                    if far < BETTER * score - 1e-6:
                        prep, score = new, far
            if score > 0.95 * before or score > HOPELESS:
                break
    return fitted(target, prep)


def _rounding(target: Target, prep: Preparation) -> float:
    """The mean difference in levels that rounding explains: of the dump, and after gamma or grey."""
    levels = target.rounding / max(float(np.abs(prep.gain).min()), 1e-30)
    rounded = prep.gamma != 1.0 or any(max(source) < 1.0 for source in prep.channels if any(source))
    return max(EXACT, 0.55 * levels, ROUNDED if rounded else 0.0)


def padded(target: Target, prep: Preparation) -> Preparation:
    """The preparation with the level of the padding measured in the dump."""
    rows, columns = prep.placement.rounded().inside((target.size.height, target.size.width))
    outside = np.ones(target.planes.shape[1:], bool)
    outside[rows, columns] = False
    if outside.mean() < 0.01:  # a strip that a shift uncovers
        return prep
    middle = np.median(target.planes[:, outside], axis=1)
    levels = (middle - np.array(prep.offset)) / np.array(prep.gain)
    return replace(prep, pad=tuple(levels.tolist()))
