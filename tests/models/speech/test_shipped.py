"""The shipped speech models and clips: complete, small, and they speak. Needs neither torch nor espeak-ng."""

import numpy as np
import pytest

from holdfast.metrics.speech import aligned_mean_square
from holdfast.noise.speech.acoustic import open_synthesizer
from holdfast.noise.speech.card import load_speech, shipped_folder, shipped_speech
from holdfast.noise.speech.clips import open_clips, read_wav
from holdfast.noise.speech.spectrum import log_mel


def test_names_and_sizes():
    assert shipped_speech() == ["fast-speech", "taco"]
    sizes = {path: path.stat().st_size for path in shipped_folder().rglob("*") if path.is_file()}
    assert sum(sizes.values()) <= 3_000_000
    assert sum(size for path, size in sizes.items() if path.suffix == ".wav") <= 400_000


@pytest.mark.parametrize("name", ["fast-speech", "taco"])
def test_held_out_clips_are_said_as_recorded(name):
    voice = open_synthesizer(load_speech(name))
    spectrum = voice.model.card.spectrum
    errors = []
    for clip in open_clips("clips").clips:
        spoken = voice.speak(clip.text)
        truth = log_mel(read_wav(clip.path, spectrum.rate), spectrum)
        assert spoken.stopped
        assert np.isfinite(spoken.mel).all()
        assert 0.8 < len(spoken.mel) / len(truth) < 1.25
        errors.append(aligned_mean_square(spoken.mel, truth))
    assert np.mean(errors) < 0.3


def test_another_text_is_another_sound():
    voice = open_synthesizer(load_speech("fast-speech"))
    one, other = voice.speak("the red truck stops").mel, voice.speak("the old horse sleeps").mel
    assert aligned_mean_square(one, other) > 0.5


def test_the_recordings_are_of_the_cards_rate():
    clips = open_clips("clips")
    assert 6 <= len(clips) <= 10
    assert not clips.problems
    for clip in clips.clips:
        assert np.abs(read_wav(clip.path, 16000)).max() > 0.1
