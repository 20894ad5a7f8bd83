"""An image with a patch on it, as an image of a data set."""

import dataclasses
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import models as making
from holdfast.audit.threats import PatchedEntry, patched_dataset, target_boxes, visible
from holdfast.core.errors import ImageError, InputError
from holdfast.core.patch import OnBoxes, Patch, Position, apply
from holdfast.core.registry import lookup, stage
from holdfast.core.types import Boxes
from holdfast.data.open import open_dataset
from holdfast.stages.families import family, options

DECODERS = [o.name for o in options(family("decode")) if not o.missing]


def colours(side=12, x=5, y=9):
    """A patch of many colours, full of holes."""
    rng = np.random.default_rng(1)
    pixels = rng.integers(0, 256, (side, side, 3)).astype(np.uint8)
    return Patch(pixels, rng.random((side, side)) < 0.5, Position(x, y))


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    """Four scenes with one blob each, JPEG."""
    return open_dataset(making.blob_coco(tmp_path_factory.mktemp("scenes") / "blobs", 4))


@pytest.mark.parametrize("name", DECODERS)
def test_the_patch_lies_on_what_the_decoder_gives_and_every_decoder_reads_just_that(scenes, name):
    entry, patch = scenes.entries[0], colours()
    made = PatchedEntry(entry, patch, name).load()
    expected = apply(lookup("decode", name)(entry.load().data), patch)
    assert made.data.startswith(b"\x89PNG")
    for other in DECODERS:
        np.testing.assert_array_equal(lookup("decode", other)(made.data), expected, err_msg=other)
    assert made.name == entry.name
    np.testing.assert_array_equal(made.truth.xyxy, entry.load().truth.xyxy)


def test_two_decoders_give_two_pictures_under_the_same_patch(scenes):
    entry, patch = scenes.entries[0], colours()
    one, other = (
        lookup("decode", "pillow")(PatchedEntry(entry, patch, name).load().data)
        for name in ("pillow", "fast-idct")
    )
    differ = (one != other).any(axis=2)
    assert differ.any()
    covered = np.zeros(differ.shape, bool)
    covered[9:21, 5:17] = patch.mask
    assert not differ[covered].any()


def test_the_key_follows_picture_patch_place_and_decoder(scenes):
    entry, patch = scenes.entries[0], colours()
    at = tuple(np.argwhere(patch.mask)[0])
    brighter, other_mask = np.array(patch.pixels), np.array(patch.mask)
    brighter[at] ^= 1
    other_mask[at] = False
    made = [
        PatchedEntry(entry, patch, "pillow"),
        PatchedEntry(entry, patch, "opencv"),
        PatchedEntry(scenes.entries[1], patch, "pillow"),
        PatchedEntry(entry, dataclasses.replace(patch, pixels=brighter), "pillow"),
        PatchedEntry(entry, dataclasses.replace(patch, mask=other_mask), "pillow"),
        PatchedEntry(entry, dataclasses.replace(patch, where=Position(6, 9)), "pillow"),
        PatchedEntry(entry, dataclasses.replace(patch, where=OnBoxes()), "pillow"),
    ]
    assert len({one.key() for one in made} | {entry.key()}) == len(made) + 1


def test_the_key_does_not_follow_what_the_mask_hides(scenes):
    patch = colours()
    hidden = np.where(patch.mask[:, :, None], patch.pixels, 77).astype(np.uint8)
    wide = np.zeros((40, 40, 3), np.uint8), np.zeros((40, 40), bool)
    wide[0][9:21, 5:17], wide[1][9:21, 5:17] = patch.pixels, patch.mask
    same = [patch, dataclasses.replace(patch, pixels=hidden), Patch(*wide, Position(0, 0)), visible(patch)]
    assert len({PatchedEntry(scenes.entries[0], one, "pillow").key() for one in same}) == 1


def test_it_can_be_sent_to_another_process(scenes):
    one = PatchedEntry(scenes.entries[2], colours(), "opencv")
    there = pickle.loads(pickle.dumps(one))  # noqa: S301 - packed just now
    assert (there.name, there.key(), there.load().data) == (one.name, one.key(), one.load().data)


@settings(max_examples=60, deadline=None)
@given(
    x=st.integers(-9, 20), y=st.integers(-9, 20), height=st.integers(1, 9), width=st.integers(1, 9),
    seed=st.integers(0, 99), dense=st.sampled_from([0.0, 0.1, 0.6, 1.0]),
)  # fmt: skip
def test_what_is_seen_of_a_patch_does_just_what_the_patch_does(x, y, height, width, seed, dense):
    rng = np.random.default_rng(seed)
    image = rng.integers(0, 256, (16, 18, 3)).astype(np.uint8)
    pixels = rng.integers(0, 256, (height, width, 3)).astype(np.uint8)
    patch = Patch(pixels, rng.random((height, width)) < dense, Position(x, y))
    small = visible(patch)
    np.testing.assert_array_equal(apply(image, small), apply(image, patch))
    assert small.mask.size <= patch.mask.size
    assert not small.pixels[~small.mask].any()


def test_images_without_a_patch_stay_as_they_are(scenes):
    names = [e.name for e in scenes.entries]
    nothing = Patch(np.zeros((3, 3, 3), np.uint8), np.zeros((3, 3), bool))
    made = patched_dataset(scenes, {names[1]: colours(), names[2]: nothing}, "pillow")
    assert [type(e) is PatchedEntry for e in made.entries] == [False, True, False, False]
    assert made.entries[0] is scenes.entries[0]
    assert made.entries[2] is scenes.entries[2]
    assert [e.name for e in made.entries] == names
    assert (made.classes, made.task, made.name) == (scenes.classes, scenes.task, scenes.name)


def test_a_patch_for_an_image_that_is_not_there_is_told(scenes):
    with pytest.raises(InputError, match=r"'elsewhere\.jpg', which is not in blobs"):
        patched_dataset(scenes, {"elsewhere.jpg": colours()}, "pillow")


def test_a_patch_on_boxes_lies_on_every_true_box_but_crowds(scenes):
    entry = scenes.entries[0]
    grey = Patch(np.full((4, 4, 3), 128, np.uint8), np.ones((4, 4), bool), OnBoxes(side=1.0))
    picture = lookup("decode", "pillow")(PatchedEntry(entry, grey, "pillow").load().data)
    x1, y1, x2, y2 = entry.load().truth.xyxy[0].astype(int)
    assert (picture[y1:y2, x1:x2] == 128).all()
    boxes = Boxes(np.array([[0, 0, 4, 4], [8, 8, 12, 12]]), np.zeros(2), np.array([True, False]))
    assert target_boxes(boxes).tolist() == [[8, 8, 12, 12]]


def test_a_decoder_that_breaks_is_an_image_that_failed(scenes):
    @stage("decode", "breaks")
    def breaks(data):
        raise RuntimeError("no such luck")

    with pytest.raises(ImageError, match="RuntimeError: no such luck"):
        PatchedEntry(scenes.entries[0], colours(), "breaks").load()
