"""Resizes by hand-computed pixels and against the libraries themselves."""

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from holdfast.core.errors import ImageError
from holdfast.core.registry import lookup
from holdfast.core.types import Size

sides = st.integers(1, 120)


def noise(height, width, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3)).astype(np.uint8)


def row(*values):
    return np.repeat(np.array(values, np.uint8)[np.newaxis, :, np.newaxis], 3, axis=2)


def across(name, values, width):
    """A row of grey pixels after the resize, which must do the same along a column."""
    resize = lookup("resize", name)
    found = resize(row(*values), Size(width, 1))
    turned = resize(np.ascontiguousarray(row(*values).transpose(1, 0, 2)), Size(1, width))
    np.testing.assert_array_equal(found[0], turned[:, 0])
    return found[0, :, 0].tolist()


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("pillow-nearest", [0, 2, 4]),  # ⌊(i + ½) · 5/3⌋
        ("torch-nearest-exact", [0, 2, 4]),
        ("opencv-nearest", [0, 1, 3]),  # ⌊i · 5/3⌋
        ("torch-nearest", [0, 1, 3]),
    ],
)
def test_nearest_of_five_by_hand(name, want):
    assert across(name, [0, 1, 2, 3, 4], 3) == want


@pytest.mark.parametrize("name", ["torch-bilinear", "opencv-bilinear"])
def test_half_the_width_without_antialias_is_the_mean_of_two(name):
    assert across(name, [0, 10, 20, 30, 200, 100], 3) == [5, 25, 150]


def test_torch_rounds_halves_to_even():
    assert across("torch-bilinear", [0, 9, 20, 31], 2) == [4, 26]  # 4.5, 25.5


@pytest.mark.parametrize("name", ["torch-bilinear-antialias", "pillow-bilinear"])
def test_half_the_width_with_antialias_by_hand(name):
    # centre 1, reach 2: weights ¾ ¾ ¼ over 1.75: (0 · ¾ + 70 · ¾ + 140 · ¼) / 1.75
    assert across(name, [0, 70, 140, 210], 2) == [50, 160]


@pytest.mark.parametrize(
    "name", ["torch-bilinear", "torch-bilinear-antialias", "opencv-bilinear", "pillow-bilinear"]
)
def test_twice_the_width_by_hand(name):
    assert across(name, [0, 100], 4) == [0, 25, 75, 100]  # at −¼ → 0, ¼, ¾, 1¼ → 1


def test_cubic_of_half_the_width_by_hand():
    # halfway, Keys with a = −0.75 weighs (a/8, ½ − a/8, ½ − a/8, a/8) = (−3/32, 19/32, 19/32, −3/32)
    values = [0, 64, 96, 160, 32, 0]
    inside = (-3 * 64 + 19 * 96 + 19 * 160 - 3 * 32) / 32
    assert across("torch-bicubic", values, 3)[1] == round(inside) == 143
    assert across("opencv-bicubic", values, 3)[1] == 143


@given(sides, sides, sides, sides)
@settings(max_examples=60, deadline=None)
def test_pillows_nearest_is_opencvs_nearest_exact(height, width, tall, wide):
    image = noise(height, width)
    want = cv2.resize(image, (wide, tall), interpolation=cv2.INTER_NEAREST_EXACT)
    np.testing.assert_array_equal(lookup("resize", "pillow-nearest")(image, Size(wide, tall)), want)


@pytest.mark.parametrize("name", ["bilinear", "nearest", "box", "hamming", "bicubic", "lanczos"])
def test_pillows_are_pillows(name):
    image = noise(40, 60)
    want = np.asarray(Image.fromarray(image).resize((31, 23), Image.Resampling[name.upper()]))
    np.testing.assert_array_equal(lookup("resize", f"pillow-{name}")(image, Size(31, 23)), want)


@pytest.mark.parametrize(
    ("name", "flag"),
    [("bilinear", "LINEAR"), ("nearest", "NEAREST"), ("area", "AREA"), ("bicubic", "CUBIC"),
     ("lanczos", "LANCZOS4")],
)  # fmt: skip
def test_opencvs_are_opencvs(name, flag):
    image = noise(40, 60)
    want = cv2.resize(image, (31, 23), interpolation=getattr(cv2, f"INTER_{flag}"))
    np.testing.assert_array_equal(lookup("resize", f"opencv-{name}")(image, Size(31, 23)), want)


@pytest.mark.parametrize("name", ["bilinear", "bicubic"])
def test_swscale_widens_its_filter_as_pillow_does(name):
    image = cv2.GaussianBlur(noise(90, 120), (0, 0), 2)
    for size in (Size(41, 31), Size(60, 45), Size(30, 22)):
        found, near, far = (
            lookup("resize", f"{by}-{name}")(image, size).astype(int)
            for by in ("swscale", "pillow", "opencv")
        )
        assert np.abs(found - near).max() <= 6
        assert np.abs(found - near).mean() < np.abs(found - far).mean()


def test_swscale_says_what_it_refuses():
    with pytest.raises(ImageError, match="swscale cannot resize 1×2000 into 2000×1 pixels"):
        lookup("resize", "swscale-bilinear")(noise(2000, 1), Size(2000, 1))


TORCH = {
    "torch-bilinear": {"mode": "bilinear", "align_corners": False},
    "torch-bilinear-antialias": {"mode": "bilinear", "align_corners": False, "antialias": True},
    "torch-bicubic": {"mode": "bicubic", "align_corners": False},
    "torch-bicubic-antialias": {"mode": "bicubic", "align_corners": False, "antialias": True},
    "torch-nearest": {"mode": "nearest"},
    "torch-nearest-exact": {"mode": "nearest-exact"},
}


@pytest.mark.parametrize("name", TORCH)
@given(sides, sides, st.integers(2, 120), st.integers(2, 120))
@settings(max_examples=40, deadline=None)
def test_torchs_are_torchs_but_for_halves(name, height, width, tall, wide):
    torch = pytest.importorskip("torch")
    image = noise(height, width)
    pixels = torch.from_numpy(image).permute(2, 0, 1)[np.newaxis].contiguous().float()
    exact = (
        torch.nn.functional.interpolate(pixels, size=(tall, wide), **TORCH[name])[0].permute(1, 2, 0).numpy()
    )
    found = lookup("resize", name)(image, Size(wide, tall)).astype(int)
    apart = found != np.rint(exact).clip(0, 255)
    # Sums of 16 products in float32, of weights up to 1.75² in size: 16 · 255 · 3.1 · 2⁻²³.
    rounding = 1.5e-3
    assert np.abs(exact - np.floor(exact) - 0.5)[apart].max(initial=0) < rounding
    assert np.abs(found - exact.clip(0, 255)).max() < 0.5 + rounding


def test_a_photo_made_smaller_is_torchs_too():
    torch = pytest.importorskip("torch")
    image = noise(375, 500)
    pixels = torch.from_numpy(image).permute(2, 0, 1)[np.newaxis].contiguous().float()
    for name, options in TORCH.items():
        want = torch.nn.functional.interpolate(pixels, size=(256, 341), **options)[0].permute(1, 2, 0).numpy()
        found = lookup("resize", name)(image, Size(341, 256))
        assert (found != np.rint(want).clip(0, 255)).mean() < 2e-4


def test_ncnn_resizes_like_opencv():
    """The fact behind targets=("ncnn",): all values within one level, nearly all equal."""
    ncnn = pytest.importorskip("ncnn")
    photo = np.random.default_rng(5).integers(0, 256, (90, 120, 3), np.uint8)
    for width, height in ((78, 59), (120, 64), (200, 151)):
        rgb = ncnn.Mat.PixelType.PIXEL_RGB
        theirs = np.array(ncnn.Mat.from_pixels_resize(photo, rgb, 120, 90, width, height)).transpose(1, 2, 0)
        ours = lookup("resize", "opencv-bilinear")(photo, Size(width, height)).astype(np.float32)
        assert np.abs(ours - theirs).max() <= 1
        assert (ours != theirs).mean() < 0.05
