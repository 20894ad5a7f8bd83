"""One clip through one system: what comes out, and how far it is from the clean one's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.core.errors import DataError
from holdfast.metrics.speech import aligned_mean_square, mean_square
from holdfast.noise.speech.model.acoustic import Spoken, Voice, open_voice
from holdfast.noise.speech.model.mel import log_mel
from holdfast.noise.speech.model.vocoder import Vocoder, wave_of
from holdfast.noise.speech.model.wav import read_wav
from holdfast.noise.speech.options import CLEAN, System
from holdfast.noise.speech.system import Clip, Mel, SpeechModel, Wave


@dataclass(frozen=True)
class Measured:
    """The errors of one system on one clip, all against the clean system but `own`."""

    clip: str
    frames: int = 0  # that the model gave
    clean_frames: int = 0
    mel: float | None = None  # before the vocoder: the model's output, or the analysis of the recording
    heard: float = 0.0  # log mel of the wave, by the card's analysis
    wave: float = 0.0
    own: float = 0.0  # `heard` against the recording's log mel, warped in time
    stopped: bool = True  # False: max_frames ended it
    same: bool = False  # the wave is the clean one's, bit for bit
    power: float = 0.0  # clean only: mean square of the wave
    copy: float = 0.0  # clean only: log mel of the recording's mel after the vocoder, against itself
    failed: str = ""


@dataclass(frozen=True)
class Take:
    """A clip with all that its measurements share: the recording's log mel, and the clean result."""

    clip: Clip
    recording: Wave
    target: Mel
    spoken: Spoken
    wave: Wave
    heard: Mel


@dataclass(frozen=True)
class Studio:
    """A model opened in as many precisions as are needed, each when it is first asked for."""

    model: SpeechModel
    vocoder: Vocoder
    graphs: Mapping[str, Mapping[str, Path]]  # precision -> role -> rewritten file
    voices: dict[str, Voice] = field(default_factory=dict)

    def voice(self, precision: str) -> Voice:
        """The model in that precision ("": as it is)."""
        if precision not in self.voices:
            graphs = self.graphs[precision] if precision else None
            self.voices[precision] = open_voice(self.model, graphs)
        return self.voices[precision]

    def take(self, clip: Clip) -> Take:
        """The clip with its recording analysed and the clean system's result."""
        spectrum = self.model.card.spectrum
        recording = read_wav(clip.path, spectrum.rate)
        spoken = self.voice("").speak(clip.text)
        wave = self.wave(spoken.mel, CLEAN)
        return Take(clip, recording, log_mel(recording, spectrum), spoken, wave, log_mel(wave, spectrum))

    def wave(self, mel: Mel, system: System) -> Wave:
        """The wave the system's vocoder makes of a log mel spectrogram."""
        how = Vocoder(system.operator, self.vocoder.iterations, self.vocoder.momentum, self.vocoder.seed)
        return wave_of(mel, system.spectrum(self.model.card.spectrum), how)

    def measured(self, take: Take, system: System, said: Callable[[str], Spoken]) -> Measured:
        """The errors of a system on the clip; `said` gives the model's output in a precision."""
        spectrum = self.model.card.spectrum
        spoken = said(system.precision)
        clean = system == CLEAN
        wave = take.wave if clean else self.wave(spoken.mel, system)
        if not np.isfinite(wave).all():
            raise DataError("the wave is infinite or NaN")
        heard = take.heard if clean else log_mel(wave, spectrum)
        found: dict[str, Any] = {"mel": self._before(take, system, spoken)}
        if clean:
            again = log_mel(self.wave(take.target, CLEAN), spectrum)
            found = {"power": float((wave * wave).mean()), "copy": mean_square(again, take.target).mse}
        return Measured(
            take.clip.name,
            len(spoken.mel),
            len(take.spoken.mel),
            heard=mean_square(heard, take.heard).mse,
            wave=mean_square(wave, take.wave).mse,
            own=aligned_mean_square(heard, take.target),
            stopped=spoken.stopped,
            same=len(wave) == len(take.wave) and bool((wave == take.wave).all()),
            **found,
        )

    def _before(self, take: Take, system: System, spoken: Spoken) -> float | None:
        """The error before the vocoder: of the model's output, or of the analysis of the recording."""
        if system.precision and system.other_spectrum:
            return None  # two places at once
        if system.precision:
            return mean_square(spoken.mel, take.spoken.mel).mse
        other = log_mel(take.recording, system.spectrum(self.model.card.spectrum), system.operator)
        return mean_square(other, take.target).mse
