"""Decoders against the equation, their libraries and one another: which are alike, bit for bit."""

import io

import av
import cv2
import numpy as np
import pytest
import simplejpeg
from PIL import Image

from helpers import models as making
from holdfast.core.registry import lookup, part
from holdfast.stages.decode.libjpeg import is_sound, without_notes


def picture(height=61, width=83, seed=0):
    rng = np.random.default_rng(seed)
    rough = rng.integers(0, 256, (height // 6 + 1, width // 6 + 1, 3)).astype(np.uint8)
    return np.asarray(Image.fromarray(rough).resize((width, height), Image.Resampling.BICUBIC))


def grey(height=61, width=83):
    return picture(height, width)[:, :, 0]


FILES = {
    "4:4:4": making.jpeg(picture(), quality=90, subsampling=0),
    "4:2:0": making.jpeg(picture(), quality=90, subsampling=2),
    "progressive": making.jpeg(picture(), quality=90, progressive=True, subsampling=2),
    "grey": making.jpeg(grey(), quality=90),
}


def decode(name, data):
    return lookup("decode", name)(data).astype(int)


def worst(name, case):
    return np.abs(decode(name, FILES[case]) - decode("pillow", FILES[case])).max()


# ── eq. (1) and (2)


def test_one_coefficient_is_its_cosine():
    block = np.zeros((8, 8))
    block[1, 2] = 16
    m, n = np.mgrid[0:8, 0:8]
    want = 16 * 0.25 * np.cos((2 * m + 1) * np.pi / 16) * np.cos((2 * n + 1) * 2 * np.pi / 16)
    np.testing.assert_allclose(cv2.idct(block), want, atol=1e-12)


def test_pillow_decodes_grey_as_the_equation_says(tmp_path):
    jpeglib = pytest.importorskip("jpeglib")
    data = making.jpeg(grey(64, 80), quality=85)
    want = np.empty((64, 80))
    (tmp_path / "one.jpg").write_bytes(data)
    stored = jpeglib.read_dct(str(tmp_path / "one.jpg"))
    for row in range(8):
        for column in range(10):
            block = cv2.idct((stored.Y[row, column] * stored.qt[0]).astype(np.float64))
            want[row * 8 : row * 8 + 8, column * 8 : column * 8 + 8] = block + 128
    found = decode("pillow", data)[..., 0]
    assert np.abs(found - want.clip(0, 255)).max() < 1.0
    assert (found == want.round().clip(0, 255)).mean() > 0.95
    quick = decode("fast-idct", data)[..., 0]
    assert (quick == want.round().clip(0, 255)).mean() < 0.75


# ── classes


@pytest.mark.parametrize("case", FILES)
def test_pillow_opencv_and_simplejpeg_are_one_class(case):
    want = decode("pillow", FILES[case])
    np.testing.assert_array_equal(decode("opencv", FILES[case]), want)
    np.testing.assert_array_equal(simplejpeg.decode_jpeg(FILES[case], "RGB"), want)
    with Image.open(io.BytesIO(FILES[case])) as stored:
        np.testing.assert_array_equal(np.asarray(stored.convert("RGB")), want)
    np.testing.assert_array_equal(cv2.imdecode(np.frombuffer(FILES[case], np.uint8), 1)[..., ::-1], want)


@pytest.mark.parametrize("name", ["fast-idct", "ffmpeg", "no-fancy-upsampling"])
def test_progressive_files_decode_as_sequential_ones(name):
    np.testing.assert_array_equal(decode(name, FILES["progressive"]), decode(name, FILES["4:2:0"]))


def test_the_fast_idct_differs_by_a_few_levels_everywhere():
    assert 2 <= worst("fast-idct", "grey") <= 8
    assert 2 <= worst("fast-idct", "4:4:4") <= 12
    want = simplejpeg.decode_jpeg(FILES["4:2:0"], "RGB", fastdct=True)
    np.testing.assert_array_equal(decode("fast-idct", FILES["4:2:0"]), want)


def test_without_fancy_upsampling_only_subsampled_chroma_differs():
    assert worst("no-fancy-upsampling", "grey") == 0
    assert worst("no-fancy-upsampling", "4:4:4") == 0
    assert worst("no-fancy-upsampling", "4:2:0") > 15


def test_no_fancy_upsampling_repeats_chroma():
    data = making.jpeg(picture(32, 48), quality=95, subsampling=2)
    rgb = decode("no-fancy-upsampling", data)
    # R − Y and B − Y depend on chroma alone, so they agree within each 2×2 where nothing is clipped
    luma = rgb @ [0.299, 0.587, 0.114]
    inside = ((rgb > 3) & (rgb < 252)).all(axis=2).reshape(16, 2, 24, 2).all(axis=(1, 3))
    spread = np.ptp(
        (rgb[..., 2] - luma).reshape(16, 2, 24, 2).transpose(0, 2, 1, 3).reshape(16, 24, 4), axis=2
    )
    assert inside.sum() > 100
    assert spread[inside].max() <= 2.5


def test_ffmpeg_repeats_chroma_of_even_heights_as_libjpeg_without_fancy_upsampling_does():
    even = making.jpeg(picture(60, 80), quality=90, subsampling=2)
    assert np.abs(decode("ffmpeg", even) - decode("no-fancy-upsampling", even)).max() <= 4
    odd = making.jpeg(picture(61, 80), quality=90, subsampling=2)
    assert np.abs(decode("ffmpeg", odd) - decode("no-fancy-upsampling", odd)).max() > 4
    assert worst("ffmpeg", "grey") <= 1
    assert worst("ffmpeg", "4:4:4") <= 4


def test_ffmpeg_is_what_pyav_gives_for_a_file():
    with av.open(io.BytesIO(FILES["4:2:0"]), format="jpeg_pipe") as container:
        (frame,) = container.decode(video=0)
    np.testing.assert_array_equal(frame.to_ndarray(format="rgb24"), decode("ffmpeg", FILES["4:2:0"]))
    assert (decode("ffmpeg", FILES["4:2:0"]) != decode("ffmpeg-accurate", FILES["4:2:0"])).any()


def test_zune_is_within_a_few_levels():
    pytest.importorskip("kornia_rs")
    assert 0 < worst("zune", "4:2:0") <= 6
    assert worst("zune", "grey") <= 1


def test_ijg_differs_in_subsampled_chroma():
    pytest.importorskip("jpeglib")
    assert worst("ijg", "grey") == 0
    assert worst("ijg", "4:4:4") <= 1
    assert worst("ijg", "4:2:0") > 8


def test_float_dct_is_within_a_few_levels():
    pytest.importorskip("jpeglib")
    assert worst("float-dct", "grey") == 1
    assert 0 < worst("float-dct", "4:2:0") <= 4


# ── particular files


@pytest.mark.parametrize("case", FILES)
@pytest.mark.parametrize(("name", "module", "same"), [
    ("tensorflow", "tensorflow", "fast-idct"),
    ("dali", "nvidia.dali", "pillow"),
])  # fmt: skip
def test_tensorflow_and_dali_are_of_the_classes_they_are_said_to_be(name, module, same, case):
    pytest.importorskip(module)
    np.testing.assert_array_equal(decode(name, FILES[case]), decode(same, FILES[case]))
    assert part("decode", name).facts["alike"] == part("decode", same).facts["alike"]


def test_a_jpeg_of_many_comments_is_read_by_jpeglib_all_the_same():
    pytest.importorskip("jpeglib")
    data = FILES["4:2:0"]
    comment = b"\xff\xfe\x00\x0amade up!"
    noted = data[:2] + comment * 200 + data[2:]
    assert comment not in without_notes(noted)
    np.testing.assert_array_equal(decode("ijg", noted), decode("ijg", data))


def test_notes_that_say_what_the_colours_are_stay():
    data = making.jpeg(picture(), keep_rgb=True, exif=b"Exif\0\0" + bytes(20))
    assert b"Exif" not in without_notes(data)
    assert b"Adobe" in without_notes(data)


def test_16_bit_grey_is_scaled_by_pillow_and_cut_by_opencv():
    levels = np.array([[0, 255, 256, 257, 384, 65535]], np.uint16)
    stream = io.BytesIO()
    Image.fromarray(levels).save(stream, "PNG")
    assert decode("pillow", stream.getvalue())[0, :, 0].tolist() == [0, 1, 1, 1, 1, 255]
    assert decode("opencv", stream.getvalue())[0, :, 0].tolist() == [0, 0, 1, 1, 1, 255]


def test_what_libjpeg_warns_of_is_not_sound():
    data = FILES["4:2:0"]
    assert is_sound(data)
    assert not is_sound(data[:-2])
    assert not is_sound(b"")
    extra = data[:-2] + bytes(40) + data[-2:]
    assert not is_sound(extra)  # Pillow reads it, so all do, and alike
    for name in ("opencv", "ffmpeg", "fast-idct"):
        np.testing.assert_array_equal(decode(name, extra), decode("pillow", extra))


def test_whether_data_is_sound_is_found_out_once():
    is_sound.cache_clear()
    for name in ("ffmpeg", "opencv", "ffmpeg"):
        decode(name, FILES["4:2:0"])
    assert is_sound.cache_info().misses == 1


def test_few_images_are_remembered():
    for number in range(20):
        is_sound(bytes([number]))
    assert is_sound.cache_info().currsize == 4
