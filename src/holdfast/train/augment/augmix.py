"""AugMix (Hendrycks et al. 2020), APR-SP (Chen et al. 2021), and the operations that both chain.

The operations are those of the paper that do not resemble a test corruption. Geometric operations replicate
the border: AugMix fills it with black, which on a small sign is the largest change of all.
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

Operation: TypeAlias = Callable[[Image, float], Image]  # strength −1 to 1; the sign is the direction
DEGREES, SHEAR, TRANSLATION = 30.0, 0.3, 1 / 3  # at strength 1
MOST = 0.3  # maximum strength of an operation: the paper's severity 3 of 10
WIDTH, DEPTH = 3, 3  # AugMix: chains per image, maximum operations per chain
SHARE = 0.5  # APR-SP: share of recombined images
_NOTHING = 1e-3  # smallest amplitude above rounding errors


def autocontrast(image: Image, strength: float) -> Image:
    """The picture (h, w, 3) with each channel stretched to 0..255; the strength is ignored."""
    return np.asarray(ImageOps.autocontrast(Pillow.fromarray(image)))


def equalise(image: Image, strength: float) -> Image:
    """The picture (h, w, 3) with each channel's histogram equalised; the strength is ignored."""
    return np.asarray(ImageOps.equalize(Pillow.fromarray(image)))


def posterise(image: Image, strength: float) -> Image:
    """The picture with 4 bits per channel, down to 0 at full strength."""
    return np.asarray(ImageOps.posterize(Pillow.fromarray(image), 4 - int(abs(strength) * 4)))


def solarise(image: Image, strength: float) -> Image:
    """The picture with its brightest levels inverted; all of them at full strength."""
    return np.asarray(ImageOps.solarize(Pillow.fromarray(image), 256 - int(abs(strength) * 256)))


def rotate(image: Image, strength: float) -> Image:
    """The picture rotated about its centre by up to 30 degrees."""
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
    """Strengths drawn from 0.01 (or `most`, if less) to `most`, with a random sign."""
    return np.asarray(rng.uniform(min(0.01, most), most, shape) * rng.choice((-1.0, 1.0), shape))


@stage("augment")
def augmix(images: Pictures, rng: np.random.Generator, severity: float = 1.0) -> Pictures:
    """Images (n, h, w, 3), each mixed with three chains of one to three operations.

    (1 − m) x + m Σ wᵢ chainᵢ(x) with w ~ Dirichlet(1, 1, 1) and m ~ Beta(1, 1), which `severity` scales.
    """
    check("augmix", images, severity)
    if severity == 0:
        return images.copy()
    n = len(images)
    weights = rng.dirichlet((1.0,) * WIDTH, n).astype(np.float32)
    shares = (rng.beta(1.0, 1.0, n) * severity).astype(np.float32)
    depths = rng.integers(1, DEPTH + 1, (n, WIDTH))
    selected = rng.integers(len(OPERATIONS), size=(n, WIDTH, DEPTH))
    strength = strengths(rng, (n, WIDTH, DEPTH), MOST * severity)
    augmented = np.empty_like(images)
    for index, image in enumerate(images):
        mixed = image * (1 - shares[index])
        for chain in range(WIDTH):
            changed = image
            for step in range(depths[index, chain]):
                changed = OPERATIONS[selected[index, chain, step]](changed, strength[index, chain, step])
            mixed += changed * (shares[index] * weights[index, chain])
        augmented[index] = np.rint(mixed)
    return augmented


@stage("augment")
def apr_sp(images: Pictures, rng: np.random.Generator, severity: float = 1.0) -> Pictures:
    """Images (n, h, w, 3), half of them with the phase of one version and the amplitude of another.

    Each version is the result of one operation; the other images are unchanged. The phase carries the shape:
    a net that relies on it is less sensitive to changes of the amplitude.
    """
    check("apr-sp", images, severity)
    n = len(images)
    recombined_rows = np.flatnonzero(rng.random(n) < SHARE * severity)
    selected = rng.integers(len(OPERATIONS), size=(n, 2))
    strength = strengths(rng, (n, 2), MOST * severity)
    augmented = images.copy()
    if len(recombined_rows):

        def version(number: int) -> Pictures:
            chosen, amount = selected[:, number], strength[:, number]
            return np.stack([OPERATIONS[chosen[i]](images[i], amount[i]) for i in recombined_rows])

        augmented[recombined_rows] = recombined(version(0), version(1))
    return augmented


def recombined(phase: Pictures, amplitude: Pictures) -> Pictures:
    """Images (n, h, w, 3) with the phase of the first and the amplitude of the second, per channel."""
    import torch  # its FFT in single precision is five times as fast as numpy's

    both = np.ascontiguousarray(np.stack((phase, amplitude)).transpose(0, 1, 4, 2, 3), np.float32)
    with torch.no_grad():
        shape, strength = torch.fft.rfft2(torch.from_numpy(both))
        length = shape.abs()
        empty = length < _NOTHING  # a frequency without amplitude has no phase: use 0
        unit_phase = torch.where(empty, 1, shape / length.clamp(min=_NOTHING))
        mixed = torch.fft.irfft2(unit_phase * strength.abs(), s=phase.shape[1:3])
        levels = mixed.clamp_(0, 255).round_().to(torch.uint8).permute(0, 2, 3, 1)
    return np.asarray(levels.numpy())


def consistency(logits_list: Sequence[Any]) -> Any:
    """The Jensen-Shannon divergence in nats (a scalar tensor) between predictions for versions of a batch.

    logits_list: two or more tensors (n, classes), of the images and of augmented versions. The
    mean over the batch of Σᵢ KL(pᵢ ‖ mean p) / k; AugMix adds 12 times this to the loss.
    """
    if len(logits_list) < 2:
        raise InputError(f"consistency: expected the logits of 2 or more versions, got {len(logits_list)}")
    import torch

    logs = torch.stack([logits.log_softmax(1) for logits in logits_list])
    probabilities = logs.exp()
    log_mean = probabilities.mean(0).clamp(min=1e-7).log()
    return (probabilities * (logs - log_mean)).sum(2).mean()
