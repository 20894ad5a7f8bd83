"""The finer choices of a preparation that a fit tries one after the other: each move lists candidates."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np

from holdfast.core.extras import is_installed
from holdfast.core.registry import names, part
from holdfast.core.types import Size
from holdfast.diagnose.geometry import Placement
from holdfast.diagnose.preparation import Preparation, Target, fitted, image_levels, line, turned_size

LIKELY = 4  # resizes that are tried with every decoder and colour
USUAL = ("opencv-bilinear", "pillow-bilinear")  # what the first of two resizes mostly is
INTERMEDIATE = (224, 256, 300, 320, 384, 416, 448, 480, 512, 600, 640, 720, 768, 800, 960, 1024, 1280, 1920)


def windows(target: Target, begin: Preparation, prep: Preparation) -> Iterator[Preparation]:
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


def resizes(target: Target, begin: Preparation, prep: Preparation) -> Iterator[Preparation]:
    """Every installed resize."""
    for name in installed("resize"):
        yield replace(prep, resize=name, sampling="filter", placement=prep.placement.rounded())


def placements(target: Target, begin: Preparation, prep: Preparation) -> Iterator[Preparation]:
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


def samplings(target: Target, begin: Preparation, prep: Preparation) -> Iterator[Preparation]:
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


def gammas(target: Target, begin: Preparation, prep: Preparation) -> Iterator[Preparation]:
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


def ranges(target: Target, begin: Preparation, prep: Preparation) -> Iterator[Preparation]:
    """Levels from 16 to 235 expanded to the full range, or not."""
    yield replace(prep, expanded=not prep.expanded)


def decoders(target: Target, begin: Preparation, prep: Preparation) -> Iterator[Preparation]:
    """Every installed decoder."""
    for name in installed("decode"):
        yield replace(prep, decode=name)


def colours(target: Target, begin: Preparation, prep: Preparation) -> Iterator[Preparation]:
    """Every installed colour stage."""
    for name in installed("colour"):
        yield replace(prep, colour=name)


def joint(target: Target, begin: Preparation, prep: Preparation) -> Iterator[Preparation]:
    """The likeliest resizes with every decoder and every colour; each affects the other."""
    options = [replace(prep, resize=name) for name in installed("resize")]
    for one in sorted(options, key=lambda option: fitted(target, option)[1])[:LIKELY]:
        yield from decoders(target, begin, one)
        yield from colours(target, begin, one)


def intermediates(target: Target, begin: Preparation, prep: Preparation) -> Iterator[Preparation]:
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
                for first in dict.fromkeys((resize, *USUAL)):
                    yield replace(prep, through=size, first=first, resize=resize)


def first_resizes(target: Target, begin: Preparation, prep: Preparation) -> Iterator[Preparation]:
    """Other filters for the first of two resizes, with the usual filters for the second."""
    if prep.through is not None:
        for first, last in product(installed("resize"), dict.fromkeys((begin.resize, prep.resize))):
            yield replace(prep, first=first, resize=last)


def installed(kind: str) -> list[str]:
    """The names of a kind of stage whose libraries are installed."""
    facts = {name: part(kind, name).facts for name in names(kind)}
    usual = {name: one.get("needs", "") for name, one in facts.items() if not one.get("on_request")}
    return [name for name, module in usual.items() if not module or is_installed(module)]
