"""The common corruptions, each against an independent implementation of its published definition."""

import colorsys
import io
import math

import numpy as np
import pytest
from PIL import Image

from holdfast.core.fingerprint import generator
from holdfast.core.registry import names, part
from holdfast.noise.suite import NoiseSelection
from holdfast.stages.corruptions import blurs, digital, noises, patterns, weather
from holdfast.stages.families import family, options

cv2 = pytest.importorskip("cv2")
ndimage = pytest.importorskip("scipy.ndimage")

EVERY = [name for name in names("colour") if part("colour", name).facts.get("family") == "corruptions"]


def picture(height=36, width=52, seed=0):
    rng = np.random.default_rng(seed)
    rough = rng.integers(0, 256, (height // 4 + 1, width // 4 + 1, 3)).astype(np.uint8)
    return np.asarray(Image.fromarray(rough).resize((width, height), Image.Resampling.BICUBIC))


IMAGE = picture()


def rng():
    return generator(0, "test")


def near(found, want, most, mean=0.6):
    difference = np.abs(found.astype(float) - np.clip(want, 0, 255))
    assert difference.max() <= most + 1e-6
    assert difference.mean() <= mean


def test_there_are_fifteen_corruptions_at_five_severities_that_run_only_if_they_are_named():
    every = options(family("corruptions"))
    assert len(every) == len(EVERY) == 75
    assert len({option.name.rpartition("-")[0] for option in every}) == 15
    assert not any(NoiseSelection(every=True).takes(option) for option in every)
    assert all(NoiseSelection(suite="corruptions").takes(option) for option in every)
    assert all(NoiseSelection(("corruptions",)).takes(option) for option in every)
    few = NoiseSelection(("decode", "corruptions=fog-3"), suite="corruptions")
    assert [option.name for option in every if few.takes(option)] == ["fog-3"]


@pytest.mark.parametrize("name", EVERY)
def test_every_corruption_is_deterministic_and_keeps_the_size(name):
    corrupt = part("colour", name).function
    for image in (IMAGE, picture(1, 1), picture(3, 1), picture(41, 7)):
        before = image.copy()
        found = corrupt(image)
        assert (found.shape, found.dtype, found.flags.c_contiguous) == (image.shape, np.uint8, True)
        np.testing.assert_array_equal(found, corrupt(image.copy()))
        np.testing.assert_array_equal(image, before)
    assert not np.array_equal(corrupt(IMAGE), IMAGE)


def test_a_higher_severity_changes_more():
    image = picture(96, 128)
    rising = ("gaussian-noise", "shot-noise", "impulse-noise", "defocus-blur")
    for name in (*rising, "brightness", "contrast", "pixelate", "jpeg-compression"):
        changed = [
            np.abs(part("colour", f"{name}-{s}").function(image).astype(int) - image).mean()
            for s in range(1, 6)
        ]
        assert changed == sorted(changed), name


def test_noises_have_the_published_distributions():
    flat = np.full((200, 300, 3), 120, np.uint8)
    gauss = noises.gaussian_noise(flat, rng(), 0.08).astype(float)
    assert gauss.mean() == pytest.approx(119.5, abs=0.3)  # levels are cut, not rounded
    assert gauss.std() == pytest.approx(0.08 * 255, rel=0.02)
    shot = noises.shot_noise(flat, rng(), 60).astype(float)
    assert shot.mean() == pytest.approx(119.5, abs=0.6)
    assert shot.std() == pytest.approx(math.sqrt(120 / 255 / 60) * 255, rel=0.02)
    levels = np.unique(noises.shot_noise(flat, rng(), 5))
    assert set(levels) <= {int(min(k / 5, 1) * 255) for k in range(60)}
    salted = noises.impulse_noise(flat, rng(), 0.27)
    shares = [(salted == level).mean() for level in (0, 255, 120)]
    assert shares == pytest.approx([0.135, 0.135, 0.73], abs=0.005)


@pytest.mark.parametrize(("radius", "blur"), [(3, 0.1), (8, 0.5), (10, 0.5)])
def test_defocus_is_a_convolution_with_a_disc(radius, blur):
    half, reach = (8, 1) if radius <= 8 else (radius, 2)
    sharp = np.array(
        [[float(x * x + y * y <= radius**2) for x in range(-half, half + 1)] for y in range(-half, half + 1)]
    )
    sharp /= sharp.sum()
    taps = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * blur**2))
    taps /= taps.sum()
    soft = ndimage.correlate1d(ndimage.correlate1d(sharp, taps, 0, mode="mirror"), taps, 1, mode="mirror")
    np.testing.assert_allclose(patterns.disc(radius, blur), soft, atol=1e-6)
    want = np.stack([ndimage.correlate(IMAGE[..., c] / 255, soft, mode="mirror") for c in range(3)], 2) * 255
    near(blurs.defocus_blur(IMAGE, rng(), radius, blur), want, 1)


@pytest.mark.parametrize(("deviation", "reach", "times"), [(0.7, 1, 2), (1.0, 2, 3), (1.5, 4, 2)])
def test_glass_replaces_pixel_after_pixel(deviation, reach, times):
    def smooth(values):
        return ndimage.gaussian_filter(values, (deviation, deviation, 0), mode="nearest", truncate=4)

    pixels, random = smooth(IMAGE / 255.0) * 255, rng()
    pixels = np.floor(pixels + 1e-6)
    height, width = IMAGE.shape[:2]
    rows, columns = range(height - reach, reach, -1), range(width - reach, reach, -1)
    for _ in range(times):
        moves = random.integers(-reach, reach, (len(rows), len(columns), 2), np.int32)
        for i, y in enumerate(rows):
            for j, x in enumerate(columns):
                dx, dy = moves[i, j]
                pixels[y, x] = pixels[y + dy, x + dx]
    near(blurs.glass_blur(IMAGE, rng(), deviation, reach, times), smooth(pixels), 2)


@pytest.mark.parametrize(
    ("radius", "deviation", "angle"), [(10, 3, 0.0), (15, 8, 37.0), (20, 15, -45.0), (12, 4, -100.0)]
)
def test_motion_is_the_weighted_mean_along_a_line(radius, deviation, angle):
    weights = [math.exp(-(i * i) / (2 * deviation**2)) for i in range(2 * radius + 1)]
    height, width = IMAGE.shape[:2]
    want = np.zeros(IMAGE.shape)
    for i, weight in enumerate(weights):
        dx = math.ceil(i * math.cos(math.radians(angle)) - 0.5)
        dy = math.ceil(i * math.sin(math.radians(angle)) - 0.5)
        rows = np.clip(np.arange(height) + dy, 0, height - 1)
        columns = np.clip(np.arange(width) + dx, 0, width - 1)
        want += weight / sum(weights) * IMAGE[np.ix_(rows, columns)]
    found = patterns.filtered(IMAGE, patterns.motion(radius, deviation, angle))
    np.testing.assert_allclose(found, want, atol=0.01)


def published_zoom(values, factor):
    """scipy's zoom of the centre, trimmed, as the published code has it."""
    height, width = values.shape[:2]
    rows, columns = math.ceil(height / factor), math.ceil(width / factor)
    top, left = (height - rows) // 2, (width - columns) // 2
    large = ndimage.zoom(
        values[top : top + rows, left : left + columns], (factor, factor, 1)[: values.ndim], order=1
    )
    top, left = (large.shape[0] - height) // 2, (large.shape[1] - width) // 2
    return large[top : top + height, left : left + width]


@pytest.mark.parametrize("factor", [1.0, 1.05, 1.3, 2.5])
def test_the_zoom_is_scipys(factor):
    values = IMAGE.astype(np.float32)
    want = published_zoom(values, factor)
    height, width = IMAGE.shape[:2]
    found = patterns.zoomed(values, factor, height, width)[: want.shape[0], : want.shape[1]]
    near(found, want, 3, mean=0.5)  # OpenCV's weights are multiples of 1/32


@pytest.mark.parametrize(("end", "step"), [(1.11, 0.01), (1.31, 0.03)])
def test_zoom_blur_is_the_mean_of_all_factors(end, step):
    image = picture(50, 50)
    factors = np.arange(1, end, step)
    total = image + sum(published_zoom(image.astype(np.float64), factor) for factor in factors)
    near(blurs.zoom_blur(image, rng(), end, step), total / (len(factors) + 1), 3, mean=0.8)


def plain_plasma(side, decay, random):
    """Diamond-square with loops, from the same draws."""
    height, step, reach = np.zeros((side, side)), side, 100.0
    while step >= 2:
        half, count = step // 2, side // step

        def noise(count=count, reach=reach):
            return (random.random((count, count), np.float32).astype(float) * 2 - 1) * reach * reach

        def at(y, x):
            return height[y % side, x % side]

        for kind in ("square", "above", "left"):
            drawn = noise()
            for i in range(count):
                for j in range(count):
                    y, x = i * step, j * step
                    if kind == "square":
                        near_ = at(y, x), at(y + step, x), at(y, x + step), at(y + step, x + step)
                        y, x = y + half, x + half
                    elif kind == "above":
                        near_ = at(y, x), at(y, x + step), at(y + half, x + half), at(y - half, x + half)
                        x += half
                    else:
                        near_ = at(y, x), at(y + step, x), at(y + half, x + half), at(y + half, x - half)
                        y += half
                    height[y, x] = sum(near_) / 4 + drawn[i, j]
        step, reach = half, reach / decay
    height -= height.min()
    return height / height.max()


@pytest.mark.parametrize("decay", [1.4, 2.0])
def test_the_plasma_is_diamond_square(decay):
    np.testing.assert_allclose(patterns.plasma(32, decay, rng()), plain_plasma(32, decay, rng()), atol=1e-4)


def test_fog_adds_the_plasma_and_keeps_the_highest_level():
    cloud = plain_plasma(64, 1.7, rng())[:36, :52, None]
    values = IMAGE / 255
    most = values.max()
    near(weather.fog(IMAGE, rng(), 2.5, 1.7), (values + 2.5 * cloud) * most / (most + 2.5) * 255, 1)


def test_snow_is_two_layers_of_moving_flakes_on_a_whitened_image():
    mean, deviation, zoom, least, radius, moved, kept = 0.55, 0.3, 4, 0.9, 12, 8, 0.7
    random = rng()
    layer = random.normal(mean, deviation, IMAGE.shape[:2])
    layer = published_zoom(layer.astype(np.float32), zoom)
    layer = np.floor(np.clip(np.where(layer < least, 0, layer), 0, 1) * 255)
    kernel = patterns.motion(radius, moved, random.uniform(-135, -45))
    layer = np.rint(ndimage.correlate(layer, kernel, mode="nearest"))[..., None]
    values = IMAGE.astype(float)
    grey = (values @ [0.299, 0.587, 0.114])[..., None]
    white = kept * values + (1 - kept) * np.maximum(values, grey * 1.5 + 127.5)
    found = weather.snow(IMAGE, rng(), mean, deviation, zoom, least, radius, moved, kept)
    # OpenCV's weights of the zoom move single pixels over the threshold
    near(found, white + layer + layer[::-1, ::-1], 20, mean=2.0)


def test_frost_is_a_weighted_sum_with_a_bright_texture():
    texture = weather.frost_texture(36, 52, rng())
    assert texture.shape == (36, 52, 3)
    assert 60 < texture.mean() < 200
    assert texture.std() > 15
    near(weather.frost(IMAGE, rng(), 0.8, 0.6), 0.8 * IMAGE + 0.6 * texture, 1)


def test_brightness_is_added_to_the_value_of_hsv():
    def brighter(pixel):
        hue, saturation, value = colorsys.rgb_to_hsv(*(pixel / 255))
        return np.array(colorsys.hsv_to_rgb(hue, saturation, min(value + 0.3, 1))) * 255

    image = np.concatenate([IMAGE.reshape(-1, 3)[:300], np.zeros((1, 3), np.uint8)])[None]
    want = np.array([brighter(pixel) for pixel in image[0]])[None]
    near(weather.brightness(image, rng(), 0.3), want, 1)


def test_contrast_moves_levels_towards_the_mean_of_their_channel():
    values = IMAGE / 255
    means = values.mean(axis=(0, 1), keepdims=True)
    near(digital.contrast(IMAGE, rng(), 0.3), ((values - means) * 0.3 + means) * 255, 1)


@pytest.mark.parametrize("deviation", [2.44, 19.52, 170.8])
def test_the_smoothing_of_the_elastic_shift_is_scipys(deviation):
    values = np.random.default_rng(0).uniform(-1, 1, (40, 3))
    want = ndimage.gaussian_filter1d(values, deviation, axis=0, mode="reflect", truncate=3)
    np.testing.assert_allclose(patterns.smoothing(40, deviation) @ values, want, atol=1e-12)


@pytest.mark.parametrize("severity", [0, 3])
def test_elastic_transform_is_an_affine_map_and_a_smooth_shift(severity):
    shift, deviation, corner = [(488, 170.8, 24.4), None, None, (17.08, 2.44, 4.88)][severity]
    random, image = rng(), picture(60, 60).astype(np.float64)
    centre, half = np.array([30.0, 30.0]), 20
    before = np.array([centre + half, [50, 10], centre - half])
    after = before + random.uniform(-corner, corner, (3, 2))
    fields = [random.random((60, 60), np.float32) * 2.0 - 1 for _ in range(2)]
    dx, dy = (ndimage.gaussian_filter(f, deviation, mode="reflect", truncate=3) * shift for f in fields)
    matrix = np.linalg.solve(np.c_[after, np.ones(3)], before)  # from a point of the result to the source
    y, x = np.mgrid[:60, :60]
    source = np.stack([x, y, np.ones_like(x)], axis=2) @ matrix
    bent = [
        ndimage.map_coordinates(image[..., c], [source[..., 1], source[..., 0]], order=1, mode="mirror")
        for c in range(3)
    ]
    want = np.stack([ndimage.map_coordinates(b, [y + dy, x + dx], order=1, mode="reflect") for b in bent], 2)
    found = digital.elastic_transform(picture(60, 60), rng(), shift, deviation, corner)
    near(found, want, 12, mean=1.2)  # OpenCV's weights are multiples of 1/32, twice


def test_pixelate_repeats_the_mean_of_each_block():
    image = picture(40, 60)
    blocks = image.reshape(10, 4, 15, 4, 3).mean(axis=(1, 3))
    near(digital.pixelate(image, rng(), 0.25), blocks.repeat(4, axis=0).repeat(4, axis=1), 1)


def test_jpeg_compression_is_a_jpeg_of_that_quality():
    stream = io.BytesIO()
    Image.fromarray(IMAGE).save(stream, "JPEG", quality=7)
    np.testing.assert_array_equal(digital.jpeg_compression(IMAGE, rng(), 7), np.asarray(Image.open(stream)))
