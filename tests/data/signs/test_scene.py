"""Scenes: the same everywhere, and a truth that agrees with the picture."""

import hashlib
import io
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from holdfast.core.errors import InputError
from holdfast.data.signs import scene as scene_module
from holdfast.data.signs.canvas import CLASSES, GROUP_OF, GROUPS, SEGMENTS
from holdfast.data.signs.scene import Scene, encode, scene

COUNT = 70
DIGEST = """
import hashlib
from holdfast.data.signs.scene import scene
s = scene(3, 11)
parts = (s.image, s.mask, s.boxes, s.classes)
print(hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest())
"""


def digest(found: Scene) -> str:
    parts = (found.image, found.mask, found.boxes, found.classes)
    return hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()


@pytest.fixture(scope="module")
def scenes() -> list[Scene]:
    return [scene(1, index) for index in range(COUNT)]


def test_catalogue_is_consistent():
    assert len(CLASSES) == len(set(CLASSES)) == len(GROUP_OF) == 20
    assert [GROUP_OF.count(group) for group in range(len(GROUPS))] == [6, 8, 6]
    assert SEGMENTS == ("background", "road", "mandatory", "prohibitory", "warning", "sky")


def test_shapes_and_types(scenes):
    for found in scenes:
        count = len(found.classes)
        assert found.image.shape == (480, 640, 3)
        assert found.image.dtype == np.uint8
        assert found.mask.shape == (480, 640)
        assert found.mask.dtype == np.uint8
        assert found.boxes.shape == (count, 4)
        assert found.boxes.dtype == np.float64
        assert found.classes.dtype == np.int64
        assert 1 <= count <= 5


def test_same_bytes_in_another_process():
    other = subprocess.run([sys.executable, "-c", DIGEST], check=True, capture_output=True, text=True)
    assert other.stdout.strip() == digest(scene(3, 11))


def test_order_does_not_matter(scenes):
    for index in (40, 3, 17):
        assert digest(scene(1, index)) == digest(scenes[index])


@pytest.mark.parametrize(
    ("index", "classes", "first"),
    [
        (0, [2, 18], (384, 0, 420, 29)),
        (7, [0, 0], (524, 189, 548, 215)),
        (123456, [3, 3, 8], (105, 55, 162, 115)),
    ],
)
def test_the_distribution_stays_as_the_models_know_it(index, classes, first):
    found = scene(0, index)
    assert found.classes.tolist() == classes
    assert np.abs(found.boxes[0] - first).max() <= 2


def test_seeds_and_indices_differ(scenes):
    assert len({digest(found) for found in scenes}) == COUNT
    assert digest(scene(2, 0)) != digest(scenes[0])


@pytest.mark.parametrize(("seed", "index"), [(-1, 0), (0, -1)])
def test_negative_numbers_are_refused(seed, index):
    with pytest.raises(InputError, match="0 or more for scene, got seed"):
        scene(seed, index)


def test_every_class_occurs_about_equally_often(scenes):
    labels = np.concatenate([found.classes for found in scenes])
    counts = np.bincount(labels, minlength=20)
    assert counts.min() >= 1
    assert 2.1 < len(labels) / COUNT < 2.9


def test_sizes_cover_the_range(scenes):
    boxes = np.concatenate([found.boxes for found in scenes])
    heights = boxes[:, 3] - boxes[:, 1]
    assert heights.min() >= 18
    assert heights.max() <= 175
    assert np.mean(heights < 40) > 0.15
    assert np.mean(heights > 80) > 0.15


def test_boxes_do_not_overlap(scenes):
    for found in scenes:
        for i, a in enumerate(found.boxes):
            for b in found.boxes[i + 1 :]:
                shared = np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2])
                assert shared.min() <= 0


def test_signs_are_visible_where_the_boxes_are_and_nowhere_else(scenes):
    for found in scenes:
        rest = found.mask.copy()
        for label, box in zip(found.classes, found.boxes.astype(int), strict=True):
            spot = (slice(box[1], box[3]), slice(box[0], box[2]))
            inside = found.mask[spot] == 2 + GROUP_OF[label]
            # a triangle fills half of its box and may be hidden by two fifths
            assert inside.mean() > 0.25
            rest[spot] = 0
        assert not np.isin(rest, (2, 3, 4)).any()


def test_boxes_are_the_extent_of_signs_that_nothing_hides(monkeypatch):
    monkeypatch.setattr(scene_module, "_HIDDEN", 0.0)
    checked = 0
    for index in range(25):
        found = scene(4, index)
        for label, box in zip(found.classes, found.boxes, strict=True):
            if box[0] <= 0 or box[1] <= 0 or box[2] >= 640 or box[3] >= 480:
                continue
            x0, y0, x1, y1 = box.astype(int)
            part = found.mask[max(0, y0 - 3) : y1 + 3, max(0, x0 - 3) : x1 + 3] == 2 + GROUP_OF[label]
            rows, columns = np.flatnonzero(part.any(axis=1)), np.flatnonzero(part.any(axis=0))
            seen = np.array([columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]) + 2 * [
                max(0, x0 - 3),
                max(0, y0 - 3),
            ]
            assert np.abs(seen - box).max() <= 2
            checked += 1
    assert checked > 30


def test_sky_is_above_the_road(scenes):
    rows = np.arange(480)[:, None]
    for found in scenes:
        road, sky = found.mask == 1, found.mask == 5
        assert road.mean() > 0.03
        if sky.any():
            assert (rows * sky).sum() / sky.sum() < (rows * road).sum() / road.sum()


@given(seed=st.integers(0, 2**40), index=st.integers(0, 2**40))
@settings(max_examples=25, deadline=None)
def test_any_index_gives_a_valid_scene(seed, index):
    found = scene(seed, index)
    low, high = found.boxes[:, :2], found.boxes[:, 2:]
    assert (low >= 0).all()
    assert (high <= (640, 480)).all()
    assert (high - low >= 12).all()
    assert set(np.unique(found.mask)) <= set(range(6))
    assert ((found.classes >= 0) & (found.classes < 20)).all()
    assert found.image.std() > 5


def test_encode_is_deterministic_and_close(scenes):
    image = scenes[0].image
    data = encode(image)
    assert data == encode(image)
    decoded = np.asarray(Image.open(io.BytesIO(data)))
    assert np.abs(decoded.astype(int) - image.astype(int)).mean() < 8
    assert len(encode(image, quality=60)) < len(data) < len(encode(image, subsampling="4:4:4"))
