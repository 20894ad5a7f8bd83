"""The search from predictions alone: on a detector made of plain arithmetic, within all limits."""

import dataclasses
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.attack.judge import found_boxes, shortfall
from holdfast.attack.masks import count_regions
from holdfast.attack.random_search import search_black
from holdfast.attack.types import Limits, Method, Rule, Target
from holdfast.core.patch import amplitude, changed, changed_pixels
from holdfast.core.types import Boxes, Detections
from holdfast.metrics.boxes import iou

SIDE = 64
FIRST, SECOND = [8.0, 8.0, 32.0, 32.0], [36.0, 30.0, 60.0, 58.0]
CLEAN = np.random.default_rng(0).integers(90, 160, (SIDE, SIDE, 3), np.uint8)


def detector(image, need=60, relabels=False):
    """Two objects; each fades as blue pixels appear in its box, `need` of them are enough."""
    boxes, scores, classes = [], [], []
    for box, label in ((FIRST, 1), (SECOND, 2)):
        x1, y1, x2, y2 = (int(v) for v in box)
        part = image[y1:y2, x1:x2].astype(int)
        blue = np.count_nonzero((part[..., 2] - part[..., 0]) > 100)
        score = 0.9 - 0.7 * min(blue / need, 1.0)
        if relabels and score < 0.5:
            boxes.append(box)
            scores.append(0.6)
            classes.append(3)
        if score >= 0.25:
            boxes.append(box)
            scores.append(score)
            classes.append(label)
    return Detections(np.array(boxes).reshape(-1, 4), np.array(scores), np.array(classes, np.int64))


def target(judge=detector):
    before = judge(CLEAN)
    before = before.take(before.scores >= 0.25)
    return Target(CLEAN, Boxes(np.array([FIRST, SECOND]), np.array([1, 2])), before)


def run(judge=detector, method=None, seed=0, **limits):
    given_ = Limits(**{"pixels": 500, "steps": 600, **limits})
    return search_black(judge, target(judge), method or Method(), given_, np.random.default_rng(seed))


def checked_limits(found, pixels=500, most=255, regions=0):
    assert changed_pixels(CLEAN, found.image) <= pixels
    assert amplitude(CLEAN, found.image) <= most
    if regions:
        assert count_regions(changed(CLEAN, found.image)) <= regions
    inside = np.zeros((SIDE, SIDE), bool)
    inside[8:32, 8:32] = inside[30:58, 36:60] = True
    assert not (changed(CLEAN, found.image) & ~inside).any()


def test_it_vanishes_and_thins():
    found = run()
    assert found.success
    assert len(found.after) == 0
    checked_limits(found)
    again = detector(found.image)
    assert len(again) == 0
    thick = run(method=Method(shrink=False))
    assert thick.success
    assert thick.steps < found.steps <= 600
    # 56 blue pixels in each of two boxes are needed; paint of other colours must have gone.
    assert changed_pixels(CLEAN, found.image) < 0.7 * changed_pixels(CLEAN, thick.image)
    assert 112 <= changed_pixels(CLEAN, found.image) <= 200
    assert found.trail[-1] == (changed_pixels(CLEAN, found.image), True)


def test_less_amplitude_where_less_is_enough():
    """A detector that only counts changed pixels: any amplitude will do."""

    def counting(image):
        gone = np.count_nonzero((image != CLEAN).any(axis=2)) >= 20
        return Detections(*(np.zeros((0, 4)), np.zeros(0), np.zeros(0))) if gone else detector(CLEAN)

    found = run(counting)
    assert found.success
    assert changed_pixels(CLEAN, found.image) == 20
    assert amplitude(CLEAN, found.image) <= 8


@pytest.mark.parametrize("mask", ["top-gradient", "square", "cross", "grid", "half-neighbour"])
@pytest.mark.parametrize("limits", [{}, {"amplitude": 90, "pixels": 300}, {"regions": 3, "pixels": 300}])
def test_limits_are_kept(mask, limits):
    found = run(method=Method(mask=mask), steps=40, **limits)
    checked_limits(found, limits.get("pixels", 500), limits.get("amplitude", 255), limits.get("regions", 0))
    assert found.steps <= 40
    assert found.success == (shortfall("vanish", target(), found.after, Rule()) == 0)


def test_it_never_asks_more_than_it_may():
    asked = []

    def counted(image):
        asked.append(image)
        return detector(image, need=10**6)  # it cannot succeed

    found = run(counted, steps=30, restarts=2)
    assert not found.success
    assert len(asked) - 1 == found.steps == 60  # one more for the clean image of the target
    late = run(counted, steps=10**6, seconds=0.2)
    assert late.steps < 10**6
    assert not late.success


def test_the_same_seed_the_same_image():
    assert np.array_equal(run(seed=3, steps=50).image, run(seed=3, steps=50).image)
    assert not np.array_equal(run(seed=3, steps=50).image, run(seed=4, steps=50).image)


def test_mislabel_needs_another_class_at_the_target():
    plain = run(method=Method(goal="mislabel"), steps=80)
    assert not plain.success  # it vanishes, but nothing comes in its place
    found = run(lambda image: detector(image, relabels=True), Method(goal="mislabel"))
    assert found.success
    assert found.after.classes.tolist() == [3, 3]


def test_fabricate_makes_something_new():
    def seeing(image):
        made = detector(CLEAN)
        red = np.count_nonzero(image[..., 0].astype(int) - image[..., 2] > 100)
        new = min(red / 100, 0.9)
        return Detections(
            np.concatenate([made.boxes, [[2, 40, 20, 60]]]), [*made.scores, new], [*made.classes, 5]
        )

    found = run(seeing, Method(goal="fabricate", inside=False), pixels=200)
    assert found.success
    assert found.after.scores[-1] >= 0.25
    assert 25 <= changed_pixels(CLEAN, found.image) <= 40
    bare = Target(CLEAN, Boxes(np.zeros((0, 4)), np.zeros(0)), target(seeing).before)
    limits = Limits(pixels=200, steps=100)
    found = search_black(seeing, bare, Method(goal="fabricate"), limits, np.random.default_rng(0))
    assert found.success  # without a box to lie in, paint lies anywhere


scores = st.lists(st.floats(0.0, 1.0), min_size=0, max_size=5)


def succeeded(goal, target, after, rule):
    """Whether the goal is reached, by its definition."""
    found, boxes = after.scores >= rule.score, target.boxes
    if goal == "fabricate":
        old = np.concatenate([target.before.boxes, boxes.xyxy])
        classes = np.concatenate([target.before.classes, boxes.classes])
        known = (iou(after.boxes, old) >= rule.iou) & (after.classes[:, None] == classes)
        return bool((~known.any(axis=1) & found).any())
    if found_boxes(after, boxes, dataclasses.replace(rule, iou=0.9 * rule.iou)).any():
        return False
    near = iou(boxes.xyxy, after.boxes) >= rule.iou
    return goal == "vanish" or bool((near & found).any(axis=1).all())


@settings(max_examples=60, deadline=None)
@given(scores, st.integers(0, 10**6), st.sampled_from(["vanish", "mislabel", "fabricate"]))
def test_nothing_lacks_exactly_when_the_goal_is_reached(values, seed, goal):
    rng = np.random.default_rng(seed)
    near = np.array([FIRST, SECOND])[rng.integers(0, 2, len(values))]
    boxes = near + rng.uniform(-8, 8, (len(values), 4)) if values else np.zeros((0, 4))
    boxes[:, 2:] = np.maximum(boxes[:, 2:], boxes[:, :2] + 1)
    kept = np.where(rng.random(len(values)) < 0.2, 0.25, values)  # the rule's score itself, often
    after = Detections(boxes, kept, rng.integers(1, 4, len(values)))
    aim = target()
    lacks = shortfall(goal, aim, after, Rule())
    assert lacks >= 0
    assert (lacks == 0) == succeeded(goal, aim, after, Rule())


def test_a_real_detector_is_blinded(victim, scene):
    from holdfast.attack.judge import target_in

    aim = target_in(victim.judge, *scene, Rule())
    limits = Limits(pixels=3000, steps=60)
    found = search_black(victim.judge, aim, Method(shrink=False), limits, np.random.default_rng(0))
    assert found.success
    assert not found_boxes(victim.judge(found.image), aim.boxes, Rule()).any()
    assert changed_pixels(scene[0], found.image) <= 3000


def test_no_torch_is_loaded():
    code = "import sys\nfrom holdfast.attack import random_search\nsys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
