"""The faces of the signs and what may hide them."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest

from holdfast.data.signs.canvas import CLASSES, FIRST_SIGN, GROUP_OF, blank
from holdfast.data.signs.faces import SIZE, face, nearest_size
from holdfast.data.signs.placement import corners, hide, warp


def flat(label: int, size: int) -> np.ndarray:
    """The face over grey."""
    rgba = face(label, size).astype(float)
    alpha = rgba[..., 3:] / 255
    return rgba[..., :3] * alpha + 128 * (1 - alpha)


def shot_of(canvas, seed):
    return SimpleNamespace(canvas=canvas, rng=np.random.default_rng(seed))


@pytest.mark.parametrize("label", range(len(CLASSES)))
def test_face_is_a_filled_shape_inside_its_square(label):
    image = face(label)
    alpha = image[..., 3]
    assert image.shape == (SIZE, SIZE, 4)
    assert max(alpha[0].max(), alpha[-1].max(), alpha[:, 0].max(), alpha[:, -1].max()) < 128
    share = (alpha > 127).mean()
    low, high = (0.40, 0.60) if GROUP_OF[label] == 2 else (0.74, 0.84)
    assert low < share < high
    assert not image.flags.writeable


def test_faces_differ_at_twenty_pixels():
    small = [flat(label, 20) for label in range(len(CLASSES))]
    nearest = min(np.abs(a - b).mean() for a, b in itertools.combinations(small, 2))
    assert nearest > 4


def test_mirrored_pairs_are_mirrored():
    for left, right in (("turn-left", "turn-right"), ("curve-left", "curve-right")):
        a, b = flat(CLASSES.index(left), 64), flat(CLASSES.index(right), 64)
        assert np.abs(a - b[:, ::-1]).mean() < 1.0
        assert np.abs(a - b).mean() > 5.0


@pytest.mark.parametrize(
    ("pixels", "size"), [(5, 32), (32, 32), (33, 64), (128, 128), (129, 256), (900, 256)]
)
def test_nearest_size(pixels, size):
    assert nearest_size(pixels) == size


def test_corners_of_a_sign_that_faces_the_camera_are_a_square():
    assert corners(10.0, 0.0, 0.0) == pytest.approx(np.array([(-5, -5), (5, -5), (5, 5), (-5, 5)]))
    turned = corners(10.0, 30.0, 0.0)
    assert np.ptp(turned[:, 0]) < 9.0
    assert turned[0, 1] < turned[1, 1]


def test_warp_keeps_the_size_to_a_pixel():
    patch = warp(CLASSES.index("no-entry"), 100.25, 60.5, 80.0, corners(80.0, 0.0, 0.0))
    x0, y0, x1, y1 = patch.extent
    assert x1 - x0 == pytest.approx(80 * 0.985, abs=1.5)
    assert y1 - y0 == pytest.approx(80 * 0.985, abs=1.5)
    assert (x0 + x1) / 2 == pytest.approx(100.25, abs=1)
    assert (y0 + y1) / 2 == pytest.approx(60.5, abs=1)


def test_what_hides_a_sign_leaves_three_fifths():
    shares = []
    for label, seed in itertools.product((0, 7, 19), range(40)):
        canvas = blank(480, 640)
        canvas.mask[:] = 0
        canvas.image[:] = 128
        patch = warp(label, 320.0, 200.0, 90.0, corners(90.0, 10.0, 1.0))
        canvas.mask[patch.y : patch.y + patch.alpha.shape[0], patch.x : patch.x + patch.alpha.shape[1]][
            patch.alpha >= 0.5
        ] = FIRST_SIGN
        before = (canvas.mask == FIRST_SIGN).sum()
        hide(shot_of(canvas, seed), patch.extent, 420.0, [])
        shares.append((canvas.mask == FIRST_SIGN).sum() / before)
    assert min(shares) >= 0.58
    assert min(shares) < 0.85


def test_nothing_hides_a_sign_at_the_cost_of_another():
    canvas = blank(480, 640)
    canvas.mask[:] = FIRST_SIGN
    everywhere = [(0.0, 0.0, 640.0, 480.0)]
    for seed in range(20):
        hide(shot_of(canvas, seed), (300.0, 180.0, 360.0, 240.0), 420.0, everywhere)
    assert (canvas.mask == FIRST_SIGN).all()
