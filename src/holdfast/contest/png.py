"""Decode an untrusted PNG to pixels on which all readers agree, or reject it.

The header is checked first: the size must be the contest's, the pixels 8-bit RGB. Pillow's chunk reader then
checks every chunk, and zlib checks that the pixel data has exactly the bytes of the image. Pillow's decoder
gets only header and pixel data.

Allowed: any compression, any filter, interlacing (Adam7; the pixels are the same). Allowed and ignored, as
decoders for models do: gAMA, cHRM, sRGB, iCCP and the like, so colours are the stored numbers; text, time, a
suggested palette, private chunks (never unpacked, 256 KiB at most together). Rejected because readers differ:
transparency (tRNS), animation (APNG), EXIF with a rotation, data after the end, unknown critical chunks.
Rejected as damaged: a wrong checksum, a wrong order, too much or too little pixel data.
"""

import struct
import zlib
from collections.abc import Iterator
from io import BytesIO

import numpy as np

from holdfast.contest.messages import EntryError, Problem, content_kind
from holdfast.core.types import Image, Size
from holdfast.data.images import sniff

SIGNATURE = b"\x89PNG\r\n\x1a\n"
MOST_CHUNKS = 4096
MOST_EXTRAS = 256 << 10
_HEAD = 33  # bytes of the signature and the header chunk
_COLOURS = {
    0: ("grey", "灰度图"),
    3: ("a palette", "调色板图像"),
    4: ("grey with transparency", "带透明通道的灰度图"),
    6: ("RGBA", "RGBA"),
}
_ADAM7 = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))


def longest(size: Size) -> int:
    """The maximum bytes of a PNG of this size: uncompressed pixels, 1% more, and the other chunks."""
    return _raw_bytes(size, interlaced=True) * 101 // 100 + 12 * MOST_CHUNKS + MOST_EXTRAS


def check_header(data: bytes, size: Size, where: str) -> None:
    """Raise EntryError with every problem that the first bytes show: format, size, colours, bits."""
    head = data[:_HEAD]
    if not head:
        raise EntryError(Problem("empty", where))
    if not head.startswith(SIGNATURE[: len(head)]):
        raise EntryError(Problem("png-other", where, {"got": content_kind(head)}))
    if len(head) < _HEAD:
        raise EntryError(Problem("png-cut", where, {"got": len(head)}))
    fields = struct.unpack_from(">I4sIIBBBBB", head, 8)
    length, kind, width, height, bits, colour, packing, filtering, interlace = fields
    valid = (length, kind, packing, filtering) == (13, b"IHDR", 0, 0) and interlace < 2
    if not valid or colour not in (*_COLOURS, 2):
        raise EntryError(Problem("png-header", where))
    problems = []
    if (width, height) != size:
        facts = {"width": width, "height": height, "want_width": size.width, "want_height": size.height}
        problems.append(Problem("png-size", where, facts))
    if colour != 2:
        got, got_zh = _COLOURS[colour]
        problems.append(Problem("png-colour", where, {"got": got, "got_zh": got_zh}))
    if bits != 8 and not (colour == 3 and bits < 8):  # palettes usually have fewer bits
        problems.append(Problem("png-bits", where, {"got": bits}))
    if problems:
        raise EntryError(*problems)


def decode(data: bytes, size: Size, where: str) -> Image:
    """The pixels (h, w, 3) uint8 of a PNG; raise EntryError with the problem."""
    from PIL.PngImagePlugin import PngImageFile, putchunk

    check_header(data, size, where)
    expected, unpacker = _raw_bytes(size, interlaced=data[28] == 1), zlib.decompressobj()
    try:
        raw = unpacker.decompress(_pixel_data(data, where), expected + 1)
    except zlib.error:
        raise EntryError(Problem("png-data", where)) from None
    if len(raw) > expected:
        raise EntryError(Problem("png-longer", where, {"got": expected}))
    if len(raw) < expected:
        raise EntryError(Problem("png-shorter", where, {"got": len(raw), "want": expected}))
    if not unpacker.eof or unpacker.unused_data:
        raise EntryError(Problem("png-data", where))
    clean = BytesIO()
    clean.write(data[:_HEAD])
    putchunk(clean, b"IDAT", zlib.compress(raw, 0))  # stored, to avoid a second inflate
    putchunk(clean, b"IEND")
    clean.seek(0)
    try:
        # Not Image.open: its limit on pixels is global, and this picture has the size of the contest.
        with PngImageFile(clean) as picture:
            return np.array(picture, np.uint8)
    except (OSError, SyntaxError, ValueError, EOFError):  # a filter that does not exist
        raise EntryError(Problem("png-data", where)) from None


def _raw_bytes(size: Size, interlaced: bool) -> int:
    """Number of bytes of the pixel data, with one filter byte per row."""
    if not interlaced:
        return size.height * (1 + 3 * size.width)
    total = 0
    for x, y, right, down in _ADAM7:
        width, height = -((x - size.width) // right), -((y - size.height) // down)
        total += height * (1 + 3 * width) if width > 0 and height > 0 else 0
    return total


def _chunks(data: bytes, where: str) -> Iterator[tuple[bytes, bytes]]:
    """Name and content of every chunk, with a checked checksum, up to IEND at the end of the data."""
    from PIL.PngImagePlugin import ChunkStream

    stream = BytesIO(data)
    stream.seek(len(SIGNATURE))
    reader, kind = ChunkStream(stream), b""
    while kind != b"IEND":
        at = stream.tell()
        length = int.from_bytes(data[at : at + 4])
        if at + 12 + length > len(data):
            raise EntryError(Problem("png-cut", where, {"got": len(data)}))
        try:
            kind, _, _ = reader.read()
            content = stream.read(length)
            reader.crc(kind, content)
        except SyntaxError:
            name = f"{data[at + 4 : at + 8]!r}"[1:]
            raise EntryError(Problem("png-damaged", where, {"got": name})) from None
        yield kind, content
    if stream.tell() < len(data):
        raise EntryError(Problem("png-behind", where, {"got": len(data) - stream.tell()}))


def _pixel_data(data: bytes, where: str) -> bytes:
    """The compressed pixel data of all IDAT chunks; raise EntryError for a chunk that is not allowed."""
    parts, extras, last = list[bytes](), 0, b""
    for number, (kind, content) in enumerate(_chunks(data, where)):
        if number == MOST_CHUNKS:
            raise EntryError(Problem("png-chunks", where, {"limit": MOST_CHUNKS}))
        out_of_order = (kind == b"IHDR") != (number == 0) or (kind == b"IDAT" and parts and last != b"IDAT")
        if out_of_order or (kind == b"PLTE" and parts) or (kind == b"IEND" and (content or not parts)):
            raise EntryError(Problem("png-order", where, {"got": kind.decode()}))
        if kind == b"IDAT":
            parts.append(content)
        elif kind not in (b"IHDR", b"IEND"):
            extras += len(content)
            _check_extra(kind, content, data[:_HEAD], where)
        if extras > MOST_EXTRAS:
            raise EntryError(Problem("png-extras", where, {"got": extras, "limit": MOST_EXTRAS}))
        last = kind
    return b"".join(parts)


def _check_extra(kind: bytes, content: bytes, head: bytes, where: str) -> None:
    """Raise EntryError if a chunk can change the displayed image."""
    if kind in (b"acTL", b"fcTL", b"fdAT"):
        raise EntryError(Problem("png-animated", where))
    if kind == b"tRNS":
        raise EntryError(Problem("png-transparent", where))
    if not kind.isalpha() or (kind[:1].isupper() and kind != b"PLTE"):
        raise EntryError(Problem("png-critical", where, {"got": kind.decode()}))
    if kind == b"eXIf":
        chunk = struct.pack(">I4s", len(content), kind) + content + bytes(8) + b"IEND"
        if sniff(head + chunk).exif_orientation != 1:
            raise EntryError(Problem("png-turned", where))
