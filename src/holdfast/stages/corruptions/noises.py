"""Noise of the sensor: Gaussian, shot (Poisson) and impulse (salt and pepper) noise."""

import numpy as np

from holdfast.core.types import Image
from holdfast.stages.corruptions.severity import corruption, to_levels


@corruption(0.08, 0.12, 0.18, 0.26, 0.38)
def gaussian_noise(image: Image, random: np.random.Generator, deviation: float) -> Image:
    """X + N(0, σ²) with levels from 0 to 1: noise of low light."""
    noise = random.standard_normal(image.shape, np.float32)
    noise *= np.float32(255 * deviation)
    noise += image
    return to_levels(noise)


@corruption(60, 25, 12, 5, 3)
def shot_noise(image: Image, random: np.random.Generator, photons: float) -> Image:
    """Poisson(c·x)/c with levels from 0 to 1: noise of single photons."""
    expected = np.arange(256) * (photons / 255)
    counts = random.poisson(expected[image])
    return to_levels(counts * (255 / photons))


@corruption(0.03, 0.06, 0.09, 0.17, 0.27)
def impulse_noise(image: Image, random: np.random.Generator, share: float) -> Image:
    """Each value is 0 with probability a/2 and 255 with probability a/2: defective bits."""
    place = random.random(image.shape, np.float32)
    noisy = image.copy()
    noisy[place < share / 2] = 0
    noisy[place >= 1 - share / 2] = 255
    return noisy
