"""APR-SP (Chen et al. 2021): the phase of one version of a picture with the amplitude of another."""

from __future__ import annotations

import cv2
import numpy as np

from holdfast.core.registry import stage
from holdfast.core.types import Tensor
from holdfast.train.augment.operations import OPERATIONS, strengths
from holdfast.train.augment.pictures import Pictures, check

SHARE = 0.5  # of the pictures are recombined
MOST = 0.3  # of an operation's full strength, as in AugMix
_NOTHING = 1e-3  # an amplitude that is rounding: a level of one pixel is 1


@stage("augment")
def apr_sp(images: Pictures, rng: np.random.Generator, severity: float = 1.0) -> Pictures:
    """Pictures (n, h, w, 3), half of them with the phase of one changed version and another's amplitude.

    The two versions come of one operation each; a picture that is not recombined is left as it is. Shape is
    in the phase: a net that leans on it is less moved by what changes the amplitude.
    """
    check("apr-sp", images, severity)
    n = len(images)
    taken = np.flatnonzero(rng.random(n) < SHARE * severity)
    chosen = rng.integers(len(OPERATIONS), size=(n, 2))
    how = strengths(rng, (n, 2), MOST * severity)
    made = images.copy()
    if len(taken):
        versions = np.stack(
            [
                [OPERATIONS[chosen[place, which]](images[place], how[place, which]) for place in taken]
                for which in range(2)
            ]
        )
        made[taken] = recombined(versions[0], versions[1])
    return made


def recombined(phase: Pictures, amplitude: Pictures) -> Pictures:
    """Pictures (n, h, w, 3) with the first's phase and the second's amplitude, channel by channel."""
    n, height, width = phase.shape[:3]
    shape, strength = _spectra(phase), _spectra(amplitude)
    length = np.abs(shape)
    empty = length < _NOTHING  # a frequency without amplitude has no angle: it is taken as 0
    shape[empty], length[empty] = 1, 1
    shape *= np.abs(strength) / length
    mixed = np.empty((n * 3, height, width), np.float32)
    flags = cv2.DFT_INVERSE | cv2.DFT_SCALE | cv2.DFT_REAL_OUTPUT
    for place, spectrum in enumerate(shape):
        mixed[place] = cv2.dft(spectrum.view(np.float32).reshape(height, width, 2), flags=flags)
    levels = np.rint(mixed.clip(0, 255)).astype(np.uint8)
    return np.asarray(levels.reshape(n, 3, height, width).transpose(0, 2, 3, 1))


def _spectra(pictures: Pictures) -> Tensor:
    """The Fourier transforms (n · 3, h, w) complex64 of the channels."""
    n, height, width = pictures.shape[:3]
    planes = np.ascontiguousarray(pictures.transpose(0, 3, 1, 2), np.float32).reshape(-1, height, width)
    made = np.empty((n * 3, height, width), np.complex64)
    for place, plane in enumerate(planes):  # OpenCV's transform in single precision is four times numpy's
        made[place] = cv2.dft(plane, flags=cv2.DFT_COMPLEX_OUTPUT).view(np.complex64)[..., 0]
    return made
