"""Every registered decoder, resize and colour stage: what it must give back, and what is told of it."""

import io
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from PIL import Image

from helpers import models as making
from holdfast.core.errors import ImageError, MissingExtra
from holdfast.core.extras import EXTRAS, is_installed
from holdfast.core.registry import lookup, names, part
from holdfast.core.types import Size


def picture(height=40, width=60, seed=0):
    rng = np.random.default_rng(seed)
    rough = rng.integers(0, 256, (height // 4 + 1, width // 4 + 1, 3)).astype(np.uint8)
    return np.asarray(Image.fromarray(rough).resize((width, height), Image.Resampling.BICUBIC))


def encoded(kind="JPEG", mode="RGB", height=40, width=60, **options):
    stream = io.BytesIO()
    Image.fromarray(picture(height, width)).convert(mode).save(stream, kind, **options)
    return stream.getvalue()


def is_missing(kind, name):
    needs = part(kind, name).facts.get("needs", "")
    return bool(needs) and not is_installed(needs)


def all_of(kind):
    return [
        pytest.param(n, marks=pytest.mark.skipif(is_missing(kind, n), reason=f"{n}: library not installed"))
        for n in names(kind)
        if not part(kind, n).facts.get("on_request")  # mistakes need not keep the rules
    ]


every_decoder = pytest.mark.parametrize("name", all_of("decode"))
every_resize = pytest.mark.parametrize("name", all_of("resize"))
every_colour = pytest.mark.parametrize("name", all_of("colour"))


def check(image, height, width):
    assert image.shape == (height, width, 3)
    assert image.dtype == np.uint8
    assert image.flags.c_contiguous


def altered_size(data, mark, at, form):
    start = data.index(mark) + at
    return data[:start] + b"".join(n.to_bytes(form, "big") for n in (20000, 20000)) + data[start + 2 * form :]


WHOLE = {
    "4:4:4": encoded(subsampling=0),
    "4:2:2": encoded(subsampling=1),
    "4:2:0": encoded(subsampling=2),
    "odd": encoded(height=41, width=59, subsampling=2),
    "progressive": encoded(progressive=True, subsampling=0),
    "restarts": encoded(restart_marker_rows=1, subsampling=0),
    "RGB inside": encoded(keep_rgb=True),
    "grey": encoded(mode="L"),
    "CMYK": encoded(mode="CMYK"),
    "1×1": encoded(height=1, width=1),
    "1×1 grey": encoded(mode="L", height=1, width=1),
    "3×1": encoded(height=3, width=1),
    "PNG": encoded("PNG"),
    "PNG grey": encoded("PNG", "L"),
    "PNG palette": encoded("PNG", "P"),
    "PNG alpha": encoded("PNG", "RGBA"),
    "PNG bits": encoded("PNG", "1"),
    "GIF": encoded("GIF"),
    "BMP": encoded("BMP"),
    "WebP": encoded("WEBP", lossless=True),
}
BROKEN = {
    "empty": b"",
    "no image": b"no image",
    "a mark only": b"\xff\xd8\xff",
    "cut in the header": encoded(height=200, width=200)[:200],
    "cut": encoded(height=200, width=200)[:3000],
    "no end": encoded(height=200, width=200)[:-2],
    "PNG cut": encoded("PNG")[:1000],
    "GIF cut": encoded("GIF")[:1000],
    "huge": altered_size(encoded(), b"\xff\xc0", 5, 2),
    "huge PNG": altered_size(encoded("PNG"), b"IHDR", 4, 4),
}


@every_decoder
@pytest.mark.parametrize("case", WHOLE)
def test_every_decoder_reads_every_kind_of_file_about_alike(name, case):
    data = WHOLE[case]
    with Image.open(io.BytesIO(data)) as stored:
        height, width = stored.height, stored.width
        want = np.asarray(stored.convert("RGB")).astype(int)
    image = lookup("decode", name)(data)
    check(image, height, width)
    # subsampled chroma is what the decoders disagree on; the rest is within a few levels
    bound = 12 if case in ("4:2:0", "4:2:2", "odd") else 2.5 if height > 3 else 6
    assert np.abs(image - want).mean() < bound
    np.testing.assert_array_equal(image, lookup("decode", name)(data))


@every_decoder
@pytest.mark.parametrize("case", BROKEN)
def test_every_decoder_says_image_error_in_one_line_and_nothing_else(name, case, capfd):
    with pytest.raises(ImageError) as caught:
        lookup("decode", name)(BROKEN[case])
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


@every_decoder
def test_damaged_data_is_refused_or_repaired_by_all_decoders_alike(name, capfd):
    data, rng = encoded(height=120, width=160), np.random.default_rng(0)
    for _ in range(25):
        damaged = bytearray(data)
        for at in rng.integers(700, len(data) - 2, 3):
            damaged[at] = rng.integers(0, 256)
        try:
            want = lookup("decode", "pillow")(bytes(damaged))
        except ImageError:
            with pytest.raises(ImageError):
                lookup("decode", name)(bytes(damaged))
        else:
            assert lookup("decode", name)(bytes(damaged)).shape == want.shape
    assert capfd.readouterr() == ("", "")


@every_decoder
def test_no_decoder_turns_the_picture_as_exif_says(name):
    exif = Image.Exif()
    exif[0x0112] = 6
    data = making.jpeg(picture(), exif=exif.tobytes())
    check(lookup("decode", name)(data), 40, 60)


@every_decoder
def test_every_decoder_gives_red_first(name):
    red = np.zeros((16, 16, 3), np.uint8)
    red[..., 0] = 200
    decoded = lookup("decode", name)(making.jpeg(red, quality=95))
    assert decoded[..., 0].mean() > 190
    assert decoded[..., 1:].mean() < 20


@every_decoder
def test_every_decoder_may_run_in_many_threads(name):
    files = [encoded(height=h, width=70, subsampling=2) for h in range(30, 62, 2)]
    decode = lookup("decode", name)
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(decode, files * 2))
    for data, image in zip(files * 2, together, strict=True):
        np.testing.assert_array_equal(image, decode(data))


SIZES = [(60, 40), (31, 23), (1, 1), (1, 40), (60, 1), (5, 7), (90, 121), (64, 64)]


@every_resize
@pytest.mark.parametrize(("height", "width"), [(40, 60), (41, 59), (1, 1), (1, 30), (30, 1), (2, 3)])
def test_every_resize_gives_the_asked_size_and_leaves_its_input(name, height, width):
    image = picture(height, width)
    before = image.copy()
    for size in (Size(*s) for s in SIZES):
        small = lookup("resize", name)(image, size)
        check(small, size.height, size.width)
        np.testing.assert_array_equal(small, lookup("resize", name)(image, size))
    np.testing.assert_array_equal(image, before)


@every_resize
def test_every_resize_keeps_a_flat_image_flat(name):
    flat = np.full((30, 50, 3), (10, 128, 250), np.uint8)
    for size in (Size(21, 17), Size(90, 80), Size(1, 1), Size(50, 30)):
        small = lookup("resize", name)(flat, size).astype(int)
        assert np.abs(small - np.array([10, 128, 250])).max() <= 1


@every_resize
def test_every_resize_to_the_same_size_is_the_identity(name):
    image = picture(33, 47)
    np.testing.assert_array_equal(lookup("resize", name)(image, Size(47, 33)), image)


@every_resize
def test_every_resize_takes_a_view(name):
    image = picture(80, 120)
    view, whole = image[::2, 10:70], np.ascontiguousarray(image[::2, 10:70])
    resize = lookup("resize", name)
    np.testing.assert_array_equal(resize(view, Size(31, 23)), resize(whole, Size(31, 23)))


@every_colour
@pytest.mark.parametrize(("height", "width"), [(40, 60), (41, 61), (40, 61), (1, 1), (1, 2), (2, 1), (3, 5)])
def test_every_colour_keeps_the_size_and_its_input(name, height, width):
    image = picture(height, width)
    before = image.copy()
    coloured = lookup("colour", name)(image)
    check(coloured, height, width)
    np.testing.assert_array_equal(coloured, lookup("colour", name)(image))
    np.testing.assert_array_equal(image, before)


@every_colour
def test_every_colour_keeps_flat_colours_within_a_few_levels(name):
    for colour in [(0, 0, 0), (255, 255, 255), (128, 128, 128), (200, 30, 60), (0, 0, 255), (10, 250, 20)]:
        flat = np.full((16, 24, 3), colour, np.uint8)
        assert np.abs(lookup("colour", name)(flat).astype(int) - colour).max() <= 4


@every_colour
def test_every_colour_takes_a_view(name):
    image = picture(80, 120)
    view, whole = image[::2, 10:70], np.ascontiguousarray(image[::2, 10:70])
    np.testing.assert_array_equal(lookup("colour", name)(view), lookup("colour", name)(whole))


@pytest.mark.parametrize("kind", ["decode", "resize", "colour"])
def test_every_part_is_told_in_full(kind):
    ours = [
        one for name in names(kind) if (one := part(kind, name)).function.__module__.startswith("holdfast.")
    ]
    for found in ours:  # other tests may have registered parts of their own
        assert found.summary.endswith("."), found.name
        assert found.facts["systems"], found.name
        known = {"systems", "alike", "targets", "needs", "extra", "paper", "tasks", "default"}
        if found.facts.get("on_request"):
            known |= {"family", "on_request"}
        assert set(found.facts) <= known
        assert "needs" not in found.facts or any(found.facts["needs"] in known for known in EXTRAS.values())


def test_a_part_without_its_library_says_what_to_install():
    for name in names("decode"):
        if is_missing("decode", name):
            with pytest.raises(MissingExtra, match=r"pip install 'holdfast\[\w+\]'"):
                lookup("decode", name)(WHOLE["4:2:0"])
