"""Recordings: 16-bit PCM in one channel, read and written with the standard library."""

from __future__ import annotations

import io
import wave as riff
from pathlib import Path

import numpy as np

from holdfast.core.errors import DataError
from holdfast.noise.speech.system import Wave

FULL = 32768.0  # of 16 bits


def read_wav(path: Path, rate: int) -> Wave:
    """The samples (samples,) of a recording between −1 and 1; DataError if it is not as the card wants it."""
    try:
        with riff.open(str(path), "rb") as file:
            channels, width, got, frames = file.getparams()[:4]
            data = file.readframes(frames)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file, but metadata.csv names it") from None
    except (OSError, EOFError, riff.Error) as problem:
        said = str(problem) or "the file ends in its header"
        raise DataError(f"{path}: expected a wav file of 16-bit PCM, got: {said}") from None
    if channels != 1:
        raise DataError(f"{path}: expected one channel, got {channels}; mix them down first")
    if width != 2:
        raise DataError(f"{path}: expected 16-bit samples, got {8 * width}-bit; convert it first")
    if got != rate:
        raise DataError(
            f"{path}: expected {rate} samples a second, as the card says, got {got}; resample it first"
        )
    if len(data) < 2 * frames:
        raise DataError(
            f"{path}: cut short: its header tells of {frames} samples, {len(data) // 2} are there; "
            "copy it again"
        )
    if not frames:
        raise DataError(f"{path}: holds no samples")
    return np.frombuffer(data, "<i2").astype(np.float64) / FULL


def wav_bytes(wave: Wave, rate: int) -> bytes:
    """The wave as a wav file of 16-bit PCM; what is beyond ±1 is clipped."""
    samples = np.clip(np.rint(wave * FULL), -FULL, FULL - 1).astype("<i2")
    out = io.BytesIO()
    with riff.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(samples.tobytes())
    return out.getvalue()
