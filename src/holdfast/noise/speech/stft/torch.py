"""torch.stft and istft; torch is loaded only when one of these is asked for."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from holdfast.core.errors import DataError
from holdfast.core.registry import stage
from holdfast.noise.speech.spectrum import Complex, Spectrum, Wave
from holdfast.noise.speech.stft.numpy import padded, window_of


@contextmanager
def _one_thread() -> Iterator[None]:
    """Run in one thread, so that sums have the same order everywhere, and without leakage warnings."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.set_num_threads(before)


def _settings(spectrum: Spectrum, kind: Any = None) -> dict[str, Any]:
    """The card's settings with its window in that type; torch's own settings without a type."""
    import torch

    settings = {"n_fft": spectrum.n_fft, "hop_length": spectrum.hop}
    if kind is None:
        return {**settings, "win_length": spectrum.window_length}
    return {**settings, "window": torch.from_numpy(window_of(spectrum)).to(kind), "center": spectrum.centre}


def _forward(wave: Wave, settings: dict[str, Any], kind: Any) -> Complex:
    import torch

    tensor = torch.from_numpy(np.ascontiguousarray(wave, np.float64)).to(kind)
    with _one_thread():
        return np.asarray(torch.stft(tensor, return_complex=True, **settings).numpy(), np.complex128)


def _backward(transform: Complex, settings: dict[str, Any], kind: Any, length: int | None) -> Wave:
    import torch

    tensor = torch.from_numpy(np.ascontiguousarray(transform)).to(kind.to_complex())
    try:
        with _one_thread():
            return np.asarray(torch.istft(tensor, length=length, **settings).numpy(), np.float64)
    except RuntimeError as problem:  # uncentred: no window lies over the first sample
        reason = str(problem).splitlines()[0]
        raise DataError(f"torch.istft does not take back what torch.stft gave: {reason}") from None


def inverse_torch(
    transform: Complex, spectrum: Spectrum, length: int | None = None, dtype: str = "float64"
) -> Wave:
    """The wave by torch.istft with the card's settings."""
    import torch

    kind = getattr(torch, dtype)
    return _backward(transform, _settings(spectrum, kind), kind, length)


@stage("stft", inverse=inverse_torch, needs="torch", extra="speech", systems="torch.stft; torchaudio")
def torch(wave: Wave, spectrum: Spectrum, dtype: str = "float64") -> Complex:
    """torch.stft in double precision, with the settings of the card."""
    import torch

    padded(wave, spectrum)  # one line for a wave that is too short
    kind = getattr(torch, dtype)
    return _forward(wave, {**_settings(spectrum, kind), "pad_mode": spectrum.padding}, kind)


@stage(
    "stft",
    inverse=partial(inverse_torch, dtype="float32"),
    needs="torch",
    extra="speech",
    systems="torch.stft on the float32 waves that torchaudio loads",
)
def torch_float32(wave: Wave, spectrum: Spectrum) -> Complex:
    """torch.stft in single precision, as it is nearly always run, with the settings of the card."""
    return torch(wave, spectrum, "float32")


def inverse_torch_default(transform: Complex, spectrum: Spectrum, length: int | None = None) -> Wave:
    """The wave by torch.istft without a window."""
    import torch

    return _backward(transform, _settings(spectrum), torch.float64, length)


@stage(
    "stft",
    inverse=inverse_torch_default,
    needs="torch",
    extra="speech",
    systems="torch.stft called without a window, which it then takes to be all ones",
)
def torch_default(wave: Wave, spectrum: Spectrum) -> Complex:
    """torch.stft as it comes: centred, mirrored ends, a rectangular window."""
    import torch

    return _forward(wave, _settings(spectrum), torch.float64)
