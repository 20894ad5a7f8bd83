"""What every decoder but Pillow asks first: whether this is a whole and sound JPEG.

libjpeg repairs damaged data and says so on standard error, zune and FFmpeg repair it silently and in ways of
their own. So that all decoders refuse the same files and every cell of a sweep sees the same images, damaged
data goes to Pillow alone: it refuses most of it and repairs the rest.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Any, TypeVar

import numpy as np

from holdfast.core.errors import ImageError
from holdfast.core.types import Image
from holdfast.data.images import sniff_head
from holdfast.stages.decode.pillow import pillow

F = TypeVar("F", bound=Callable[..., Any])

_ASKED = 4  # images of which it is remembered whether they are sound
_SEEN: OrderedDict[bytes, bool] = OrderedDict()
_LOCK = Lock()


def by(decode: Callable[[bytes], Image], name: str, data: bytes) -> Image:
    """Pixels (h, w, 3) of a sound JPEG by `decode`, of anything else by Pillow; ImageError if neither can."""
    if not is_sound(data):
        return pillow(data)
    try:
        pixels = decode(data)
    except ImageError:
        raise
    except Exception as problem:  # what a library raises on data it does not know is its own
        said = " ".join(str(problem).split()) or type(problem).__name__
        raise ImageError(f"cannot be decoded by {name}: {said}") from problem
    if pixels.shape[2] == 1:
        return np.repeat(pixels, 3, axis=2)
    return np.ascontiguousarray(pixels)


def by_simplejpeg(data: bytes, *, fastdct: bool = False, fastupsample: bool = False) -> Image:
    """Pixels (h, w, 3) of a sound JPEG by libjpeg-turbo with these options, of anything else by Pillow."""
    if not is_jpeg(data):
        return pillow(data)
    import simplejpeg

    try:  # strict: it refuses what libjpeg warns of, so no look beforehand is needed
        pixels: Image = simplejpeg.decode_jpeg(data, "RGB", fastdct=fastdct, fastupsample=fastupsample)
    except ValueError:
        _remember(data, False)
        return pillow(data)
    _remember(data, True)
    return pixels


def is_sound(data: bytes) -> bool:
    """Whether libjpeg-turbo reads the data to its end without a warning; ImageError if it is too large."""
    known = _SEEN.get(data)
    return _remember(data, _reads(data)) if known is None else known


def _reads(data: bytes) -> bool:
    """The same, found out: at an eighth of the size the entropy code is read whole, the rest is little."""
    if not is_jpeg(data):
        return False
    import simplejpeg

    try:
        simplejpeg.decode_jpeg(data, "GRAY", min_height=1, min_width=1)
    except ValueError:
        return False
    return True


def _remember(data: bytes, sound: bool) -> bool:
    """Whether it is sound; known for a while, because several decoders ask of one image in turn."""
    with _LOCK:
        _SEEN[data] = sound
        while len(_SEEN) > _ASKED:
            _SEEN.popitem(last=False)
    return sound


def tells_soundness(decode: F) -> F:
    """A decorator: whether the data is sound is known once this decoder ran, so it had better run first."""
    decode.first = True  # type: ignore[attr-defined]
    return decode


def is_jpeg(data: bytes) -> bool:
    """Whether the data begins with a whole JPEG header; ImageError if it states too many pixels."""
    return data.startswith(b"\xff\xd8\xff") and sniff_head(data) is not None


def has_four_channels(data: bytes) -> bool:
    """Whether a JPEG holds CMYK or YCCK."""
    found = sniff_head(data)
    return found is not None and found.mode == "CMYK"
