"""torch.nn.functional.interpolate on float pixels (align_corners=False), without torch.

The result is rounded to the nearest integer, halves to even, and clipped, as torchvision does. With
s = in/out and a pixel i of the result:

    nearest          in(⌊i · s⌋)                  nearest-exact    in(⌊(i + ½) · s⌋)
    bilinear         eq. 3 at x = max((i + ½) · s − ½, 0)
    bicubic          eq. 4 at x = (i + ½) · s − ½ by the kernel of Keys with a = −0.75, edges repeated
    antialias        Σ w(j) in(j) / Σ w(j),   w(j) = f((j + ½ − (i + ½) · s) / max(s, 1)),
                     f the triangle or the kernel of Keys with a = −0.5

All in float32 as torch does. The order of the sums differs, so a value within 2 · 10⁻⁴ of a half may round
differently. (For a result one pixel wide with antialias, torch 2.13 departs from this equation.)
"""

from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from holdfast.core.registry import stage
from holdfast.core.types import Image, Size

# Source pixels of each pixel of the result, (out, k), and their weights; one axis.
Taps: TypeAlias = tuple[NDArray[np.intp], NDArray[np.float32]]
T = TypeVar("T", bound=np.generic)
_TORCH = "torch.nn.functional.interpolate"


@stage("resize", systems=f"{_TORCH}, its default for tensors; ONNX Resize linear, half_pixel")
def torch_bilinear(image: Image, size: Size) -> Image:
    """The bilinear interpolation without antialias: eq. 3 on the four neighbours."""
    return _mixed(image, _linear(image.shape[1], size.width), _linear(image.shape[0], size.height))


@stage("resize", systems=f"{_TORCH} antialias=True; torchvision Resize on tensors")
def torch_bilinear_antialias(image: Image, size: Size) -> Image:
    """The bilinear interpolation with antialias: the triangle filter, widened when shrinking."""
    return _mixed(image, _wide(image.shape[1], size.width, 1), _wide(image.shape[0], size.height, 1))


@stage("resize", systems=f"{_TORCH} mode=bicubic")
def torch_bicubic(image: Image, size: Size) -> Image:
    """The bicubic interpolation without antialias: a = −0.75 on 4 × 4 neighbours."""
    return _mixed(image, _cubic(image.shape[1], size.width), _cubic(image.shape[0], size.height))


@stage("resize", systems=f"{_TORCH} mode=bicubic, antialias=True; torchvision Resize on tensors")
def torch_bicubic_antialias(image: Image, size: Size) -> Image:
    """The bicubic interpolation with antialias: a = −0.5, widened when shrinking."""
    return _mixed(image, _wide(image.shape[1], size.width, 2), _wide(image.shape[0], size.height, 2))


@stage("resize", systems=f"{_TORCH} mode=nearest")
def torch_nearest(image: Image, size: Size) -> Image:
    """The pixel in(⌊i · in/out⌋) with the factor in float32, where OpenCV has it in float64."""
    return _picked(image, size, 0.0)


@stage("resize", systems=f"{_TORCH} mode=nearest-exact")
def torch_nearest_exact(image: Image, size: Size) -> Image:
    """The pixel in(⌊(i + ½) · in/out⌋) with the factor in float32."""
    return _picked(image, size, 0.5)


def _picked(image: Image, size: Size, offset: float) -> Image:
    def chosen(source: int, target: int) -> NDArray[np.intp]:
        at = (np.arange(target, dtype=np.float32) + np.float32(offset)) * _factor(source, target)
        return np.minimum(at.astype(np.intp), source - 1)

    rows = image[chosen(image.shape[0], size.height)]
    return np.take(rows, chosen(image.shape[1], size.width), axis=1)


def _mixed(image: Image, columns: Taps, rows: Taps) -> Image:
    """The image with both axes mixed: rows first, where fewer values have to be touched."""
    turned = _mix(_transpose(_mix(image, rows)), columns)
    np.rint(turned, out=turned)
    np.clip(turned, 0, 255, out=turned)
    return _transpose(turned.astype(np.uint8))


def _transpose(image: NDArray[T]) -> NDArray[T]:
    """The image (h, w, c) as (w, h, c), contiguous. A pixel moves as one item: several times as fast."""
    height, width, channels = image.shape
    pixels = image.view(f"V{image.itemsize * channels}").reshape(height, width)
    return pixels.T.copy().view(image.dtype).reshape(width, height, channels)


def _mix(image: NDArray[np.uint8] | NDArray[np.float32], taps: Taps) -> NDArray[np.float32]:
    mixed = np.zeros((len(taps[0]), *image.shape[1:]), np.float32)
    for index, weight in zip(taps[0].T, taps[1].T, strict=True):
        mixed += image[index] * weight[:, np.newaxis, np.newaxis]
    return mixed


def _factor(source: int, target: int) -> np.float32:
    return np.float32(source) / np.float32(target)


def _places(source: int, target: int) -> NDArray[np.float32]:
    # torch multiplies and subtracts in one step (FMA), so the product is not rounded to float32.
    halves = np.arange(target, dtype=np.float64) + 0.5
    return np.asarray(halves * np.float64(_factor(source, target)) - 0.5, np.float32)


def _linear(source: int, target: int) -> Taps:
    at = np.maximum(_places(source, target), np.float32(0))
    low = np.minimum(at.astype(np.intp), source - 1)
    share = np.clip(at - low.astype(np.float32), 0, 1).astype(np.float32)
    index = np.stack([low, np.minimum(low + 1, source - 1)], axis=1)
    return index, np.stack([1 - share, share], axis=1)


def _cubic(source: int, target: int) -> Taps:
    at = _places(source, target)
    low = np.floor(at)
    steps = np.arange(-1, 3)
    distance = (at - low)[:, np.newaxis] - steps.astype(np.float32)
    index = np.clip(low.astype(np.intp)[:, np.newaxis] + steps, 0, source - 1)
    return index, _keys(np.abs(distance), -0.75)


def _wide(source: int, target: int, radius: int) -> Taps:
    """The taps of an antialiased filter: a triangle (radius 1) or Keys' cubic with a = −0.5 (radius 2)."""
    stretch = np.maximum(_factor(source, target), np.float32(1))
    reach = np.float32(radius) * stretch
    centre = (np.arange(target, dtype=np.float32) + np.float32(0.5)) * _factor(source, target)
    first = np.maximum((centre - reach + np.float32(0.5)).astype(np.intp), 0)
    after = np.minimum((centre + reach + np.float32(0.5)).astype(np.intp), source)
    steps = np.arange(int((after - first).max()))
    index = first[:, np.newaxis] + steps
    place = np.abs((index.astype(np.float32) - centre[:, np.newaxis] + np.float32(0.5)) * (1 / stretch))
    height = np.maximum(1 - place, 0) if radius == 1 else _keys(place, -0.5)
    height = np.where(index < after[:, np.newaxis], height, 0).astype(np.float32)
    total = height.sum(axis=1, keepdims=True)
    return np.minimum(index, source - 1), np.asarray(height / total, np.float32)


def _keys(x: NDArray[np.float32], a: float) -> NDArray[np.float32]:
    """Keys' cubic convolution kernel at distances x ≥ 0."""
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x < 1, near, np.where(x < 2, far, 0)).astype(np.float32)
