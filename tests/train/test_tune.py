"""Mix training learns what it is shown, repeats itself, goes on after a kill, and tells what is wrong."""

import dataclasses

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from onnx import numpy_helper  # noqa: E402

from helpers.classifiers import normalised_classifier  # noqa: E402
from helpers.models import image_folder  # noqa: E402
from holdfast.core.errors import DataError, InputError, ModelError, OutputError, UnknownName  # noqa: E402
from holdfast.core.model import Head  # noqa: E402
from holdfast.core.registry import stage  # noqa: E402
from holdfast.data.open import open_dataset  # noqa: E402
from holdfast.graph.load import load_model  # noqa: E402
from holdfast.train import tune as module  # noqa: E402
from holdfast.train.loop import Stage  # noqa: E402
from holdfast.train.onnx import open_trainable  # noqa: E402
from holdfast.train.pictures import PreparedImages, Preprocessing, prepare_images  # noqa: E402
from holdfast.train.tune import Tuning, draw_of, normalise_images, shift_images, tune  # noqa: E402

CHOICES = (Preprocessing(), Preprocessing("ffmpeg", "opencv-nearest"))
SHORT = Tuning(12, 8, 1e-2, CHOICES, shift=1)


@pytest.fixture(scope="module")
def ground(tmp_path_factory):
    """A model and pictures of dark and bright images."""
    folder = tmp_path_factory.mktemp("tune")
    model = load_model(normalised_classifier(folder))
    data = open_dataset(image_folder(folder / "data", 80), task="classify")
    return model, prepare_images(model, data, CHOICES, folder, 1, len)


def weights(proto):
    return {w.name: numpy_helper.to_array(w) for w in proto.graph.initializer}


def accuracy(proto, model, pictures):
    net = open_trainable(proto)
    with torch.no_grad():
        said = [net(normalise_images(images, model.card)).argmax(1).numpy() for images in pictures.images]
    return float((np.stack(said) == pictures.labels).mean())


def test_training_learns_and_moves_statistics(ground, tmp_path):
    model, pictures = ground
    before = accuracy(open_trainable(model.path).plan.proto, model, pictures)
    made = tune(model, pictures, dataclasses.replace(SHORT, steps=60), 0, tmp_path / "c.pt", len)
    assert before < 0.7 < 0.85 < accuracy(made, model, pictures)
    assert np.abs(weights(made)["bn1.mean"]).max() > 0.01
    frozen = tune(model, pictures, dataclasses.replace(SHORT, statistics="file"), 0, tmp_path / "c.pt", len)
    assert not weights(frozen)["bn1.mean"].any()
    assert not np.array_equal(weights(frozen)["conv1.weight"], weights(made)["conv1.weight"])


def test_same_seed_same_bytes(ground, tmp_path):
    made = [tune(*ground, SHORT, seed, tmp_path / f"{at}.pt", len) for at, seed in enumerate((0, 0, 1))]
    assert made[0].SerializeToString() == made[1].SerializeToString() != made[2].SerializeToString()


def test_a_killed_run_goes_on_to_the_same_bytes(ground, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "SAVE_EVERY", 5)
    whole = tune(*ground, SHORT, 0, tmp_path / "whole.pt", len)
    steps = []

    def step(done, reused):
        steps.append((done, reused))
        if len(steps) == 9:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tune(*ground, SHORT, 0, tmp_path / "cut.pt", len, step)
    steps.clear()
    again = tune(
        *ground, SHORT, 0, tmp_path / "cut.pt", len, lambda done, reused: steps.append((done, reused))
    )
    assert steps == [(5, 5), *[(1, 0)] * 7]
    assert again.SerializeToString() == whole.SerializeToString()


def test_a_checkpoint_of_other_training_is_not_gone_on_from(ground, tmp_path):
    first = tune(*ground, SHORT, 0, tmp_path / "c.pt", len)
    other = tune(*ground, dataclasses.replace(SHORT, rate=2e-2), 0, tmp_path / "c.pt", len)
    assert len(list(tmp_path.glob("c-*.pt"))) == 2
    assert first.SerializeToString() != other.SerializeToString()


def test_every_image_of_a_batch_has_its_own_choice(ground):
    model, _ = ground
    images = (
        np.zeros((3, 500, 16, 16, 3), np.uint8) + np.array([0, 50, 100], np.uint8)[:, None, None, None, None]
    )
    choices = (Preprocessing(), Preprocessing("a", "b"), Preprocessing("c", "d"))
    pictures = PreparedImages(images, np.arange(500) % 2, choices, "key")
    draw = draw_of(pictures, Tuning(1, 400, mix=(choices[0], choices[2]), mix_per="image"), model)
    x, labels, _ = draw(Stage("s", 1, 400, 0, 1.0, 1.0), np.random.default_rng(0))
    assert len(labels) == 400
    levels = (x * 0.25 + 0.5).mul(255).round()[:, 0, 0, 0].int()
    counts = {int(level): int((levels == level).sum()) for level in levels.unique()}
    assert set(counts) == {0, 100}
    assert min(counts.values()) > 150
    assert np.bincount(labels).min() > 150


def test_by_default_all_images_of_an_iteration_have_one_choice(ground):
    model, _ = ground
    levels = np.array([0, 100], np.uint8)[:, None, None, None, None]
    images = np.zeros((2, 50, 16, 16, 3), np.uint8) + levels
    choices = (Preprocessing(), Preprocessing("a", "b"))
    pictures = PreparedImages(images, np.arange(50) % 2, choices, "key")
    draw, rng = draw_of(pictures, Tuning(1, 20, mix=choices), model), np.random.default_rng(0)
    drawn = [draw(Stage("s", 1, 20, 0, 1.0, 1.0), rng)[0] for _ in range(30)]
    assert all(len(x.unique()) == 1 for x in drawn)
    assert len({float(x.mean()) for x in drawn}) == 2


def test_consistency_shows_each_image_as_it_is_and_augmented_twice(ground, tmp_path):
    model, pictures = ground
    tuning = dataclasses.replace(SHORT, augment=("augmix",), consistency=12.0)
    x, labels, seed = draw_of(pictures, tuning, model)(
        Stage("s", 1, tuning.batch, 0, 1.0, 1.0), np.random.default_rng(3)
    )
    own, first, second = x.chunk(3)
    assert len(labels) == len(own) == tuning.batch
    assert not own.equal(first)
    assert not first.equal(second)
    net = module.trainable_of(model)
    with torch.no_grad():
        alike = module.loss_of(model, tuning)(net, (torch.cat([own] * 3), labels, seed))
        plain = module.loss_of(model, SHORT)(net, (own, labels, seed))
        apart = module.loss_of(model, tuning)(net, (x, labels, seed))
    assert float(alike) == pytest.approx(float(plain), abs=1e-5)
    assert float(apart) > float(plain)
    tune(model, pictures, tuning, 0, tmp_path / "c.pt", len)


def test_shifted_images_repeat_their_border():
    image = np.arange(12, dtype=np.uint8).reshape(1, 3, 4, 1).repeat(3, axis=3)
    moved = shift_images(image, np.array([[1, -2]]))[0, :, :, 0]
    assert moved.tolist() == [[2, 3, 3, 3], [2, 3, 3, 3], [6, 7, 7, 7]]


def test_augmentations_are_applied_in_their_order(ground):
    @stage("augment", "test-add")
    def add(images, rng):
        return images + np.uint8(1)

    @stage("augment", "test-double")
    def double(images, rng):
        return images * np.uint8(2)

    model, _ = ground
    pictures = PreparedImages(
        np.full((1, 2, 4, 4, 3), 3, np.uint8), np.zeros(2, np.int64), CHOICES[:1], "key"
    )
    drawn = {}
    for order in (("test-add", "test-double"), ("test-double", "test-add")):
        tuning = Tuning(1, 2, mix=CHOICES[:1], augment=order)
        tuning.check()
        x = draw_of(pictures, tuning, model)(Stage("s", 1, 2, 0, 1.0, 1.0), np.random.default_rng(0))[0]
        drawn[order] = float((x[0, 0, 0, 0] * 0.25 + 0.5) * 255)
    assert list(drawn.values()) == pytest.approx([8, 7], abs=1e-3)


def test_adversarial_training_is_seeded_and_another_training(ground, tmp_path):
    hard = dataclasses.replace(SHORT, steps=4, adversarial=8.0, adversarial_steps=2)
    first, second = (tune(*ground, hard, 0, tmp_path / f"{i}.pt", len) for i in range(2))
    plain = tune(*ground, dataclasses.replace(hard, adversarial=0.0), 0, tmp_path / "c.pt", len)
    assert first.SerializeToString() == second.SerializeToString() != plain.SerializeToString()


def test_a_loss_that_is_not_finite_ends_in_one_line_and_keeps_the_checkpoint(ground, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "SAVE_EVERY", 3)

    real = module.loss_of
    calls = []

    def breaking(model, tuning):
        loss = real(model, tuning)

        def broken(net, batch):
            calls.append(1)
            return loss(net, batch) * (torch.nan if len(calls) == 5 else 1)

        return broken

    monkeypatch.setattr(module, "loss_of", breaking)
    with pytest.raises(InputError, match=r"bn: the loss became nan .*; lower the rate"):
        tune(*ground, SHORT, 0, tmp_path / "c.pt", len)
    (kept,) = tmp_path.glob("c-*.pt")
    state = torch.load(kept, weights_only=True)
    assert state["done"] == 3
    assert all(value.isfinite().all() for value in state["net"].values())


def test_a_damaged_checkpoint_is_told(ground, tmp_path):
    tune(*ground, SHORT, 0, tmp_path / "c.pt", len)
    (kept,) = tmp_path.glob("c-*.pt")
    kept.write_bytes(kept.read_bytes()[:300])
    with pytest.raises(InputError, match="expected a checkpoint, got a damaged file; delete it"):
        tune(*ground, SHORT, 0, tmp_path / "c.pt", len)
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot write the checkpoint"):
        tune(*ground, SHORT, 0, tmp_path / "file" / "c.pt", len)


def test_what_cannot_be_meant_is_told(ground, tmp_path):
    model, pictures = ground
    for change, said in (
        ({"batch": 81}, r"at least one batch of images \(81\), got 80"),
        ({"rate": 0.0}, "rate: expected a learning rate above 0"),
        ({"rate": 1e9}, "below 10"),
        ({"consistency": 12.0}, "expected together with an augmentation"),
        ({"consistency": 12.0, "augment": ("augmix",), "adversarial": 2.0}, "without adversarial training"),
        ({"steps": 0}, "steps: expected 1 or more, got 0"),
        ({"mix": ()}, "mix: expected at least one choice"),
        ({"adversarial": 300.0}, "adversarial: expected 0 to 255"),
    ):
        with pytest.raises((InputError, DataError), match=said):
            tune(model, pictures, dataclasses.replace(SHORT, **change), 0, tmp_path / "c.pt", len)
    with pytest.raises(UnknownName, match="unknown augment 'augmixx'"):
        dataclasses.replace(SHORT, augment=("augmixx",)).check()


def test_a_number_of_classes_that_the_graph_does_not_have(ground, tmp_path):
    model, pictures = ground
    wrong = dataclasses.replace(model, card=dataclasses.replace(model.card, classes=("a", "b", "c")))
    with pytest.raises(ModelError, match="expected 3 scores, one per class, got 2"):
        tune(wrong, pictures, SHORT, 0, tmp_path / "c.pt", len)
    detector = dataclasses.replace(model, card=dataclasses.replace(model.card, task="detect"))
    with pytest.raises(ModelError, match="expected a classifier, got a model with the task detect"):
        tune(detector, pictures, SHORT, 0, tmp_path / "c.pt", len)


def test_outputs_that_are_no_class_are_skipped(ground):
    model, pictures = ground
    head = Head("classifier", {"skip": 1})
    skipping = dataclasses.replace(model, card=dataclasses.replace(model.card, head=head))
    drawn = draw_of(pictures, SHORT, skipping)(Stage("s", 1, 8, 0, 1.0, 1.0), np.random.default_rng(0))
    plain = draw_of(pictures, SHORT, model)(Stage("s", 1, 8, 0, 1.0, 1.0), np.random.default_rng(0))
    assert torch.equal(drawn[1], plain[1] + 1)
