"""One patch for many images: where it lies, what it may cover, and that it works on images not seen."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.attack.gradient.candidates import Candidates
from holdfast.attack.judge import found_boxes
from holdfast.attack.types import Limits, Method, Rule, Target
from holdfast.attack.universal import blank_patch, places_of, slope_of, universal
from holdfast.core.errors import InputError
from holdfast.core.patch import OnBoxes, Patch, Position, apply, changed_pixels
from holdfast.core.types import Boxes, Detections

HEIGHT, WIDTH = 48, 64


class Reddish:
    """A detector of red things, as far as attacks can tell: sure of every known box that is not blue."""

    def __init__(self, boxes):
        self.boxes = np.asarray(boxes, np.float64)
        self.rule = Rule()
        self.net = SimpleNamespace(dtype=torch.float64)
        self.model = SimpleNamespace(card=SimpleNamespace(classes=("a", "b")))

    def candidates(self, pixels):
        parts = [pixels[:, int(b[1]) : int(b[3]), int(b[0]) : int(b[2])] for b in self.boxes]
        means = torch.stack([p.mean(dim=(1, 2)) for p in parts], dim=1) / 127.5
        odds = 3.0 + 12.0 * (means[..., 0] - means[..., 2])
        energy = torch.stack([odds, torch.full_like(odds, -9.0)], dim=2)
        boxes = torch.tensor(self.boxes, dtype=pixels.dtype).expand(len(pixels), -1, 4)
        return Candidates(boxes, torch.sigmoid(energy), energy)

    def judge(self, image):
        made = self.candidates(torch.tensor(image[None], dtype=torch.float64))
        scores = made.scores[0, :, 0].numpy()
        kept = scores >= self.rule.score
        return Detections(self.boxes[kept], scores[kept], np.zeros(int(kept.sum()), np.int64))


BOXES = np.array([[6.0, 6.0, 26.0, 26.0], [30.0, 12.0, 62.0, 40.0]])


def targets(count, seed=0):
    rng = np.random.default_rng(seed)
    victim = Reddish(BOXES)
    images = [rng.integers(100, 156, (HEIGHT, WIDTH, 3), np.uint8) for _ in range(count)]
    return victim, [Target(i, Boxes(BOXES, np.zeros(2)), victim.judge(i)) for i in images]


def left(victim, patch, aims):
    said = [victim.judge(apply(a.image, patch, a.boxes.xyxy)) for a in aims]
    return sum(int(found_boxes(s, a.boxes, Rule()).sum()) for s, a in zip(said, aims, strict=True))


boxes_at = st.lists(
    st.tuples(st.floats(-5, 50), st.floats(-5, 40), st.floats(1, 40), st.floats(1, 40)),
    min_size=1,
    max_size=4,
)


@settings(max_examples=50, deadline=None)
@given(boxes_at, st.integers(0, 10**6), st.booleans())
def test_the_patch_lies_where_apply_lays_it(boxes, seed, on_boxes):
    rng = np.random.default_rng(seed)
    where = (
        OnBoxes(0.4, 0.6, 0.7) if on_boxes else Position(int(rng.integers(-4, 60)), int(rng.integers(-4, 40)))
    )
    patch = Patch(rng.integers(0, 256, (7, 9, 3), np.uint8), rng.random((7, 9)) < 0.8, where)
    found = np.array([[x, y, x + w, y + h] for x, y, w, h in boxes])
    image = rng.integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8)
    aim = Target(image, Boxes(found, np.zeros(len(found))), Detections(np.zeros((0, 4)), [], []))
    places = places_of(aim, patch)
    expected = apply(image, patch, found)
    made = np.where(places[..., None] >= 0, patch.pixels.reshape(-1, 3)[places], image)
    assert np.array_equal(made, expected)


@pytest.mark.parametrize("where", [OnBoxes(), Position(10, 14)])
def test_the_slope_is_gathered_back(where):
    """Finite differences of what the network says, over the pixels of the patch."""
    victim, aims = targets(1)
    blank = blank_patch(aims, Limits(pixels=150), where)
    pixels = np.random.default_rng(1).uniform(50, 200, (blank.mask.size, 3))
    places = places_of(aims[0], blank)

    def energy(values):
        image = np.where(places[..., None] >= 0, values[places], aims[0].image)
        return float(victim.candidates(torch.tensor(image[None])).energy[..., 0].sum())

    class Plain:
        """An oracle whose loss is the energy itself."""

        parties = (SimpleNamespace(target=aims[0]),)

        def slope(self, image, rng, floor):
            seen = torch.tensor(image[None], requires_grad=True)
            victim.candidates(seen).energy[..., 0].sum().backward()
            return 0.0, seen.grad[0].numpy()

    slope = slope_of(Plain(), blank, pixels, np.random.default_rng(0))
    assert slope.shape == pixels.shape
    for at, channel in ((0, 0), (len(pixels) // 2, 2), (len(pixels) - 1, 0), (3, 1)):
        moved = pixels.copy()
        moved[at, channel] += 1.0
        assert np.isclose(energy(moved) - energy(pixels), slope[at, channel], atol=1e-9)


def test_it_works_on_images_not_seen():
    victim, aims = targets(12)
    limits, done = Limits(pixels=600, steps=12), []
    given = [victim], aims[:6], Method(), limits, OnBoxes()
    patch = universal(*given, np.random.default_rng(0), lambda n, _: done.append(n))
    assert done == [1] * 12
    assert isinstance(patch.where, OnBoxes)
    grey = Patch(np.full_like(patch.pixels, 127), patch.mask, patch.where)
    noise = np.random.default_rng(3).integers(0, 256, patch.pixels.shape, np.uint8)
    assert left(victim, patch, aims[6:]) == 0
    assert left(victim, grey, aims[6:]) == left(victim, Patch(noise, patch.mask, patch.where), aims[6:]) == 12
    again = universal(*given, np.random.default_rng(0))
    assert np.array_equal(patch.pixels, again.pixels)


def test_transforms_are_seen_through():
    victim, aims = targets(4)
    method = Method(transforms=("light", "shift"))
    limits = Limits(pixels=600, steps=8)
    patch = universal([victim], aims, method, limits, OnBoxes(), np.random.default_rng(0))
    assert left(victim, patch, aims) == 0


def test_a_spot_is_the_same_place_in_every_image():
    victim, aims = targets(4)
    where = Position(34, 14)
    limits = Limits(pixels=400, steps=8)
    patch = universal([victim], aims, Method(inside=False), limits, where, np.random.default_rng(0))
    assert patch.where == where
    assert patch.mask.sum() == 400
    assert left(victim, patch, aims) == 4  # the box under it, not the other


@settings(max_examples=30, deadline=None)
@given(boxes_at, st.integers(4, 900))
def test_no_image_is_changed_by_more_than_the_limit(boxes, pixels):
    found = np.array([[x, y, x + w, y + h] for x, y, w, h in boxes])
    aim = Target(
        np.zeros((HEIGHT, WIDTH, 3), np.uint8),
        Boxes(found, np.zeros(len(found))),
        Detections(np.zeros((0, 4)), [], []),
    )
    for where in (OnBoxes(), Position()):
        patch = blank_patch([aim], Limits(pixels=pixels), where)
        assert changed_pixels(aim.image, apply(aim.image, patch, found)) <= pixels


def test_limits_no_patch_can_keep():
    _, aims = targets(1)
    with pytest.raises(InputError, match="expected amplitude 255, got 16"):
        blank_patch(aims, Limits(amplitude=16), OnBoxes())
    with pytest.raises(InputError, match=r"an image has 2 boxes, more than --regions 1"):
        blank_patch(aims, Limits(regions=1), OnBoxes())
    with pytest.raises(InputError, match="needs targets"):
        blank_patch([], Limits(), OnBoxes())


@pytest.mark.slow
def test_a_real_detector_loses_more_than_to_grey_or_noise(victim):
    """16 scenes to learn from, 12 others to be judged on."""
    import io

    from PIL import Image as Pictures

    from holdfast.attack.judge import target_in
    from holdfast.data.open import open_dataset

    aims = []
    for entry in open_dataset("signs", task="detect").entries:
        sample = entry.load()
        image = np.asarray(Pictures.open(io.BytesIO(sample.data)).convert("RGB"))
        aims += [a for a in [target_in(victim.judge, image, sample.truth, rule=victim.rule)] if a]
        if len(aims) == 28:
            break
    limits = Limits(pixels=3000, steps=24)
    patch = universal([victim], aims[:16], Method(), limits, OnBoxes(), np.random.default_rng(0))
    noises = [np.random.default_rng(s).integers(0, 256, patch.pixels.shape, np.uint8) for s in range(3)]
    ours = left(victim, patch, aims[16:])
    assert ours < left(victim, Patch(np.full_like(patch.pixels, 127), patch.mask, patch.where), aims[16:])
    assert ours < np.mean([left(victim, Patch(n, patch.mask, patch.where), aims[16:]) for n in noises])
