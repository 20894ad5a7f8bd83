"""Every operator against the numpy one, which is the definition, and that against librosa."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.speech import SPECTRUM, hum
from holdfast.core.errors import CardError, DataError
from holdfast.core.registry import names, part
from holdfast.noise.speech.stft.numpy import inverse_numpy, numpy, samples_of, window_of

WAVE = hum(0.6)
SPECTRA = {
    "as is": SPECTRUM,
    "short window": replace(SPECTRUM, window_length=200, hop=50),
    "zeros": replace(SPECTRUM, padding="constant"),
    "symmetric": replace(SPECTRUM, periodic=False),
    "not centred": replace(SPECTRUM, centre=False),
    "odd hop": replace(SPECTRUM, hop=77),
}
TOLD = ("librosa", "scipy", "torch")  # those that do what the card says
NEEDS = {"librosa": "librosa", "scipy": "scipy", "torch": "torch"}


def operator(name):
    if name != "numpy":
        pytest.importorskip(NEEDS[name.split("-")[0]])
    found = part("stft", name)
    return found.function, found.facts["inverse"]


@pytest.mark.parametrize("case", SPECTRA)
@pytest.mark.parametrize("name", TOLD)
def test_an_operator_told_the_settings_agrees_with_the_definition(name, case):
    forward, _ = operator(name)
    spectrum = SPECTRA[case]
    wanted = numpy(WAVE, spectrum)
    found = forward(WAVE, spectrum)
    assert found.shape == wanted.shape
    assert np.abs(found - wanted).max() < 1e-6


@pytest.mark.parametrize("case", [c for c in SPECTRA if c != "not centred"])
@pytest.mark.parametrize("name", TOLD)
def test_an_inverse_told_the_settings_agrees_with_the_definition(name, case):
    _, inverse = operator(name)
    spectrum = SPECTRA[case]
    transform = numpy(WAVE, spectrum) * np.linspace(1, 0.5, SPECTRUM.bins)[:, None]
    wanted = inverse_numpy(transform, spectrum)
    found = inverse(transform, spectrum)
    assert found.shape == wanted.shape
    assert np.abs(found - wanted).max() < 1e-6


@pytest.mark.parametrize("case", SPECTRA)
def test_the_definition_is_librosas(case):
    librosa = pytest.importorskip("librosa")
    spectrum = SPECTRA[case]
    window = window_of(replace(spectrum, n_fft=spectrum.window_length))
    wanted = librosa.stft(
        WAVE, n_fft=spectrum.n_fft, hop_length=spectrum.hop, win_length=spectrum.window_length,
        window=window, center=spectrum.centre, pad_mode=spectrum.padding,
    )  # fmt: skip
    assert np.abs(numpy(WAVE, spectrum) - wanted).max() < 1e-9


def test_scipys_short_time_fft_agrees_too():
    signal = pytest.importorskip("scipy.signal")
    made = signal.ShortTimeFFT(
        window_of(SPECTRUM), SPECTRUM.hop, SPECTRUM.rate, mfft=SPECTRUM.n_fft, phase_shift=None
    )
    half = SPECTRUM.n_fft // 2
    long = np.pad(WAVE, half, mode="reflect")
    wanted = numpy(WAVE, SPECTRUM)
    first = half // SPECTRUM.hop  # its slice p is centred at p hops
    found = made.stft(long, p0=first, p1=first + wanted.shape[1])
    assert np.abs(found - wanted).max() < 1e-9


@pytest.mark.parametrize("name", ["librosa-default", "scipy-default", "scipy-unscaled", "torch-default"])
def test_what_libraries_do_by_themselves_differs(name):
    forward, _ = operator(name)
    wanted = numpy(WAVE, SPECTRUM)
    found = forward(WAVE, SPECTRUM)[:, : wanted.shape[1]]
    assert np.abs(found - wanted).max() > 1e-3


def test_the_defaults_differ_where_they_are_said_to():
    zeros = numpy(WAVE, replace(SPECTRUM, padding="constant"))
    librosa, _ = operator("librosa-default")
    assert np.abs(librosa(WAVE, SPECTRUM) - zeros).max() < 1e-9
    scipy, _ = operator("scipy-default")
    assert np.abs(scipy(WAVE, SPECTRUM)[:, : zeros.shape[1]] - zeros).max() < 1e-9
    unscaled, _ = operator("scipy-unscaled")
    gain = np.abs(scipy(WAVE, SPECTRUM)).sum() / np.abs(unscaled(WAVE, SPECTRUM)).sum()
    assert gain == pytest.approx(window_of(SPECTRUM).sum())


def test_torch_without_a_window_is_a_rectangle():
    forward, _ = operator("torch-default")
    frame = np.pad(WAVE, SPECTRUM.n_fft // 2, mode="reflect")[: SPECTRUM.n_fft]
    assert np.abs(forward(WAVE, SPECTRUM)[:, 0] - np.fft.rfft(frame)).max() < 1e-9


def test_single_precision_differs_a_little():
    forward, inverse = operator("torch-float32")
    wanted = numpy(WAVE, SPECTRUM)
    off = np.abs(forward(WAVE, SPECTRUM) - wanted).max()
    assert 1e-9 < off < 1e-4
    assert np.abs(inverse(wanted, SPECTRUM, len(WAVE)) - WAVE).max() < 1e-5


def test_torch_tells_that_it_cannot_go_back_from_uncentred_frames():
    _, inverse = operator("torch")
    spectrum = replace(SPECTRUM, centre=False)
    with pytest.raises(DataError, match=r"torch\.istft does not take back"):
        inverse(numpy(WAVE, spectrum), spectrum)


@pytest.mark.parametrize("name", ["librosa-default", "scipy-default", "scipy-unscaled", "torch-default"])
def test_every_operator_takes_back_what_it_gave(name):
    forward, inverse = operator(name)
    wave = WAVE[: 64 * (len(WAVE) // 64)]
    assert np.abs(inverse(forward(wave, SPECTRUM), SPECTRUM, len(wave)) - wave).max() < 1e-9


def test_every_registered_operator_has_an_inverse_and_says_who_does_it():
    for name in names("stft"):
        found = part("stft", name)
        assert callable(found.facts["inverse"]), name
        assert found.facts["systems"], name
        assert found.summary.endswith("."), name


@settings(max_examples=40, deadline=None)
@given(
    half=st.integers(4, 60),
    share=st.integers(2, 6),
    length=st.integers(150, 900),
    periodic=st.booleans(),
    padding=st.sampled_from(["reflect", "constant"]),
)
def test_the_inverse_gives_back_any_wave(half, share, length, periodic, padding):
    n_fft = 2 * half
    spectrum = replace(
        SPECTRUM, n_fft=n_fft, window_length=n_fft, hop=max(1, n_fft // (share * 2)), periodic=periodic,
        padding=padding,
    )  # fmt: skip
    wave = np.random.default_rng(length).normal(size=length)
    transform = numpy(wave, spectrum)
    assert transform.shape == (half + 1, 1 + length // spectrum.hop)
    found = inverse_numpy(transform, spectrum, length)
    inside = samples_of(transform.shape[1], spectrum)
    assert np.abs(found - wave)[:inside].max() < 1e-9


def test_windows_by_their_formulas():
    assert window_of(replace(SPECTRUM, periodic=False))[[0, -1]] == pytest.approx(0.0)
    assert np.abs(window_of(replace(SPECTRUM, periodic=False)) - np.hanning(256)).max() < 1e-12
    periodic = window_of(SPECTRUM)
    assert np.abs(periodic[:128] + periodic[128:] - 1.0).max() < 1e-12
    short = window_of(replace(SPECTRUM, window_length=200))
    assert not short[:28].any()
    assert not short[228:].any()


def test_a_wave_that_is_too_short_is_told():
    with pytest.raises(DataError, match="100 samples cannot be mirrored by half a frame of 128"):
        numpy(np.zeros(100), SPECTRUM)
    with pytest.raises(DataError, match="shorter than one frame of 256"):
        numpy(np.zeros(200), replace(SPECTRUM, centre=False))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"hop": 0}, "spectrum.hop: expected 1 or more"),
        ({"window_length": 300}, "at most n_fft 256, got 300"),
        ({"hop": 257}, "samples are skipped"),
        ({"high": 5000.0}, "low < high ≤ rate / 2 = 4000"),
        ({"power": 3.0}, "expected 1.0 or 2.0, got 3"),
        ({"floor": 0.0}, "spectrum.floor: expected more than 0"),
    ],
)
def test_impossible_spectra_are_told(change, said):
    with pytest.raises(CardError, match=said):
        replace(SPECTRUM, **change)
