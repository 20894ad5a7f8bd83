"""Mel filters and log mel spectrograms against librosa's, and settings of the spectrum."""

from dataclasses import replace

import numpy as np
import pytest

from helpers.speech import SPECTRUM, hum
from holdfast.core.registry import names, part
from holdfast.noise.speech.spectrum import (
    Vocoder,
    exponential,
    griffin_lim,
    hertz_of,
    log_mel,
    logarithm,
    magnitude,
    magnitudes,
    mel_filters,
    mels_of,
    wave_of,
)

WAVE = hum(0.6)


@pytest.mark.parametrize("scale", ["slaney", "htk"])
@pytest.mark.parametrize("norm", ["slaney", "none"])
@pytest.mark.parametrize("edges", [(0.0, 4000.0), (60.0, 3600.0)])
def test_filters_are_librosas(scale, norm, edges):
    librosa = pytest.importorskip("librosa")
    spectrum = replace(SPECTRUM, mel_scale=scale, mel_norm=norm, low=edges[0], high=edges[1])
    wanted = librosa.filters.mel(
        sr=8000, n_fft=256, n_mels=20, fmin=edges[0], fmax=edges[1], htk=scale == "htk",
        norm="slaney" if norm == "slaney" else None, dtype=np.float64,
    )  # fmt: skip
    assert np.abs(mel_filters(spectrum) - wanted).max() < 1e-6


@pytest.mark.parametrize("scale", ["slaney", "htk"])
def test_the_scale_goes_both_ways(scale):
    hertz = np.linspace(0, 8000, 400)
    assert np.abs(hertz_of(mels_of(hertz, scale), scale) - hertz).max() < 1e-8
    assert (np.diff(mels_of(hertz, scale)) > 0).all()


@pytest.mark.slow
def test_the_log_mel_is_librosas():
    librosa = pytest.importorskip("librosa")
    wanted = librosa.feature.melspectrogram(
        y=WAVE, sr=8000, n_fft=256, hop_length=64, n_mels=20, fmax=4000.0, power=1.0, pad_mode="reflect"
    )
    found = log_mel(WAVE, SPECTRUM)
    assert found.shape == wanted.T.shape
    assert np.abs(found - np.log(np.maximum(wanted.T, 1e-5))).max() < 1e-6


@pytest.mark.parametrize(("log", "power"), [("ln", 1.0), ("log10", 1.0), ("db", 1.0), ("db", 2.0)])
def test_logarithms_and_back(log, power):
    spectrum = replace(SPECTRUM, log=log, power=power)
    mel = np.geomspace(1e-4, 10.0, 50)
    assert exponential(logarithm(mel, spectrum), spectrum) == pytest.approx(mel)
    assert logarithm(np.zeros(1), spectrum) == logarithm(np.array([1e-5]), spectrum)
    tenfold = np.diff(logarithm(np.array([0.1, 1.0]), spectrum))[0]
    assert tenfold == pytest.approx({"ln": np.log(10), "log10": 1.0, "db": 20.0 / power}[log])


def test_every_setting_changes_one_thing_or_nothing():
    for name in names("spectrum"):
        found = part("spectrum", name)
        changed = found.function(SPECTRUM)
        fields = [f for f in vars(SPECTRUM) if getattr(SPECTRUM, f) != getattr(changed, f)]
        assert len(fields) <= 1, name
        assert found.function(changed) == changed
        assert found.facts["systems"], name
        assert found.summary.endswith("."), name


def test_settings_come_in_pairs():
    for first, second in [
        ("symmetric-window", "periodic-window"),
        ("not-centred", "centred"),
        ("constant-padding", "reflect-padding"),
        ("power-2", "power-1"),
        ("htk-scale", "slaney-scale"),
        ("no-mel-norm", "slaney-norm"),
    ]:
        changed = part("spectrum", first).function(SPECTRUM)
        assert changed != SPECTRUM
        assert part("spectrum", second).function(changed) == SPECTRUM
        before, after = log_mel(WAVE, SPECTRUM), log_mel(WAVE, changed)
        common = min(len(before), len(after))
        assert np.abs(before[:common] - after[:common]).max() > 1e-6, first


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
    """What docs/how-to/speech.md says of the two errors."""
    clean = wave_of(MEL, SPECTRUM)
    noised = wave_of(MEL + 0.01 * np.random.default_rng(0).normal(size=MEL.shape), SPECTRUM)
    power = np.mean(clean**2)
    assert np.mean((noised - clean) ** 2) > 0.02 * power
    assert np.mean((log_mel(noised, SPECTRUM) - log_mel(clean, SPECTRUM)) ** 2) < 0.01
