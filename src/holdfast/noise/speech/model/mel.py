"""Mel filters and log mel spectrograms, by librosa's definitions.

Frequencies and mels (O'Shaughnessy's formula as HTK has it; Slaney's Auditory Toolbox):

    htk:     m = 2595 · log10(1 + f / 700)
    slaney:  m = 3f / 200 below 1000 Hz,  m = 15 + 27 · ln(f / 1000) / ln 6.4 above

The filters are triangles between mels + 2 points evenly spread in m; with the norm `slaney` each is divided
by half its width in hertz, so that all have the same area.
"""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from holdfast.core.registry import lookup
from holdfast.noise.speech.system import Mel, MelScale, Spectrum, Wave

_LINEAR, _BREAK = 200.0 / 3.0, 1000.0  # hertz a mel below the break, and the break
_STEP = np.log(6.4) / 27.0  # of ln f a mel above it


def mels_of(hertz: NDArray[np.float64], scale: MelScale) -> NDArray[np.float64]:
    """Frequencies on the mel scale."""
    if scale == "htk":
        return np.asarray(2595.0 * np.log10(1.0 + hertz / 700.0))
    above = _BREAK / _LINEAR + np.log(np.maximum(hertz, _BREAK) / _BREAK) / _STEP
    return np.where(hertz < _BREAK, hertz / _LINEAR, above)


def hertz_of(mels: NDArray[np.float64], scale: MelScale) -> NDArray[np.float64]:
    """Mels as frequencies."""
    if scale == "htk":
        return np.asarray(700.0 * (10.0 ** (mels / 2595.0) - 1.0))
    edge = _BREAK / _LINEAR
    return np.where(mels < edge, mels * _LINEAR, _BREAK * np.exp(_STEP * (np.maximum(mels, edge) - edge)))


@functools.lru_cache(maxsize=32)
def mel_filters(spectrum: Spectrum) -> NDArray[np.float64]:
    """The filters (mels, bins); read only."""
    bins = np.linspace(0.0, spectrum.rate / 2, spectrum.bins)
    ends = mels_of(np.array([spectrum.low, spectrum.high]), spectrum.mel_scale)
    points = hertz_of(np.linspace(ends[0], ends[1], spectrum.mels + 2), spectrum.mel_scale)
    widths = np.diff(points)[:, None]
    slopes = points[:, None] - bins
    filters = np.maximum(0.0, np.minimum(-slopes[:-2] / widths[:-1], slopes[2:] / widths[1:]))
    if spectrum.mel_norm == "slaney":
        filters *= (2.0 / (points[2:] - points[:-2]))[:, None]
    filters.setflags(write=False)
    return filters


def magnitude(wave: Wave, spectrum: Spectrum, operator: str = "numpy") -> NDArray[np.float64]:
    """The magnitudes to the spectrum's power, (bins, frames), by the named operator."""
    found = np.abs(lookup("stft", operator)(wave, spectrum))
    return np.asarray(found if spectrum.power == 1.0 else found**spectrum.power, np.float64)


def log_mel(wave: Wave, spectrum: Spectrum, operator: str = "numpy") -> Mel:
    """The log mel spectrogram (frames, mels) of a wave (samples,) between −1 and 1, in double precision."""
    return logarithm(mel_filters(spectrum) @ magnitude(wave, spectrum, operator), spectrum).T


def logarithm(mel: NDArray[np.float64], spectrum: Spectrum) -> NDArray[np.float64]:
    """The mel spectrogram in the spectrum's logarithm, values below the floor raised to it."""
    raised = np.maximum(mel, spectrum.floor)
    if spectrum.log == "ln":
        return np.log(raised)
    return np.asarray(np.log10(raised) * _decibels(spectrum))


def exponential(log: NDArray[np.float64], spectrum: Spectrum) -> NDArray[np.float64]:
    """The mel spectrogram of which this is the logarithm."""
    return np.asarray(np.exp(log) if spectrum.log == "ln" else 10.0 ** (log / _decibels(spectrum)))


def _decibels(spectrum: Spectrum) -> float:
    """What the decimal logarithm is multiplied by: for decibels 20 of a magnitude, 10 of a power."""
    return 1.0 if spectrum.log == "log10" else 20.0 / spectrum.power
