"""The recordings the speech models are trained on: a grammar's sentences, spoken, aligned and cached."""

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
from holdfast.noise.speech.spectrum import Spectrum, log_mel
from models.speech import voice

SYMBOLS: Final = (" ", *"abcdefghijklmnopqrstuvwxyz", "~")  # the place is the id
END: Final = "~"

WHOSE: Final = ("the", "my", "our", "this", "one")
KINDS: Final = ("red", "old", "small", "black", "slow", "new", "long", "green")
THINGS: Final = ("truck", "car", "bus", "train", "bike", "horse", "driver", "dog", "girl", "van")
DOES: Final = ("stops", "waits", "turns", "goes", "sleeps", "stands", "runs", "moves")
SEES: Final = ("sees", "follows", "meets", "likes", "passes", "hears")
WHERE: Final = ("here", "now", "again", "today", "outside", "alone", "there", "soon")
PLACES: Final = ("road", "bridge", "river", "house", "field", "light", "corner", "tree")
NEAR: Final = ("at", "near", "behind", "under")
ORDERS: Final = ("stop", "turn", "wait", "look", "drive", "go", "stay")
HOW: Final = ("left", "right", "back", "slowly", "now", "here", "again")
COUNTS: Final = ("two", "three", "four", "five", "six", "seven", "eight", "ten")
MANY: Final = ("cars", "dogs", "bikes", "trees", "roads", "houses", "people", "signs")
CHOICES: Final = (WHOSE, KINDS, THINGS, DOES, SEES, WHERE, PLACES, NEAR, ORDERS, HOW, COUNTS, MANY)
EVENNESS = 0.02  # what a frame more or less than an even share costs, squared, beside the spectrum's variance
Say: TypeAlias = Callable[[str], None]
VOICE: Final = "en-us"
SPECTRUM: Final = Spectrum(
    rate=16000, n_fft=1024, hop=256, window_length=1024, mels=80, low=0.0, high=8000.0, floor=1e-3
)
TAIL: Final = 1280  # samples of silence that stay behind the last word: 5 frames
QUIET: Final = 0.01  # of full scale; what stays below it at the end is silence


def sentence(rng: np.random.Generator) -> str:
    """One sentence of 2 to 6 words in lower-case letters."""

    def one(words: tuple[str, ...]) -> str:
        return words[int(rng.integers(len(words)))]

    def noun(described: float) -> list[str]:
        return [one(WHOSE), *([one(KINDS)] if rng.random() < described else []), one(THINGS)]

    form = int(rng.integers(6))
    if form == 0:
        words = [*noun(0.6), one(DOES), *([one(WHERE)] if rng.random() < 0.6 else [])]
    elif form == 1:
        words = [*noun(0.3), one(SEES), "the", one(THINGS)]
    elif form == 2:
        words = [*noun(0.0), one(DOES), one(NEAR), "the", one(PLACES)]
    elif form == 3:
        words = [one(ORDERS), one(HOW), *([one(NEAR), "the", one(PLACES)] if rng.random() < 0.5 else [])]
    elif form == 4:
        words = [one(COUNTS), *([one(KINDS)] if rng.random() < 0.5 else []), one(MANY)]
        words += ["wait", one(WHERE)] if rng.random() < 0.6 else [one(NEAR), "the", one(PLACES)]
    else:
        words = ["the", one(PLACES), "is", one(KINDS), *([one(WHERE)] if rng.random() < 0.5 else [])]
    return " ".join(words)


def sentences(count: int, seed: int) -> tuple[str, ...]:
    """That many different sentences, the same for the same seed, more being the same and then others."""
    rng = np.random.default_rng(seed)
    said: dict[str, None] = {}
    while len(said) < count:
        said[sentence(rng)] = None
    return tuple(said)


def ids_of(text: str) -> tuple[int, ...]:
    """The ids of the text's symbols with the end mark behind them."""
    return tuple(SYMBOLS.index(letter) for letter in text + END)


def letter_frames(mel: NDArray[np.float32], text: str, starts: NDArray[np.int64]) -> NDArray[np.int64]:
    """The frames (letters + 1,) of every letter of `text` and of the end mark; they sum to the spectrum's.

    `starts` (words + 1,) are the frames at which the words begin and the last one ends. A space lasts no
    frame: espeak-ng runs the words together. What is behind the last word belongs to the end mark.
    """
    frames: list[int] = []
    for word, first, last in zip(text.split(" "), starts[:-1], starts[1:], strict=True):
        frames += [*segments(mel[first:last], len(word)), 0]
    frames[-1] = len(mel) - int(starts[-1])
    frames[0] += int(starts[0])
    return np.array(frames, np.int64)


def segments(mel: NDArray[np.float32], count: int) -> list[int]:
    """The lengths of the `count` runs of frames within which the spectrum changes least, summed over runs.

    Each is at least 1 frame long while there are frames enough. Of the ways to cut, dynamic programming
    finds the one of least sum of squared distances to the runs' means.
    """
    total = len(mel)
    cost = _costs(mel) + EVENNESS * (np.arange(total + 1) - total / count)[_gaps(total)] ** 2 * mel.shape[1]
    least = 1 if total >= count else 0
    best = np.full((count + 1, total + 1), np.inf)
    came = np.zeros((count + 1, total + 1), np.int64)
    best[0, 0] = 0.0
    for run in range(1, count + 1):
        for end in range(least * run, total + 1):
            ways = best[run - 1, : end + 1 - least] + cost[: end + 1 - least, end]
            came[run, end] = int(np.argmin(ways))
            best[run, end] = ways[came[run, end]]
    lengths, end = [], total
    for run in range(count, 0, -1):
        start = int(came[run, end])
        lengths.append(end - start)
        end = start
    return lengths[::-1]


def _gaps(total: int) -> NDArray[np.int64]:
    """The length (total + 1, total + 1) of the run from row to column; 0 where it would be negative."""
    ends = np.arange(total + 1)
    return np.asarray(np.maximum(ends[None] - ends[:, None], 0), np.int64)


def _costs(mel: NDArray[np.float32]) -> NDArray[np.float64]:
    """The sum of squared distances to their mean of the frames from row to column, (total + 1, total + 1)."""
    values = mel.astype(np.float64)
    sums = np.concatenate([np.zeros((1, mel.shape[1])), np.cumsum(values, 0)])
    squares = np.concatenate([[0.0], np.cumsum((values**2).sum(1))])
    lengths = np.maximum(_gaps(len(mel)), 1)
    between = sums[None] - sums[:, None]
    return np.asarray(squares[None] - squares[:, None] - (between**2).sum(2) / lengths)


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
            "choose words that it speaks one by one in models.speech.corpus"
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
