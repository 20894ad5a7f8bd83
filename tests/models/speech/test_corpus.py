"""Recordings, batches and training in miniature; espeak-ng itself only where it is installed."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("scipy")

from holdfast.core.errors import InputError  # noqa: E402
from holdfast.noise.speech.clips import open_clips, read_wav  # noqa: E402
from holdfast.train.loop import Stage, fit  # noqa: E402
from models.speech import corpus as corpora  # noqa: E402
from models.speech import recipes, voice  # noqa: E402
from models.speech.__main__ import main  # noqa: E402
from models.speech.make import write_clips  # noqa: E402
from models.speech.nets import GROUP  # noqa: E402


def tone(text, seed=0):
    """A stand-in for espeak-ng: every letter is a tone of its own for 60 ms at 22,050 Hz."""
    rate, length = 22050, 1323
    hertz = [0 if letter == " " else 200 + 50 * (ord(letter) - 97) for letter in text]
    wave = np.concatenate([0.4 * np.sin(2 * np.pi * h * np.arange(length) / rate) for h in hertz])
    starts = [0, *(length * (place + 1) for place, letter in enumerate(text) if letter == " ")]
    silence = np.zeros(5000)
    samples = np.rint(np.concatenate([wave, silence]) * 32767).astype("<i2").tobytes()
    return voice.Spoken(samples, rate, tuple(starts))


@pytest.fixture
def small(monkeypatch, tmp_path):
    monkeypatch.setattr(voice, "library_name", lambda: "there")
    monkeypatch.setattr(voice, "version", lambda: "1")
    monkeypatch.setattr(voice, "speak", lambda text, name: tone(text))
    return corpora.open_corpus(tmp_path, 12, 4, 0, lambda line: None)


def test_resampling_keeps_pitch_and_trims():
    wave, starts = corpora.resampled(tone("go on"))
    assert len(wave) == pytest.approx(5 * 960 + corpora.TAIL, abs=300)
    assert starts[1] == pytest.approx(3 * 960, abs=2)
    spectrum = np.abs(np.fft.rfft(wave[:960].astype(float), 16000))
    assert int(np.argmax(spectrum)) == pytest.approx(500, abs=15)  # g is 500 Hz


def test_recordings_fit_their_text(small):
    assert len(small.trained) == 12
    assert not {r.text for r in small.trained} & {r.text for r in small.held_out}
    for recording in small.trained:
        assert recording.frames.sum() == len(recording.mel)
        assert len(recording.frames) == len(recording.text) + 1
        assert len(recording.mel) == 1 + len(recording.wave) // 256


def test_what_is_kept_is_not_spoken_again(small, monkeypatch, tmp_path):
    monkeypatch.setattr(voice, "speak", lambda text, name: pytest.fail(f"spoke {text!r} again"))
    again = corpora.open_corpus(tmp_path, 12, 4, 0, lambda line: None)
    assert again.key == small.key


def test_words_that_run_into_one_another_are_told():
    with pytest.raises(InputError, match="as 1 words, expected 2"):
        corpora.recording_of("go on", np.ones(4000, np.int16), np.array([0, 3000]))


@pytest.mark.parametrize("samples", [b"", b"\0" * 4000])
def test_silence_is_told(samples, monkeypatch, tmp_path):
    monkeypatch.setattr(voice, "speak", lambda text, name: voice.Spoken(samples, 22050, (0,)))
    with pytest.raises(InputError, match="as silence"):
        corpora.spoken(tmp_path, "go")


def test_a_voice_that_is_not_there_is_told(monkeypatch, tmp_path):
    def speak(text, name):
        raise OSError("no voice 'en-us'")

    monkeypatch.setattr(voice, "speak", speak)
    with pytest.raises(InputError, match="could not speak 'go': no voice"):
        corpora.spoken(tmp_path, "go")


def test_batches_are_whole_steps(small):
    stage = Stage("s", 1, 4, 50, 1e-3, 1e-3)
    ids, lengths, durations, mel, own, _ = recipes.taco(small, 0).draw(stage, np.random.default_rng(0))
    assert mel.shape[1] % GROUP == 0
    assert own.shape == (4, mel.shape[1] // GROUP)
    assert own.any()
    assert not own.all()
    assert int(durations.sum(1).max()) == mel.shape[1]
    assert ids.shape == durations.shape
    assert int(lengths.max()) == ids.shape[1]


@pytest.mark.parametrize("recipe", [recipes.fast_speech, pytest.param(recipes.taco, marks=pytest.mark.slow)])
def test_a_killed_training_goes_on_to_the_same_weights(small, recipe, tmp_path):
    stages = (Stage("s", 4, 3, 30, 1e-3, 1e-4),)
    whole = fit(recipe(small, 0, stages), tmp_path / "whole.pt", lambda line: None)

    class Killed(Exception):
        pass

    job = recipe(small, 0, stages)
    seen = []

    def dying(net, batch):
        seen.append(1)
        if len(seen) == 3:
            raise Killed
        return recipe(small, 0, stages).loss(net, batch)

    torch.manual_seed(7)
    with pytest.raises(Killed):
        fit(type(job)(**{**job.__dict__, "loss": dying}), tmp_path / "half.pt", lambda line: None, 2)
    torch.manual_seed(8)
    resumed = fit(recipe(small, 0, stages), tmp_path / "half.pt", lambda line: None)
    for one, other in zip(whole.state_dict().values(), resumed.state_dict().values(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("recipe", [recipes.fast_speech, recipes.taco])
def test_the_loss_falls(small, recipe):
    job = recipe(small, 0, (Stage("s", 1, 4, 0, 1e-3, 1e-3),))
    batch = job.draw(job.stages[0], np.random.default_rng(0))
    optimiser = torch.optim.Adam(job.net.parameters(), 2e-3)
    losses = []
    for _ in range(8):
        loss = job.loss(job.net, batch)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.9 * losses[0]
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in job.net.parameters())


def test_clips_are_in_the_layout_of_lj_speech(small, tmp_path):
    write_clips(small.held_out, tmp_path / "clips")
    clips = open_clips(tmp_path / "clips").clips
    assert [clip.text for clip in clips] == [r.text for r in small.held_out]
    assert np.array_equal(np.rint(read_wav(clips[0].path, 16000) * 32768), small.held_out[0].wave)


def test_without_espeak_one_line_names_the_script(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(voice, "LIBRARIES", ("libnone-such.so",))
    assert main(["taco", "--work", str(tmp_path), "--out", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "espeak-ng" in said
    assert "scripts/install-speech.sh" in said
    assert said.count("\n") == 1


def test_an_unknown_model_is_told(capsys):
    assert main(["tacco"]) == 2
    assert "Did you mean 'taco'?" in capsys.readouterr().err


@pytest.mark.skipif(
    voice.library_name() is None, reason="espeak-ng is not installed: scripts/install-speech.sh"
)
def test_espeak_repeats_itself_and_tells_words():
    first, second = (voice.speak("the red truck stops", corpora.VOICE) for _ in range(2))
    assert first == second
    assert len(first.words) == 4
    assert first.rate == 22050
    with pytest.raises(OSError, match="no voice"):
        voice.speak("go", "none-such")
