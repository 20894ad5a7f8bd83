"""Similarity of two images: peak signal to noise ratio, and structural similarity."""

import math

import numpy as np

from holdfast.core.errors import InputError
from holdfast.core.extras import require
from holdfast.core.types import Floats, Image

_SIDE, _SIGMA, _K1, _K2, _RANGE = 11, 1.5, 0.01, 0.03, 255.0  # as in Wang et al. 2004


def psnr(before: Image, after: Image) -> float:
    """The peak signal to noise ratio in dB over all pixels and channels; infinite for equal images."""
    _check(before, after)
    error = float(np.square(before.astype(np.float64) - after).mean())
    return math.inf if error == 0.0 else 10.0 * math.log10(_RANGE**2 / error)


def ssim(before: Image, after: Image) -> float:
    """The structural similarity, 1 for equal images: mean over the channels and all places of the window.

    Window 11×11, Gaussian with σ 1.5, only where it lies wholly inside the image; K1 = 0.01, K2 = 0.03;
    covariances with the weights of the window (divided by n, not n − 1).
    """
    _check(before, after)
    if min(before.shape[:2]) < _SIDE:
        raise InputError(f"SSIM: expected images of {_SIDE}×{_SIDE} pixels or more, got {_size(before)}")
    x, y = before.astype(np.float64), after.astype(np.float64)
    mean_x, mean_y = _window(x), _window(y)
    var_x = _window(x * x) - mean_x * mean_x
    var_y = _window(y * y) - mean_y * mean_y
    both = _window(x * y) - mean_x * mean_y
    c1, c2 = (_K1 * _RANGE) ** 2, (_K2 * _RANGE) ** 2
    over = (2.0 * mean_x * mean_y + c1) * (2.0 * both + c2)
    under = (mean_x * mean_x + mean_y * mean_y + c1) * (var_x + var_y + c2)
    return float((over / under).mean())


def _window(values: Floats) -> Floats:
    """The weighted mean of the window around each place where it fits: (h − 10, w − 10, channels)."""
    cv2 = require("SSIM", "cv2", "attack")
    half = _SIDE // 2
    line = np.exp(-0.5 * (np.arange(-half, half + 1) / _SIGMA) ** 2)
    line /= line.sum()
    return np.asarray(cv2.sepFilter2D(values, cv2.CV_64F, line, line)[half:-half, half:-half])


def _check(before: Image, after: Image) -> None:
    if before.shape != after.shape:
        raise InputError(f"expected two images of one size, got {_size(before)} and {_size(after)}")
    for image in (before, after):
        if image.ndim != 3 or image.dtype != np.uint8 or not image.size:
            raise InputError(f"expected images (h, w, channels) uint8, got {image.shape} {image.dtype.name}")


def _size(image: Image) -> str:
    return "×".join(str(side) for side in image.shape[:2][::-1]) if image.ndim > 1 else str(image.shape)
