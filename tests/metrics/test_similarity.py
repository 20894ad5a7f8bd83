"""PSNR and SSIM against their formulas, place by place, and against known values."""

import math
from itertools import pairwise

import numpy as np
import pytest

from holdfast.core.errors import InputError
from holdfast.metrics.similarity import psnr, ssim


def pictures(seed=0, height=17, width=14):
    rng = np.random.default_rng(seed)
    before = rng.integers(0, 256, (height, width, 3)).astype(np.uint8)
    after = np.clip(before + rng.integers(-30, 31, before.shape), 0, 255).astype(np.uint8)
    return before, after


def slow_ssim(before, after):
    """Wang et al. 2004, equation 13, with a loop over every place of the window."""
    line = [math.exp(-(k**2) / (2 * 1.5**2)) for k in range(-5, 6)]
    weights = np.outer(line, line) / sum(line) ** 2
    c1, c2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2
    found = []
    for channel in range(3):
        for y in range(before.shape[0] - 10):
            for x in range(before.shape[1] - 10):
                p = before[y : y + 11, x : x + 11, channel].astype(float)
                q = after[y : y + 11, x : x + 11, channel].astype(float)
                mp, mq = (weights * p).sum(), (weights * q).sum()
                vp, vq = (weights * (p - mp) ** 2).sum(), (weights * (q - mq) ** 2).sum()
                both = (weights * (p - mp) * (q - mq)).sum()
                found.append((2 * mp * mq + c1) * (2 * both + c2) / ((mp**2 + mq**2 + c1) * (vp + vq + c2)))
    return np.mean(found)


@pytest.mark.parametrize("seed", range(3))
def test_ssim_is_its_formula(seed):
    before, after = pictures(seed)
    assert ssim(before, after) == pytest.approx(slow_ssim(before, after), rel=1e-10)
    assert ssim(after, before) == pytest.approx(ssim(before, after), rel=1e-12)


def test_ssim_of_flat_images():
    """Without any structure only the means count: (2·100·110 + C1) / (100² + 110² + C1)."""
    before, after = np.full((20, 20, 3), 100, np.uint8), np.full((20, 20, 3), 110, np.uint8)
    assert ssim(before, after) == pytest.approx((22000 + 6.5025) / (22100 + 6.5025), rel=1e-9)


def test_equal_images():
    before, _ = pictures()
    assert psnr(before, before) == math.inf
    assert ssim(before, before) == pytest.approx(1.0, abs=1e-12)


def test_psnr_known_values():
    before = np.zeros((10, 10, 3), np.uint8)
    assert psnr(before, before + np.uint8(255)) == pytest.approx(0.0, abs=1e-12)
    assert psnr(before, before + np.uint8(1)) == pytest.approx(48.1308036, abs=1e-6)
    after = before.copy()
    after[0, 0, 0] = 255  # one value of 300
    assert psnr(before, after) == pytest.approx(10 * math.log10(300), rel=1e-12)


def test_more_change_is_less_alike():
    before, _ = pictures(height=60, width=60)
    worse = []
    for count in (10, 100, 1000):
        after = before.copy()
        after.reshape(-1, 3)[:count] = 255 - after.reshape(-1, 3)[:count]
        worse.append((psnr(before, after), ssim(before, after)))
    assert worse == sorted(worse, reverse=True)
    assert all(b < a for (_, a), (_, b) in pairwise(worse))


def test_refused():
    before, _ = pictures()
    with pytest.raises(InputError, match="two images of one size, got 14×17 and 14×16"):
        psnr(before, before[:-1])
    with pytest.raises(InputError, match="11×11 pixels or more, got 10×17"):
        ssim(before[:, :10], before[:, :10])
    with pytest.raises(InputError, match=r"uint8, got .* float64"):
        psnr(before / 1.0, before / 1.0)
