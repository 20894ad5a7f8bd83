"""The Independent JPEG Group's libjpeg 9, whose chroma upsampling is a scaled inverse DCT."""

from __future__ import annotations

import threading
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from holdfast.core.errors import MissingExtra
from holdfast.core.registry import stage
from holdfast.core.types import Image
from holdfast.stages.decode.jpeg import by, has_four_channels
from holdfast.stages.decode.pillow import pillow

_ONE_VERSION = threading.Lock()  # jpeglib keeps the version it was told for the whole process
_SHAPES_COLOUR = (0xE0, 0xEE)  # of the application segments JFIF and Adobe say what the channels are


@stage(
    "decode",
    systems="libjpeg 7 to 9 of the IJG: programs built on it instead of libjpeg-turbo",
    alike="IJG libjpeg 9",
    needs="jpeglib",
    extra="decoders",
)
def ijg(data: bytes) -> Image:
    """RGB pixels of a JPEG by IJG libjpeg 9 (jpeglib); CMYK and other formats by Pillow.

    Subsampled chroma is enlarged by an inverse DCT of 16 × 16 points over each 8 × 8 block. libjpeg does not
    convert CMYK to RGB. Of rare damage that libjpeg-turbo does not notice it writes a line to standard error.
    """
    return by_jpeglib(data, "9f", "JDCT_ISLOW")


def by_jpeglib(data: bytes, version: str, method: str) -> Image:
    """RGB pixels of a JPEG by that version of libjpeg and that IDCT; CMYK and other formats by Pillow."""
    try:
        import jpeglib
    except ImportError as missing:
        raise MissingExtra(f"decoding with libjpeg {version}", "jpeglib", "decoders") from missing

    def decoded(data: bytes) -> Image:
        with TemporaryDirectory(prefix="holdfast-") as folder:
            path = Path(folder, "one.jpg")
            path.write_bytes(without_notes(data))
            with _ONE_VERSION:
                jpeglib.version.set(version)
                picture = jpeglib.read_spatial(str(path), jpeglib.JCS_RGB, jpeglib.DCTMethod[method])
        return np.asarray(picture.spatial)

    if has_four_channels(data):
        return pillow(data)
    return by(decoded, f"libjpeg {version}", data)


def without_notes(data: bytes) -> bytes:
    """The same JPEG without comments and application segments that do not change its pixels.

    jpeglib has room for 50 of them and does not count.
    """
    kept, at = [data[:2]], 2
    while data[at] == 0xFF and data[at + 1] != 0xDA:
        end = at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        marker = data[at + 1]
        if marker == 0xFF:  # a fill byte
            at += 1
            continue
        is_note = marker == 0xFE or (0xE0 <= marker <= 0xEF and marker not in _SHAPES_COLOUR)
        if not is_note:
            kept.append(data[at:end])
        at = end
    return b"".join([*kept, data[at:]])
