"""Resizes of Pillow, OpenCV and FFmpeg's libswscale.

Pillow has six filters. All but nearest widen with the factor of reduction, so they are antialiased:

    out(i) = Σⱼ w(j) in(j) / Σⱼ w(j),   w(j) = f((j + ½ − c) / s),  c = (i + ½) · in/out,  s = max(in/out, 1)

in 22-bit fixed point, first along rows, then along columns, each rounded to 8 bits; since Pillow 13 the other
way round where the height shrinks much more than the width.

OpenCV has five interpolations. None is antialiased but `area`: far pixels are skipped when shrinking. A pixel
i of the result lies at x = (i + ½) · in/out − ½ of the source. libswscale's scalers widen when shrinking, in
14-bit fixed point.
"""

import numpy as np

from holdfast.core.errors import ImageError
from holdfast.core.registry import stage
from holdfast.core.types import Image, Size
from holdfast.stages.colour import converted

_PILLOW = "Pillow; torchvision on PIL images"


def _by_pillow(image: Image, size: Size, name: str) -> Image:
    from PIL import Image as Pillow

    picture = Pillow.fromarray(image)
    return np.asarray(picture.resize((size.width, size.height), getattr(Pillow.Resampling, name)))


@stage("resize", paper=True, systems=f"{_PILLOW}; the default of most training code")
def pillow_bilinear(image: Image, size: Size) -> Image:
    """Pillow's triangle filter, f(x) = 1 − |x| for |x| < 1, widened when shrinking."""
    return _by_pillow(image, size, "BILINEAR")


@stage("resize", paper=True, systems=f"{_PILLOW}; OpenCV INTER_NEAREST_EXACT", alike="nearest centre")
def pillow_nearest(image: Image, size: Size) -> Image:
    """Pillow's nearest pixel, in(⌊(i + ½) · in/out⌋): the centres are aligned.

    The position is a sum of rounded steps: halfway between two pixels, either may be used.
    """
    return _by_pillow(image, size, "NEAREST")


@stage("resize", paper=True, systems=_PILLOW)
def pillow_box(image: Image, size: Size) -> Image:
    """Pillow's mean over the covered pixels, f(x) = 1 for −½ < x ≤ ½."""
    return _by_pillow(image, size, "BOX")


@stage("resize", paper=True, systems=_PILLOW)
def pillow_hamming(image: Image, size: Size) -> Image:
    """Pillow's Hamming filter, f(x) = sinc(x) · (0.54 + 0.46 cos πx) for |x| < 1, widened when shrinking."""
    return _by_pillow(image, size, "HAMMING")


@stage("resize", paper=True, systems=f"{_PILLOW}; timm and CLIP evaluation")
def pillow_bicubic(image: Image, size: Size) -> Image:
    """Pillow's cubic filter of Keys with a = −0.5, widened when shrinking."""
    return _by_pillow(image, size, "BICUBIC")


@stage("resize", paper=True, systems=_PILLOW)
def pillow_lanczos(image: Image, size: Size) -> Image:
    """Pillow's Lanczos filter, f(x) = sinc(x) · sinc(x/3) for |x| < 3, widened when shrinking."""
    return _by_pillow(image, size, "LANCZOS")


_OPENCV = "OpenCV resize: mmdetection, YOLOX, Ultralytics, most C++ deployments"


def _by_opencv(image: Image, size: Size, name: str) -> Image:
    import cv2

    return np.asarray(cv2.resize(image, (size.width, size.height), interpolation=getattr(cv2, name)))


@stage(
    "resize",
    paper=True,
    systems=f"{_OPENCV}; ncnn Mat::from_pixels_resize, within one level",
    needs="cv2",
    targets=("ncnn",),
)
def opencv_bilinear(image: Image, size: Size) -> Image:
    """OpenCV's INTER_LINEAR: eq. 3 on the four neighbours, in fixed point."""
    return _by_opencv(image, size, "INTER_LINEAR")


@stage("resize", paper=True, systems=_OPENCV, needs="cv2")
def opencv_nearest(image: Image, size: Size) -> Image:
    """OpenCV's INTER_NEAREST: in(⌊i · in/out⌋), which is not the nearest centre."""
    return _by_opencv(image, size, "INTER_NEAREST")


@stage("resize", paper=True, systems=_OPENCV, needs="cv2")
def opencv_area(image: Image, size: Size) -> Image:
    """OpenCV's INTER_AREA: the mean over the covered area when shrinking, bilinear otherwise."""
    return _by_opencv(image, size, "INTER_AREA")


@stage("resize", paper=True, systems=_OPENCV, needs="cv2")
def opencv_bicubic(image: Image, size: Size) -> Image:
    """OpenCV's INTER_CUBIC: eq. 4 by the cubic kernel of Keys with a = −0.75 on 4 × 4 neighbours."""
    return _by_opencv(image, size, "INTER_CUBIC")


@stage("resize", paper=True, systems=_OPENCV, needs="cv2")
def opencv_lanczos(image: Image, size: Size) -> Image:
    """OpenCV's INTER_LANCZOS4: 8 × 8 neighbours."""
    return _by_opencv(image, size, "INTER_LANCZOS4")


_SWSCALE = "FFmpeg scale filter, PyAV reformat, decord, GStreamer videoscale by libav"


def _by_swscale(image: Image, size: Size, name: str) -> Image:
    import av
    from av.video.reformatter import Interpolation

    frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(image), format="rgb24")
    flags = int(Interpolation[name])
    try:
        small = converted(frame, "rgb24", flags, size.width, size.height)
    except (av.error.FFmpegError, ValueError, OSError) as problem:
        sizes = f"{image.shape[1]}×{image.shape[0]} into {size.width}×{size.height} pixels"
        why = "the ratio of the sides is too large for it"
        raise ImageError(f"swscale cannot resize {sizes}; {why}") from problem
    return np.ascontiguousarray(small.to_ndarray())


@stage("resize", systems=_SWSCALE, needs="av")
def swscale_bilinear(image: Image, size: Size) -> Image:
    """Pixels by SWS_BILINEAR: the triangle filter, widened when shrinking."""
    return _by_swscale(image, size, "BILINEAR")


@stage("resize", systems=f"{_SWSCALE} (the default of the ffmpeg program)", needs="av")
def swscale_bicubic(image: Image, size: Size) -> Image:
    """Pixels by SWS_BICUBIC: the cubic filter with B = 0, C = 0.6, widened when shrinking."""
    return _by_swscale(image, size, "BICUBIC")
