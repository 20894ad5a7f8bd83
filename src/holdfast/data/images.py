"""Image headers: format, size, colour, bits, rotation. No pixel is decoded."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from typing import Any

from holdfast.core.errors import ImageError
from holdfast.core.limits import limit, too_large
from holdfast.core.types import Size

# Formats by the first bytes, never by the file's name; WebP has its mark behind a length.
_MAGIC = {
    "JPEG": (b"\xff\xd8\xff",),
    "PNG": (b"\x89PNG\r\n\x1a\n",),
    "GIF": (b"GIF87a", b"GIF89a"),
    "BMP": (b"BM",),
    "TIFF": (b"II*\0", b"MM\0*"),
    "PPM": tuple(b"P%d" % n for n in range(1, 7)),
}
_SUFFIXES = {
    "JPEG": (".jpg", ".jpeg", ".jpe", ".jfif"),
    "PNG": (".png", ".apng"),
    "GIF": (".gif",),
    "BMP": (".bmp", ".dib"),
    "TIFF": (".tif", ".tiff"),
    "PPM": (".ppm", ".pgm", ".pbm", ".pnm"),
    "WEBP": (".webp",),
}
SUFFIXES = frozenset(suffix for group in _SUFFIXES.values() for suffix in group)
_END_MARKS = {"JPEG": b"\xff\xd9", "PNG": b"IEND"}
_PNG_MODES = {0: "L", 2: "RGB", 3: "P", 4: "LA", 6: "RGBA"}
_ORIENTATION = 0x0112
_ROTATIONS = (
    *("mirrored", "rotated by 180°", "flipped", "transposed"),
    *("rotated by 90°", "transversed", "rotated by 270°"),
)  # orientations 2 to 8


@dataclass(frozen=True)
class ImageHeader:
    """The facts in the header of an image."""

    format: str  # "JPEG", "PNG", ...: by content
    size: Size  # as stored, before any EXIF rotation
    mode: str  # "L", "P", "RGB", "RGBA", "CMYK", ...
    bits: int  # per channel
    exif_orientation: int  # 1: upright
    animated: bool
    notes: tuple[str, ...]  # what is unusual, and what holdfast does with it; without the file's name


@dataclass(frozen=True)
class Encoding:
    """How far one changed pixel spreads when an image is compressed and decoded again.

    Pixels are used as stored, not rotated, so blocks begin at the upper left corner.
    """

    blocks: tuple[int, int] = (1, 1)  # width and height of what is coded together; 1: lossless
    margin: int = 0  # pixels beyond, over which chroma is interpolated

    @classmethod
    def of(cls, data: bytes) -> "Encoding | None":
        """The encoding of an image; None for WebP, for which it is not known."""
        kind = _kind(data)
        if kind != "JPEG":
            return None if kind == "WEBP" else cls()
        factors = [(1, 1)]
        for marker, start, _ in _segments(data):
            if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
                rows = (data[start + 7 + 3 * n] for n in range(data[start + 5]))
                factors = [(byte >> 4, byte & 15) for byte in rows]
        wide, tall = (max(column) for column in zip(*factors, strict=True))
        return cls((8 * wide, 8 * tall), 1 if (wide, tall) != (1, 1) else 0)


class _TruncatedHeader(Exception):
    """The header does not end within the given bytes."""


def sniff(data: bytes, name: str = "image") -> ImageHeader:
    """The parsed header; raise ImageError if the data is empty, no image, or over 89 megapixels."""
    if not data:
        raise ImageError(f"{name}: the file is empty (0 bytes); expected an image")
    try:
        return _header(data, name)
    except (_TruncatedHeader, IndexError, struct.error):
        raise ImageError(f"{name}: the image ends inside its header after {len(data)} bytes") from None


def sniff_head(head: bytes, name: str = "image") -> ImageHeader | None:
    """The header parsed from the first bytes of a file; None if they do not contain all of it."""
    if not head.startswith((b"\xff\xd8\xff", b"\x89PNG")):
        return None  # the other formats may keep their header at the end
    try:
        return _header(head, name)
    except (_TruncatedHeader, IndexError, struct.error):
        return None


def notes(data: bytes, name: str) -> tuple[str, ...]:
    """One line for each unusual thing about an image, naming the file and what holdfast does with it."""
    header = sniff(data, name)
    return tuple(f"{name}: {note}" for note in (*misnamed(header, name), *header.notes))


def misnamed(header: ImageHeader, name: str) -> tuple[str, ...]:
    """A note if the file's suffix and content have different formats."""
    suffix = "." + name.rsplit(".", 1)[-1].lower() if "." in name else ""
    if suffix not in SUFFIXES or suffix in _SUFFIXES[header.format]:
        return ()
    return (f"is a {header.format} image with the suffix {suffix}; read as {header.format}",)


def has_end_mark(kind: str, tail: bytes) -> bool:
    """Whether the last bytes of a file hold the end mark of its format; True for formats without one."""
    mark = _END_MARKS.get(kind)
    return mark is None or mark in tail


def is_cut_off(data: bytes) -> bool:
    """Whether a JPEG or PNG file has no end mark after its header; data after the mark is ignored."""
    kind, start = _kind(data), 0
    if kind == "JPEG":  # a thumbnail in the header has an end mark of its own
        start = max((at for _, at, _ in _segments(data)), default=0)
    return not has_end_mark(kind, data[start:])


def _header(data: bytes, name: str) -> ImageHeader:
    kind = _kind(data)
    if not kind:
        formats = "JPEG, PNG, WebP, BMP, GIF, TIFF, PPM"
        raise ImageError(f"{name}: not a supported image format ({formats}); it begins with {data[:8]!r}")
    readers = {"JPEG": _jpeg, "PNG": _png}
    header = readers[kind](data) if kind in readers else _by_pillow(data, kind, name)
    width, height = header.size
    if width < 1 or height < 1:
        raise ImageError(f"{name}: the header states a size of {width}×{height} pixels")
    if width * height > limit("image-megapixels") * 1_000_000:
        raise ImageError(f"{name}: {too_large('image-megapixels', f'{width}×{height} pixels')}")
    return header


def _kind(data: bytes) -> str:
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "WEBP"
    return next((kind for kind, magic in _MAGIC.items() if data.startswith(magic)), "")


def _segments(data: bytes) -> Iterator[tuple[int, int, int]]:
    """The segments of a JPEG header: marker, start and length of the content; the last is the scan's."""
    at = 2
    while True:
        while data[at] != 0xFF or data[at + 1] == 0xFF:  # stray and fill bytes between segments are legal
            at += 1
        marker = data[at + 1]
        at += 2
        if marker == 0xD9:
            return
        if marker == 0x01 or 0xD0 <= marker <= 0xD8:  # markers without content
            continue
        (length,) = struct.unpack_from(">H", data, at)
        if at + length > len(data):
            raise _TruncatedHeader
        yield marker, at + 2, max(length, 2) - 2
        if marker == 0xDA:
            return
        at += max(length, 2)


def _jpeg(data: bytes) -> ImageHeader:
    frame, orientation = None, 1
    for marker, start, length in _segments(data):
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            frame = struct.unpack_from(">BHHB", data, start)
        elif marker == 0xE1 and data[start : start + 6] == b"Exif\0\0":
            orientation = _exif_orientation(data[start + 6 : start + length])
    if frame is None:
        raise _TruncatedHeader
    bits, height, width, channels = frame
    mode = {1: "L", 3: "RGB", 4: "CMYK"}.get(channels, f"{channels} channels")
    return _image_header("JPEG", Size(width, height), mode, bits, orientation)


def _png(data: bytes) -> ImageHeader:
    width, height, bits, colour = struct.unpack_from(">IIBB", data, 16)
    orientation, animated, at = 1, False, 8
    while True:
        length, kind = struct.unpack_from(">I4s", data, at)
        if kind in (b"IDAT", b"IEND"):
            break
        if kind == b"acTL":
            animated = struct.unpack_from(">I", data, at + 8)[0] > 1
        elif kind == b"eXIf":
            orientation = _exif_orientation(data[at + 8 : at + 8 + length])
        at += 12 + length
    return _image_header("PNG", Size(width, height), _PNG_MODES.get(colour, "?"), bits, orientation, animated)


def _by_pillow(data: bytes, kind: str, name: str) -> ImageHeader:
    from PIL import Image as Pillow

    # The format's own class: Image.open would warn about large images and attempt other formats.
    Pillow.init()
    try:
        image: Any = Pillow.OPEN[kind][0](BytesIO(data), name)
    except KeyError:
        raise ImageError(f"{name}: this Pillow cannot read {kind}") from None
    except (SyntaxError, OSError, ValueError, TypeError, EOFError) as problem:
        raise ImageError(f"{name}: a damaged {kind} image: {problem}") from None
    bits = 16 if "16" in image.mode else 32 if image.mode in ("I", "F") else 8
    orientation, size = 1, Size(*image.size)
    if kind == "TIFF":  # Pillow reports the size after rotation
        size = Size(*(int(image.tag_v2.get(tag, side)) for tag, side in zip((256, 257), size, strict=True)))
        bits = max(image.tag_v2.get(258, (bits,)))
        orientation = int(image.tag_v2.get(_ORIENTATION, 1))
        orientation = orientation if 1 <= orientation <= 8 else 1
    elif kind == "PPM" and image.mode == "I":
        bits = 16
    elif "exif" in image.info:
        orientation = _exif_orientation(image.info["exif"].removeprefix(b"Exif\0\0"))
    animated = bool(getattr(image, "is_animated", False))
    return _image_header(kind, size, image.mode, bits, orientation, animated)


def _exif_orientation(block: bytes) -> int:
    """The orientation stated in an EXIF block, 1 if none is or the block is damaged."""
    order = {b"II": "<", b"MM": ">"}.get(block[:2])
    if order is None:
        return 1
    try:
        (start,) = struct.unpack_from(order + "I", block, 4)
        (count,) = struct.unpack_from(order + "H", block, start)
        for index in range(count):
            tag, kind, _, value = struct.unpack_from(order + "HHIH", block, start + 2 + 12 * index)
            if tag == _ORIENTATION and kind == 3:
                return int(value) if 1 <= value <= 8 else 1
    except struct.error:
        pass
    return 1


def _image_header(
    kind: str, size: Size, mode: str, bits: int, orientation: int, animated: bool = False
) -> ImageHeader:
    rotation = _ROTATIONS[orientation - 2]  # used only if the orientation is not 1
    unrotated = f"EXIF orientation is {rotation}; pixels and boxes are used as stored, not rotated"
    unusual = (
        (orientation != 1, unrotated),
        (mode == "CMYK", "CMYK colours; the decoder converts them to RGB"),
        (bits > 8, f"{bits} bits per channel; the decoder reduces them to 8"),
        (mode in ("RGBA", "LA", "PA"), "has an alpha channel, which is ignored"),
        (animated, "is animated; only the first frame is used"),
    )
    notes = tuple(note for holds, note in unusual if holds)
    return ImageHeader(kind, size, mode, bits, orientation, animated=animated, notes=notes)
