"""The search: targets really vanish, limits hold, and the same seed gives the same bytes."""

import numpy as np
import pytest

from holdfast.attack.gradient.search import Schedule, search
from holdfast.attack.judge import found_boxes
from holdfast.attack.masks import count_regions
from holdfast.attack.types import Limits, Method
from holdfast.core.patch import amplitude, changed, changed_pixels


def found(victim, target, method=None, seed=0, **limits):
    limits = Limits(**{"pixels": 600, "steps": 12, **limits})
    return search([victim], target, method or Method(shrink=False), limits, np.random.default_rng(seed))


@pytest.fixture(scope="module")
def plain(victim, target):
    return found(victim, target, steps=25)


def test_the_target_vanishes(victim, target, plain):
    assert plain.success
    assert not found_boxes(victim.judge(plain.image), target.boxes, victim.rule).any()
    assert np.array_equal(plain.after.scores, victim.judge(plain.image).scores)
    assert 0 < changed_pixels(target.image, plain.image) <= 600
    assert plain.trail[-1][1]
    assert plain.steps <= 25


@pytest.mark.slow
def test_shrinking_takes_fewer_pixels_and_less_amplitude(victim, target, plain):
    small = found(victim, target, Method(), steps=8)
    assert small.success
    assert not found_boxes(victim.judge(small.image), target.boxes, victim.rule).any()
    assert changed_pixels(target.image, small.image) < changed_pixels(target.image, plain.image)
    assert amplitude(target.image, small.image) <= amplitude(target.image, plain.image)


@pytest.mark.parametrize("mask", ["square", "cross", "grid", "half-neighbour", "top-gradient"])
def test_limits_hold_for_every_mask(victim, target, mask):
    made = found(victim, target, Method(mask=mask, shrink=False), pixels=150, amplitude=40, steps=4)
    assert changed_pixels(target.image, made.image) <= 150
    assert amplitude(target.image, made.image) <= 40
    assert changed_pixels(target.image, made.image) > 0


@pytest.mark.parametrize("mask", ["top-gradient", "grid"])
def test_regions_are_counted(victim, target, mask):
    shrunk = mask == "top-gradient"  # masks that are fixed are not torn by anything else
    made = found(victim, target, Method(mask=mask, shrink=shrunk), pixels=300, regions=2, steps=6)
    assert 1 <= count_regions(changed(target.image, made.image)) <= 2
    assert changed_pixels(target.image, made.image) <= 300


def test_pixels_lie_inside_the_boxes_or_anywhere(victim, target, plain):
    boxes = target.boxes.xyxy
    rows, columns = np.nonzero(changed(target.image, plain.image))
    within = [
        (columns >= x1 - 1) & (columns < x2 + 1) & (rows >= y1 - 1) & (rows < y2 + 1)
        for x1, y1, x2, y2 in boxes
    ]
    assert np.any(within, axis=0).all()
    anywhere = found(victim, target, Method(inside=False, shrink=False), steps=3)
    assert changed_pixels(target.image, anywhere.image) > 0


def test_time_is_a_limit(victim, target):
    made = found(victim, target, pixels=1, steps=10_000, restarts=10, seconds=0.5)
    assert made.steps < 10_000


@pytest.mark.slow
def test_the_same_seed_gives_the_same_bytes(victim, target):
    made = [found(victim, target, Method(diversity=True), seed, steps=3).image for seed in (5, 5, 6)]
    assert np.array_equal(made[0], made[1])
    assert not np.array_equal(made[0], made[2])


def test_mislabel_and_fabricate(victim, target):
    other = found(victim, target, Method(goal="mislabel", shrink=False), pixels=2000, steps=40)
    assert other.success
    assert not found_boxes(victim.judge(other.image), target.boxes, victim.rule).any()
    assert len(victim.judge(other.image)) > 0
    new = found(victim, target, Method(goal="fabricate", shrink=False, inside=False), pixels=2000, steps=40)
    assert new.success
    assert len(new.after) > 0


def test_what_cannot_be_done_is_no_success(victim, target):
    made = found(victim, target, pixels=1, amplitude=1, steps=2, restarts=2)
    assert not made.success
    assert made.steps == 4
    assert changed_pixels(target.image, made.image) <= 1


@pytest.mark.slow
def test_two_victims_are_both_judged(victim, target):
    made = search([victim, victim], target, Method(shrink=False), Limits(steps=20), np.random.default_rng(0))
    assert made.success


def test_a_pace_spends_its_budget_in_half_the_steps():
    pace = Schedule.to(3000, 100)
    assert sum(round(pace.first * pace.rate**i) for i in range(50)) >= 2900
    assert Schedule.to(5, 100).first == 5
