"""The survival of patches under random views, with a judge that finds bright squares."""

import numpy as np
import pytest

from holdfast.attack.shapes import STICKER
from holdfast.attack.survival import MISPLACED, VIEWS, misplaced, survival, total_survival
from holdfast.attack.types import Rule, Sticker
from holdfast.core.patch import Survival
from holdfast.core.types import Boxes, Detections

pytest.importorskip("torch")
TARGETS = Boxes([[20.0, 20.0, 44.0, 44.0]], [0])
PLACED = (Sticker(23, 23, 18),)


class Bright:
    """Detects the bounding box of the bright pixels if they fill most of it."""

    rule = Rule()

    def __call__(self, image):
        rows, columns = np.nonzero(image[..., 0] > 128)
        if not len(rows):
            return Detections(np.zeros((0, 4)), np.zeros(0), np.zeros(0, np.int64))
        box = np.array([[columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]], float)
        filled = len(rows) / np.prod(box[0, 2:] - box[0, :2])
        return Detections(box, np.array([0.9 if filled > 0.7 else 0.1]), np.zeros(1, np.int64))


def scene():
    image = np.full((64, 64, 3), 30, np.uint8)
    image[20:44, 20:44] = 230
    return image


def patched(pixels=0):
    image = scene()
    image[23:41, 23:41] = pixels
    return image


def rng():
    return np.random.default_rng(3)


def test_a_patch_that_covers_the_object_survives_every_view():
    rows = survival(Bright(), scene(), patched(), TARGETS, PLACED, "square", rng())
    assert [row.transform for row in rows] == ["placement", *STICKER, "all together"]
    assert {(row.hidden, row.views, row.images) for row in rows} == {(VIEWS, VIEWS, 1)}


def test_a_change_that_only_works_as_it_is_does_not_survive():
    attacked = patched(231)

    class Exact(Bright):
        def __call__(self, image):
            return super().__call__(image * (not np.array_equal(image, attacked)))

    rows = survival(Exact(), scene(), attacked, TARGETS, PLACED, "square", rng())
    moved = [row for row in rows if row.transform in ("scale", "rotation", "light", "jpeg", "all together")]
    assert {(row.hidden, row.views) for row in moved} == {(0, VIEWS)}


def test_views_in_which_the_clean_object_is_lost_do_not_count():
    rows = survival(Bright(), scene() // 4, patched(), TARGETS, PLACED, "square", rng())
    assert {(row.hidden, row.views) for row in rows} == {(0, 0)}


def test_one_seed_gives_one_result():
    first, second = (
        survival(Bright(), scene(), patched(140), TARGETS, PLACED, "square", rng()) for _ in "ab"
    )
    assert first == second


@pytest.mark.parametrize("shape", ["square", "circle", "sign"])
def test_a_misplaced_patch_is_whole_and_near(shape):
    random, reach = rng(), max(1, round(MISPLACED * 18))
    for _ in range(20):
        image = misplaced(scene(), patched(7), PLACED, shape, random)
        rows, columns = np.nonzero((image == 7).all(axis=2))
        assert len(rows) >= 18**2 * 0.7
        assert abs(int(rows.min()) - 23) <= reach
        assert abs(int(columns.min()) - 23) <= reach


def test_totals_are_over_the_images_with_a_patch():
    first = (Survival("shift", 3, 8, 1), Survival("jpeg", 8, 8, 1))
    second = (Survival("shift", 1, 6, 1), Survival("jpeg", 0, 7, 1))
    assert total_survival([first, (), second]) == (Survival("shift", 4, 14, 2), Survival("jpeg", 8, 15, 2))
    assert total_survival([(), ()]) == ()
