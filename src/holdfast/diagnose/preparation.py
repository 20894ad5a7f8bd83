"""A target's preparation of its input as a row of fitted facts, and the input that it gives for an image."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from holdfast.core.errors import HoldfastError, ImageError
from holdfast.core.model import Input
from holdfast.core.pipeline import Pipeline, frame_of
from holdfast.core.registry import lookup
from holdfast.core.types import Floats, Image, Size
from holdfast.diagnose.geometry import ORIENTATIONS, Placement

GREY = (0.299, 0.587, 0.114)
GREY_709 = (0.2126, 0.7152, 0.0722)
EXPANDED = np.clip(np.round((np.arange(256) - 16) * (255 / 219)), 0, 255).astype(np.uint8)

Channels: TypeAlias = tuple[tuple[float, float, float], ...]  # weights of red, green and blue, per plane


@dataclass(frozen=True)
class Preparation:
    """How an input is made of an image: pixels are levels (0 to 255), planes in the order of the input."""

    decode: str
    colour: str
    resize: str
    size: Size  # of the network input
    placement: Placement
    channels: Channels
    gain: tuple[float, ...]
    offset: tuple[float, ...]
    pad: tuple[float, ...] = (114.0, 114.0, 114.0)  # level of each plane outside the image
    orientation: int = 1
    expanded: bool = False  # levels from 16 to 235 of the decoded image are expanded to 0 to 255
    through: Size | None = None  # the image is first resized to this size
    first: str = ""  # resize to that size; empty: the same as `resize`
    gamma: float = 1.0
    gamma_last: bool = False  # applied to the resized image
    window: tuple[int, int, int, int] | None = None  # cut out first (x, y, x, y), resized to the whole input
    sampling: str = "filter"  # "grid": samples without a filter; "shift": the resized image is shifted

    @property
    def shift(self) -> tuple[float, float]:
        """The fraction of a pixel by which the placement is off the pixel grid."""
        whole = self.placement.rounded()
        return self.placement.left - whole.left, self.placement.top - whole.top


@dataclass(frozen=True)
class Target:
    """An image and the planes (c, h, w) that a target feeds for it; decoded images are kept."""

    data: bytes
    planes: Floats
    rounding: float = 0.0  # largest rounding error of a value of the dump, in the dump's unit
    pixels: dict[tuple[str, str], Image] = field(default_factory=dict)
    exif: int = 1  # orientation that the training pipeline applies to the decoded image

    def decoded(self, decode: str, colour: str) -> Image:
        """The pixels (h, w, 3) after a decoder and a colour stage."""
        if (decode, colour) not in self.pixels:
            if (decode, "") not in self.pixels:
                stored = lookup("decode", decode)(self.data)
                self.pixels[decode, ""] = np.ascontiguousarray(ORIENTATIONS[self.exif](stored))
            self.pixels[decode, colour] = lookup("colour", colour)(self.pixels[decode, ""])
        return self.pixels[decode, colour]

    @cached_property
    def size(self) -> Size:
        """Width and height of the dump."""
        return Size(self.planes.shape[2], self.planes.shape[1])


Start: TypeAlias = Callable[[Size, Size, int], Preparation]  # training pipeline for (image, network, planes)


def trained(spec: Input, pipeline: Pipeline, image: Size, planes: int = 3) -> Preparation:
    """The preparation that a card and a pipeline state, for an image of that size."""
    frame = frame_of(image, spec)
    placement = Placement(*(float(v) for v in (frame.offset_x, frame.offset_y, *frame.resized)))
    order = (2, 1, 0) if spec.colour == "bgr" else (0, 1, 2)
    unit = [(1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)]
    unit = [(0.299, 0.587, 0.114)] * 3 if spec.colour == "grey" else unit
    mean, std = np.array(spec.mean, np.float64), np.array(spec.std, np.float64)
    gain, offset = spec.scale / std, -mean / std
    if spec.dtype == "uint8":
        gain, offset = np.ones(3), np.zeros(3)
    return Preparation(
        decode=str(pipeline.decode),
        colour=str(pipeline.colour),
        resize=str(pipeline.resize),
        size=frame.network,
        placement=placement,
        channels=tuple(unit[k] for k in order)[:planes],
        gain=tuple(gain.tolist())[:planes],
        offset=tuple(offset.tolist())[:planes],
        pad=(float(spec.pad),) * planes,
    )


def turned_size(target: Target, prep: Preparation) -> Size:
    """The size of the decoded image after its orientation."""
    height, width = ORIENTATIONS[prep.orientation](target.decoded(prep.decode, prep.colour)).shape[:2]
    return Size(width, height)


def image_levels(target: Target, prep: Preparation, every: int = 1) -> tuple[Floats, tuple[slice, slice]]:
    """The levels (h, w, 3) of every n-th row of the image in the network input, and the rows and columns."""
    pixels = target.decoded(prep.decode, prep.colour)
    pixels = np.ascontiguousarray(ORIENTATIONS[prep.orientation](pixels))
    if prep.expanded:
        pixels = EXPANDED[pixels]
    if prep.gamma != 1.0 and not prep.gamma_last:
        pixels = np.round(power_curve(np.arange(256), prep.gamma)).astype(np.uint8)[pixels]
    if prep.window is not None:
        left, top, right, bottom = prep.window
        pixels = np.ascontiguousarray(pixels[top:bottom, left:right])
    if prep.through is not None:
        pixels = lookup("resize", prep.first or prep.resize)(pixels, prep.through)
    at = prep.placement if prep.window is None else Placement(0.0, 0.0, *map(float, prep.size))
    whole = at.rounded()
    if min(whole.width, whole.height) < 1:
        raise ImageError(f"expected an image of at least 1×1 pixels, got {whole.width:g}×{whole.height:g}")
    rows, columns = whole.inside((prep.size.height, prep.size.width))
    rows = slice(rows.start, rows.stop, every)
    if prep.sampling == "grid":  # positions in the image
        across, down = pixels.shape[1] / at.width, pixels.shape[0] / at.height
        x = (_numbers(columns) + 0.5 - at.left) * across - 0.5
        y = (_numbers(rows) + 0.5 - at.top) * down - 0.5
        levels = _bilinear(pixels, x, y)
    else:
        small = lookup("resize", prep.resize)(pixels, Size(int(whole.width), int(whole.height)))
        if prep.sampling == "shift":  # positions in the resized image
            levels = _bilinear(small, _numbers(columns) - at.left, _numbers(rows) - at.top)
        else:
            left, top = int(whole.left), int(whole.top)
            inside = (
                slice(rows.start - top, rows.stop - top, every),
                slice(columns.start - left, columns.stop - left),
            )
            levels = small[inside].astype(np.float32)
    if prep.gamma != 1.0 and prep.gamma_last:
        levels = power_curve(levels, prep.gamma)
    return levels, (rows, columns)


def power_curve(levels: Any, power: float) -> Floats:
    """Levels from 0 to 255 raised to a power, as levels."""
    return np.asarray(255.0 * np.clip(np.asarray(levels, np.float32) / 255.0, 0.0, 1.0) ** power)


def _numbers(part: slice) -> Floats:
    return np.arange(part.start, part.stop, part.step or 1, dtype=np.float64)


def _bilinear(pixels: Image, x: Floats, y: Floats) -> Floats:
    """Linear interpolation of pixels (h, w, c) at columns x and rows y, which are clipped to the pixels."""
    x, y = np.clip(x, 0, pixels.shape[1] - 1), np.clip(y, 0, pixels.shape[0] - 1)
    x0, y0 = np.floor(x).astype(np.int64), np.floor(y).astype(np.int64)
    x1, y1 = np.minimum(x0 + 1, pixels.shape[1] - 1), np.minimum(y0 + 1, pixels.shape[0] - 1)
    fx, fy = (x - x0).astype(np.float32)[None, :, None], (y - y0).astype(np.float32)[:, None, None]
    top, bottom = pixels[y0].astype(np.float32), pixels[y1].astype(np.float32)
    lines = top * (1 - fy) + bottom * fy
    return np.asarray(lines[:, x0] * (1 - fx) + lines[:, x1] * fx)


def tensor(target: Target, prep: Preparation) -> Floats:
    """The planes (c, h, w) that a preparation gives for the image of a target."""
    levels, (rows, columns) = image_levels(target, prep)
    planes = np.empty((len(prep.channels), prep.size.height, prep.size.width))
    planes[:] = np.array(prep.pad)[:, None, None]
    planes[:, rows, columns] = np.tensordot(np.array(prep.channels), levels, (1, 2))
    gain, offset = (np.array(values)[:, None, None] for values in (prep.gain, prep.offset))
    return np.asarray(planes * gain + offset)


def fitted(
    target: Target, prep: Preparation, sources: Channels = (), pixels_at_most: int = 60_000
) -> tuple[Preparation, float]:
    """The preparation with fitted gain and offset, and the mean difference in levels.

    Each plane keeps its channel unless another one of `sources` fits better. About that many pixels are used.
    """
    try:
        levels, (rows, columns) = image_levels(target, prep)
    except (HoldfastError, ValueError):
        return prep, float("inf")
    values = target.planes[:, rows, columns].reshape(len(target.planes), -1)
    pixels = levels.reshape(-1, 3)
    if values.shape[1] != len(pixels) or len(pixels) < 16:
        return prep, float("inf")
    every = max(1, len(pixels) // pixels_at_most) | 1  # odd: not always the same columns
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
