"""How the written models say held-out sentences, measured in ONNX Runtime against espeak-ng's recordings."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from holdfast.metrics.speech import aligned_mean_square, mean_square
from holdfast.noise.speech.acoustic import open_synthesizer
from holdfast.noise.speech.card import load_speech
from holdfast.noise.speech.spectrum import Mel, Vocoder, log_mel, wave_of
from models.speech.corpus import CHOICES, Recording

RIVALS: Final = 4


@dataclass(frozen=True)
class Heard:
    """Means over held-out sentences; errors are of the log mel against the recordings."""

    name: str
    mse: float  # mean squared error frame by frame, over the frames that both have
    aligned: float  # mean squared error along the warping path
    length: float  # |frames − frames of the recording|
    stopped: float  # share of sentences that came to an end by themselves
    told: float  # share whose wave is nearer to its own recording than to those of its rivals


def score(path: Path, recordings: tuple[Recording, ...], speak: Callable[[str], Recording]) -> Heard:
    """The model's speech against recordings; `speak` records the texts of rivals."""
    model = load_speech(path)
    voice = open_synthesizer(model)
    rng = np.random.default_rng(0)
    rows = []
    for recording in recordings:
        said = voice.speak(recording.text)
        truth = recording.mel.astype(np.float64)
        # What is heard is the wave: it is made by Griffin-Lim and looked at again.
        spectrum = model.card.spectrum
        again = log_mel(wave_of(said.mel, spectrum, Vocoder()), spectrum)
        others = [speak(text).mel.astype(np.float64) for text in rivals(recording.text, RIVALS, rng)]
        rows.append(
            (
                mean_square(said.mel, truth),
                aligned_mean_square(said.mel, truth),
                abs(len(said.mel) - len(truth)),
                said.stopped,
                _nearest(again, [truth, *others]) == 0,
            )
        )
    return Heard(model.name, *(float(value) for value in np.mean(np.array(rows, float), axis=0)))


def rivals(text: str, count: int, rng: np.random.Generator) -> tuple[str, ...]:
    """Texts that differ from this one in one word, another of the same kind."""
    found: dict[str, None] = {}
    words = text.split(" ")
    while len(found) < count:
        place = int(rng.integers(len(words)))
        kinds = [kind for kind in CHOICES if words[place] in kind]
        if not kinds:
            continue
        kind = kinds[int(rng.integers(len(kinds)))]
        other = kind[int(rng.integers(len(kind)))]
        if other != words[place]:
            found[" ".join([*words[:place], other, *words[place + 1 :]])] = None
    return tuple(found)


def _nearest(mel: Mel, others: list[Mel]) -> int:
    return int(np.argmin([aligned_mean_square(mel, other) for other in others]))
