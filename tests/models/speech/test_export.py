"""What is written says in ONNX Runtime what the network says in torch, for texts of any length."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from holdfast.noise.speech.acoustic import open_synthesizer  # noqa: E402
from holdfast.noise.speech.card import load_speech  # noqa: E402
from models.speech.corpus import SYMBOLS, ids_of  # noqa: E402
from models.speech.make import write_fast, write_taco  # noqa: E402
from models.speech.nets import FastNet, TacoNet  # noqa: E402

TEXTS = ("go", "the red truck stops here", "seven people wait outside near the old bridge")


def test_the_parallel_model(tmp_path):
    torch.manual_seed(1)
    net = FastNet(len(SYMBOLS), 80).eval()
    with torch.no_grad():
        net.durations.out.bias.fill_(1.3)  # so that letters last 2 or 3 frames
    voice = open_synthesizer(load_speech(write_fast(net, -4.0, 2.0, tmp_path)))
    for text in TEXTS:
        with torch.no_grad():
            mel = net(torch.tensor([ids_of(text)]))[0].numpy()
        spoken = voice.speak(text)
        assert spoken.mel.shape == mel.shape
        assert np.abs((spoken.mel + 4.0) / 2.0 - mel).max() < 1e-4


def test_the_autoregressive_model(tmp_path):
    torch.manual_seed(1)
    net = TacoNet(len(SYMBOLS), 80).eval()
    voice = open_synthesizer(load_speech(write_taco(net, -4.0, 2.0, tmp_path)))
    for text in TEXTS:
        with torch.no_grad():
            mel, stopped = net(torch.tensor([ids_of(text)]), limit=voice.model.card.max_frames)
        spoken = voice.speak(text)
        assert spoken.stopped == stopped
        assert spoken.mel.shape == mel[0].shape
        assert np.abs((spoken.mel + 4.0) / 2.0 - mel[0].numpy()).max() < 1e-3


def test_cards_hold_everything(tmp_path):
    torch.manual_seed(0)
    fast = load_speech(write_fast(FastNet(len(SYMBOLS), 80), -4.5, 1.5, tmp_path)).card
    taco = load_speech(write_taco(TacoNet(len(SYMBOLS), 80), -4.5, 1.5, tmp_path)).card
    assert (fast.kind, taco.kind) == ("parallel", "autoregressive")
    for card in (fast, taco):
        assert (card.mean, card.std) == ((-4.5,), (1.5,))
        assert card.symbols == SYMBOLS
        assert card.end == "~"
        assert card.spectrum.rate == 16000
    assert taco.frames_per_step == 3
    assert (tmp_path / taco.decoder).is_file()
    assert (tmp_path / taco.postnet).is_file()
