"""From a wave to its log mel spectrogram, by librosa's definitions, and back.

Frequencies and mels (O'Shaughnessy's formula as HTK has it; Slaney's Auditory Toolbox):

    htk:     m = 2595 · log10(1 + f / 700)
    slaney:  m = 3f / 200 below 1000 Hz,  m = 15 + 27 · ln(f / 1000) / ln 6.4 above

The filters are triangles between mels + 2 points evenly spread in m; with the norm `slaney` each is divided
by half its width in hertz, so that all have the same area.

The vocoder is the inverse of the mel filters, then Griffin and Lim's phase:

    S = max(M⁺ · exp(log mel), 0)^(1/p)         M⁺ the pseudo-inverse of the filters, p the power
    X⁰ = S · exp(iφ⁰)                           φ⁰ = 0, or drawn from a seed
    Yⁿ = STFT(ISTFT(Xⁿ));   Zⁿ = Yⁿ + m · (Yⁿ − Yⁿ⁻¹);   Xⁿ⁺¹ = S · Zⁿ / |Zⁿ|

m = 0 is Griffin and Lim (1984), m near 1 their fast form (Perraudin and others, 2013). The last X
is inverted. Everything is deterministic: the same spectrogram gives the same wave.
"""

import functools
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import CardError
from holdfast.core.fingerprint import generator
from holdfast.core.registry import lookup, part

Padding: TypeAlias = Literal["reflect", "constant"]
MelScale: TypeAlias = Literal["slaney", "htk"]
MelNorm: TypeAlias = Literal["slaney", "none"]
Logarithm: TypeAlias = Literal["ln", "log10", "db"]
Wave: TypeAlias = NDArray[np.float64]  # (samples,), full scale is ±1
Complex: TypeAlias = NDArray[np.complex128]  # (bins, frames)
Mel: TypeAlias = NDArray[np.float64]  # (frames, mels)


@dataclass(frozen=True)
class Spectrum:
    """From a wave to its log mel spectrogram: every setting in which systems differ."""

    rate: int  # samples a second
    n_fft: int
    hop: int
    window_length: int
    mels: int
    high: float  # hertz, the upper edge of the last filter
    low: float = 0.0
    window: Literal["hann"] = "hann"
    periodic: bool = True  # False: the symmetric window, whose two ends are both 0
    centre: bool = True  # frame i is centred at sample i · hop, the wave padded by half a frame at each end
    padding: Padding = "reflect"
    power: float = 1.0  # of the magnitude, before the mel filters
    mel_scale: MelScale = "slaney"
    mel_norm: MelNorm = "slaney"
    log: Logarithm = "ln"
    floor: float = 1e-5  # smaller values are raised to it before the logarithm

    def __post_init__(self) -> None:
        low, high, half, window = self.low, self.high, self.rate / 2, self.window_length
        counts = {name: getattr(self, name) for name in ("rate", "n_fft", "hop", "window_length", "mels")}
        longest = f"at most window_length {window}, or samples are skipped"
        between = f"0 ≤ low < high ≤ rate / 2 = {half:g}"
        checks = [
            *((name, count >= 1, "1 or more", count) for name, count in counts.items()),
            ("window_length", window <= self.n_fft, f"at most n_fft {self.n_fft}", window),
            ("hop", self.hop <= window, longest, self.hop),
            ("low, high", 0 <= low < high <= half, between, f"{low:g} and {high:g}"),
            ("power", self.power in (1.0, 2.0), "1.0 or 2.0", f"{self.power:g}"),
            ("floor", self.floor > 0, "more than 0", f"{self.floor:g}"),
        ]
        for name, right, expected, got in checks:
            if not right:
                raise CardError(f"spectrum.{name}: expected {expected}, got {got}")

    @property
    def bins(self) -> int:
        """How many frequencies a frame has."""
        return self.n_fft // 2 + 1


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
    absolute = np.abs(lookup("stft", operator)(wave, spectrum))
    return np.asarray(absolute if spectrum.power == 1.0 else absolute**spectrum.power, np.float64)


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


TINY = 1e-12  # a magnitude below has no phase worth keeping


@dataclass(frozen=True)
class Vocoder:
    """How Griffin-Lim is run: the STFT operator by name, rounds, momentum, and where the phase begins."""

    operator: str = "numpy"
    iterations: int = 32
    momentum: float = 0.0
    seed: int | None = None  # None: a phase of zero

    def describe(self) -> str:
        """The vocoder in words."""
        phase = "zero initial phase" if self.seed is None else f"initial phase from seed {self.seed}"
        momentum = f", momentum {self.momentum:g}" if self.momentum else ""
        return f"Griffin-Lim, {self.iterations} iterations, {phase}{momentum}"


def wave_of(log_mel: Mel, spectrum: Spectrum, how: Vocoder | None = None) -> Wave:
    """The wave of a log mel spectrogram (frames, mels), read as the spectrum says."""
    return griffin_lim(magnitudes(log_mel, spectrum), spectrum, how or Vocoder())


def magnitudes(log_mel: Mel, spectrum: Spectrum) -> NDArray[np.float64]:
    """The magnitudes (bins, frames) that a log mel spectrogram (frames, mels) stands for."""
    linear = np.maximum(_inverse_filters(spectrum) @ exponential(log_mel.T, spectrum), 0.0)
    return np.asarray(linear if spectrum.power == 1.0 else linear ** (1.0 / spectrum.power))


@functools.lru_cache(maxsize=32)
def _inverse_filters(spectrum: Spectrum) -> NDArray[np.float64]:
    inverse = np.asarray(np.linalg.pinv(mel_filters(spectrum)), np.float64)
    inverse.setflags(write=False)
    return inverse


def griffin_lim(magnitude: NDArray[np.float64], spectrum: Spectrum, how: Vocoder) -> Wave:
    """The wave whose transform's magnitudes are near these (bins, frames)."""
    operator = part("stft", how.operator)
    forward, backward = operator.function, operator.facts["inverse"]
    x = magnitude.astype(np.complex128)
    if how.seed is not None:
        rng = generator(how.seed, "griffin-lim", *magnitude.shape)
        x = np.asarray(magnitude * np.exp(1j * rng.uniform(-np.pi, np.pi, magnitude.shape)))
    frames = magnitude.shape[1]
    before: Complex | None = None
    for _ in range(how.iterations):
        y = forward(backward(x, spectrum), spectrum)[:, :frames]
        # Operators differ by one frame in how they treat the end.
        y = np.pad(y, ((0, 0), (0, frames - y.shape[1])))
        z = y if before is None else y + how.momentum * (y - before)
        before = y
        x = magnitude * (z / np.maximum(np.abs(z), TINY))
    wave: Wave = backward(x, spectrum)
    return wave
