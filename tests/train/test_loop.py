"""The loop learns, repeats itself, and goes on where a killed run stopped."""

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from holdfast.train.loop import Job, Stage, fit, rate  # noqa: E402

STAGES = (Stage("a", 20, 8, 4, 3e-2, 1e-2, warmup=4), Stage("b", 10, 4, 4, 1e-2, 1e-3))


def job(seed: int = 0) -> Job:
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 1))

    def draw(stage, rng):
        x = torch.from_numpy(rng.normal(size=(stage.batch, 3, 4, 4)).astype(np.float32))
        return x, x.mean((1, 2, 3))[:, None]

    return Job("toy", net, draw, lambda net, batch: (net(batch[0]) - batch[1]).square().mean(), STAGES, seed)


def weights(net: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in net.parameters()])


def test_rate_warms_up_then_falls_from_high_to_low():
    stage = Stage("s", 100, 1, 1, 1.0, 0.1, warmup=10)
    assert rate(stage, 0) == pytest.approx(0.1)
    assert rate(stage, 10) == pytest.approx(1.0)
    assert rate(stage, 55) == pytest.approx(0.55)
    assert rate(stage, 100) == pytest.approx(0.1)
    assert all(rate(stage, s) > rate(stage, s + 1) for s in range(10, 99))


def test_loss_falls_and_both_stages_run(tmp_path):
    said: list[str] = []
    long = replace(job(), stages=(replace(STAGES[0], steps=150), STAGES[1]))
    fit(long, tmp_path / "c.pt", said.append)
    losses = [float(line.split("loss ")[1].split()[0]) for line in said]
    assert len(said) == 4
    assert " a 50/160 " in said[0]
    assert " b 160/160 " in said[-1]
    assert losses[-1] < losses[0] / 2


def test_same_seed_same_weights(tmp_path):
    first, second, other = (
        weights(fit(job(seed), tmp_path / f"{i}.pt", len)) for i, seed in enumerate((0, 0, 1))
    )
    assert torch.equal(first, second)
    assert not torch.equal(first, other)


def test_killed_run_goes_on_to_the_same_weights(tmp_path):
    whole = weights(fit(job(), tmp_path / "whole.pt", len))

    class Killed(Exception):
        pass

    stopped = job()
    calls = []

    def loss(net, batch):
        calls.append(1)
        if len(calls) == 25:
            raise Killed
        return job().loss(net, batch)

    with pytest.raises(Killed):
        fit(replace(stopped, loss=loss), tmp_path / "cut.pt", len, save_every=10)
    assert torch.load(tmp_path / "cut.pt", weights_only=True)["done"] == 20
    assert torch.equal(weights(fit(job(), tmp_path / "cut.pt", len)), whole)


def test_key_changes_with_what_decides_the_weights():
    changed = (
        job(1),
        replace(job(), stages=STAGES[:1]),
        replace(job(), data="other scenes"),
        replace(job(), net=nn.Conv2d(3, 4, 3)),
    )
    assert job().key() == job().key()
    assert len({job().key(), *(other.key() for other in changed)}) == 5
