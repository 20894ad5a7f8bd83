"""The models and clips that come with the package."""

import pytest

from holdfast.noise.speech.acoustic import ids_of, open_synthesizer
from holdfast.noise.speech.card import load_speech, shipped_folder, shipped_speech
from holdfast.noise.speech.clips import SHIPPED, open_clips, read_wav
from holdfast.noise.speech.run import SpeechPlan, measure, prepare
from holdfast.noise.speech.spectrum import Vocoder
from holdfast.noise.suite import NoiseSelection


def test_they_are_small_and_both_kinds_are_there():
    files = [f for f in shipped_folder().rglob("*") if f.is_file()]
    assert sum(f.stat().st_size for f in files) <= 3_000_000
    kinds = {load_speech(name).card.kind for name in shipped_speech()}
    assert kinds == {"parallel", "autoregressive"}


def test_every_clip_can_be_read_and_said():
    clips = open_clips(SHIPPED)
    assert not clips.problems
    for name in shipped_speech():
        card = load_speech(name).card
        for clip in clips.clips:
            assert len(read_wav(clip.path, card.spectrum.rate)) > card.spectrum.n_fft
            assert ids_of(clip.text, card).size > 3


def test_an_unknown_character_is_told_by_the_shipped_voice():
    from holdfast.core.errors import DataError

    with pytest.raises(DataError, match="the card has no symbol for '7'"):
        open_synthesizer(load_speech("fast-speech")).speak("route 7")


@pytest.mark.parametrize("name", ["fast-speech", "taco"])
def test_half_precision_is_little_beside_the_models_own_error(name, tmp_path):
    only = NoiseSelection(only=("precision=fp16", "stft=power-2"))
    plan = SpeechPlan(
        load_speech(name), open_clips(SHIPPED, 1), only, runs=tmp_path, vocoder=Vocoder(iterations=8)
    )
    made = measure(prepare(plan))
    half, squared = made.rows
    assert made.own.mean < 0.6  # unlike an untrained model's, which is several
    assert half.own.mean == pytest.approx(made.own.mean, abs=0.05)
    assert squared.heard.mean > 3 * made.own.mean
    assert not made.notes
