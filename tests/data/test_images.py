"""Headers of images: compared with Pillow, and with files that are not what they seem."""

import contextlib
import struct
import zlib
from io import BytesIO

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from holdfast.core.errors import ImageError
from holdfast.core.types import Size
from holdfast.data.images import has_end_mark, is_cut_off, notes, sniff, sniff_head


def encoded(image: Image.Image, kind: str, **options) -> bytes:
    stream = BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def png_of_size(width: int, height: int) -> bytes:
    header = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunk = struct.pack(">I", 13) + header + struct.pack(">I", zlib.crc32(header))
    return b"\x89PNG\r\n\x1a\n" + chunk + struct.pack(">I", 0) + b"IDAT"


@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        *[("JPEG", mode) for mode in ("L", "RGB", "CMYK")],
        *[("PNG", mode) for mode in ("L", "P", "LA", "RGB", "RGBA")],
        *[("BMP", "RGB"), ("GIF", "P"), ("WEBP", "RGB"), ("TIFF", "RGB"), ("TIFF", "CMYK"), ("PPM", "RGB")],
    ],
)
def test_says_what_pillow_says(kind, mode):
    data = encoded(Image.new(mode, (37, 21)), kind)
    found = sniff(data)
    with Image.open(BytesIO(data)) as image:
        assert (found.format, found.size, found.mode) == (image.format, Size(*image.size), image.mode)
    assert found.bits == (1 if (kind, mode) == ("PNG", "P") else 8)  # one colour: one bit
    assert (found.exif_orientation, found.animated) == (1, False)


@given(
    width=st.integers(1, 70), height=st.integers(1, 70), progressive=st.booleans(), quality=st.integers(1, 95)
)
def test_jpeg_sizes(width, height, progressive, quality):
    data = encoded(Image.new("RGB", (width, height)), "JPEG", progressive=progressive, quality=quality)
    assert sniff(data).size == (width, height)
    assert sniff_head(data[:-2]) == sniff(data)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation(kind, orientation):
    exif = Image.Exif()
    exif[0x010F] = "a maker, before the tag that counts"
    exif[0x0112] = orientation
    found = sniff(encoded(Image.new("RGB", (8, 6)), kind, exif=exif))
    assert found.exif_orientation == orientation
    assert found.size == (8, 6)  # as stored
    assert [note for note in found.notes if "as stored" in note] == list(found.notes)
    assert bool(found.notes) == (orientation != 1)


def test_damaged_exif_is_no_rotation():
    data = encoded(Image.new("RGB", (8, 6)), "JPEG", exif=b"Exif\0\0II*\0\xff\xff\xff\x7f")
    assert sniff(data).exif_orientation == 1


def test_cmyk_is_noted(picture):
    assert notes(picture(mode="CMYK"), "a.jpg") == ("a.jpg: CMYK colours; the decoder converts them to RGB",)


def test_sixteen_bits_are_noted():
    grey = np.zeros((4, 5), np.uint16)
    for kind in ("PNG", "TIFF", "PPM"):
        found = sniff(encoded(Image.fromarray(grey), kind))
        assert (found.bits, found.size) == (16, (5, 4)), kind
        assert "16 bits" in found.notes[0]


def test_sixteen_bit_rgb_png_which_pillow_calls_rgb():
    data = bytearray(png_of_size(5, 4))
    data[24] = 16
    found = sniff(bytes(data))
    assert (found.mode, found.bits) == ("RGB", 16)


@pytest.mark.parametrize("kind", ["GIF", "PNG", "WEBP", "TIFF"])
def test_animated(kind):
    frames = [Image.new("RGB", (6, 5), (value, 0, 0)) for value in (0, 90, 180)]
    data = encoded(frames[0], kind, save_all=True, append_images=frames[1:])
    assert sniff(data).animated
    assert "is animated" in sniff(data).notes[-1]


def test_png_named_jpg_is_read_by_content(picture):
    assert sniff(picture(kind="PNG"), "a.jpg").format == "PNG"
    assert notes(picture(kind="PNG"), "a.JPG") == ("a.JPG: is a PNG image with the suffix .jpg; read as PNG",)
    assert notes(picture(), "a.jpeg") == ()
    assert notes(picture(), "no ending") == ()


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "0 bytes"),
        (b"hello, I am a text", "not a supported image format"),
        (b"\xff\xd8\xff\xe0\x00\x10JFIF", "ends inside its header"),
        (b"\x89PNG\r\n\x1a\n\0\0", "ends inside its header"),
        (b"GIF89a", "damaged GIF"),
        (b"II*\0", "damaged TIFF"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "damaged WEBP"),
        (png_of_size(0, 5), "a size of 0×5"),
        (png_of_size(20_000, 20_000), "20000×20000 pixels; the limit image-megapixels is 89 "),
    ],
)
def test_refused(data, said):
    with pytest.raises(ImageError, match=r"^some\.jpg: ") as caught:
        sniff(data, "some.jpg")
    assert said in str(caught.value)


def test_just_below_the_limit_is_read():
    assert sniff(png_of_size(8_900, 10_000)).size == (8_900, 10_000)


@given(
    st.binary(max_size=200),
    st.sampled_from([b"", b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF89a", b"BM", b"P6 "]),
)
def test_any_bytes_are_read_or_refused(data, start):
    with contextlib.suppress(ImageError):  # anything else fails the test
        assert min(sniff(start + data).size) > 0


@given(st.data())
def test_damaged_jpeg_is_read_or_refused(data):
    whole = bytearray(encoded(Image.new("RGB", (33, 17)), "JPEG", exif=Image.Exif()))
    for _ in range(data.draw(st.integers(0, 4))):
        whole[data.draw(st.integers(3, len(whole) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ImageError):
        sniff(bytes(whole[: data.draw(st.integers(3, len(whole)))]))


def test_head_that_is_too_short_says_nothing(picture):
    assert sniff_head(picture()[:30]) is None
    assert sniff_head(picture(kind="TIFF")) is None


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_cut_off(kind, picture):
    data = picture(kind=kind)
    assert has_end_mark(kind, data[-64:])
    assert not has_end_mark(kind, data[:-20][-64:])
    assert not is_cut_off(data)
    assert not is_cut_off(data + b"\0" * 10_000)  # what follows the end is harmless
    assert is_cut_off(data[:-20])


def test_end_mark_of_a_thumbnail_does_not_count(picture):
    exif = b"Exif\0\0" + picture(8, 8)
    data = encoded(Image.new("RGB", (40, 30)), "JPEG", exif=exif)
    assert not is_cut_off(data)
    assert is_cut_off(data[:-20])


def test_formats_without_an_end_mark_are_never_cut_off(picture):
    assert not is_cut_off(picture(kind="BMP")[:-20])
