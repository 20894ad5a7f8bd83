"""torch.stft and istft; torch is loaded only when one of these is asked for."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from holdfast.core.errors import DataError
from holdfast.core.registry import stage
from holdfast.noise.speech.spectrum import Complex, Spectrum, Wave
from holdfast.noise.speech.stft.numpy import padded, window_of


@contextmanager
def _one_thread() -> Iterator[None]:
    """Sums in the same order on every machine, and no threads that wait for one another on short waves."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _settings(spectrum: Spectrum, kind: Any) -> dict[str, Any]:
    import torch

    return {
        "n_fft": spectrum.n_fft,
        "hop_length": spectrum.hop,
        "window": torch.from_numpy(window_of(spectrum)).to(kind),
        "center": spectrum.centre,
    }


def _forward(wave: Wave, spectrum: Spectrum, single: bool) -> Complex:
    import torch

    padded(wave, spectrum)  # one line for a wave that is too short
    kind = torch.float32 if single else torch.float64
    told = torch.from_numpy(np.ascontiguousarray(wave, np.float64)).to(kind)
    settings = _settings(spectrum, kind)
    with _one_thread():
        found = torch.stft(told, pad_mode=spectrum.padding, return_complex=True, **settings)
    return np.asarray(found.numpy(), np.complex128)


def _backward(transform: Complex, settings: dict[str, Any], kind: Any, length: int | None) -> Wave:
    import torch

    given = torch.from_numpy(np.ascontiguousarray(transform)).to(kind)
    try:
        with _one_thread():
            return np.asarray(torch.istft(given, length=length, **settings).numpy(), np.float64)
    except RuntimeError as problem:  # uncentred: no window lies over the first sample
        said = str(problem).splitlines()[0]
        raise DataError(f"torch.istft does not take back what torch.stft gave: {said}") from None


def inverse_torch(transform: Complex, spectrum: Spectrum, length: int | None = None) -> Wave:
    """The wave by torch.istft in double precision with the card's settings."""
    import torch

    return _backward(transform, _settings(spectrum, torch.float64), torch.complex128, length)


@stage("stft", inverse=inverse_torch, needs="torch", extra="torch", systems="torch.stft; torchaudio")
def torch(wave: Wave, spectrum: Spectrum) -> Complex:
    """torch.stft in double precision, told to do what the card says."""
    return _forward(wave, spectrum, single=False)


def inverse_torch_float32(transform: Complex, spectrum: Spectrum, length: int | None = None) -> Wave:
    """The wave by torch.istft in single precision with the card's settings."""
    import torch

    return _backward(transform, _settings(spectrum, torch.float32), torch.complex64, length)


@stage(
    "stft",
    "torch-float32",
    inverse=inverse_torch_float32,
    needs="torch",
    extra="torch",
    systems="torch.stft on the float32 waves that torchaudio loads",
)
def torch_float32(wave: Wave, spectrum: Spectrum) -> Complex:
    """torch.stft in single precision, as it is nearly always run, told to do what the card says."""
    return _forward(wave, spectrum, single=True)


def inverse_torch_default(transform: Complex, spectrum: Spectrum, length: int | None = None) -> Wave:
    """The wave by torch.istft without a window."""
    import torch

    settings = {"n_fft": spectrum.n_fft, "hop_length": spectrum.hop, "win_length": spectrum.window_length}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _backward(transform, settings, torch.complex128, length)


@stage(
    "stft",
    "torch-default",
    inverse=inverse_torch_default,
    needs="torch",
    extra="torch",
    systems="torch.stft called without a window, which it then takes to be all ones",
)
def torch_default(wave: Wave, spectrum: Spectrum) -> Complex:
    """torch.stft as it comes: centred, mirrored ends, a rectangular window."""
    import torch

    settings = {"n_fft": spectrum.n_fft, "hop_length": spectrum.hop, "win_length": spectrum.window_length}
    told = torch.from_numpy(np.ascontiguousarray(wave, np.float64))
    with (
        _one_thread(),
        warnings.catch_warnings(),
    ):  # torch warns of spectral leakage, which is what is measured here
        warnings.simplefilter("ignore")
        found = torch.stft(told, return_complex=True, **settings)
    return np.asarray(found.numpy(), np.complex128)
