"""Pillow's six filters. All but nearest widen with the factor of reduction, so they are antialiased.

    out(i) = Σⱼ w(j) in(j) / Σⱼ w(j),   w(j) = f((j + ½ − c) / s),  c = (i + ½) · in/out,  s = max(in/out, 1)

in 22-bit fixed point, first along rows, then along columns, each rounded to 8 bits; since Pillow 13 the other
way round where the height shrinks much more than the width. Many pictures in one process are resized by a
compiled kernel that gives the same bits (stages/quick).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from holdfast.core.frame import Window
from holdfast.core.registry import stage
from holdfast.core.types import Image, Size
from holdfast.stages.quick.pillow import Resampler, plain

F = TypeVar("F", bound=Callable[..., Any])

_PILLOW = "Pillow; torchvision on PIL images"
_QUICK = Resampler()


def _resized(image: Image, size: Size, name: str) -> Image:
    return _QUICK.cut(image, size, name, Window(0, 0, *size))


def _in_part(name: str) -> Callable[[F], F]:
    """A decorator: the resize, by Pillow's filter of that name, can be asked for a part of its picture."""

    def given(resize: F) -> F:
        def part(image: Image, size: Size, window: Window) -> Image:
            return _QUICK.cut(image, size, name, window)

        resize.part = part  # type: ignore[attr-defined]
        return resize

    return given


@stage("resize", paper=True, systems=f"{_PILLOW}; the default of most training code")
@_in_part("BILINEAR")
def pillow_bilinear(image: Image, size: Size) -> Image:
    """Pillow's triangle filter, f(x) = 1 − |x| for |x| < 1, widened when shrinking."""
    return _resized(image, size, "BILINEAR")


@stage("resize", paper=True, systems=f"{_PILLOW}; OpenCV INTER_NEAREST_EXACT", alike="nearest centre")
def pillow_nearest(image: Image, size: Size) -> Image:
    """Pillow's nearest pixel, in(⌊(i + ½) · in/out⌋): the centres are aligned."""
    return plain(image, size, "NEAREST")


@stage("resize", paper=True, systems=_PILLOW)
@_in_part("BOX")
def pillow_box(image: Image, size: Size) -> Image:
    """Pillow's mean over the covered pixels, f(x) = 1 for −½ < x ≤ ½."""
    return _resized(image, size, "BOX")


@stage("resize", paper=True, systems=_PILLOW)
@_in_part("HAMMING")
def pillow_hamming(image: Image, size: Size) -> Image:
    """Pillow's Hamming filter, f(x) = sinc(x) · (0.54 + 0.46 cos πx) for |x| < 1, widened when shrinking."""
    return _resized(image, size, "HAMMING")


@stage("resize", paper=True, systems=f"{_PILLOW}; timm and CLIP evaluation")
@_in_part("BICUBIC")
def pillow_bicubic(image: Image, size: Size) -> Image:
    """Pillow's cubic filter of Keys with a = −0.5, widened when shrinking."""
    return _resized(image, size, "BICUBIC")


@stage("resize", paper=True, systems=_PILLOW)
@_in_part("LANCZOS")
def pillow_lanczos(image: Image, size: Size) -> Image:
    """Pillow's Lanczos filter, f(x) = sinc(x) · sinc(x/3) for |x| < 3, widened when shrinking."""
    return _resized(image, size, "LANCZOS")
