"""The definition, in numpy: centred frames, reflected ends and a periodic Hann window, as the card says."""

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import DataError
from holdfast.core.registry import stage
from holdfast.noise.speech.spectrum import Complex, Spectrum, Wave

# Uncentred frames leave few windows over the two ends; dividing by almost nothing would make spikes of them.
LEAST_OVERLAP = 0.01  # of the greatest sum of squared windows


def window_of(spectrum: Spectrum) -> Wave:
    """The window (n_fft,), in the middle of zeros if it is shorter: w[n] = ½ − ½ cos(2πn / L).

    L is the window's length if it is periodic (one period of a row of windows), one less if symmetric.
    """
    length = spectrum.window_length
    period = length if spectrum.periodic else max(length - 1, 1)
    window = 0.5 - 0.5 * np.cos(2.0 * np.pi * np.arange(length) / period)
    before = (spectrum.n_fft - length) // 2
    return np.pad(window, (before, spectrum.n_fft - length - before))


def padded(wave: Wave, spectrum: Spectrum) -> Wave:
    """The wave with half a frame at each end, if frames are centred."""
    half = spectrum.n_fft // 2 if spectrum.centre else 0
    if spectrum.centre and spectrum.padding == "reflect" and len(wave) <= half:
        raise DataError(
            f"a wave of {len(wave)} samples cannot be mirrored by half a frame of {half}; give a longer one"
        )
    if len(wave) + 2 * half < spectrum.n_fft:
        raise DataError(f"a wave of {len(wave)} samples is shorter than one frame of {spectrum.n_fft}")
    return np.pad(wave, half, mode=spectrum.padding) if half else wave


def samples_of(frames: int, spectrum: Spectrum) -> int:
    """The number of samples an inverse of this many frames gives by default."""
    return (frames - 1) * spectrum.hop + (0 if spectrum.centre else spectrum.n_fft)


def fitted(wave: NDArray[np.float64], length: int | None) -> Wave:
    """The wave cut, or lengthened by zeros, to that length."""
    return wave if length is None else np.pad(wave[:length], (0, max(0, length - len(wave))))


def inverse_numpy(transform: Complex, spectrum: Spectrum, length: int | None = None) -> Wave:
    """The wave whose transform is nearest to this one, (samples,)."""
    window = window_of(spectrum)
    pieces = np.fft.irfft(transform.T, n=spectrum.n_fft, axis=1) * window
    whole = _added(pieces, spectrum.hop)
    weight = _added(np.broadcast_to(window * window, pieces.shape), spectrum.hop)
    whole = whole / np.maximum(weight, LEAST_OVERLAP * weight.max())
    half = spectrum.n_fft // 2 if spectrum.centre else 0
    samples = samples_of(transform.shape[1], spectrum)
    return fitted(whole[half : half + (samples if length is None else length)], length or samples)


def _added(pieces: NDArray[np.float64], hop: int) -> Wave:
    """The pieces (frames, n_fft) laid over one another, each a hop later than the one before, and added."""
    frames, size = pieces.shape
    blocks = -(-size // hop)
    cut = np.pad(pieces, ((0, 0), (0, blocks * hop - size))).reshape(frames, blocks, hop)
    rows = np.zeros((frames + blocks - 1, hop))
    for block in range(blocks):
        rows[block : block + frames] += cut[:, block]
    return rows.reshape(-1)[: (frames - 1) * hop + size]


@stage("stft", inverse=inverse_numpy, systems="the definition; librosa's convention", alike="librosa")
def numpy(wave: Wave, spectrum: Spectrum) -> Complex:
    """The transform by its definition, in double precision."""
    whole = padded(np.asarray(wave, np.float64), spectrum)
    frames = np.lib.stride_tricks.sliding_window_view(whole, spectrum.n_fft)[:: spectrum.hop]
    return np.fft.rfft(frames * window_of(spectrum), axis=1).T
