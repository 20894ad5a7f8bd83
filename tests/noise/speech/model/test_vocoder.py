"""From log mel spectrograms back to waves."""

from dataclasses import replace

import numpy as np
import pytest

from helpers.speech import SPECTRUM, hum
from holdfast.noise.speech.model.mel import log_mel, magnitude, mel_filters
from holdfast.noise.speech.model.vocoder import Vocoder, griffin_lim, magnitudes, wave_of

WAVE = hum(0.6)
MEL = log_mel(WAVE, SPECTRUM)


def heard(wave, spectrum=SPECTRUM):
    return np.mean((log_mel(wave, spectrum)[: len(MEL)] - MEL) ** 2)


def test_the_wave_sounds_like_its_spectrogram():
    wave = wave_of(MEL, SPECTRUM)
    assert len(wave) == (len(MEL) - 1) * SPECTRUM.hop
    assert heard(wave) < 0.05


def test_more_rounds_come_nearer_to_the_magnitudes():
    wanted = magnitude(WAVE, SPECTRUM)

    def off(rounds, momentum=0.0):
        wave = griffin_lim(wanted, SPECTRUM, Vocoder(iterations=rounds, momentum=momentum))
        return np.mean((magnitude(wave, SPECTRUM) - wanted) ** 2)

    assert off(32) < off(4) < off(0)
    assert off(32, momentum=0.99) < off(32)


def test_zero_phase_and_a_seed_are_both_repeatable():
    assert (wave_of(MEL, SPECTRUM) == wave_of(MEL, SPECTRUM)).all()
    seeded = wave_of(MEL, SPECTRUM, Vocoder(seed=3))
    assert (seeded == wave_of(MEL, SPECTRUM, Vocoder(seed=3))).all()
    assert (seeded != wave_of(MEL, SPECTRUM, Vocoder(seed=4))).any()
    assert heard(seeded) < 0.5


def test_the_pseudo_inverse_is_exact_for_what_filters_can_tell():
    linear = np.abs(np.random.default_rng(0).normal(size=(5, SPECTRUM.mels))) @ mel_filters(SPECTRUM)
    mel = np.log(np.maximum(linear @ mel_filters(SPECTRUM).T, 1e-5))
    assert magnitudes(mel, SPECTRUM) == pytest.approx(linear.T, abs=1e-9)


def test_the_power_is_taken_back():
    squared = replace(SPECTRUM, power=2.0)
    mel = log_mel(WAVE, squared)
    wave = wave_of(mel, squared)
    assert np.mean((log_mel(wave, squared)[: len(mel)] - mel) ** 2) < 0.3


@pytest.mark.parametrize("name", ["librosa", "scipy", "torch"])
def test_other_libraries_give_the_same_wave(name):
    pytest.importorskip(name)
    how = Vocoder(iterations=4)
    wanted = wave_of(MEL, SPECTRUM, how)
    assert np.abs(wave_of(MEL, SPECTRUM, replace(how, operator=name)) - wanted).max() < 1e-6


def test_uncentred_frames_have_no_spikes_at_the_ends():
    spectrum = replace(SPECTRUM, centre=False)
    wave = wave_of(log_mel(WAVE, spectrum), spectrum)
    assert np.abs(wave).max() < 5 * np.abs(WAVE).max()


def test_the_phase_is_sensitive_and_what_is_heard_is_not():
    """What docs/noise-speech.md says of the two errors."""
    clean = wave_of(MEL, SPECTRUM)
    noised = wave_of(MEL + 0.01 * np.random.default_rng(0).normal(size=MEL.shape), SPECTRUM)
    power = np.mean(clean**2)
    assert np.mean((noised - clean) ** 2) > 0.02 * power
    assert np.mean((log_mel(noised, SPECTRUM) - log_mel(clean, SPECTRUM)) ** 2) < 0.01
