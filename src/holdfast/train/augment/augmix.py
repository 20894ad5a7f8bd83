"""AugMix (Hendrycks et al. 2020), APR-SP (Chen et al. 2021), and the operations that both of them chain.

The operations are those of the paper that no test corruption resembles. Where a picture is moved, its edge
is repeated: AugMix leaves black there, which on a small sign is the largest change of all.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import cv2
import numpy as np
from PIL import Image as Pillow
from PIL import ImageOps

from holdfast.core.errors import InputError
from holdfast.core.registry import stage
from holdfast.core.types import Image, Tensor
from holdfast.train.augment import Pictures, check, warp

Operation: TypeAlias = Callable[[Image, float], Image]  # a strength of −1 to 1; the sign is a direction
DEGREES, SHEAR, TRANSLATION = 30.0, 0.3, 1 / 3  # at strength 1
MOST = 0.3  # of an operation's full strength: the paper's severity 3 of 10
WIDTH, DEPTH = 3, 3  # AugMix: chains per picture, operations per chain at most
SHARE = 0.5  # APR-SP: of the pictures are recombined
_NOTHING = 1e-3  # an amplitude that is rounding: a level of one pixel is 1


def autocontrast(image: Image, strength: float) -> Image:
    """The picture (h, w, 3) with each channel stretched over 0..255; it has no strength."""
    return np.asarray(ImageOps.autocontrast(Pillow.fromarray(image)))


def equalise(image: Image, strength: float) -> Image:
    """The picture (h, w, 3) with each channel's levels used alike; it has no strength."""
    return np.asarray(ImageOps.equalize(Pillow.fromarray(image)))


def posterise(image: Image, strength: float) -> Image:
    """The picture with 4 bits a channel, down to none at full strength."""
    return np.asarray(ImageOps.posterize(Pillow.fromarray(image), 4 - int(abs(strength) * 4)))


def solarise(image: Image, strength: float) -> Image:
    """The picture with its brightest levels inverted; all of them at full strength."""
    return np.asarray(ImageOps.solarize(Pillow.fromarray(image), 256 - int(abs(strength) * 256)))


def rotate(image: Image, strength: float) -> Image:
    """The picture turned about its middle by up to 30 degrees."""
    height, width = image.shape[:2]
    middle = ((width - 1) / 2, (height - 1) / 2)
    return warp(image, cv2.getRotationMatrix2D(middle, strength * DEGREES, 1.0))


def shear_x(image: Image, strength: float) -> Image:
    """The picture with its rows shifted by up to 0.3 of their distance from the top."""
    return warp(image, np.array([[1.0, strength * SHEAR, 0], [0, 1, 0]]))


def shear_y(image: Image, strength: float) -> Image:
    """The picture with its columns shifted by up to 0.3 of their distance from the left."""
    return warp(image, np.array([[1.0, 0, 0], [strength * SHEAR, 1, 0]]))


def translate_x(image: Image, strength: float) -> Image:
    """The picture shifted sideways by up to a third of its width."""
    return warp(image, np.array([[1.0, 0, int(strength * image.shape[1] * TRANSLATION)], [0, 1, 0]]))


def translate_y(image: Image, strength: float) -> Image:
    """The picture shifted up or down by up to a third of its height."""
    return warp(image, np.array([[1.0, 0, 0], [0, 1, int(strength * image.shape[0] * TRANSLATION)]]))


OPERATIONS: Final[tuple[Operation, ...]] = (
    autocontrast, equalise, posterise, rotate, solarise, shear_x, shear_y, translate_x, translate_y
)  # fmt: skip


def strengths(rng: np.random.Generator, shape: tuple[int, ...], most: float) -> Tensor:
    """Strengths drawn from 0.01 (or `most`, if less) to `most`, each in one of both directions."""
    return np.asarray(rng.uniform(min(0.01, most), most, shape) * rng.choice((-1.0, 1.0), shape))


@stage("augment")
def augmix(images: Pictures, rng: np.random.Generator, severity: float = 1.0) -> Pictures:
    """Pictures (n, h, w, 3), each mixed with three chains of one to three operations on it.

    (1 − m) x + m Σ wᵢ chainᵢ(x) with w ~ Dirichlet(1, 1, 1) and m ~ Beta(1, 1), which `severity` scales.
    """
    check("augmix", images, severity)
    if severity == 0:
        return images.copy()
    n = len(images)
    weights = rng.dirichlet((1.0,) * WIDTH, n).astype(np.float32)
    shares = (rng.beta(1.0, 1.0, n) * severity).astype(np.float32)
    depths = rng.integers(1, DEPTH + 1, (n, WIDTH))
    chosen = rng.integers(len(OPERATIONS), size=(n, WIDTH, DEPTH))
    how = strengths(rng, (n, WIDTH, DEPTH), MOST * severity)
    made = np.empty_like(images)
    for place, image in enumerate(images):
        mixed = image * (1 - shares[place])
        for chain in range(WIDTH):
            changed = image
            for step in range(depths[place, chain]):
                changed = OPERATIONS[chosen[place, chain, step]](changed, how[place, chain, step])
            mixed += changed * (shares[place] * weights[place, chain])
        made[place] = np.rint(mixed)
    return made


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
        versions = [
            np.stack([OPERATIONS[chosen[at, which]](images[at], how[at, which]) for at in taken])
            for which in range(2)
        ]
        made[taken] = recombined(*versions)
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


def consistency(logits_list: Sequence[Any]) -> Any:
    """The Jensen-Shannon divergence in nats (a tensor of one number) of answers to versions of a batch.

    logits_list: two or more tensors (n, classes), of the pictures themselves and of augmented versions. The
    mean over the batch of Σᵢ KL(pᵢ ‖ mean p) / k; AugMix adds 12 times this to the loss.
    """
    if len(logits_list) < 2:
        raise InputError(f"consistency: expected the logits of 2 or more versions, got {len(logits_list)}")
    import torch

    logs = torch.stack([logits.log_softmax(1) for logits in logits_list])
    chances = logs.exp()
    middle = chances.mean(0).clamp(min=1e-7).log()
    return (chances * (logs - middle)).sum(2).mean()
