"""The networks: shapes, padding that changes nothing, the length regulator, the step of an LSTM."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from models.speech import nets, recipes  # noqa: E402
from models.speech.nets import GROUP, FastNet, TacoNet  # noqa: E402


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=9).filter(any), st.integers(0, 99))
def test_regulator_is_repeat(durations, seed):
    rows = np.random.default_rng(seed).normal(size=(len(durations), 3)).astype(np.float32)
    shown, real = nets.regulated(torch.from_numpy(rows)[None], torch.tensor([durations]))
    assert np.array_equal(shown[0].numpy(), np.repeat(rows, durations, axis=0))
    assert bool(real.all())


def test_regulator_of_a_batch_tells_what_is_real():
    values = torch.arange(6.0).reshape(2, 3, 1)
    shown, real = nets.regulated(values, torch.tensor([[2, 0, 2], [1, 1, 0]]))
    assert shown[0, :, 0].tolist() == [0, 0, 2, 2]
    assert shown[1, :2, 0].tolist() == [3, 4]
    assert real.tolist() == [[True] * 4, [True, True, False, False]]


def test_step_is_an_lstm():
    torch.manual_seed(0)
    step, cell = nets.Step(5, 4), torch.nn.LSTMCell(5, 4)
    with torch.no_grad():
        step.gates.weight.copy_(torch.cat([cell.weight_ih, cell.weight_hh], 1))
        step.gates.bias.copy_(cell.bias_ih + cell.bias_hh)
    x, hidden, state = torch.randn(3, 5), torch.randn(3, 4), torch.randn(3, 4)
    for mine, theirs in zip(step(x, hidden, state), cell(x, (hidden, state)), strict=True):
        assert torch.allclose(mine, theirs, atol=1e-6)


def test_padding_changes_nothing_in_the_parallel_net():
    torch.manual_seed(0)
    net = FastNet(28, 8).eval()
    ids, durations = torch.randint(0, 28, (1, 6)), torch.randint(1, 4, (1, 6))
    energy = torch.randn(1, 6)
    alone = net.taught(ids, torch.tensor([6]), durations, energy)
    other = torch.randint(0, 28, (1, 9))
    rows = torch.cat([torch.nn.functional.pad(ids, (0, 3)), other])
    lasting = torch.cat([torch.nn.functional.pad(durations, (0, 3)), torch.full((1, 9), 3)])
    loud = torch.cat([torch.nn.functional.pad(energy, (0, 3)), torch.randn(1, 9)])
    among = net.taught(rows, torch.tensor([6, 9]), lasting, loud)
    frames = int(durations.sum())
    assert torch.allclose(alone.mel[0], among.mel[0, :frames], atol=1e-5)
    assert torch.allclose(alone.durations[0], among.durations[0, :6], atol=1e-5)
    assert among.real[0].sum() == frames


def test_padding_changes_nothing_in_the_autoregressive_net():
    torch.manual_seed(0)
    net = TacoNet(28, 8).eval()
    ids, mel = torch.randint(0, 28, (1, 5)), torch.randn(1, 4 * GROUP, 8)
    none = torch.zeros(2, 5, dtype=torch.bool)
    alone = net.taught(ids, torch.tensor([5]), mel, none[:1, :4])
    rows = torch.cat([torch.nn.functional.pad(ids, (0, 2)), torch.randint(0, 28, (1, 7))])
    mels = torch.cat([torch.nn.functional.pad(mel, (0, 0, 0, GROUP)), torch.randn(1, 5 * GROUP, 8)])
    among = net.taught(rows, torch.tensor([5, 7]), mels, none)
    assert torch.allclose(alone.mel[0], among.mel[0, : 4 * GROUP], atol=1e-5)
    assert torch.allclose(alone.stop[0], among.stop[0, :4], atol=1e-5)
    assert torch.allclose(alone.attention[0], among.attention[0, :4, :5], atol=1e-5)
    assert torch.allclose(among.attention.sum(2), torch.ones(2, 5), atol=1e-5)


def test_own_frames_are_what_speaking_does():
    torch.manual_seed(0)
    net = TacoNet(28, 8).eval()
    ids = torch.randint(0, 28, (1, 5))
    with torch.no_grad():
        spoken, stopped = net(ids, limit=4 * GROUP, threshold=2.0)
        own = torch.ones(1, 4, dtype=torch.bool)
        taught = net.taught(ids, torch.tensor([5]), torch.zeros(1, 4 * GROUP, 8), own)
    assert not stopped
    assert torch.allclose(spoken, taught.refined, atol=1e-5)


def test_attention_is_told_where_to_look():
    wrong = recipes.beside(torch.tensor([[2, 0, 1]]))
    assert wrong.shape == (1, 3, 3)
    assert wrong[0].argmin(1).tolist() == [0, 0, 2]
    assert float(wrong[0, 0, 0]) == 0.0


def test_energy_is_the_mean_of_a_letter():
    mel = torch.tensor([[[1.0, 3.0], [3.0, 5.0], [7.0, 7.0]]])
    assert recipes.energy_of(mel, torch.tensor([[2, 0, 1]])).tolist() == [[3.0, 0.0, 7.0]]
