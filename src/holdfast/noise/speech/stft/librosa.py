"""librosa's stft and istft, which the numpy operator is defined after."""

import dataclasses
from typing import Any

import numpy as np

from holdfast.core.registry import stage
from holdfast.noise.speech.spectrum import Complex, Spectrum, Wave
from holdfast.noise.speech.stft.numpy import padded, window_of


def _settings(spectrum: Spectrum) -> dict[str, Any]:
    # The window is handed over whole: librosa by itself can only make a periodic one.
    window = window_of(spectrum)
    return {"n_fft": spectrum.n_fft, "hop_length": spectrum.hop, "window": window, "center": spectrum.centre}


def inverse_librosa(transform: Complex, spectrum: Spectrum, length: int | None = None) -> Wave:
    """The wave by librosa.istft with the card's settings."""
    from librosa import istft

    return np.asarray(istft(transform, length=length, **_settings(spectrum)), np.float64)


@stage(
    "stft",
    inverse=inverse_librosa,
    needs="librosa",
    systems="librosa with the card's settings; most training code for speech",
)
def librosa(wave: Wave, spectrum: Spectrum) -> Complex:
    """librosa.stft with the settings of the card."""
    from librosa import stft

    padded(wave, spectrum)  # one line for a wave that is too short
    transform = stft(np.asarray(wave, np.float64), pad_mode=spectrum.padding, **_settings(spectrum))
    return np.asarray(transform, np.complex128)


def inverse_librosa_default(transform: Complex, spectrum: Spectrum, length: int | None = None) -> Wave:
    """The wave by librosa.istft as it comes."""
    default = dataclasses.replace(spectrum, periodic=True, centre=True, padding="constant")
    return inverse_librosa(transform, default, length)


@stage(
    "stft",
    inverse=inverse_librosa_default,
    needs="librosa",
    systems="librosa since 0.10, where zeros took the place of the mirrored ends",
)
def librosa_default(wave: Wave, spectrum: Spectrum) -> Complex:
    """librosa.stft as it comes: centred, zeros at the ends, a periodic window."""
    from librosa import stft

    settings = {"n_fft": spectrum.n_fft, "hop_length": spectrum.hop, "win_length": spectrum.window_length}
    return np.asarray(stft(np.asarray(wave, np.float64), **settings), np.complex128)
