"""SciPy's scipy.signal.stft and istft, which divide by the sum of the window by default."""

from typing import Any

import numpy as np

from holdfast.core.registry import stage
from holdfast.noise.speech.spectrum import Complex, Spectrum, Wave
from holdfast.noise.speech.stft.numpy import fitted, padded, window_of

_MIRROR = {"reflect": "even", "constant": "zeros"}  # SciPy's names of the two kinds of ends


def _settings(spectrum: Spectrum, window: Wave | str) -> dict[str, Any]:
    return {"window": window, "nperseg": spectrum.n_fft, "noverlap": spectrum.n_fft - spectrum.hop}


def inverse_scipy(transform: Complex, spectrum: Spectrum, length: int | None = None) -> Wave:
    """The wave by scipy.signal.istft with the card's settings."""
    from scipy import signal

    window = window_of(spectrum)
    scaled, settings = transform / window.sum(), _settings(spectrum, window)
    return fitted(signal.istft(scaled, boundary=spectrum.centre, **settings)[1], length)


@stage("stft", inverse=inverse_scipy, needs="scipy", systems="SciPy with the card's settings")
def scipy(wave: Wave, spectrum: Spectrum) -> Complex:
    """scipy.signal.stft with the settings of the card, and its gain taken back."""
    from scipy import signal

    padded(wave, spectrum)  # one line for a wave that is too short, instead of SciPy's own way out
    window = window_of(spectrum)
    ends = _MIRROR[spectrum.padding] if spectrum.centre else None
    transform = signal.stft(wave, boundary=ends, padded=False, **_settings(spectrum, window))[2]
    return np.asarray(transform * window.sum(), np.complex128)


def inverse_scipy_default(transform: Complex, spectrum: Spectrum, length: int | None = None) -> Wave:
    """The wave by scipy.signal.istft as it comes, after the gain of the window is taken back."""
    return inverse_scipy_unscaled(transform / _whole(spectrum).sum(), spectrum, length)


@stage(
    "stft",
    inverse=inverse_scipy_default,
    needs="scipy",
    systems="scipy.signal.stft as it comes, its gain taken back",
)
def scipy_default(wave: Wave, spectrum: Spectrum) -> Complex:
    """scipy.signal.stft as it comes: zeros at the ends, the last frame filled up, a window of n_fft."""
    return np.asarray(scipy_unscaled(wave, spectrum) * _whole(spectrum).sum())


def inverse_scipy_unscaled(transform: Complex, spectrum: Spectrum, length: int | None = None) -> Wave:
    """The wave by scipy.signal.istft as it comes."""
    from scipy import signal

    return fitted(signal.istft(transform, **_settings(spectrum, "hann"))[1], length)


@stage(
    "stft",
    inverse=inverse_scipy_unscaled,
    needs="scipy",
    default=False,
    systems="scipy.signal.stft put in the place of another without a word: scaling='spectrum'",
)
def scipy_unscaled(wave: Wave, spectrum: Spectrum) -> Complex:
    """scipy.signal.stft as it comes, divided by the sum of its window: hundreds of times smaller."""
    from scipy import signal

    return np.asarray(signal.stft(wave, **_settings(spectrum, "hann"))[2], np.complex128)


def _whole(spectrum: Spectrum) -> Wave:
    """SciPy's own window: periodic and as long as the frame, whatever `window_length` is."""
    from scipy import signal

    return np.asarray(signal.get_window("hann", spectrum.n_fft), np.float64)
