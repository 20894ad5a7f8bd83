"""The recordings the speech models are trained on: espeak-ng's sentences, cached, as spectra and lengths."""

import hashlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from subprocess import SubprocessError
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import InputError
from holdfast.core.sources import code_of
from holdfast.noise.speech.model.mel import log_mel
from holdfast.noise.speech.system import Spectrum
from models.speech import voice
from models.speech.align import EVENNESS, letter_frames
from models.speech.sentences import sentences

Say: TypeAlias = Callable[[str], None]
VOICE: Final = "en-us"
SPECTRUM: Final = Spectrum(
    rate=16000, n_fft=1024, hop=256, window_length=1024, mels=80, low=0.0, high=8000.0, floor=1e-3
)
TAIL: Final = 1280  # samples of silence that stay behind the last word: 5 frames
QUIET: Final = 0.01  # of full scale; what stays below it at the end is silence


@dataclass(frozen=True)
class Recording:
    """A sentence as espeak-ng says it: wave at the spectrum's rate, the frames of each letter, log mel."""

    text: str
    wave: NDArray[np.int16]  # (samples,)
    mel: NDArray[np.float32]  # (frames, mels)
    frames: NDArray[np.int64]  # (letters + 1,) of each letter and of the end mark


@dataclass(frozen=True)
class Corpus:
    """Recordings to train on, others that are held out, and the mean and deviation of the log mel."""

    trained: tuple[Recording, ...]
    held_out: tuple[Recording, ...]
    mean: float
    std: float

    @property
    def key(self) -> str:
        """A short hash of all that training sees."""
        seen = hashlib.sha256(repr((self.mean, self.std)).encode())
        for recording in self.trained:
            seen.update(recording.text.encode() + recording.wave.tobytes())
        return seen.hexdigest()[:12]


def open_corpus(folder: Path, trained: int, held_out: int, seed: int, say: Say) -> Corpus:
    """The corpus, spoken once and kept in `folder`; a killed run goes on with what is missing."""
    if voice.library_name() is None:
        raise InputError(
            "training speech needs espeak-ng to speak the sentences, which is not installed: "
            f"run {voice.INSTALLER} (the trained models are shipped and need no espeak-ng)"
        )
    kept = _kept(folder)
    texts = sentences(trained + held_out, seed)
    with ThreadPoolExecutor(2) as pool:
        found = []
        for at, recording in enumerate(pool.map(lambda text: _recording(kept, text), texts), 1):
            found.append(recording)
            if at % 200 == 0 or at == len(texts):
                say(f"espeak-ng: {at} of {len(texts)} sentences")
    values = np.concatenate([recording.mel for recording in found[held_out:]])
    return Corpus(tuple(found[held_out:]), tuple(found[:held_out]), float(values.mean()), float(values.std()))


def spoken(folder: Path, text: str) -> Recording:
    """One sentence, spoken or kept."""
    return _recording(_kept(folder), text)


def _kept(folder: Path) -> Path:
    """Where recordings made in this way are kept."""
    decisive = (code_of("train"), VOICE, voice.version(), SPECTRUM, TAIL, QUIET, EVENNESS)
    name = hashlib.sha256(repr(decisive).encode()).hexdigest()[:8]
    kept = folder / f"speech-{name}"
    kept.mkdir(parents=True, exist_ok=True)
    return kept


def _recording(folder: Path, text: str) -> Recording:
    path = folder / f"{text.replace(' ', '-')}.npz"
    if not path.exists():
        made = recording_of(text, *resampled(_said(text)))
        part = path.with_suffix(".part.npz")
        np.savez(part, wave=made.wave, mel=made.mel, frames=made.frames)
        part.replace(path)
    with np.load(path) as kept:
        return Recording(text, kept["wave"], kept["mel"], kept["frames"])


def _said(text: str) -> voice.Spoken:
    try:
        said = voice.speak(text, VOICE)
    except (OSError, SubprocessError) as problem:
        raise InputError(f"espeak-ng could not speak {text!r}: {problem}") from None
    if not np.abs(np.frombuffer(said.samples, "<i2").astype(np.int64)).max(initial=0) > QUIET * 32768:
        raise InputError(
            f"espeak-ng spoke {text!r} as silence; run {voice.INSTALLER}, which brings its voices"
        )
    return said


def recording_of(text: str, wave: NDArray[np.int16], starts: NDArray[np.int64]) -> Recording:
    """The recording of a wave whose words begin, and whose last ends, at the samples `starts`."""
    mel = log_mel(wave.astype(np.float64) / 32768.0, SPECTRUM).astype(np.float32)
    if len(starts) != len(text.split(" ")) + 1:
        raise InputError(
            f"espeak-ng spoke {text!r} as {len(starts) - 1} words, expected {text.count(' ') + 1}; "
            "choose words that it speaks one by one in models.speech.sentences"
        )
    places = np.clip(np.rint(starts / SPECTRUM.hop).astype(np.int64), 0, len(mel) - 1)
    return Recording(text, wave, mel, letter_frames(mel, text, places))


def resampled(said: voice.Spoken) -> tuple[NDArray[np.int16], NDArray[np.int64]]:
    """The wave at the spectrum's rate, cut behind the last sound, and where words begin and the last ends."""
    from scipy.signal import resample_poly

    wave = np.frombuffer(said.samples, "<i2").astype(np.float64) / 32768.0
    common = int(np.gcd(SPECTRUM.rate, said.rate))
    wave = resample_poly(wave, SPECTRUM.rate // common, said.rate // common)
    loud = np.flatnonzero(np.abs(wave) > QUIET)
    first, last = max(int(loud[0]) - SPECTRUM.hop, 0), int(loud[-1]) + 1
    wave = np.pad(wave[first:last], (0, TAIL))
    starts = np.array(said.words, np.int64) * SPECTRUM.rate // said.rate - first
    samples = np.clip(np.rint(wave * 32768.0), -32768, 32767).astype(np.int16)
    return samples, np.append(np.maximum(starts, 0), last - first)
