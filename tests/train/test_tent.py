"""TENT adapts normalisation layers alone, online, and helps where the images have drifted."""

import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from helpers.classifiers import model_of, node, normalised_classifier  # noqa: E402
from holdfast.core.errors import InputError  # noqa: E402
from holdfast.train.onnx import open_trainable  # noqa: E402
from holdfast.train.tune import check_adaptable, entropy, tent  # noqa: E402


@pytest.fixture
def net(tmp_path):
    return open_trainable(normalised_classifier(tmp_path))


def batches(count=4, size=12, seed=0):
    source = torch.Generator().manual_seed(seed)
    return [torch.randn(size, 3, 16, 16, generator=source) for _ in range(count)]


def test_only_scale_and_bias_of_normalisation_change(net):
    before = copy.deepcopy(net.state_dict())
    said = tent(net, batches(), 1e-2)
    assert said.shape == (48,)
    changed = {name for name, value in net.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {"bn1.scale", "bn1.bias", "bn2.scale", "bn2.bias"} == set(check_adaptable(net))
    assert net.mode == "file"
    assert all(w.requires_grad for w in net.weights.values())


def test_the_first_batch_is_answered_before_anything_is_learned(net):
    given = batches(1)
    first = copy.deepcopy(net).statistics("batch")(given[0]).argmax(1).numpy()
    assert np.array_equal(tent(copy.deepcopy(net), given, 1.0), first)
    again = copy.deepcopy(net)
    assert np.array_equal(tent(again, given, 1.0), tent(copy.deepcopy(net), given, 1.0))


def test_entropy_falls_while_it_adapts(net):
    given = batches(1)[0]
    before = entropy(net.statistics("batch")(given)).mean()
    tent(net, [given] * 10, 1e-2)
    assert entropy(net.statistics("batch")(given)).mean() < before


def test_two_steps_a_batch_go_further_than_one(net):
    one, two = copy.deepcopy(net), copy.deepcopy(net)
    tent(one, batches(), 1e-3)
    tent(two, batches(), 1e-3, steps=2)
    moved = [(n.weights["bn1.scale"] - net.weights["bn1.scale"]).abs().sum() for n in (one, two)]
    assert moved[1] > 1.5 * moved[0] > 0


def test_entropy_is_that_of_the_definition():
    scores = torch.tensor([[0.0, 0.0], [100.0, 0.0]])
    assert entropy(scores).tolist() == pytest.approx([np.log(2), 0.0], abs=1e-6)


def test_it_undoes_a_shift_of_light(tmp_path):
    """A network that tells images by contrast, shown all of them ten times as bright."""
    weights = {
        "w": np.float32([[[[1.0]]], [[[-1.0]]]]).repeat(3, 1) / 3, "s": np.ones(2, np.float32),
        "b": np.zeros(2, np.float32), "m": np.zeros(2, np.float32), "v": np.ones(2, np.float32),
    }  # fmt: skip
    nodes = [
        node("GlobalAveragePool", "x", "p"), node("Conv", "p w", "c"),
        node("BatchNormalization", "c s b m v", "n"), node("Flatten", "n", "y"),
    ]  # fmt: skip
    net = open_trainable(model_of(nodes, weights))
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 64)
    x = np.where(labels[:, None, None, None] == 0, 1.0, -1.0) + rng.normal(0, 0.1, (64, 3, 8, 8)) + 5
    images = torch.from_numpy(x.astype(np.float32))
    plain = (net(images).argmax(1).numpy() == labels).mean()
    adapted_to = (tent(net, images.split(32), 1e-3) == labels).mean()
    assert plain < 0.7 < 0.95 < adapted_to


def test_layer_normalisation_can_adapt_too():
    weights = {
        "w": np.ones((4, 3, 8, 8), np.float32),
        "s": np.ones(4, np.float32),
        "b": np.zeros(4, np.float32),
    }
    nodes = [node("Conv", "x w", "c"), node("Flatten", "c", "f"), node("LayerNormalization", "f s b", "y")]
    net = open_trainable(model_of(nodes, weights))
    assert check_adaptable(net) == ("s", "b")
    assert tent(net, [torch.randn(4, 3, 8, 8)], 1e-3).shape == (4,)


def test_a_model_without_normalisation_layers_is_told_in_one_line():
    net = open_trainable(model_of([node("Conv", "x w", "y")], {"w": np.ones((4, 3, 8, 8), np.float32)}))
    with pytest.raises(InputError, match="normalisation layers, and the model has none") as problem:
        tent(net, [], 1e-3)
    assert "\n" not in str(problem.value)


def test_outputs_that_are_no_class_are_never_the_answer(net):
    (bias,) = [value for value in net.weights.values() if value.shape == (2,)]
    with torch.no_grad():
        bias += torch.tensor([10.0, 0.0])  # the first output wins everywhere
    assert tent(copy.deepcopy(net), batches(1), 1e-3).tolist() == [0] * 12
    assert tent(copy.deepcopy(net), batches(1, seed=1), 1e-3, skip=1).tolist() == [0] * 12
    with torch.no_grad():
        bias += torch.tensor([0.0, 20.0])
    assert tent(copy.deepcopy(net), batches(1), 1e-3).tolist() == [1] * 12
    assert tent(copy.deepcopy(net), batches(1), 1e-3, skip=1).tolist() == [0] * 12
