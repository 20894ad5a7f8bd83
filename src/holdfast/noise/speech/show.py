"""One clip to look at and listen to: the recording, the clean system, and the worst of each kind of noise."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import DataError, ModelError
from holdfast.engine.store import write_atomic
from holdfast.noise.speech.clip import Studio, Take
from holdfast.noise.speech.model.mel import log_mel
from holdfast.noise.speech.options import CLEAN, System
from holdfast.noise.speech.result import Row, SpeechNoise, harm, measured
from holdfast.noise.speech.run import Prepared
from holdfast.noise.speech.system import Clip, Mel, Wave

FILE = "shown-{}.npz"
RECORDING, CLEAN_NAME = "recording", "clean"


@dataclass(frozen=True)
class Sound:
    """A wave with its log mel spectrogram (frames, mels), as the card's analysis has it."""

    label: str
    mel: NDArray[np.float32]
    wave: NDArray[np.float32]


@dataclass(frozen=True)
class Shown:
    """The sounds of one clip: the recording, the clean system's, then those of deployed systems."""

    model: str
    clip: str
    text: str
    rate: int
    sounds: tuple[Sound, ...]


def shown(prepared: Prepared, made: SpeechNoise) -> Shown | None:
    """The clip of the shortest text through the worst systems; None if no clip can be shown."""
    plan = prepared.plan
    paths = {name: dict(graphs.paths) for name, graphs in prepared.graphs.items()}
    studio = Studio(plan.model, plan.vocoder, paths)
    take = _take(studio, sorted(plan.data.clips, key=lambda c: len(c.text)), prepared.held)
    if take is None:
        return None
    spectrum = plan.model.card.spectrum
    sounds = [_sound(RECORDING, take.target, take.recording), _sound(CLEAN_NAME, take.heard, take.wave)]
    for system in _worst(prepared, made):
        try:
            spoken = studio.voice(system.precision).speak(take.clip.text)
            wave = studio.wave(spoken.mel, system)
            sounds.append(_sound(system.name, log_mel(wave, spectrum), wave))
        except (DataError, ModelError):  # told in its row
            continue
    return Shown(made.model, take.clip.name, take.clip.text, spectrum.rate, tuple(sounds))


def _sound(label: str, mel: Mel, wave: Wave) -> Sound:
    return Sound(label, mel.astype(np.float32), wave.astype(np.float32))


def _take(studio: Studio, clips: Sequence[Clip], held: frozenset[str]) -> Take | None:
    """The first clip that can be run, of those every system is tested on if there is one."""
    for clip in sorted(clips, key=lambda c: c.name in held):
        try:
            return studio.take(clip)
        except DataError:
            continue
    return None


def _worst(prepared: Prepared, made: SpeechNoise) -> list[System]:
    """The worst precision, the worst operator, the worst setting, and what was combined."""
    known = {one.option.label: one for one in prepared.asked}
    best: dict[str, Row] = {}
    for row in measured(made.rows):
        kind = known[row.label].option.kind
        if kind not in best or harm(row) > harm(best[kind]):
            best[kind] = row
    found = [known[row.label].option.of(CLEAN) for row in best.values()]
    together = [s for s in found if not s.precision and made.combined and s.name in made.combined.option]
    first = [s for s in found if s.precision]
    if together and first:
        found.append(System(first[0].precision, together[-1].operator, together[-1].settings))
    return found


def save_shown(one: Shown, folder: Path) -> None:
    """Nothing; the sounds lie beside the run's manifest."""
    arrays: dict[str, NDArray[np.generic]] = {
        "about": np.array([one.model, one.clip, one.text]),
        "labels": np.array([sound.label for sound in one.sounds]),
        "rate": np.array(one.rate),
    }
    for place, sound in enumerate(one.sounds):
        arrays |= {f"mel{place}": sound.mel.astype(np.float16), f"wave{place}": sound.wave}
    out = io.BytesIO()
    np.savez_compressed(out, **arrays)  # type: ignore[arg-type]
    write_atomic(folder / FILE.format(one.model), out.getvalue(), durable=False)


def open_shown(folder: Path, model: str) -> Shown | None:
    """The sounds of a model in a run's folder; None if there are none."""
    try:
        with np.load(folder / FILE.format(model), allow_pickle=False) as file:
            name, clip, text = (str(word) for word in file["about"])
            sounds = tuple(
                Sound(str(label), file[f"mel{n}"].astype(np.float32), file[f"wave{n}"])
                for n, label in enumerate(file["labels"])
            )
            return Shown(name, clip, text, int(file["rate"]), sounds)
    except (OSError, ValueError, KeyError):
        return None
