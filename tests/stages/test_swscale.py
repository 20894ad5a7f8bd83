"""Conversions by swscale whose tables are kept give what new ones give."""

from concurrent.futures import ThreadPoolExecutor

import av
import numpy as np
import pytest
from av.video.reformatter import Interpolation

from holdfast.core.registry import lookup
from holdfast.core.types import Size
from holdfast.stages import colour

SIZES = [(40, 30), (41, 30), (64, 48), (40, 30), (33, 77), (64, 48)]


@pytest.fixture(autouse=True)
def none_kept():
    colour._converter.cache_clear()


def pictures():
    rng = np.random.default_rng(0)
    return [rng.integers(0, 256, (h, w, 3), np.uint8) for w, h in SIZES]


def anew(image, *conversions):
    """The picture converted by new converters."""
    frame = av.VideoFrame.from_ndarray(image, format="rgb24")
    for given in conversions:
        frame = av.video.reformatter.VideoReformatter().reformat(frame, **given)
    return frame.to_ndarray()


def test_colours_are_those_of_new_tables():
    for image in pictures():
        want = anew(image, {"format": "nv12"}, {"format": "rgb24"})
        np.testing.assert_array_equal(lookup("colour", "nv12-swscale")(image), want)
    assert colour._converter.cache_info().misses == 2 * len(set(SIZES))


@pytest.mark.parametrize("name", ["bilinear", "bicubic"])
def test_sizes_are_those_of_new_tables(name):
    flags = int(Interpolation[name.upper()])
    for image in pictures():
        want = anew(image, {"width": 24, "height": 20, "format": "rgb24", "interpolation": flags})
        np.testing.assert_array_equal(lookup("resize", f"swscale-{name}")(image, Size(24, 20)), want)


def test_few_are_kept():
    image = pictures()[0]
    for width in range(20, 50):
        lookup("resize", "swscale-bilinear")(image, Size(width, 20))
    assert colour._converter.cache_info().currsize == 8


def test_threads_do_not_share_a_converter():
    images = pictures()
    want = [lookup("colour", "nv12-swscale")(image) for image in images]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lookup("colour", "nv12-swscale"), images * 50))
    for number, made in enumerate(found):
        np.testing.assert_array_equal(made, want[number % len(images)])
