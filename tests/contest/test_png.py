"""Hostile pictures in an entry, one by one, and the pictures that are taken with the pixels they have."""

import struct
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import contest as entering
from helpers.contest import chunk, encoded, goods, header, picture, raw_png, raw_zip, rules
from holdfast.contest.entry import open_entry
from holdfast.contest.messages import EntryError
from holdfast.contest.png import decode
from holdfast.core.types import Size


def exif(orientation: int) -> bytes:
    return chunk(b"eXIf", b"MM\0*\0\0\0\x08\0\1\x01\x12\0\3\0\0\0\1" + struct.pack(">HHI", orientation, 0, 0))


LONG = 16 * 49
PNGS = {
    "not as large": (raw_png(head=header(16, 15)), "16×15, expected 16×16"),
    "bomb": (raw_png(head=header(1 << 31, 1 << 31)), f"{1 << 31}×{1 << 31}, expected 16×16"),
    "pixel data without end": (
        raw_png(raw=bytes(5_000_000)),
        f"its pixel data unpacks to more than the {LONG} bytes of the image",
    ),
    "one byte too long": (
        raw_png(raw=bytes(LONG + 1)),
        f"its pixel data unpacks to more than the {LONG} bytes",
    ),
    "one byte too short": (
        raw_png(raw=bytes(LONG - 1)),
        f"its pixel data ends after {LONG - 1} of {LONG} bytes",
    ),
    "filter": (raw_png(raw=b"\x09" * LONG), "its pixel data is damaged"),
    "huge text": (
        raw_png(chunk(b"tEXt", b"a\0" + bytes(300_000))),
        "300002 bytes of text, colour",
    ),
    "packed text": (
        raw_png(*[chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(7_000_000)))] * 40),
        "bytes of text, colour profiles and other metadata, limit 262144",
    ),
    "huge international text": (raw_png(chunk(b"iTXt", bytes(300_000))), "300000 bytes of text"),
    "huge profile": (raw_png(chunk(b"iCCP", bytes(300_000))), "300000 bytes of text"),
    "too many chunks": (raw_png(*[chunk(b"tEXt", b"")] * 5000), "more than 4096 chunks in the PNG"),
    "animated": (
        raw_png(chunk(b"acTL", struct.pack(">II", 1, 0))),
        "an animated PNG, expected a single",
    ),
    "transparent": (raw_png(chunk(b"tRNS", bytes(6))), "a transparent colour (tRNS)"),
    "turned": (raw_png(exif(6)), "its EXIF data rotates the image"),
    "critical chunk": (raw_png(chunk(b"CgBI", b"")), "an unknown critical chunk CgBI"),
    "name of a chunk": (
        raw_png(chunk(b"\x1b[2J", b"")),
        "chunk '\\x1b[2J' has a wrong name or",
    ),
    "checksum of the header": (
        raw_png(head=header()[:-1] + b"x"),
        "chunk 'IHDR' has a wrong name",
    ),
    "checksum of a text": (
        raw_png(chunk(b"tEXt", b"a\0b")[:-1] + b"x"),
        "damaged: chunk 'tEXt' has a wrong name or checksum",
    ),
    "checksum of the pixel data": (
        raw_png()[:-16] + b"xxxx" + chunk(b"IEND", b""),
        "damaged: chunk 'IDAT' has a wrong name or checksum",
    ),
    "two headers": (raw_png(header()), "damaged: chunk IHDR is in the wrong place"),
    "pixel data of another name": (raw_png(chunk(b"DDAT", bytes(9))), "an unknown critical chunk DDAT"),
    "two pictures": (raw_png(chunk(b"IDAT", b""), chunk(b"tEXt", b"")), "chunk IDAT is in the wrong place"),
    "no picture": (entering.SIGNATURE + header() + chunk(b"IEND", b""), "chunk IEND is in the wrong place"),
    "end with content": (raw_png()[:-12] + chunk(b"IEND", b"x"), "chunk IEND is in the wrong place"),
    "data behind": (raw_png(behind=b"PK\3\4"), "4 bytes after the end of the PNG"),
    "cut": (raw_png()[:-14], "the PNG is truncated after"),
    "cut in the header": (raw_png()[:20], "the PNG is truncated after 20 bytes"),
    "cut in the signature": (raw_png()[:5], "the PNG is truncated after 5 bytes"),
    "length of a chunk": (
        entering.SIGNATURE + header() + struct.pack(">I", 0xFFFFFFFF) + b"IDAT" + bytes(99),
        "the PNG is truncated after",
    ),
    "empty": (b"", "the file is empty (0 bytes)"),
    "JPEG": (encoded(picture(1), "JPEG"), "not a PNG file: JPEG"),
    "zip": (raw_zip(goods()), "not a PNG file: zip"),
    "something": (b"hello, world", "not a PNG file: 'hello, w'"),
    "RGBA": (encoded(np.zeros((16, 16, 4), np.uint8)), "RGBA, expected RGB"),
    "grey": (encoded(np.zeros((16, 16), np.uint8)), "grey, expected RGB"),
    "palette": (raw_png(head=header(bits=4, colour=3)), "a palette, expected RGB"),
    "16 bits": (raw_png(head=header(bits=16)), "16 bits per channel, expected 8"),
    "packing": (raw_png(head=header(packing=1)), "a damaged PNG header"),
    "interlacing": (raw_png(head=header(interlace=2)), "a damaged PNG header"),
    "colour": (raw_png(head=header(colour=5)), "a damaged PNG header"),
    "long": (raw_png(*[chunk(b"IDAT", b"")] * 4000, behind=bytes(400_000)), "bytes, limit 312"),
}


@pytest.mark.parametrize("method", [0, 8], ids=["stored", "deflated"])
@pytest.mark.parametrize("case", PNGS)
def test_hostile_png_is_refused(tmp_path, case, method):
    data, line = PNGS[case]
    archive = entering.Archive(1 << 22, 1e9, 1 << 21)
    path = tmp_path / "advimages_team.zip"
    path.write_bytes(raw_zip(goods(method=method, data=data)))
    with pytest.raises(EntryError) as caught:
        open_entry(path, rules(archive=archive)).image(1)
    assert str(caught.value).startswith("advimages_team.zip: advimages/1.png: ")
    assert str(caught.value).isprintable()
    assert line in str(caught.value)


@pytest.mark.parametrize(
    "extra",
    [
        chunk(b"gAMA", struct.pack(">I", 1)),
        chunk(b"sRGB", b"\0"),
        chunk(b"iCCP", b"x\0\0" + zlib.compress(bytes(9_999_999))),
        chunk(b"zTXt", b"a\0\0no zlib data"),
        chunk(b"PLTE", bytes(3)),
        chunk(b"prVt", b"anything"),
        exif(1),
    ],
    ids=["gAMA", "sRGB", "iCCP", "zTXt", "PLTE", "private", "upright"],
)
def test_what_changes_no_pixel_is_taken(extra):
    plain = encoded(picture(1))
    with_extra = plain[:33] + extra + plain[33:]
    np.testing.assert_array_equal(decode(with_extra, Size(16, 16), "1.png"), picture(1))


def test_interlaced_picture_has_the_same_pixels():
    pixels = np.random.default_rng(0).integers(0, 256, (13, 11, 3), np.uint8)
    passes = [
        (0, 0, 8, 8),
        (4, 0, 8, 8),
        (0, 4, 4, 8),
        (2, 0, 4, 4),
        (0, 2, 2, 4),
        (1, 0, 2, 2),
        (0, 1, 1, 2),
    ]
    raw = b"".join(
        b"\0" + row.tobytes() for x, y, right, down in passes for row in pixels[y::down, x::right] if row.size
    )
    data = raw_png(head=header(11, 13, interlace=1), raw=raw)
    np.testing.assert_array_equal(decode(data, Size(11, 13), "1.png"), pixels)
    with pytest.raises(EntryError, match="its pixel data ends after"):
        decode(raw_png(head=header(11, 13, interlace=1), raw=raw[:-1]), Size(11, 13), "1.png")


@given(st.integers(0, 9), st.integers(1, 40), st.integers(1, 40))
@settings(max_examples=30, deadline=None)
def test_pixels_are_those_that_other_readers_see(level, width, height):
    import cv2

    pixels = np.random.default_rng(width).integers(0, 4, (height, width, 3), np.uint8)
    data = cv2.imencode(".png", pixels[..., ::-1], [cv2.IMWRITE_PNG_COMPRESSION, level])[1].tobytes()
    np.testing.assert_array_equal(decode(data, Size(width, height), "x.png"), pixels)


CHANGES = st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 255)), min_size=1, max_size=8)


@given(changes=CHANGES, repair=st.booleans())
@settings(max_examples=200, deadline=None)
def test_random_damage_of_a_picture_is_refused_or_decoded(changes, repair):
    data = bytearray(encoded(picture(1)))
    for place, value in changes:
        data[place % len(data)] = value
    if repair:  # the checksum of the pixel data is right again, so that the damage gets further
        at = 33
        length = min(struct.unpack_from(">I", data, at)[0], len(data) - at - 12)
        struct.pack_into(">I", data, at + 8 + length, zlib.crc32(data[at + 4 : at + 8 + length]))
    try:
        image = decode(bytes(data), Size(16, 16), "1.png")
    except EntryError as problem:
        assert str(problem).isprintable()  # noqa: PT017
    else:
        assert image.shape == (16, 16, 3)
