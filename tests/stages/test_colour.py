"""Colour stages against the paper's equations, by hand and by a slow literal reading of them."""

import itertools
import math
from fractions import Fraction

import av
import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.registry import lookup
from holdfast.stages.colour import EXACT, FIXED, to_rgb, to_yuv

levels = st.integers(0, 255)


def half_up(x):
    return math.floor(x + Fraction(1, 2))


def eq5(r, g, b):
    y = half_up(Fraction("0.256788") * r + Fraction("0.504129") * g + Fraction("0.097906") * b) + 16
    u = half_up(-Fraction("0.148223") * r - Fraction("0.290993") * g + Fraction("0.439216") * b) + 128
    v = half_up(Fraction("0.439216") * r - Fraction("0.367788") * g - Fraction("0.071427") * b) + 128
    return y, u, v


def clip(x):
    return min(max(x, 0), 255)


def eq6(y, u, v):
    c, d, e = y - 16, u - 128, v - 128
    return (
        clip(half_up(Fraction("1.164383") * c + Fraction("1.596027") * e)),
        clip(half_up(Fraction("1.164383") * c - Fraction("0.391762") * d - Fraction("0.812968") * e)),
        clip(half_up(Fraction("1.164383") * c + Fraction("2.017232") * d)),
    )


def eq7(y, u, v):
    c, d, e = y - 16, u - 128, v - 128
    return (
        clip((298 * c + 409 * e + 128) >> 8),
        clip((298 * c - 100 * d - 208 * e + 128) >> 8),
        clip((298 * c + 516 * d + 128) >> 8),
    )


def one(*pixel):
    return np.array([[pixel]], np.uint8)


def colour(name, image):
    return lookup("colour", name)(image)


def noise(height, width, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3)).astype(np.uint8)


def test_pure_red_by_hand():
    # Y = round(65.48) + 16, U = round(−37.80) + 128, V = round(112.00) + 128
    assert [int(p[0, 0]) for p in to_yuv(one(255, 0, 0))] == [81, 90, 240]
    # C = 65, D = −38, E = 112: R = 75.685 + 178.755 = 254.44, G = −0.48, B = −0.97
    assert colour("yuv444", one(255, 0, 0)).tolist() == [[[254, 0, 0]]]
    # R = (19370 + 45808 + 128) >> 8 = 255, G = 2 >> 8, B = −110 >> 8 clipped
    assert colour("yuv444-fixed", one(255, 0, 0)).tolist() == [[[255, 0, 0]]]


def test_black_and_white_by_hand():
    for name in ("yuv444", "yuv444-fixed", "nv12", "nv12-bilinear"):
        assert colour(name, one(0, 0, 0)).tolist() == [[[0, 0, 0]]]
        assert colour(name, one(255, 255, 255)).tolist() == [[[255, 255, 255]]]


def test_two_reds_over_two_blues_by_hand():
    image = np.array([[[255, 0, 0]] * 2, [[0, 0, 255]] * 2], np.uint8)
    # red 81 90 240, blue 41 240 110: mean U (90+90+240+240+2) >> 2 = 165, mean V 175, so D = 37 and E = 47
    # over red  C = 65: 75.685 + 75.013, 75.685 − 14.495 − 38.209, 75.685 + 74.638
    # over blue C = 25: 29.110 + 75.013, 29.110 − 52.705, 29.110 + 74.638
    want = [[[151, 23, 150]] * 2, [[104, 0, 104]] * 2]
    assert colour("nv12", image).tolist() == want
    assert colour("nv12-bilinear", image).tolist() == want


@given(levels, levels, levels)
def test_any_pixel_is_as_the_equations_say(r, g, b):
    assert tuple(int(p[0, 0]) for p in to_yuv(one(r, g, b))) == eq5(r, g, b)
    assert tuple(colour("yuv444", one(r, g, b))[0, 0].tolist()) == eq6(*eq5(r, g, b))
    assert tuple(colour("yuv444-fixed", one(r, g, b))[0, 0].tolist()) == eq7(*eq5(r, g, b))


@given(levels, levels, levels)
def test_any_yuv_goes_back_as_the_equations_say(y, u, v):
    planes = tuple(np.array([[n]], np.int32) for n in (y, u, v))
    assert tuple(to_rgb(*planes, EXACT)[0, 0].tolist()) == eq6(y, u, v)
    assert tuple(to_rgb(*planes, FIXED)[0, 0].tolist()) == eq7(y, u, v)


def test_the_corners_of_the_cube_and_an_exact_half():
    # 256788 R + 504129 G + 97906 B = 500000 mod 10⁶ has solutions: there round must take the half up
    red, green = np.mgrid[0:256, 0:256].reshape(2, -1)
    ties = [(r, g, b) for b in range(0, 256, 2) for r, g in zip(*_ties(red, green, b), strict=True)]
    assert ties
    for r, g, b in [*itertools.product((0, 1, 127, 128, 254, 255), repeat=3), *ties]:
        assert tuple(int(p[0, 0]) for p in to_yuv(one(r, g, b))) == eq5(int(r), int(g), int(b))


def _ties(red, green, b):
    found = (256_788 * red + 504_129 * green + 97_906 * b) % 1_000_000 == 500_000
    return red[found], green[found]


def literal_nv12(image, bilinear):
    """Pixel by pixel: a chroma sample is the mean of its 2×2, the last row and column count twice."""
    height, width = image.shape[:2]
    yuv = [[eq5(*map(int, image[i, j])) for j in range(width)] for i in range(height)]
    rows, columns = (height + 1) // 2, (width + 1) // 2

    def mean(i, j, k):
        corners = [(min(2 * i + a, height - 1), min(2 * j + b, width - 1)) for a in (0, 1) for b in (0, 1)]
        return half_up(Fraction(sum(yuv[y][x][k] for y, x in corners), 4))

    def at(i, j, k):
        if not bilinear:
            return mean(i // 2, j // 2, k)
        total = Fraction(0)
        for y, wy in weights(i, rows):
            for x, wx in weights(j, columns):
                total += wy * wx * mean(y, x, k)
        return half_up(total)

    def weights(i, n):
        place = (Fraction(i) + Fraction(1, 2)) / 2 - Fraction(1, 2)
        low = math.floor(place)
        share = place - low
        return [(min(max(low, 0), n - 1), 1 - share), (min(max(low + 1, 0), n - 1), share)]

    back = [[eq6(yuv[i][j][0], at(i, j, 1), at(i, j, 2)) for j in range(width)] for i in range(height)]
    return np.array(back, np.uint8)


@pytest.mark.parametrize("size", [(6, 8), (7, 9), (1, 5), (5, 1), (2, 3)])
@pytest.mark.parametrize("name", ["nv12", "nv12-bilinear"])
def test_nv12_is_as_the_equations_say(name, size):
    image = noise(*size)
    np.testing.assert_array_equal(colour(name, image), literal_nv12(image, name == "nv12-bilinear"))


def test_grey_has_no_chroma_to_lose():
    ramp = np.repeat(np.arange(256, dtype=np.uint8).reshape(16, 16, 1), 3, axis=2)
    back = colour("yuv444", ramp)
    np.testing.assert_array_equal(colour("nv12", ramp), back)
    np.testing.assert_array_equal(colour("nv12-bilinear", ramp), back)
    assert np.abs(back.astype(int) - ramp).max() == 1


def test_opencv_takes_chroma_of_the_upper_left_pixel():
    image = noise(20, 30)
    corners = image[::2, ::2].repeat(2, axis=0).repeat(2, axis=1)
    planes, first = (cv2.cvtColor(x, cv2.COLOR_RGB2YUV_I420) for x in (image, corners))
    np.testing.assert_array_equal(planes[20:], first[20:])
    np.testing.assert_array_equal(
        colour("nv12-opencv", image), cv2.cvtColor(planes, cv2.COLOR_YUV2RGB_I420)
    )  # NV12 and I420 differ in layout only


def test_opencv_on_odd_sides_sees_the_last_row_and_column_twice():
    image = noise(21, 31)
    wide = np.pad(image, ((0, 1), (0, 1), (0, 0)), mode="edge")
    np.testing.assert_array_equal(colour("nv12-opencv", image), colour("nv12-opencv", wide)[:21, :31])


def test_swscale_is_what_pyav_gives():
    image = noise(20, 30)
    frame = av.VideoFrame.from_ndarray(image, format="rgb24").reformat(format="nv12")
    stored = frame.to_ndarray()
    assert stored.shape == (30, 30)
    again = av.VideoFrame.from_ndarray(stored, format="nv12").reformat(format="rgb24").to_ndarray()
    np.testing.assert_array_equal(colour("nv12-swscale", image), again)


def test_the_paths_to_nv12_all_differ():
    image = cv2.GaussianBlur(noise(40, 60), (0, 0), 2)
    names = ["rgb", "yuv444", "yuv444-fixed", "nv12", "nv12-bilinear", "nv12-opencv", "nv12-swscale"]
    results = [colour(name, image) for name in names]
    for a, b in itertools.combinations(results, 2):
        assert (a != b).any()
