"""Text to speech: how a wave becomes a mel spectrogram, and what must be known of an acoustic model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import CardError

Padding: TypeAlias = Literal["reflect", "constant"]
MelScale: TypeAlias = Literal["slaney", "htk"]
MelNorm: TypeAlias = Literal["slaney", "none"]
Logarithm: TypeAlias = Literal["ln", "log10", "db"]
ModelKind: TypeAlias = Literal["parallel", "autoregressive"]
MelLayout: TypeAlias = Literal["time-first", "mel-first"]
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
        for name in ("rate", "n_fft", "hop", "window_length", "mels"):
            if getattr(self, name) < 1:
                raise CardError(f"spectrum.{name}: expected 1 or more, got {getattr(self, name)}")
        if self.window_length > self.n_fft:
            raise CardError(
                f"spectrum.window_length: expected at most n_fft {self.n_fft}, got {self.window_length}"
            )
        if self.hop > self.window_length:
            raise CardError(
                f"spectrum.hop: expected at most window_length {self.window_length}, or samples are skipped, "
                f"got {self.hop}"
            )
        if not 0 <= self.low < self.high <= self.rate / 2:
            raise CardError(
                f"spectrum.low, high: expected 0 ≤ low < high ≤ rate / 2 = {self.rate / 2:g}, "
                f"got {self.low:g} and {self.high:g}"
            )
        if self.power not in (1.0, 2.0):
            raise CardError(f"spectrum.power: expected 1.0 or 2.0, got {self.power:g}")
        if not self.floor > 0:
            raise CardError(f"spectrum.floor: expected more than 0, got {self.floor:g}")

    @property
    def bins(self) -> int:
        """How many frequencies a frame has."""
        return self.n_fft // 2 + 1


@dataclass(frozen=True)
class SpeechCard:
    """What holdfast must know of an acoustic model beyond its ONNX file: text in, log mel out.

    The model gives (log mel − mean) / std; `mean` and `std` hold one number, or one a mel band.
    """

    symbols: tuple[str, ...]  # the id of a character is its place
    spectrum: Spectrum
    kind: ModelKind = "parallel"
    lower: bool = True
    end: str = ""  # a symbol put behind every text
    input: str = "ids"
    mel: str = "mel"
    layout: MelLayout = "time-first"
    decoder: str = ""  # autoregressive: the file of the decoder, beside the encoder's
    postnet: str = ""
    stop_threshold: float = 0.5  # of the sigmoid of the decoder's stop logit
    max_frames: int = 1000
    frames_per_step: int = (
        1  # autoregressive: the decoder's mel is (1, frames_per_step · mels), earliest first
    )
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)


@dataclass(frozen=True)
class SpeechModel:
    """The ONNX files of an acoustic model with their card; `sha256` is of all the files together."""

    name: str
    path: Path
    card: SpeechCard
    sha256: str
    files: tuple[Path, ...]  # the encoder (or whole model), decoder, postnet

    @property
    def roles(self) -> tuple[str, ...]:
        """What each of the files is."""
        if self.card.kind == "parallel":
            return ("model", *(["postnet"] if self.card.postnet else []))
        return ("encoder", "decoder", *(["postnet"] if self.card.postnet else []))


@dataclass(frozen=True)
class Clip:
    """A recording with its text, not yet read; small and picklable."""

    name: str
    text: str
    path: Path
    line: int  # of metadata.csv
