"""A PNG of a stranger, decoded to the pixels that every reader sees, or refused.

The header is read before anything is unpacked: the size must be the contest's, the pixels 8-bit RGB. Then
every chunk and its checksum, then the pixel data, which is cut off at the bytes that such a picture has. Only
then Pillow undoes the filters, on a PNG made anew of nothing but size and pixel data.

Taken: any compression, any filter, interlacing (Adam7; the pixels are the same). Taken and not looked at,
since decoders for models do not either: gAMA, cHRM, sRGB, iCCP and the like, so colours are the stored
numbers; text, time, a suggested palette, private chunks (never unpacked, 256 KiB at most together). Refused,
because readers differ: transparency (tRNS), animation (APNG), EXIF that turns the picture, data behind the
end, chunks that are unknown but critical. Refused as damaged: a wrong checksum, a wrong order, too much
or too little pixel data.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from io import BytesIO

import numpy as np

from holdfast.contest.entry.messages import EntryError, Problem
from holdfast.core.errors import ImageError
from holdfast.core.types import Image, Size

HEAD_BYTES = 33  # signature and header chunk
MOST_CHUNKS = 4096
MOST_EXTRAS = 256 << 10
_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_COLOURS = {
    0: ("grey", "灰度图"),
    3: ("a palette", "调色板图像"),
    4: ("grey with transparency", "带透明通道的灰度图"),
    6: ("RGBA", "RGBA"),
}
_OTHERS = (
    (b"\xff\xd8\xff", "JPEG"),
    (b"GIF8", "GIF"),
    (b"BM", "BMP"),
    (b"II*\0", "TIFF"),
    (b"MM\0*", "TIFF"),
    (b"RIFF", "WebP"),
    (b"PK\3\4", "zip"),
    (b"\x93NUMPY", "NumPy"),
)
_ADAM7 = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))


def longest(size: Size) -> int:
    """How many bytes a PNG of this size may have: the pixels as they are, a little more, and the extras."""
    return _raw_bytes(size, interlaced=True) * 101 // 100 + 12 * MOST_CHUNKS + MOST_EXTRAS


def head_problems(head: bytes, size: Size, where: str) -> Iterator[Problem]:
    """What the first bytes of a file already tell: no PNG, another size, other colours."""
    if not head:
        yield Problem("png-empty", where)
    elif not head.startswith(_SIGNATURE):
        named = next((name for magic, name in _OTHERS if head.startswith(magic)), "")
        if named:
            yield Problem("png-other", where, {"got": named})
        elif _SIGNATURE.startswith(head[:8]):
            yield Problem("png-cut", where, {"got": len(head)})
        else:
            yield Problem("png-unknown", where, {"got": f"{head[:8]!r}"[1:]})
    elif len(head) < HEAD_BYTES:
        yield Problem("png-cut", where, {"got": len(head)})
    else:
        yield from _header_problems(head, size, where)


def _header_problems(head: bytes, want: Size, where: str) -> Iterator[Problem]:
    fields = struct.unpack_from(">I4sIIBBBBB", head, 8)
    length, kind, width, height, bits, colour, packing, filtering, interlace = fields
    sound = (length, kind, packing, filtering) == (13, b"IHDR", 0, 0) and interlace < 2
    if not sound or colour not in (*_COLOURS, 2):
        yield Problem("png-header", where)
        return
    if (width, height) != want:
        facts = {"width": width, "height": height, "want_width": want.width, "want_height": want.height}
        yield Problem("png-size", where, facts)
    if colour != 2:
        got, got_zh = _COLOURS[colour]
        yield Problem("png-colour", where, {"got": got, "got_zh": got_zh})
    if bits != 8 and not (colour == 3 and bits < 8):  # fewer bits are what a palette is for
        yield Problem("png-bits", where, {"got": bits})


def decode(data: bytes, size: Size, where: str) -> Image:
    """The pixels (h, w, 3) uint8 of a PNG; EntryError says what is wrong with it."""
    for problem in head_problems(data[:HEAD_BYTES], size, where):
        raise EntryError(problem)
    interlaced = data[28] == 1
    raw = _inflate(_pixel_data(data, where), _raw_bytes(size, interlaced), where)
    return _pixels(data[16:29], raw, where)


def _raw_bytes(size: Size, interlaced: bool) -> int:
    """How many bytes the pixel data of a picture has, the filters' bytes included."""
    if not interlaced:
        return size.height * (1 + 3 * size.width)
    total = 0
    for x, y, right, down in _ADAM7:
        width, height = -((x - size.width) // right), -((y - size.height) // down)
        total += height * (1 + 3 * width) if width > 0 and height > 0 else 0
    return total


def _chunks(data: bytes, where: str) -> Iterator[tuple[bytes, bytes]]:
    """Every chunk, its checksum proven, up to the last one at the file's end."""
    at, kind = 8, b""
    for _ in range(MOST_CHUNKS):
        if at + 12 > len(data):
            raise EntryError(Problem("png-cut", where, {"got": len(data)}))
        length, kind = struct.unpack_from(">I4s", data, at)
        end = at + 12 + length
        if end > len(data):
            raise EntryError(Problem("png-cut", where, {"got": len(data)}))
        if zlib.crc32(memoryview(data)[at + 4 : end - 4]) != struct.unpack_from(">I", data, end - 4)[0]:
            raise EntryError(Problem("png-sum", where, {"got": _shown(kind)}))
        yield kind, data[at + 8 : end - 4]
        at = end
        if kind == b"IEND":
            if at != len(data):
                raise EntryError(Problem("png-behind", where, {"got": len(data) - at}))
            return
    raise EntryError(Problem("png-chunks", where, {"limit": MOST_CHUNKS}))


def _shown(kind: bytes) -> str:
    return kind.decode() if kind.isalpha() else f"{kind!r}"[1:]


def _pixel_data(data: bytes, where: str) -> bytes:
    """The packed pixel data of all IDAT chunks, every chunk having been looked at."""
    parts: list[bytes] = []
    extras, last = 0, b""
    for number, (kind, content) in enumerate(_chunks(data, where)):
        out_of_order = (kind == b"IHDR") != (number == 0) or (kind == b"IDAT" and parts and last != b"IDAT")
        if out_of_order or (kind == b"PLTE" and parts) or (kind == b"IEND" and (content or not parts)):
            raise EntryError(Problem("png-order", where, {"got": _shown(kind)}))
        if kind == b"IDAT":
            parts.append(content)
        elif kind not in (b"IHDR", b"IEND"):
            extras += len(content)
            _check_extra(kind, content, where)
        if extras > MOST_EXTRAS:
            raise EntryError(Problem("png-extras", where, {"got": extras, "limit": MOST_EXTRAS}))
        last = kind
    return b"".join(parts)


def _check_extra(kind: bytes, content: bytes, where: str) -> None:
    """Nothing; the chunk is one that changes no pixel."""
    if kind in (b"acTL", b"fcTL", b"fdAT"):
        raise EntryError(Problem("png-animated", where))
    if kind == b"tRNS":
        raise EntryError(Problem("png-transparent", where))
    if not kind.isalpha() or (kind[:1].isupper() and kind != b"PLTE"):
        raise EntryError(Problem("png-critical", where, {"got": _shown(kind)}))
    if kind == b"eXIf" and _turns(content):
        raise EntryError(Problem("png-turned", where))


def _turns(exif: bytes) -> bool:
    from holdfast.data.images import sniff

    head = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    try:
        found = sniff(_SIGNATURE + _chunk(b"IHDR", head) + _chunk(b"eXIf", exif) + _chunk(b"IEND", b""))
    except ImageError:
        return True
    return found.exif_orientation != 1


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def _inflate(packed: bytes, want: int, where: str) -> bytes:
    """The pixel data, exactly as long as the picture needs it."""
    unpacker = zlib.decompressobj()
    try:
        raw = unpacker.decompress(packed, want + 1)
        if len(raw) == want and not unpacker.eof:  # the end of the stream may hold no more bytes
            raw += unpacker.decompress(unpacker.unconsumed_tail, 1)
    except zlib.error:
        raise EntryError(Problem("png-data", where)) from None
    if len(raw) > want:
        raise EntryError(Problem("png-longer", where, {"got": want}))
    if len(raw) < want:
        raise EntryError(Problem("png-shorter", where, {"got": len(raw), "want": want}))
    if not unpacker.eof or unpacker.unused_data:
        raise EntryError(Problem("png-data", where))
    return raw


def _pixels(header: bytes, raw: bytes, where: str) -> Image:
    from PIL import Image as Pillow

    # Stored, not deflated: the data is unpacked already, and Pillow meets nothing that was not looked at.
    clean = (_chunk(b"IHDR", header), _chunk(b"IDAT", zlib.compress(raw, 0)), _chunk(b"IEND", b""))
    try:
        with Pillow.open(BytesIO(_SIGNATURE + b"".join(clean)), formats=["PNG"]) as picture:
            return np.array(picture, np.uint8)
    except (OSError, SyntaxError, ValueError, EOFError):  # a filter that does not exist
        raise EntryError(Problem("png-data", where)) from None
