from copy import deepcopy

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.errors import InputError
from holdfast.metrics import intervals
from holdfast.metrics.boxes import DetectionTable, TruthTable, detection_table, truth_table
from holdfast.metrics.classification import segmentation_result
from holdfast.metrics.curves import RECALLS, needed_hits
from holdfast.metrics.detection import evaluate
from holdfast.metrics.intervals import (
    flips,
    interval_of,
    mean_difference,
    mean_interval,
    mean_values,
    paired,
)
from holdfast.metrics.matching import match
from holdfast.metrics.rules import RULES


def rng(seed=0):
    return np.random.default_rng(seed)


def map_interval(matches, rule, images, rng, count):
    return interval_of(intervals.map_values(matches, rule, images, rng, replicates=count), 0.95)


def map_difference(before, after, rule, images, rng, count):
    drawn = [intervals.map_values(m, rule, images, deepcopy(rng), replicates=count) for m in (before, after)]
    return paired(*drawn)


def miou_interval(tables, rng, count=1000):
    return interval_of(intervals.miou_values(tables, rng, replicates=count), 0.95)


def miou_difference(before, after, rng, count=1000):
    return paired(*(intervals.miou_values(t, deepcopy(rng), replicates=count) for t in (before, after)))


def scene(seed, images=6, classes=3, noise=1.0):
    """Truth, and detections that mostly lie on it."""
    g = rng(seed)
    n = 5 * images
    image, category = np.sort(g.integers(0, images, n)), g.integers(0, classes, n)
    boxes = np.c_[g.integers(0, 40, (n, 2)), g.integers(8, 16, (n, 2))].astype(float)
    found = np.repeat(np.arange(n), 2)
    moved = boxes[found] + np.c_[g.normal(0, noise, (2 * n, 2)), np.zeros((2 * n, 2))]
    truth = truth_table(image, category, xywh=boxes, difficult=g.random(n) < 0.1)
    score = np.zeros(2 * n)
    for i in range(images):  # equal scores in different images, but never in one
        rows = np.flatnonzero(image[found] == i)
        score[rows] = g.permutation(len(rows)) / 100
    return truth, detection_table(image[found], category[found], score, xywh=moved)


def copies(table, drawn):
    """The table of a dataset that holds the drawn images, each copy an image of its own."""
    rows = [np.flatnonzero(table.image == image) for image in drawn]
    take = np.concatenate(rows)
    image = np.repeat(np.arange(len(drawn)), [len(r) for r in rows])
    columns = {
        name: getattr(table, name)[take] for name in type(table).__dataclass_fields__ if name != "image"
    }
    return type(table)(image=image, **columns)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(list(RULES)))
def test_weights_give_what_scoring_the_drawn_copies_gives(seed, name):
    rule, images, classes = RULES[name], 6, 3
    truth, found = scene(seed % 7)
    drawn = np.sort(rng(seed).integers(images, size=images))
    weights = np.bincount(drawn, minlength=images)[:, None].astype(np.int32)
    m = match(truth, found, rule, 0.5, images=images, classes=classes)
    fast = intervals._mean_ap(intervals._rankings([m]), rule, weights)[0]
    again: tuple[TruthTable, DetectionTable] = copies(truth, drawn), copies(found, drawn)
    slow = evaluate(*again, rule, images=images, classes=classes, iou=0.5).mean_ap
    assert fast == pytest.approx(slow, abs=1e-12)


def test_the_estimate_is_the_score_itself():
    truth, found = scene(1)
    for rule in RULES.values():
        result = evaluate(truth, found, rule, images=6, classes=3)
        interval = map_interval([result.matches], rule, 6, rng(), 20)
        assert interval.estimate == pytest.approx(result.mean_ap, abs=1e-12)
        assert interval.low <= interval.high


def test_a_run_against_itself_differs_by_nothing():
    truth, found = scene(2)
    m = [match(truth, found, RULES["coco"], iou, images=6, classes=3) for iou in (0.5, 0.75)]
    d = map_difference(m, m, RULES["coco"], 6, rng(), 50)
    assert (d.estimate, d.low, d.high) == (0.0, 0.0, 0.0)
    assert not d.excludes_zero


def test_a_clear_loss_is_told_from_none():
    truth, good = scene(3, images=40, noise=0.5)
    bad = scene(3, images=40, noise=4.0)[1]
    before, after = ([match(truth, table, RULES["voc"], 0.5, images=40, classes=3)] for table in (good, bad))
    d = map_difference(before, after, RULES["voc"], 40, rng(), 200)
    assert d.estimate < 0
    assert d.high < 0
    assert d.excludes_zero
    wide = map_interval(before, RULES["voc"], 40, rng(), 200)
    assert d.low <= d.estimate <= d.high
    assert wide.low <= wide.estimate <= wide.high


@pytest.mark.parametrize("name", list(RULES))
@pytest.mark.parametrize("chunk", [1, 40, 200])
def test_blocks_do_not_change_the_numbers(monkeypatch, name, chunk):
    truth, found = scene(4)
    m = [match(truth, found, RULES[name], iou, images=6, classes=3) for iou in (0.4, 0.5, 0.7)]
    whole = map_interval(m, RULES[name], 6, rng(5), 31)
    monkeypatch.setattr(intervals, "CHUNK_CELLS", chunk)
    assert map_interval(m, RULES[name], 6, rng(5), 31) == whole


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(list(RULES)))
def test_thresholds_together_are_the_mean_of_thresholds_alone(seed, name):
    truth, found = scene(seed % 11)  # with difficult boxes, which some thresholds ignore a detection for
    rule = RULES[name]
    m = [match(truth, found, rule, iou, images=6, classes=3) for iou in (0.3, 0.5, 0.55, 0.8)]
    together = intervals.map_values(m, rule, 6, rng(seed), replicates=8)
    alone = [intervals.map_values([one], rule, 6, rng(seed), replicates=8) for one in m]
    np.testing.assert_allclose(together, np.mean(alone, axis=0), atol=1e-12)


@given(st.integers(1, 400))
def test_recalls_reached_are_those_of_the_curve(positives):
    tp = np.arange(1, positives + 1, dtype=np.int32)[:, None]
    reached = intervals._reached(tp, np.array([positives]), 100)[:, 0]
    np.testing.assert_array_equal(reached, [(t / positives >= RECALLS).sum() for t in tp[:, 0].tolist()])
    needed = needed_hits(np.array([positives]), at_least=1)[0]
    np.testing.assert_array_equal(reached, (needed[None, :] <= tp).sum(axis=1))
    eleven = intervals._reached(tp, np.array([positives]), 10)[:, 0]
    np.testing.assert_array_equal(
        eleven, [sum(10 * t >= k * positives for k in range(11)) for t in tp[:, 0].tolist()]
    )


def test_matches_of_other_detections_are_not_averaged():
    truth, found = scene(1)
    fewer = detection_table(found.image[1:], found.category[1:], found.score[1:], xywh=found.xywh[1:])
    m = [match(truth, table, RULES["voc"], 0.5, images=6, classes=3) for table in (found, fewer)]
    with pytest.raises(InputError, match="same detections"):
        map_interval(m, RULES["voc"], 6, rng(), 2)


def pixel_tables(seed, images=8, k=4):
    g = rng(seed)
    return [g.integers(0, 50, (k, k)) * (g.random((k, k)) < 0.7) for _ in range(images)]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_miou_of_the_draws_is_that_of_the_summed_tables(seed):
    tables, drawer = pixel_tables(seed), rng(7)
    values = intervals.miou_values(tables, rng(7), replicates=20)
    assert values[0] == pytest.approx(segmentation_result(np.sum(tables, axis=0)).mean_iou, abs=1e-12)
    for value in values[1:]:
        draw = drawer.integers(8, size=8)
        expected = segmentation_result(np.sum([tables[i] for i in draw], axis=0)).mean_iou
        assert value == pytest.approx(expected, abs=1e-12)


def test_miou_leaves_out_what_is_absent():
    only = np.array([[5, 5, 0], [0, 0, 0], [0, 0, 0]])  # class 1 is only predicted, class 2 nowhere
    assert intervals.miou_values([only], rng(), replicates=1).tolist() == [0.25, 0.25]
    assert np.isnan(intervals.miou_values([np.zeros((2, 2))], rng(), replicates=3)).all()


def test_miou_intervals_and_paired_differences():
    before, after = pixel_tables(1, 30), pixel_tables(2, 30)
    alone = miou_interval(before, rng(), 100)
    assert alone.low < alone.estimate < alone.high
    same = miou_difference(before, before, rng(), 100)
    assert (same.low, same.estimate, same.high) == (0.0, 0.0, 0.0)
    moved = miou_difference(before, after, rng(), 100)
    assert moved.estimate == pytest.approx(miou_interval(after, rng()).estimate - alone.estimate)
    with pytest.raises(InputError, match="at least one image"):
        miou_interval([], rng())


def test_mean_interval_has_the_width_of_theory():
    values = rng(0).normal(3.0, 2.0, 4000)
    interval = mean_interval(values, rng(1), replicates=2000)
    assert interval.estimate == pytest.approx(values.mean())
    assert (interval.high - interval.low) / 2 == pytest.approx(1.96 * values.std() / np.sqrt(4000), rel=0.1)
    assert interval.low < interval.estimate < interval.high
    narrow = interval_of(mean_values(values, rng(1), replicates=2000), 0.5, within=(-np.inf, np.inf))
    assert narrow.high - narrow.low < interval.high - interval.low


def test_pairing_removes_what_both_share():
    shared = rng(0).random(500)
    after = shared - 0.01
    d = mean_difference(shared, after, rng(1), replicates=300)
    assert d.estimate == pytest.approx(-0.01)
    assert d.high - d.low < 1e-12
    assert d.excludes_zero
    assert str(d).startswith("-0.0100 [")


@pytest.mark.parametrize("lost", [1, 2])
def test_a_flip_or_two_are_never_clear_whatever_is_drawn(lost):
    before, after = np.ones(60), np.r_[np.zeros(lost), np.ones(60 - lost)]
    for seed in range(30):  # of which every other one has a mean of draws below that of the images
        down = mean_difference(before, after, rng(seed), replicates=300)
        up = mean_difference(after, before, rng(seed), replicates=300)
        by_pairs = paired(*(intervals.mean_values(v, rng(seed), replicates=300) for v in (before, after)))
        assert down.estimate == pytest.approx(-lost / 60)
        assert not any(found.excludes_zero for found in (down, up, by_pairs))
        assert down.low < -lost / 60


def test_enough_flips_are_clear_and_their_interval_is_that_of_the_mean():
    before, after = np.ones(60), np.r_[np.zeros(12), np.ones(48)]
    found = mean_difference(before, after, rng(1))
    assert found.excludes_zero
    assert found == mean_interval(after - before, rng(1))


@pytest.mark.parametrize("images", [20, 24, 60])
@pytest.mark.parametrize("seed", range(5))
def test_where_nothing_is_gained_the_interval_has_no_gain(images, seed):
    before, after = np.ones(images), np.ones(images)
    after[0] = 0.0
    lost = mean_difference(before, after, np.random.default_rng(seed))
    assert lost.low < lost.estimate < 0.0 == lost.high
    gained = mean_difference(after, before, np.random.default_rng(seed))
    assert gained.low == 0.0 < gained.estimate < gained.high


@given(st.lists(st.floats(-1, 1) | st.just(float("nan")), min_size=2, max_size=12))
def test_an_interval_of_a_difference_holds_its_estimate(values):
    drawn = np.array([0.0 if np.isnan(values[0]) else values[0], *values[1:]])
    found = paired(np.zeros(len(drawn)), drawn)
    if not np.isnan(found.low):
        assert found.low <= found.estimate <= found.high


def test_one_seed_gives_one_answer():
    values = rng(0).random(50)
    assert mean_interval(values, rng(3)) == mean_interval(values, rng(3))
    assert mean_interval(values, rng(3)) != mean_interval(values, rng(4))


def test_flips():
    f = flips([True, True, False, False, True], [True, False, True, False, False])
    assert (f.lost, f.gained, f.images) == (2, 1, 5)


def test_what_cannot_be_resampled_is_refused():
    with pytest.raises(InputError, match="at least one image"):
        mean_interval([], rng())
    with pytest.raises(InputError, match="one value per image of both runs"):
        mean_difference([1.0], [1.0, 2.0], rng())
    with pytest.raises(InputError, match="one value per image"):
        flips([True], [True, False])
    with pytest.raises(InputError, match="level"):
        interval_of(np.zeros(3), 1.0)
    with pytest.raises(InputError, match="replicates"):
        mean_interval([1.0], rng(), replicates=0)


def test_rounding_errors_do_not_decide_whether_zero_is_inside():
    # In the one draw the two sums are equal, but added in another order: 0.1 + 0.2 is not 0.3 in floats.
    before, after = np.array([0.0, 0.3]), np.array([0.6, 0.1 + 0.2])
    assert after[1] - before[1] > 0
    found = paired(before, after)
    assert (found.estimate, found.low, found.high) == (0.6, 0.0, 0.6)
    assert not found.excludes_zero


def test_an_interval_stays_within_the_range_of_the_score():
    # The mean of the draws is far from the score: moved to it, the upper end would be about 1.6.
    skewed = interval_of(np.array([0.95, 0.0, 0.0, 0.0, 1.0]))
    assert 0.0 <= skewed.low < skewed.high == 1.0
    assert interval_of(np.array([0.05, 1.0, 1.0, 1.0, 0.0])).low == 0.0
    assert interval_of(np.array([95.0, 0.0, 100.0]), within=(0.0, 100.0)).high == 100.0
    before, after = np.array([1.0, 1.0, 0.0, 0.0]), np.array([0.05, 0.0, 0.0, 0.0])
    assert paired(before, after).low == -1.0
    assert paired(2 * before, 2 * after, bound=2.0).low == -2.0


def test_the_mean_of_values_of_any_range_is_not_cut_off():
    found = mean_interval([10.0, 20.0, 30.0, 40.0, 50.0], rng(), replicates=200)
    assert 10.0 < found.low < 30.0 < found.high < 50.0


@given(st.integers(0, 10**6), st.sampled_from(list(RULES)))
def test_intervals_of_map_are_between_0_and_1_and_of_differences_between_minus_1_and_1(seed, name):
    truth, found = scene(seed % 13, images=5, noise=0.3)
    worse = scene(seed % 13, images=5, noise=3.0)[1]
    good, bad = ([match(truth, t, RULES[name], 0.5, images=5, classes=3)] for t in (found, worse))
    one = map_interval(good, RULES[name], 5, rng(seed), 30)
    two = map_difference(good, bad, RULES[name], 5, rng(seed), 30)
    assert 0.0 <= one.low <= one.high <= 1.0
    assert -1.0 <= two.low <= two.high <= 1.0
