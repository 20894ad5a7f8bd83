"""Small contests, their entries, and zips and PNGs that nobody should believe, built byte by byte."""

import struct
import zlib
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image as Pillow

from holdfast.contest.rules import RULES_FILE, Archive, Member, Rules, Vote, rules_text

SIZE = 16
IMAGES = 4
SIGNATURE = b"\x89PNG\r\n\x1a\n"


def rules(**changes) -> Rules:
    """Four images of 16×16, at most 10 changed pixels each."""
    single = Member("m", "models/m.onnx", "0" * 64)
    small = {"images": IMAGES, "width": SIZE, "height": SIZE, "pixels": 10}
    small |= {"archive": Archive(bytes=1 << 24, ratio=200.0, file_bytes=1 << 19)}
    facts = {"single": single, "mimic": Vote((single,), 1), "features": "signs", "features_sha256": "0" * 64}
    return Rules(**({"name": "small", "distance": "FD", "distance_max": 1.0} | facts | small | changes))


def write_rules(rules: Rules, folder: Path) -> Path:
    """The path of the rules file, written into the folder of a contest."""
    path = folder / RULES_FILE
    path.write_text(rules_text(rules), encoding="utf-8")
    return path


def picture(number: int, size: int = SIZE) -> np.ndarray:
    """The contest's image of this number."""
    return np.random.default_rng(number).integers(0, 256, (size, size, 3), np.uint8)


def encoded(pixels: np.ndarray, kind: str = "PNG", **options) -> bytes:
    out = BytesIO()
    Pillow.fromarray(pixels).save(out, kind, **options)
    return out.getvalue()


def changed(pixels: np.ndarray, count: int) -> np.ndarray:
    """The same with `count` pixels one level off in one channel."""
    out = pixels.copy()
    out.reshape(-1, 3)[:count, 1] ^= 1
    return out


def make_contest(folder: Path) -> Path:
    (folder / "images").mkdir(parents=True)
    for number in range(1, IMAGES + 1):
        (folder / "images" / f"{number}.png").write_bytes(encoded(picture(number)))
    return folder


def chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def header(width=SIZE, height=SIZE, bits=8, colour=2, packing=0, filtering=0, interlace=0) -> bytes:
    return chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, colour, packing, filtering, interlace))


def raw_png(
    *extras: bytes, head: bytes | None = None, raw: bytes | None = None, behind: bytes = b""
) -> bytes:
    """A PNG of chunks: header, extras, pixel data (black unless given), end."""
    raw = bytes(SIZE * (1 + 3 * SIZE)) if raw is None else raw
    body = (
        header() if head is None else head,
        *extras,
        chunk(b"IDAT", zlib.compress(raw)),
        chunk(b"IEND", b""),
    )
    return SIGNATURE + b"".join(body) + behind


@dataclass
class Raw:
    """A file of a zip; what is None is told as it is, all else is a lie that can be told."""

    name: bytes
    data: bytes = b""
    method: int = 0
    flags: int = 0
    mode: int = 0o100644
    packed: bytes | None = None
    size: int | None = None
    packed_size: int | None = None
    crc: int | None = None
    extra: bytes = b""
    local_name: bytes | None = None
    local_size: int | None = None
    header: int | None = None
    disk: int = 0
    listed_only: bool = False
    behind: bytes = b""


def good(number: int, data: bytes | None = None) -> Raw:
    return Raw(b"advimages/%d.png" % number, encoded(picture(number)) if data is None else data)


def goods(*others: Raw, **first) -> list[Raw]:
    """The files of a good entry, with changes to the first, and others behind."""
    every = [good(number) for number in range(1, IMAGES + 1)]
    for key, value in first.items():
        setattr(every[0], key, value)
    return [*every, *others]


def raw_zip(
    files: list[Raw],
    *,
    prefix=b"",
    gap=b"",
    behind=b"",
    comment=b"",
    count=None,
    start=None,
    length=None,
    disk=0,
    zip64=None,
) -> bytes:
    """A zip with exactly these headers, however wrong."""
    out, rows = bytearray(prefix), bytearray()
    for f in files:
        packed = f.packed if f.packed is not None else _packed(f)
        size, crc = (
            (len(f.data) if f.size is None else f.size),
            zlib.crc32(f.data) if f.crc is None else f.crc,
        )
        stated = len(packed) if f.packed_size is None else f.packed_size
        at = len(out) if f.header is None else f.header
        if not f.listed_only:
            name = f.name if f.local_name is None else f.local_name
            there = size if f.local_size is None else f.local_size
            out += struct.pack(
                "<4s5H3I2H", b"PK\3\4", 20, f.flags, f.method, 0, 33, crc, stated, there, len(name), 0
            )
            out += name + packed + f.behind
        fields = (20 | 3 << 8, 20, f.flags, f.method, 0, 33, crc, stated, size, len(f.name), len(f.extra), 0)
        rows += struct.pack("<4s6H3I5H2I", b"PK\1\2", *fields, f.disk, 0, f.mode << 16 & 0xFFFFFFFF, at)
        rows += f.name + f.extra
    out += gap
    at = len(out)
    out += rows
    number = len(files) if count is None else count
    if zip64 is not None:
        place = len(out)
        out += struct.pack("<4sQHHIIQQQQ", b"PK\6\6", 44, 45, 45, 0, 0, zip64, zip64, len(rows), at)
        out += struct.pack("<4sIQI", b"PK\6\7", 0, place, 1)
    ends = (len(rows) if length is None else length, at if start is None else start, len(comment))
    out += struct.pack("<4s4H2IH", b"PK\5\6", disk, disk, number, number, *ends) + comment
    return bytes(out + behind)


def _packed(file: Raw) -> bytes:
    return file.data if file.method == 0 else deflated(file.data)


def deflated(data: bytes, level: int = 9) -> bytes:
    packer = zlib.compressobj(level, zlib.DEFLATED, -15)
    return packer.compress(data) + packer.flush()
