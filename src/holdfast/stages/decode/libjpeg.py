"""Pillow, the reference; variants of libjpeg; and the check whether a JPEG is complete and undamaged.

libjpeg repairs damaged data with a warning on standard error; zune and FFmpeg repair it silently and
differently. Damaged data is therefore passed to Pillow only, which rejects most of it and repairs the rest.
All decoders then reject the same files, and every cell of a sweep uses the same images.
"""

import io
import threading
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from holdfast.core.errors import HoldfastError, ImageError, one_line
from holdfast.core.extras import require
from holdfast.core.limits import limit, too_large
from holdfast.core.registry import stage
from holdfast.core.types import Image
from holdfast.data.images import sniff_head


@stage(
    "decode",
    paper=True,
    systems="Pillow; torchvision and timm on PIL images, Hugging Face image processors, Keras load_img",
    alike="libjpeg-turbo",
)
def pillow(data: bytes) -> Image:
    """RGB pixels by Pillow: libjpeg-turbo with the accurate integer IDCT and fancy upsampling.

    16-bit grey is divided by 257, CMYK and palettes are converted, transparency is dropped.
    """
    from PIL import Image as Pillow
    from PIL import UnidentifiedImageError

    if not data:
        raise ImageError("expected an image, got 0 bytes")
    sniff_head(data)  # rejects a JPEG or PNG that is too large before Pillow warns about it
    try:
        with Pillow.open(io.BytesIO(data)) as picture:
            width, height = picture.size
            if width * height > limit("image-megapixels") * 1_000_000:
                raise ImageError(too_large("image-megapixels", f"{width}×{height} pixels"))
            if picture.mode.startswith("I"):
                grey = (np.asarray(picture, np.float64) / 257.0).round().clip(0, 255).astype(np.uint8)
                return np.repeat(grey[:, :, np.newaxis], 3, axis=2)
            return np.asarray(picture if picture.mode == "RGB" else picture.convert("RGB"))
    except UnidentifiedImageError:
        raise ImageError("expected a JPEG, PNG or other image, got bytes of no known format") from None
    except (Pillow.DecompressionBombError, Pillow.DecompressionBombWarning) as problem:
        raise ImageError(f"over the limit image-megapixels: {problem}") from None
    except (OSError, SyntaxError, ValueError) as problem:
        raise ImageError(f"cannot be decoded by Pillow: {one_line(problem)}") from problem


def by(decode: Callable[[bytes], Image], name: str, data: bytes, *, cmyk: bool = True) -> Image:
    """Pixels (h, w, 3) of a sound JPEG by `decode`, of anything else by Pillow; ImageError if neither can.

    Without `cmyk` a JPEG of four channels goes to Pillow, too.
    """
    header = None if cmyk else sniff_head(data)
    if (header is not None and header.mode == "CMYK") or not is_sound(data):
        return pillow(data)
    try:
        pixels = decode(data)
    except HoldfastError:
        raise
    except Exception as problem:  # libraries raise their own exceptions on unknown data
        raise ImageError(f"cannot be decoded by {name}: {one_line(problem)}") from problem
    return np.repeat(pixels, 3, axis=2) if pixels.shape[2] == 1 else np.ascontiguousarray(pixels)


def by_simplejpeg(data: bytes, *, fastdct: bool = False, fastupsample: bool = False) -> Image:
    """Pixels (h, w, 3) of a sound JPEG by libjpeg-turbo with these options, of anything else by Pillow."""
    if not is_jpeg(data):
        return pillow(data)
    import simplejpeg

    try:  # strict: it rejects what libjpeg warns about, so no prior check is needed
        return np.asarray(simplejpeg.decode_jpeg(data, "RGB", fastdct=fastdct, fastupsample=fastupsample))
    except ValueError:
        return pillow(data)


@lru_cache(maxsize=4)  # several decoders check the same image in turn
def is_sound(data: bytes) -> bool:
    """Whether libjpeg-turbo reads the data to its end without a warning; ImageError if it is too large."""
    if not is_jpeg(data):
        return False
    simplejpeg = require("decoding a JPEG other than by Pillow", "simplejpeg")

    try:  # at an eighth of the size the whole entropy code is read at little cost
        simplejpeg.decode_jpeg(data, "GRAY", min_height=1, min_width=1)
    except ValueError:
        return False
    return True


def is_jpeg(data: bytes) -> bool:
    """Whether the data begins with a complete JPEG header; raise ImageError if it states too many pixels."""
    return data.startswith(b"\xff\xd8\xff") and sniff_head(data) is not None


@stage(
    "decode",
    systems="TensorFlow decode_jpeg and tf.data (its default); DALI with use_fast_idct",
    alike="libjpeg-turbo, IFAST",
    needs="simplejpeg",
)
def fast_idct(data: bytes) -> Image:
    """RGB pixels of a JPEG with the fast integer IDCT (Arai, Agui, Nakajima); other formats by Pillow.

    Five multiplications a row instead of twelve, in 16-bit fixed point.
    """
    return by_simplejpeg(data, fastdct=True)


@stage(
    "decode",
    systems="TurboJPEG with FASTUPSAMPLE, libjpeg with do_fancy_upsampling off; nvJPEG's default",
    alike="libjpeg-turbo, no fancy upsampling",
    needs="simplejpeg",
)
def no_fancy_upsampling(data: bytes) -> Image:
    """RGB pixels of a JPEG with each chroma sample repeated over its pixels; other formats by Pillow.

    Equal to `pillow` on 4:4:4 and grey. The default weighs the two nearest samples 3/4 and 1/4 on each axis.
    """
    return by_simplejpeg(data, fastupsample=True)


_ONE_VERSION = threading.Lock()  # jpeglib sets its version for the whole process
_SHAPES_COLOUR = (0xE0, 0xEE)  # the application segments JFIF and Adobe define the channels


@stage(
    "decode",
    systems="libjpeg 7 to 9 of the IJG: programs built on it instead of libjpeg-turbo",
    alike="IJG libjpeg 9",
    needs="jpeglib",
)
def ijg(data: bytes) -> Image:
    """RGB pixels of a JPEG by IJG libjpeg 9 (jpeglib); CMYK and other formats by Pillow.

    Subsampled chroma is enlarged by an inverse DCT of 16 × 16 points over each 8 × 8 block. libjpeg does not
    convert CMYK to RGB. Of rare damage that libjpeg-turbo does not notice it writes a line to standard error.
    """
    return by_jpeglib(data, "9f", "JDCT_ISLOW")


def by_jpeglib(data: bytes, version: str, method: str) -> Image:
    """RGB pixels of a JPEG by that version of libjpeg and that IDCT; CMYK and other formats by Pillow."""
    import jpeglib

    def decoded(data: bytes) -> Image:
        with TemporaryDirectory(prefix="holdfast-") as folder:
            path = Path(folder, "one.jpg")
            path.write_bytes(without_notes(data))
            with _ONE_VERSION:
                jpeglib.version.set(version)
                picture = jpeglib.read_spatial(str(path), jpeglib.JCS_RGB, jpeglib.DCTMethod[method])
        return np.asarray(picture.spatial)

    return by(decoded, f"libjpeg {version}", data, cmyk=False)


def without_notes(data: bytes) -> bytes:
    """The same JPEG without comments and application segments that do not change its pixels.

    jpeglib has room for 50 of them and does not check the number.
    """
    segments, at = [data[:2]], 2
    while data[at] == 0xFF and data[at + 1] != 0xDA:
        end = at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        marker = data[at + 1]
        if marker == 0xFF:  # a fill byte
            at += 1
            continue
        is_note = marker == 0xFE or (0xE0 <= marker <= 0xEF and marker not in _SHAPES_COLOUR)
        if not is_note:
            segments.append(data[at:end])
        at = end
    return b"".join([*segments, data[at:]])


@stage(
    "decode",
    systems="libjpeg with JDCT_FLOAT (djpeg -dct float)",
    alike="libjpeg-turbo, FLOAT",
    needs="jpeglib",
)
def float_dct(data: bytes) -> Image:
    """RGB pixels of a JPEG with libjpeg-turbo's floating-point IDCT; CMYK and other formats by Pillow."""
    return by_jpeglib(data, "turbo210", "JDCT_FLOAT")
