"""PGD inside the training step, against the closed form of a linear model."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from holdfast.core.errors import InputError  # noqa: E402
from holdfast.train.adversarial import pgd_examples  # noqa: E402


def linear(seed=0, classes=2):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 4 * 4, classes))


def batch(seed=0, n=6, classes=2):
    source = torch.Generator().manual_seed(seed)
    x = torch.rand((n, 3, 4, 4), generator=source)
    return x, torch.randint(classes, (n,), generator=source)


def test_of_two_classes_a_linear_model_is_moved_to_the_corner_of_the_ball():
    net, (x, labels) = linear(), batch()
    found = pgd_examples(net, x, labels, 0.1, 5, 0.05, 0.0, 1.0)
    away = (net[1].weight[1 - labels] - net[1].weight[labels]).sign().reshape(x.shape)
    torch.testing.assert_close(found, (x + 0.1 * away).clamp(0, 1).detach())


def test_each_channel_of_normalised_pictures_has_its_own_bounds():
    net, (x, labels) = linear(), batch()
    mean, std = (
        torch.tensor([0.4, 0.5, 0.6]).reshape(1, 3, 1, 1),
        torch.tensor([0.2, 0.3, 0.5]).reshape(1, 3, 1, 1),
    )
    z, epsilon = (x - mean) / std, 8 / 255 / std
    found = pgd_examples(net, z, labels, epsilon, 4, epsilon / 2, -mean / std, (1 - mean) / std)
    away = (net[1].weight[1 - labels] - net[1].weight[labels]).sign().reshape(x.shape)
    want = (x + 8 / 255 * away).clamp(0, 1)
    torch.testing.assert_close(found * std + mean, want.detach(), atol=1e-6, rtol=0)


@given(
    seed=st.integers(0, 1000), epsilon=st.floats(0, 0.5), steps=st.integers(1, 3), size=st.floats(0.001, 1.0)
)
@settings(max_examples=40, deadline=None)
def test_it_never_leaves_the_ball_or_the_bounds(seed, epsilon, steps, size):
    net, (x, labels) = linear(seed, 4), batch(seed, classes=4)
    found = pgd_examples(net, x, labels, epsilon, steps, size, 0.1, 0.9, seed=seed)
    assert ((found - x).abs() <= epsilon + 1e-6).all()
    assert (found >= x.clamp(max=0.1)).all()  # out of bounds only where the picture was, and no further
    assert (found <= x.clamp(min=0.9)).all()
    assert found.dtype == x.dtype
    assert not found.requires_grad


def test_nought_is_the_picture_itself():
    net, (x, labels) = linear(), batch()
    torch.testing.assert_close(pgd_examples(net, x, labels, 0.0, 3, 0.1, 0.0, 1.0), x, atol=0, rtol=0)


def test_the_loss_rises_and_more_steps_raise_it_more():
    torch.manual_seed(3)
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32, 3))
    x, labels = batch(1, 16, 3)
    moved = [pgd_examples(net, x, labels, 0.1, steps, 0.03, 0.0, 1.0, seed=0) for steps in (1, 8)]
    losses = [float(functional.cross_entropy(net(one), labels).detach()) for one in (x, *moved)]
    assert losses[0] < losses[1] < losses[2]


def test_the_net_is_left_as_it_was():
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(), nn.Flatten(), nn.Linear(16, 2))
    net.train()
    net[1].eval()  # a layer its owner has frozen stays frozen
    net[0].weight.requires_grad_(False)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    pgd_examples(net, *batch(), 0.1, 2, 0.05, 0.0, 1.0)
    for name, value in net.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert [module.training for module in net] == [True, False, True, True, True]
    assert [weight.requires_grad for weight in net.parameters()] == [False, True, True, True, True, True]
    assert all(weight.grad is None for weight in net.parameters())


def test_statistics_of_a_net_in_training_are_read_and_not_written():
    net = nn.Sequential(nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(48, 2)).train()
    pgd_examples(net, *batch(), 0.1, 3, 0.05, 0.0, 1.0)
    assert int(net[0].num_batches_tracked) == 0
    assert torch.equal(net[0].running_mean, torch.zeros(3))


def test_it_works_where_gradients_are_off():
    net, (x, labels) = linear(), batch()
    with torch.no_grad():
        found = pgd_examples(net, x, labels, 0.1, 5, 0.05, 0.0, 1.0, seed=1)
    torch.testing.assert_close(found, pgd_examples(net, x, labels, 0.1, 5, 0.05, 0.0, 1.0, seed=1))


def test_the_start_is_random_and_a_seed_repeats_it():
    net, (x, labels) = linear(), batch()
    one, again, other = (pgd_examples(net, x, labels, 0.1, 1, 0.0, 0.0, 1.0, seed=s) for s in (1, 1, 2))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    torch.manual_seed(5)
    first = pgd_examples(net, x, labels, 0.1, 1, 0.0, 0.0, 1.0)
    torch.manual_seed(5)
    assert torch.equal(first, pgd_examples(net, x, labels, 0.1, 1, 0.0, 0.0, 1.0))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"steps": 0}, "1 step or more, got 0"),
        ({"epsilon": -1.0}, "epsilon to be 0 or more, got -1.0"),
        ({"size": float("nan")}, "step size to be 0 or more, got nan"),
        ({"labels": torch.zeros(2, dtype=torch.int64)}, "expected 6 labels, got 2"),
    ],
)
def test_what_makes_no_sense_is_refused(change, said):
    x, labels = batch()
    asked = {"labels": labels, "epsilon": 0.1, "steps": 1, "size": 0.1, "low": 0.0, "high": 1.0} | change
    with pytest.raises(InputError, match=said):
        pgd_examples(linear(), x, **asked)
