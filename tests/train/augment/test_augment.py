"""Every augmentation: what holds for all of them, and each against its paper's definition."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from PIL import Image, ImageOps

from holdfast.core.errors import InputError
from holdfast.core.registry import lookup, names, part
from holdfast.data.signs.scene import crop_classify
from holdfast.train.augment import augmix as operations
from holdfast.train.augment.augmix import consistency, recombined
from holdfast.train.augment.deep import DAMAGES, damaged, weights

EVERY = ("apr-sp", "augmix", "deep", "standard")
pictures = arrays.arrays(
    np.uint8, st.tuples(st.integers(0, 5), st.integers(4, 21), st.integers(4, 21), st.just(3))
)
one_picture = arrays.arrays(np.uint8, st.tuples(st.integers(3, 19), st.integers(3, 19), st.just(3)))


@pytest.fixture(scope="module")
def signs():
    return np.stack([crop_classify(3, i)[0][:72, :72] for i in range(24)])


def test_the_four_are_registered():
    assert set(EVERY) <= set(names("augment"))
    for name in EVERY:
        assert part("augment", name).summary.endswith(".")


@pytest.mark.parametrize("name", EVERY)
@given(images=pictures, seed=st.integers(0, 2**32 - 1))
@settings(max_examples=25, deadline=None)
def test_same_shape_same_kind_and_the_same_again(name, images, seed):
    before = images.copy()
    first, again = (lookup("augment", name)(images, np.random.default_rng(seed)) for _ in range(2))
    assert first.shape == images.shape
    assert first.dtype == np.uint8
    assert not np.shares_memory(first, images)
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(images, before)


@pytest.mark.parametrize("name", EVERY)
@given(images=pictures, seed=st.integers(0, 2**32 - 1))
@settings(max_examples=15, deadline=None)
def test_severity_nought_changes_nothing(name, images, seed):
    made = lookup("augment", name)(images, np.random.default_rng(seed), severity=0)
    np.testing.assert_array_equal(made, images)
    assert not np.shares_memory(made, images)


@pytest.mark.parametrize("name", EVERY)
def test_pictures_change_differently_and_more_with_severity(name, signs):
    augment = lookup("augment", name)
    little, much = (augment(signs, np.random.default_rng(0), severity=s) for s in (0.1, 1.0))
    other = augment(signs, np.random.default_rng(1))
    away = [np.abs(made.astype(float) - signs).mean() for made in (little, much)]
    assert 0 < away[0] < away[1] < 60
    assert (other != much).any()
    same = np.repeat(signs[:1], 24, axis=0)
    made = augment(same, np.random.default_rng(0))
    assert len({picture.tobytes() for picture in made}) > 8


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize(
    ("images", "severity"),
    [
        (np.zeros((4, 8, 8, 1), np.uint8), 1.0),
        (np.zeros((8, 8, 3), np.uint8), 1.0),
        (np.zeros((2, 8, 8, 3), np.float32), 1.0),
        (np.zeros((2, 8, 8, 3), np.uint8), 1.5),
        (np.zeros((2, 8, 8, 3), np.uint8), -0.1),
    ],
)
def test_what_is_not_a_picture_is_refused_in_one_line(name, images, severity):
    with pytest.raises(InputError, match=rf"augment '{name}': expected .* got [^\n]*$"):
        lookup("augment", name)(images, np.random.default_rng(0), severity)


def test_an_even_picture_stays_even_under_augmix_and_keeps_its_level_under_moves():
    even = np.full((3, 16, 16, 3), 40, np.uint8)
    for move in operations.OPERATIONS[-4:]:
        np.testing.assert_array_equal(move(even[0], 1.0), even[0])
    made = lookup("augment", "augmix")(even, np.random.default_rng(0))
    assert (np.ptp(made, axis=(1, 2)) == 0).all()


# ── the operations, against Pillow's


@given(image=one_picture)
@settings(max_examples=60, deadline=None)
def test_tones_are_pillows(image):
    stored = Image.fromarray(image)
    for ours, theirs in (
        (operations.autocontrast, ImageOps.autocontrast),
        (operations.equalise, ImageOps.equalize),
    ):
        np.testing.assert_array_equal(ours(image, 1.0), np.asarray(theirs(stored)))


@given(image=one_picture, strength=st.floats(-0.99, 0.99))
@settings(max_examples=60, deadline=None)
def test_fewer_bits_and_turned_tones_are_pillows(image, strength):
    stored = Image.fromarray(image)
    bits, threshold = 4 - int(abs(strength) * 4), 256 - int(abs(strength) * 256)
    want = np.asarray(ImageOps.posterize(stored, bits))
    np.testing.assert_array_equal(operations.posterise(image, strength), want)
    want = np.asarray(ImageOps.solarize(stored, threshold))
    np.testing.assert_array_equal(operations.solarise(image, strength), want)


@given(image=one_picture)
def test_moves_of_no_strength_move_nothing(image):
    for move in operations.OPERATIONS:
        if move not in (operations.autocontrast, operations.equalise, operations.posterise):
            np.testing.assert_array_equal(move(image, 0.0), image)


def test_a_translation_by_hand():
    image = np.zeros((6, 9, 3), np.uint8)
    image[:, 4] = 200
    moved = operations.translate_x(image, 1.0)  # by 9/3 to the left
    np.testing.assert_array_equal(np.flatnonzero(moved[0, :, 0]), [1])
    np.testing.assert_array_equal(operations.translate_y(image, 1.0), image)


def test_a_turn_is_about_the_middle():
    image = np.zeros((9, 9, 3), np.uint8)
    image[4, 4] = 255
    assert operations.rotate(image, 1.0)[4, 4, 0] == 255


# ── amplitude and phase


@given(images=pictures.filter(len))
@settings(max_examples=30, deadline=None)
def test_a_picture_recombined_with_itself_is_itself(images):
    assert np.abs(recombined(images, images).astype(int) - images).max() <= 1


def test_recombined_is_the_definition(signs):
    one, two = (signs[i::2].transpose(0, 3, 1, 2).astype(float) for i in range(2))
    want = np.fft.ifft2(np.abs(np.fft.fft2(two)) * np.exp(1j * np.angle(np.fft.fft2(one)))).real
    found = recombined(signs[::2], signs[1::2]).transpose(0, 3, 1, 2)
    assert np.abs(found - want.clip(0, 255)).max() < 0.51


def test_about_half_of_the_pictures_are_recombined(signs):
    many = np.concatenate([signs] * 10)
    made = lookup("augment", "apr-sp")(many, np.random.default_rng(0))
    same = (made == many).all(axis=(1, 2, 3)).mean()
    assert 0.42 < same < 0.68


# ── the damaged net


def test_the_net_behind_deep_is_the_restoring_net():
    shapes = [kernel.shape for kernel, _ in weights()]
    assert shapes[0][1] == 19
    assert shapes[-1][0] == 12
    assert len(set(shapes[1:-1])) == 1


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda d: d.__name__)
def test_damage_changes_weights_and_nothing_else(damage):
    kernel = np.random.default_rng(1).normal(size=(24, 19, 3, 3)).astype(np.float32)
    before = kernel.copy()
    made = damage(kernel, np.random.default_rng(0))
    assert made.shape == kernel.shape
    assert (made != kernel).any()
    np.testing.assert_array_equal(kernel, before)


def test_a_damaged_net_fits_together_and_the_sound_one_is_kept():
    before = [kernel.copy() for kernel, _ in weights()]
    for seed in range(10):
        made = damaged(weights(), np.random.default_rng(seed))
        assert [k.shape for k, _ in made] == [k.shape for k in before]
    for (kernel, _), old in zip(weights(), before, strict=True):
        np.testing.assert_array_equal(kernel, old)


# ── consistency of versions: the Jensen-Shannon divergence, against its formula


def test_consistency_is_the_formula():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(3, 5, 4))
    p = np.exp(logits) / np.exp(logits).sum(2, keepdims=True)
    want = (p * np.log(p / p.mean(0))).sum(2).mean()
    found = consistency([torch.from_numpy(one) for one in logits])
    assert float(found) == pytest.approx(want, abs=1e-9)


def test_consistency_of_alike_is_nought_and_apart_is_the_logarithm_of_two():
    one = torch.tensor([[30.0, -30.0], [0.0, 0.0]])
    assert float(consistency([one, one, one])) == pytest.approx(0, abs=1e-6)
    assert float(consistency([one[:1], -one[:1]])) == pytest.approx(np.log(2), abs=1e-5)


def test_the_gradient_of_consistency_pulls_versions_together():
    one = torch.tensor([[2.0, 0.0]], requires_grad=True)
    consistency([one, torch.tensor([[0.0, 2.0]])]).backward()
    assert one.grad[0, 0] > 0 > one.grad[0, 1]
    assert torch.isfinite(one.grad).all()


def test_consistency_of_one_version_is_refused():
    with pytest.raises(InputError, match="2 or more versions, got 1"):
        consistency([torch.zeros(1, 2)])
