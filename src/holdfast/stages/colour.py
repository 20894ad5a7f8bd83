"""Colour stages: RGB pixels to RGB pixels, through the format that a camera or an accelerator delivers.

The paper's equations between RGB and YUV (BT.601, studio range) are computed exactly, in integers:

    eq. 5   Y = round( 0.256788 R + 0.504129 G + 0.097906 B) + 16
            U = round(−0.148223 R − 0.290993 G + 0.439216 B) + 128
            V = round( 0.439216 R − 0.367788 G − 0.071427 B) + 128

    eq. 6   R = clip(round(1.164383 C + 1.596027 E))                      C = Y − 16
            G = clip(round(1.164383 C − 0.391762 D − 0.812968 E))         D = U − 128
            B = clip(round(1.164383 C + 2.017232 D))                      E = V − 128

    eq. 7   R = clip((298 C + 409 E + 128) >> 8)
            G = clip((298 C − 100 D − 208 E + 128) >> 8)
            B = clip((298 C + 516 D + 128) >> 8)

The coefficients have six decimals, so a million times the sum is an integer below 2³¹ and exact; round takes
halves up.

In NV12 (YUV 4:2:0) each chroma sample is the mean of its 2 × 2 pixels, halves up: (a + b + c + d + 2) >> 2.
Its position is their centre. A last odd row or column is duplicated, so chroma planes are ⌈h/2⌉ × ⌈w/2⌉. NV12
stores U and V interleaved and I420 one after the other; the values are the same.
"""

from dataclasses import dataclass
from functools import lru_cache
from threading import get_ident
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from holdfast.core.registry import stage
from holdfast.core.types import Image

Plane: TypeAlias = NDArray[np.int16]

MILLION = 1_000_000
FORWARD = (
    ((256_788, 504_129, 97_906), 16),
    ((-148_223, -290_993, 439_216), 128),
    ((439_216, -367_788, -71_427), 128),
)


@dataclass(frozen=True)
class Inverse:
    """A way back to RGB: floor((luma · C + red, green, blue · (D, E) + half) / unit), clipped."""

    unit: int
    luma: int
    red: tuple[int, int]
    green: tuple[int, int]
    blue: tuple[int, int]


EXACT = Inverse(MILLION, 1_164_383, (0, 1_596_027), (-391_762, -812_968), (2_017_232, 0))  # eq. 6
FIXED = Inverse(256, 298, (0, 409), (-100, -208), (516, 0))  # eq. 7


def to_yuv(image: Image) -> tuple[Plane, Plane, Plane]:
    """The planes Y, U, V (h, w) of RGB pixels (h, w, 3) by eq. 5."""
    red, green, blue = (image[..., k].astype(np.int32) for k in range(3))
    totals = (red * r + green * g + blue * b + (MILLION // 2 + at * MILLION) for (r, g, b), at in FORWARD)
    y, u, v = ((total // MILLION).astype(np.int16) for total in totals)
    return y, u, v


def to_rgb(y: Plane, u: Plane, v: Plane, inverse: Inverse) -> Image:
    """The RGB pixels (h, w, 3) of full-size planes (h, w), each 0 … 255, by eq. 6 or eq. 7."""
    image = np.empty((*y.shape, 3), np.uint8)
    grey = (y.astype(np.int32) - 16) * inverse.luma + inverse.unit // 2
    d, e = u.astype(np.int32) - 128, v.astype(np.int32) - 128
    for channel, (of_d, of_e) in enumerate((inverse.red, inverse.green, inverse.blue)):
        image[..., channel] = np.clip((grey + d * of_d + e * of_e) // inverse.unit, 0, 255)
    return image


@stage("colour", paper=True, systems="NV12 of video decoders and cameras (Ascend DVPP, DXVA), nearest chroma")
def nv12(image: Image) -> Image:
    """The pixels after eq. 5, 2 × 2 means of U and V, each repeated over its pixels, and eq. 6."""
    y, u, v = to_yuv(image)
    return to_rgb(y, _repeated(_halved(u), y.shape), _repeated(_halved(v), y.shape), EXACT)


@stage("colour", paper=True, systems="NV12 of video decoders and cameras, bilinear chroma (GPU textures)")
def nv12_bilinear(image: Image) -> Image:
    """The pixels after eq. 5, 2 × 2 means of U and V, each interpolated bilinearly, and eq. 6.

    On either axis a pixel lies at a quarter between two samples: (9a + 3b + 3c + d + 8) >> 4.
    """
    y, u, v = to_yuv(image)
    return to_rgb(y, _interpolated(_halved(u), y.shape), _interpolated(_halved(v), y.shape), EXACT)


def _halved(plane: Plane) -> Plane:
    height, width = plane.shape
    even = np.pad(plane, ((0, height % 2), (0, width % 2)), mode="edge") if height % 2 or width % 2 else plane
    rows = even[0::2] + even[1::2]
    return np.asarray((rows[:, 0::2] + rows[:, 1::2] + 2) >> 2, np.int16)


def _repeated(small: Plane, shape: tuple[int, ...]) -> Plane:
    return small.repeat(2, axis=0).repeat(2, axis=1)[: shape[0], : shape[1]]


def _interpolated(small: Plane, shape: tuple[int, ...]) -> Plane:
    tall = _between(small)  # times 4
    wide = _between(np.ascontiguousarray(tall.T)).T  # times 16
    return np.asarray((wide[: shape[0], : shape[1]] + 8) >> 4, np.int16)


def _between(plane: Plane) -> Plane:
    """Rows at the quarters between the given rows, times 4; the outer ones lie outside the first and last."""
    framed = np.concatenate([plane[:1], plane, plane[-1:]])
    threefold = 3 * plane
    twice = np.empty((2 * len(plane), plane.shape[1]), np.int16)
    twice[0::2] = threefold + framed[:-2]
    twice[1::2] = threefold + framed[2:]
    return twice


@stage("colour", systems="training on decoded RGB pixels")
def rgb(image: Image) -> Image:
    """The pixels as decoded."""
    return image


@stage("colour", paper=True, systems="8-bit YUV hand-over without subsampling, rounded conversion")
def yuv444(image: Image) -> Image:
    """The pixels after RGB → YUV by eq. 5 and YUV → RGB by eq. 6."""
    return to_rgb(*to_yuv(image), EXACT)


@stage("colour", paper=True, systems="8-bit YUV hand-over without subsampling, 8-bit fixed-point conversion")
def yuv444_fixed(image: Image) -> Image:
    """The pixels after RGB → YUV by eq. 5 and YUV → RGB in fixed point by eq. 7."""
    return to_rgb(*to_yuv(image), FIXED)


@stage("colour", systems="OpenCV cvtColor on NV12 or I420 frames of cameras and video", needs="cv2")
def nv12_opencv(image: Image) -> Image:
    """The pixels after OpenCV's conversion to I420, interleaved to NV12, and back.

    BT.601 in 20-bit fixed point; chroma is taken from the upper left pixel of each 2 × 2 and repeated over
    them. OpenCV requires even sides: a last odd row or column is duplicated before and cropped after.
    """
    import cv2

    height, width = image.shape[:2]
    even = image
    if height % 2 or width % 2:
        even = cv2.copyMakeBorder(image, 0, height % 2, 0, width % 2, cv2.BORDER_REPLICATE)
    rows, columns = even.shape[:2]
    i420 = cv2.cvtColor(even, cv2.COLOR_RGB2YUV_I420)
    luma, chroma = i420[:rows], i420[rows:].reshape(2, rows // 2, columns // 2)
    interleaved = np.stack([chroma[0], chroma[1]], axis=-1).reshape(rows // 2, columns)
    back = cv2.cvtColor(np.concatenate([luma, interleaved]), cv2.COLOR_YUV2RGB_NV12)
    return np.ascontiguousarray(back[:height, :width])


@stage("colour", systems="FFmpeg and GStreamer pipelines that hand over NV12 (swscale)", needs="av")
def nv12_swscale(image: Image) -> Image:
    """The pixels after libswscale's conversion to NV12 and back (PyAV), with its default flags.

    Odd sides are as swscale has them: chroma planes of ⌈h/2⌉ × ⌈w/2⌉.
    """
    import av

    frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(image), format="rgb24")
    back = converted(converted(frame, "nv12"), "rgb24")
    return np.ascontiguousarray(back.to_ndarray())


def converted(
    frame: Any, pixels: str, flags: int | None = None, width: int | None = None, height: int | None = None
) -> Any:
    """The frame in another format of pixels, or of another size; the flags are swscale's."""
    # Computing the tables of a conversion takes longer than converting an image, so a few are cached. One
    # thread: threads of swscale cost other worker processes more time than they save.
    kind = (frame.width, frame.height, frame.format.name, pixels, flags, width, height)
    converter = _converter(get_ident(), kind)
    return converter.reformat(frame, width, height, pixels, interpolation=flags, threads=1)


@lru_cache(maxsize=8)
def _converter(_thread: int, _kind: tuple[Any, ...]) -> Any:
    """The converter with the tables of one kind of conversion; threads must not share one."""
    import av

    return av.video.reformatter.VideoReformatter()
