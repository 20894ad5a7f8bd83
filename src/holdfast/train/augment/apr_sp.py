"""APR-SP (Chen et al. 2021): the phase of one version of a picture with the amplitude of another."""

from __future__ import annotations

import numpy as np

from holdfast.core.registry import stage
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
    import torch  # its transform in single precision takes a fifth of numpy's time

    both = np.ascontiguousarray(np.stack((phase, amplitude)).transpose(0, 1, 4, 2, 3), np.float32)
    with torch.no_grad():
        shape, strength = torch.fft.rfft2(torch.from_numpy(both))
        length = shape.abs()
        empty = length < _NOTHING  # a frequency without amplitude has no angle: it is taken as 0
        turn = torch.where(empty, 1, shape / length.clamp(min=_NOTHING))
        mixed = torch.fft.irfft2(turn * strength.abs(), s=phase.shape[1:3])
        levels = mixed.clamp_(0, 255).round_().to(torch.uint8).permute(0, 2, 3, 1)
    return np.asarray(levels.numpy())
