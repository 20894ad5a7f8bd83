"""From a log mel spectrogram back to a wave: the inverse of the mel filters, then Griffin and Lim's phase.

    S = max(M⁺ · exp(log mel), 0)^(1/p)         M⁺ the pseudo-inverse of the filters, p the power
    X⁰ = S · exp(iφ⁰)                           φ⁰ = 0, or drawn from a seed
    Yⁿ = STFT(ISTFT(Xⁿ));   Zⁿ = Yⁿ + m · (Yⁿ − Yⁿ⁻¹);   Xⁿ⁺¹ = S · Zⁿ / |Zⁿ|

m = 0 is Griffin and Lim (1984), m near 1 their fast form (Perraudin and others, 2013). The last X
is inverted. Everything is deterministic: the same spectrogram gives the same wave.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from holdfast.core.registry import part
from holdfast.core.seeds import generator
from holdfast.noise.speech.model.mel import exponential, mel_filters
from holdfast.noise.speech.system import Complex, Mel, Spectrum, Wave

TINY = 1e-12  # a magnitude below has no phase worth keeping


@dataclass(frozen=True)
class Vocoder:
    """How Griffin-Lim is run: the STFT operator by name, rounds, momentum, and where the phase begins."""

    operator: str = "numpy"
    iterations: int = 32
    momentum: float = 0.0
    seed: int | None = None  # None: a phase of zero


def wave_of(log_mel: Mel, spectrum: Spectrum, how: Vocoder | None = None) -> Wave:
    """The wave of a log mel spectrogram (frames, mels), read as the spectrum says."""
    return griffin_lim(magnitudes(log_mel, spectrum), spectrum, how or Vocoder())


def magnitudes(log_mel: Mel, spectrum: Spectrum) -> NDArray[np.float64]:
    """The magnitudes (bins, frames) that a log mel spectrogram (frames, mels) stands for."""
    linear = np.maximum(_inverse_filters(spectrum) @ exponential(log_mel.T, spectrum), 0.0)
    return np.asarray(linear if spectrum.power == 1.0 else linear ** (1.0 / spectrum.power))


@functools.lru_cache(maxsize=32)
def _inverse_filters(spectrum: Spectrum) -> NDArray[np.float64]:
    found = np.asarray(np.linalg.pinv(mel_filters(spectrum)), np.float64)
    found.setflags(write=False)
    return found


def griffin_lim(magnitude: NDArray[np.float64], spectrum: Spectrum, how: Vocoder) -> Wave:
    """The wave whose transform's magnitudes are near these (bins, frames)."""
    operator = part("stft", how.operator)
    forward, backward = operator.function, operator.facts["inverse"]
    now = _begun(magnitude, how.seed)
    before: Complex | None = None
    for _ in range(how.iterations):
        heard = _frames(forward(backward(now, spectrum), spectrum), magnitude.shape[1])
        ahead = heard if before is None else heard + how.momentum * (heard - before)
        before = heard
        now = magnitude * (ahead / np.maximum(np.abs(ahead), TINY))
    wave: Wave = backward(now, spectrum)
    return wave


def _begun(magnitude: NDArray[np.float64], seed: int | None) -> Complex:
    if seed is None:
        return magnitude.astype(np.complex128)
    angle = generator(seed, "griffin-lim", *magnitude.shape).uniform(-np.pi, np.pi, magnitude.shape)
    return np.asarray(magnitude * np.exp(1j * angle))


def _frames(transform: Complex, frames: int) -> Complex:
    """The transform with so many frames: operators differ by one in how they treat the end."""
    missing = frames - transform.shape[1]
    return np.pad(transform, ((0, 0), (0, missing))) if missing > 0 else transform[:, :frames]
