"""Mel filters and log mel spectrograms against librosa's, and settings of the spectrum."""

from dataclasses import replace

import numpy as np
import pytest

from helpers.speech import SPECTRUM, hum
from holdfast.core.registry import names, part
from holdfast.noise.speech.model.mel import exponential, hertz_of, log_mel, logarithm, mel_filters, mels_of

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
