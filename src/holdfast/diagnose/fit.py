"""Fit a target's preparation to a dump of its input: layout, geometry, values, then the finer choices."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import TypeAlias

import numpy as np

from holdfast.core.errors import HoldfastError, InputError
from holdfast.core.extras import is_installed
from holdfast.core.model import Input
from holdfast.core.registry import names, part
from holdfast.core.types import Floats, Size, Tensor
from holdfast.diagnose.geometry import (
    Placement,
    Registration,
    brightness,
    coarse,
    register,
    resized,
)
from holdfast.diagnose.preparation import GREY, Channels, Preparation, Target, image_levels, turned_size

EXACT = 0.02  # mean difference in levels at which no finer choice is tried
ROUNDED = 0.26  # mean difference in levels that rounding to whole levels leaves
HOPELESS = 25.0  # mean difference in levels above which no finer choice explains a dump
JOINT = 4.0  # mean difference in levels up to which pairs of finer choices are tried
LIKELY = 4  # resizes that are tried with every decoder and colour
BETTER = 0.98  # a choice is taken if it lowers the mean difference to this share
GREY_709 = (0.2126, 0.7152, 0.0722)
SOURCES = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0), GREY, GREY_709, (1 / 3, 1 / 3, 1 / 3))
INTERMEDIATE = (224, 256, 300, 320, 384, 416, 448, 480, 512, 600, 640, 720, 768, 800, 960, 1024, 1280, 1920)
Start: TypeAlias = Callable[[Size, Size, int], Preparation]  # training pipeline for (image, network, planes)
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


def fit(data: bytes, dump: Tensor, spec: Input, start: Start) -> Fit:
    """The preparation that gives the dump most nearly."""
    step = float(np.finfo(dump.dtype).eps * max(np.abs(dump).max(), 1e-30)) if dump.dtype.kind == "f" else 0.5
    possible = readings(dump, spec)
    first = start(spec.size, spec.size, possible[0].planes.shape[0])
    probe = Target(data, possible[0].planes)
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
    target = Target(data, reading.planes, step, probe.pixels)
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


def fitted(target: Target, prep: Preparation, sources: Channels = ()) -> tuple[Preparation, float]:
    """The preparation with fitted gain and offset, and the mean difference in levels.

    Each plane keeps its channel unless another one of `sources` fits better.
    """
    try:
        levels, (rows, columns) = image_levels(target, prep)
    except (HoldfastError, ValueError):
        return prep, float("inf")
    values = target.planes[:, rows, columns].reshape(len(target.planes), -1)
    pixels = levels.reshape(-1, 3)
    if values.shape[1] != len(pixels) or len(pixels) < 16:
        return prep, float("inf")
    every = max(1, len(pixels) // 60_000)
    values, pixels = values[:, ::every], pixels[::every]
    planes = [_plane(pixels, row, (own, *sources)) for row, own in zip(values, prep.channels, strict=True)]
    channels = tuple(source for source, *_ in planes)
    moving = [score for source, *_, score in planes if any(source)]
    score = float(np.mean(moving)) if moving else float("inf")
    gains, offsets = tuple(gain for _, gain, _, _ in planes), tuple(offset for _, _, offset, _ in planes)
    return replace(prep, channels=channels, gain=gains, offset=offsets), score


def _plane(
    pixels: Floats, values: Floats, sources: Channels
) -> tuple[tuple[float, float, float], float, float, float]:
    """Source, gain, offset and mean difference in levels of one plane; the first source wins a tie."""
    if np.ptp(values) <= 1e-9 * max(1.0, float(np.abs(values).max())):
        return (0.0, 0.0, 0.0), 1.0, float(values[0]), 0.0
    best = sources[0], 1.0, 0.0, float("inf")
    for source in dict.fromkeys(sources):
        levels = pixels @ np.array(source)
        gain, offset = line(levels, values)
        far = float(np.abs(values - gain * levels - offset).mean()) / max(abs(gain), 1e-12)
        if far < 0.995 * best[3] - 1e-9:
            best = source, gain, offset, far
    return best


def line(levels: Floats, values: Floats) -> tuple[float, float]:
    """Gain and offset of values over levels by least squares; a second fit leaves out the outliers."""
    keep = np.ones(len(levels), bool)
    gain = offset = 0.0
    for _ in range(2):
        x, y = levels[keep], values[keep]
        spread = float(((x - x.mean()) ** 2).sum())
        if spread == 0.0:
            return 0.0, float(values.mean())
        gain = float(((x - x.mean()) * (y - y.mean())).sum()) / spread
        offset = float(y.mean() - gain * x.mean())
        far = np.abs(values - gain * levels - offset)
        keep = far <= 4 * float(np.median(far)) + 1e-9
        if keep.sum() < 16:
            break
    return gain, offset


def _descend(
    target: Target, begin: Preparation, prep: Preparation, score: float
) -> tuple[Preparation, float]:
    """Change one choice at a time as long as the difference falls."""
    rough = (_windows, _placements, _gammas)
    costly = (_samplings, _intermediates)
    for _ in range(4):
        before = score
        prep, score = fitted(target, prep, SOURCES)
        for move in (_resizes, *rough, _decoders, _colours, *costly, _joint):
            if move is _intermediates and score > HOPELESS:
                continue
            enough = max(ROUNDED, _rounding(target, prep)) if move in costly else _rounding(target, prep)
            if score <= enough or (move is _joint and score > JOINT):
                continue
            for one in move(target, begin, prep):
                new, far = fitted(target, one)
                if far < BETTER * score - 1e-6:
                    prep, score = new, far
        if score > 0.95 * before or score > HOPELESS:
            break
    return prep, score


def _rounding(target: Target, prep: Preparation) -> float:
    """The mean difference in levels that rounding explains: of the dump, and after gamma or grey."""
    levels = target.rounding / max(float(np.abs(prep.gain).min()), 1e-30)
    rounded = prep.gamma != 1.0 or any(max(source) < 1.0 for source in prep.channels if any(source))
    return max(EXACT, 0.55 * levels, ROUNDED if rounded else 0.0)


def _windows(target: Target, begin: Preparation, prep: Preparation) -> Iterator[Preparation]:
    """Windows of the image that are cut out first and then resized to the whole input."""
    at, (width, height), net = prep.placement, turned_size(target, prep), target.size
    if at.left >= 0 and at.top >= 0:
        return
    left, top = -at.left * width / at.width, -at.top * height / at.height
    wide, tall = net.width * width / at.width, net.height * height / at.height
    lefts, tops = ({int(v), round(v), int(v) + 1} for v in (left, top))
    sizes = {(round(wide), round(tall)), (int(wide), int(tall)), (min(width, height),) * 2}
    for x, y in product(sorted(lefts), sorted(tops)):
        for w, h in sorted(sizes):
            if x >= 0 and y >= 0 and x + w <= width and y + h <= height:
                for resize in dict.fromkeys((begin.resize, prep.resize)):
                    yield replace(prep, window=(x, y, x + w, y + h), resize=resize, sampling="filter")


def _resizes(target: Target, begin: Preparation, prep: Preparation) -> Iterator[Preparation]:
    for name in installed("resize"):
        yield replace(prep, resize=name, sampling="filter", placement=prep.placement.rounded())


def _placements(target: Target, begin: Preparation, prep: Preparation) -> Iterator[Preparation]:
    """The training placement, and those one pixel away on either axis."""
    if prep.orientation == begin.orientation:
        yield replace(prep, placement=begin.placement, sampling="filter", window=None)
    at = prep.placement.rounded()
    for a in (-1.0, 0.0, 1.0):
        for b in (-2.0, -1.0, 0.0, 1.0, 2.0):
            yield replace(
                prep, placement=Placement(at.left + a, at.top, at.width + b, at.height), sampling="filter"
            )
            yield replace(
                prep, placement=Placement(at.left, at.top + a, at.width, at.height + b), sampling="filter"
            )


def _samplings(target: Target, begin: Preparation, prep: Preparation) -> Iterator[Preparation]:
    """Samples at other positions: pixel corners instead of centres, corners aligned, half a pixel off."""
    at = prep.placement.rounded()
    width, height = turned_size(target, prep)
    corner = Placement(
        at.left + 0.5 - 0.5 * at.width / width, at.top + 0.5 - 0.5 * at.height / height, at.width, at.height
    )
    wide = at.width if width < 2 else width * (at.width - 1) / (width - 1)
    tall = at.height if height < 2 else height * (at.height - 1) / (height - 1)
    aligned = Placement(at.left + 0.5 - 0.5 * wide / width, at.top + 0.5 - 0.5 * tall / height, wide, tall)
    for placement in (at, corner, aligned):
        yield replace(prep, placement=placement, sampling="grid")
    for x in (-0.5, -0.25, 0.0, 0.25, 0.5):
        for y in (-0.5, -0.25, 0.0, 0.25, 0.5):
            if x or y:
                moved = Placement(at.left + x, at.top + y, at.width, at.height)
                yield replace(prep, placement=moved, sampling="shift")
                yield replace(prep, placement=moved, sampling="grid")


def _gammas(target: Target, begin: Preparation, prep: Preparation) -> Iterator[Preparation]:
    """The power that straightens the curve from levels to values, and usual powers near it."""
    levels, (rows, columns) = image_levels(target, replace(prep, gamma=1.0))
    values = target.planes[:, rows, columns].reshape(len(target.planes), -1)
    shown = np.tensordot(np.array(prep.channels), levels, (1, 2)).reshape(len(values), -1)
    every = max(1, values.shape[1] // 20_000)
    powers = np.exp(np.linspace(np.log(0.3), np.log(3.4), 41))

    def far(power: float) -> float:
        total = 0.0
        for source, row in zip(shown[:, ::every], values[:, ::every], strict=True):
            curve = 255.0 * np.clip(source / 255.0, 0.0, 1.0) ** power
            gain, offset = line(curve, row)
            total += float(np.abs(row - gain * curve - offset).mean()) / max(float(row.std()), 1e-12)
        return total

    best = min(powers, key=far)
    near = np.linspace(best / 1.06, best * 1.06, 13)
    best = min(near, key=far)
    usual = [
        p
        for p in (1.0, 0.5, 2.0, 2.2, 1 / 2.2, 1.8, 1 / 1.8, 2.4, 1 / 2.4, 1.5, 1 / 1.5)
        if abs(p / best - 1) < 0.04
    ]
    for power in (*usual, float(best)):
        yield replace(prep, gamma=power, gamma_last=False)
        yield replace(prep, gamma=power, gamma_last=True)


def _decoders(target: Target, begin: Preparation, prep: Preparation) -> Iterator[Preparation]:
    for name in installed("decode"):
        yield replace(prep, decode=name)


def _colours(target: Target, begin: Preparation, prep: Preparation) -> Iterator[Preparation]:
    for name in installed("colour"):
        yield replace(prep, colour=name)


def _joint(target: Target, begin: Preparation, prep: Preparation) -> Iterator[Preparation]:
    """The likeliest resizes with every decoder and every colour; each affects the other."""
    options = [replace(prep, resize=name) for name in installed("resize")]
    for one in sorted(options, key=lambda option: fitted(target, option)[1])[:LIKELY]:
        yield from _decoders(target, begin, one)
        yield from _colours(target, begin, one)


def _intermediates(target: Target, begin: Preparation, prep: Preparation) -> Iterator[Preparation]:
    """Sizes that the image may have had between two resizes, as the ratio of its size or as a square."""
    width, height = turned_size(target, prep)
    at = prep.placement.rounded()
    sizes = [Size(side, side) for side in INTERMEDIATE]
    for side in INTERMEDIATE:
        sizes.append(Size(side, round(side * at.height / at.width)))
        sizes.append(Size(round(side * at.width / at.height), side))
        for ratio in (side / max(width, height), side / min(width, height)):
            sizes.append(Size(round(width * ratio), round(height * ratio)))
            sizes.append(Size(int(width * ratio), int(height * ratio)))
    for ratio in (0.25, 1 / 3, 0.5, 0.75, 1.5, 2.0):
        sizes += [
            Size(round(w * ratio), round(h * ratio)) for w, h in ((width, height), (at.width, at.height))
        ]
    for size in dict.fromkeys(sizes):
        ends = (width, height), (at.width, at.height)
        if min(size) >= 8 and max(size) <= 2 * max(width, height, *target.size) and tuple(size) not in ends:
            for resize in dict.fromkeys((begin.resize, prep.resize)):
                yield replace(prep, through=size, resize=resize)


def installed(kind: str) -> list[str]:
    """The names of a kind of stage whose libraries are installed."""
    facts = {name: part(kind, name).facts for name in names(kind)}
    usual = {name: one.get("needs", "") for name, one in facts.items() if not one.get("on_request")}
    return [name for name, module in usual.items() if not module or is_installed(module)]


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
