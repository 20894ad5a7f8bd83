"""Cards of acoustic models, and one line for each thing that can be wrong with them."""

import pytest

from helpers.speech import LETTERS, card_text, write_autoregressive, write_parallel
from holdfast.core.errors import CardError, ModelError, UnknownName
from holdfast.noise.speech.card import load_speech, read_speech_card


def test_a_card_is_read(tmp_path):
    model = load_speech(write_autoregressive(tmp_path))
    card = model.card
    assert card.symbols == tuple(LETTERS)
    assert (card.kind, card.decoder, card.max_frames) == ("autoregressive", "taco-decoder.onnx", 60)
    assert (card.mean, card.std) == ((-5.0,), (2.0,))
    assert card.spectrum.rate == 8000
    assert card.spectrum.mel_scale == "slaney"
    assert model.roles == ("encoder", "decoder")
    assert len(model.files) == 2


def test_the_hash_is_of_all_files(tmp_path):
    first = load_speech(write_autoregressive(tmp_path / "a"))
    second = load_speech(write_autoregressive(tmp_path / "b", length=12.0))
    assert first.sha256 != second.sha256


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("rate = 8000\n", "", "spectrum.rate: missing; give a whole number"),
        ('kind = "parallel"', "", "model.kind: missing"),
        ('kind = "parallel"', 'kind = "paralel"', "model.kind: expected 'parallel' or 'autoregressive'"),
        ('kind = "parallel"', 'kind = "autoregressive"', "model.decoder: missing"),
        ("hop = 64", "hop = 64\nhops = 3", "spectrum.hops: unknown field; did you mean 'hop'"),
        ('task = "speech"', "", "task: missing"),
        ('task = "speech"', 'task = "detect"', "task: expected 'speech'"),
        ('end = "~"', 'end = "#"', "text.end: expected one of the symbols, got '#'"),
        ("mean = -5.0", "mean = [1.0, 2.0]", "normalise.mean: expected one number or 20"),
        ("std = 2.0", "std = 0.0", "normalise.std: expected numbers above 0"),
        ('"a", ', '"a", "a", ', "expected different symbols, got 'a' twice"),
        ("high = 4000.0", "high = 4001.0", "high ≤ rate / 2"),
        ('kind = "parallel"', 'kind = "parallel"\nmax_frames = 0', "model.max_frames: expected 1 or more"),
        ('kind = "parallel"', 'kind = "parallel"\nstop_threshold = 1.0', "between 0 and 1, got 1"),
        ('task = "speech"', "task = ", "expected TOML"),
    ],
)
def test_what_is_wrong_with_a_card_is_told_in_one_line(tmp_path, old, new, said):
    text = card_text()
    assert old in text
    path = tmp_path / "net.toml"
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(CardError, match=r"net\.toml") as caught:
        read_speech_card(path)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_model_without_card_or_decoder_is_told(tmp_path):
    path = write_parallel(tmp_path)
    path.with_suffix(".toml").unlink()
    with pytest.raises(CardError, match=r"fast\.onnx: no card: expected fast\.toml next to it, or --card"):
        load_speech(path)
    path = write_autoregressive(tmp_path)
    (tmp_path / "taco-decoder.onnx").unlink()
    with pytest.raises(ModelError, match=r"taco-decoder\.onnx: no such file, but the card"):
        load_speech(path)
    with pytest.raises(UnknownName, match="unknown acoustic model 'fastt'"):
        load_speech("fastt")
    with pytest.raises(ModelError, match=r"nothing\.onnx: no such model file"):
        load_speech(tmp_path / "nothing.onnx")
