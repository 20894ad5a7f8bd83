"""Two runs on the same images: paired intervals against brute force, flips and changes by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.errors import InputError
from holdfast.core.fingerprint import generator
from holdfast.core.types import Boxes, Detections, Size
from holdfast.engine.records import GRID, ClassificationRecord, DetectionRecord, SegmentationRecord
from holdfast.evaluate.difference import Changes, ScoredRun, broken_images, changes, compare, unmatched_counts
from holdfast.evaluate.score import Settings, score_records
from holdfast.metrics.rules import RULES

COCO = Settings(RULES["coco"])
SIZE = Size(100, 100)


def found(name, boxes, scores, classes, truth=((10, 10, 30, 30),), labels=(0,)):
    told = Boxes(np.array(truth, float).reshape(-1, 4), np.array(labels, int))
    return DetectionRecord(name, SIZE, told, detections(boxes, scores, classes))


def detections(boxes, scores, classes):
    return Detections(np.array(boxes, float).reshape(-1, 4), np.array(scores, float), np.array(classes, int))


def ranked(name, label, *top):
    return ClassificationRecord(name, SIZE, label, np.array(top), np.linspace(0.9, 0.1, len(top)))


def counted(name, table, grid=None):
    labels = np.zeros((GRID, GRID), np.uint16) if grid is None else grid
    return SegmentationRecord(name, SIZE, np.array(table, np.int64), labels)


def side(records, task="detect", classes=("a", "b"), told=COCO):
    return ScoredRun(tuple(records), task, classes, told)


def scene(seed, images=7, move=0.0):
    """Records of a detector on random truth; `move` shifts what it says by up to so many pixels."""
    rng, other = np.random.default_rng(seed), np.random.default_rng(seed + 1)
    records = []
    for i in range(images):
        n = int(rng.integers(1, 5))
        corner = rng.integers(0, 70, (n, 2))
        truth = np.concatenate([corner, corner + rng.integers(8, 28, (n, 2))], axis=1)
        labels = rng.integers(0, 2, n)
        boxes = np.repeat(truth, 2, axis=0) + rng.normal(0, 2, (2 * n, 4)).round()
        boxes = boxes + move * other.uniform(-1, 1, boxes.shape)
        boxes[:, 2:] = np.maximum(boxes[:, :2] + 1, boxes[:, 2:])
        scores = rng.permutation(2 * n) / 10 + 0.05
        records.append(found(f"{i}.jpg", boxes, scores, np.repeat(labels, 2), truth, labels))
    return records


def drawn(records, draw):
    """The drawn copies as a data set of its own."""
    return [type(records[i])(f"{n}", *[getattr(records[i], f) for f in FIELDS[type(records[i])]])
            for n, i in enumerate(draw)]  # fmt: skip


FIELDS = {
    DetectionRecord: ("size", "truth", "detections"),
    ClassificationRecord: ("size", "label", "top", "scores"),
    SegmentationRecord: ("size", "confusion", "grid"),
}


def brute(before, after, task, metric, classes, told, replicates):
    """The interval by scoring every drawn copy of the data set from the records."""
    rng = generator(0, "difference")

    def score(records):
        number = score_records(records, task, classes, told)["metrics"][metric]
        return np.nan if number is None else number

    values = []
    for _ in range(replicates):
        draw = np.sort(rng.integers(len(before), size=len(before)))
        values.append(score(drawn(after, draw)) - score(drawn(before, draw)))
    estimate, values = score(after) - score(before), np.array(values)
    low, high = np.quantile(values - values.mean(), [0.025, 0.975])
    return estimate, estimate + low, estimate + high


@pytest.mark.parametrize("name", ["coco", "voc", "voc2007", "lecture"])
def test_the_interval_of_a_detector_is_that_of_scoring_the_copies(name):
    told = Settings(RULES[name])
    before, after = scene(1), scene(1, move=4.0)
    got = compare(side(before, told=told), side(after, told=told), replicates=40)
    expected = brute(before, after, "detect", got.metric, ("a", "b"), told, 40)
    assert (got.interval.estimate, got.interval.low, got.interval.high) == pytest.approx(expected, abs=1e-12)
    assert got.after - got.before == pytest.approx(got.interval.estimate, abs=1e-12)
    assert got.interval.estimate != 0


def random_segments(seed, images=6, k=3):
    rng = np.random.default_rng(seed)
    for i in range(images):
        truth = rng.integers(0, k, 300)
        for wrong in (0.1, 0.4):
            said = np.where(rng.random(300) < wrong, rng.integers(0, k, 300), truth)
            table = np.bincount(truth * k + said, minlength=k * k).reshape(k, k)
            yield i, wrong, counted(f"{i}.png", table)


def test_the_interval_of_a_segmenter_is_that_of_scoring_the_copies():
    made = list(random_segments(3))
    before, after = ([r for _, w, r in made if w == wanted] for wanted in (0.1, 0.4))
    names = ("a", "b", "c")
    got = compare(side(before, "segment", names), side(after, "segment", names), replicates=50)
    expected = brute(before, after, "segment", "mIoU", names, COCO, 50)
    assert (got.interval.estimate, got.interval.low, got.interval.high) == pytest.approx(expected, abs=1e-12)
    assert got.metric == "mIoU"
    assert got.interval.high < 0
    assert got.flips is None


def test_the_interval_of_a_classifier_is_that_of_scoring_the_copies():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 12)
    before = [ranked(f"{i}", int(c), int(c if i % 4 else (c + 1) % 3)) for i, c in enumerate(labels)]
    after = [ranked(f"{i}", int(c), int(c if i % 3 else (c + 2) % 3)) for i, c in enumerate(labels)]
    names = ("a", "b", "c")
    got = compare(side(before, "classify", names), side(after, "classify", names), replicates=60)
    expected = brute(before, after, "classify", "top1", names, COCO, 60)
    assert (got.interval.estimate, got.interval.low, got.interval.high) == pytest.approx(expected, abs=1e-12)
    # wrong before: 0 4 8; after: 0 3 6 9; both wrong at 0, with other classes
    assert got.flips is not None
    assert (got.flips.lost, got.flips.gained, got.changed) == (3, 2, 6)


@pytest.mark.parametrize("task", ["detect", "classify", "single", "segment"])
def test_a_run_against_itself_has_no_width(task):
    records = {
        "detect": scene(4),
        "single": [found(f"{i}", [[10, 10, 30, 20 + i]], [0.9], [0]) for i in range(5)],
        "classify": [ranked(f"{i}", i % 2, 0, 1) for i in range(5)],
        "segment": [r for _, w, r in random_segments(1) if w == 0.4],
    }[task]
    names = ("a", "b", "c")
    d = compare(side(records, task, names), side(list(records), task, names), replicates=50)
    i = d.interval
    assert (i.estimate, i.low, i.high, d.changed) == (0.0, 0.0, 0.0, 0)
    assert "no difference on any image" in str(d)
    assert broken_images(side(records, task, names), side(records, task, names)) == ()
    assert d.before == pytest.approx(side(records, task, names).value, abs=1e-12)


def test_what_was_computed_once_is_kept_and_gives_the_same():
    clean, after = side(scene(2)), side(scene(2, move=3.0))
    first = compare(clean, after, replicates=30)
    assert len(clean.computed) == len(after.computed) == 1
    computed = next(iter(clean.computed.values()))
    assert compare(clean, side(scene(2, move=3.0)), replicates=30) == first
    assert next(iter(clean.computed.values())) is computed
    assert compare(clean, after, replicates=30, seed=1).interval != first.interval


def test_only_common_images_are_compared_in_the_order_of_the_first():
    before, after = scene(2), scene(2, move=3.0)
    whole = compare(side(before), side(after[::-1]), replicates=20)
    assert whole == compare(side(before), side(after), replicates=20)
    part = compare(side(before), side(after[1:4]), replicates=20)
    assert part.images == 3
    assert part == compare(side(before[1:4]), side(after[1:4]), replicates=20)
    with pytest.raises(InputError, match="no image in common"):
        compare(side(before[:1]), side(after[1:]))


def test_runs_of_another_rule_or_truth_are_refused():
    records = scene(2)
    with pytest.raises(InputError, match="task, classes and rule"):
        compare(side(records), side(records, told=Settings(RULES["voc"])))
    other = [counted("a", [[5, 0], [0, 5]])], [counted("a", [[6, 0], [0, 4]])]
    with pytest.raises(InputError, match="the image or its ground truth differs"):
        compare(*(side(r, "segment") for r in other))


BOX = [10, 10, 30, 30]


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ([(BOX, 0.8, 0)], (0, 0)),
        ([(BOX, 0.6, 0)], (0, 0)),  # another score, still shown
        ([(BOX, 0.4, 0)], (1, 0)),  # below the threshold: not shown any more
        ([(BOX, 0.8, 1)], (1, 1)),  # another class
        ([([10, 10, 30, 20], 0.8, 0)], (0, 0)),  # IoU exactly 0.5
        ([([10, 10, 30, 19], 0.8, 0)], (1, 1)),  # IoU 0.45
        ([(BOX, 0.8, 0), ([11, 10, 31, 30], 0.7, 0)], (0, 1)),  # a partner serves once
        ([], (1, 0)),
    ],
)
def test_boxes_lost_and_gained_by_hand(after, expected):
    before = [found("a", [BOX], [0.8], [0])]
    second = [found("a", *([row[i] for row in after] for i in range(3)))]
    got = changes(before, second, "detect", COCO)
    assert (got.boxes_lost, got.boxes_gained) == expected
    assert got.images == (expected != (0, 0))
    assert f"lost or gained in {got.images} of 1 image" in str(got)


def test_the_nearest_become_partners_first():
    first = detections([[0, 0, 12, 10], [0, 0, 5.5, 10]], [0.9, 0.8], [0, 0])
    second = detections([[0, 0, 10, 10], [0, 0, 12, 10]], [0.9, 0.8], [0, 0])
    # 12 with 12, so that 10 is left for 5.5 (0.55); with 12 and 10 (0.83) paired, 5.5 and 12 (0.46) part
    assert unmatched_counts(first, second) == (0, 0)


boxes = st.lists(st.tuples(*[st.integers(0, 6)] * 2, *[st.integers(1, 6)] * 2, st.integers(0, 1)), max_size=6)


@settings(deadline=None)
@given(boxes, boxes)
def test_lost_one_way_is_gained_the_other(first, second):
    a, b = (
        detections([[x, y, x + w, y + h] for x, y, w, h, _ in rows], [0.9] * len(rows), [r[4] for r in rows])
        for rows in (first, second)
    )
    lost, gained = unmatched_counts(a, b)
    assert unmatched_counts(b, a) == (gained, lost)
    assert len(a) - lost == len(b) - gained
    assert unmatched_counts(a, a) == (0, 0)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000), st.floats(0, 6))
def test_the_other_way_round_everything_is_mirrored(seed, move):
    first, second = side(scene(seed)), side(scene(seed, move=move))
    there, back = (compare(a, b, replicates=10) for a, b in ((first, second), (second, first)))
    assert there.interval.estimate == -back.interval.estimate
    assert there.interval.low == pytest.approx(-back.interval.high, abs=1e-12)
    assert there.changed == back.changed
    assert (there.changes.boxes_lost, there.changes.boxes_gained) == (
        back.changes.boxes_gained, back.changes.boxes_lost
    )  # fmt: skip


def test_a_single_objects_change_by_hand():
    before = [found(n, [BOX], [0.8], [0]) for n in "abcde"]
    after = [
        found("a", [BOX], [0.1], [0]),  # the score does not matter
        found("b", [BOX], [0.8], [1]),
        found("c", [[10, 10, 30, 19]], [0.8], [0]),
        found("d", [[10, 10, 30, 20]], [0.8], [0]),  # IoU 0.5: the same box, but no longer above one half
        found("e", [], [], []),
    ]
    assert changes(before, after, "single", COCO) == Changes("single", 3, len(before))
    assert broken_images(side(before, "single"), side(after, "single")) == ("b", "c", "d", "e")


def test_a_segmenters_change_is_one_per_cent_of_the_points():
    grids = [np.zeros((GRID, GRID), np.uint16) for _ in range(3)]
    grids[1].flat[:40] = 1  # 0.98 %
    grids[2].flat[:41] = 1  # 1.001 %
    table = [[90, 0], [0, 10]]
    before = [counted(f"{i}", table) for i in range(3)]
    after = [counted(f"{i}", table, grid) for i, grid in enumerate(grids)]
    got = changes(before, after, "segment", COCO)
    assert got.images == 1
    assert got.points == pytest.approx(81 / (3 * GRID * GRID))
    assert "0.66% of all labels" in str(got)
    # right pixels: 100 of 100 before; 99 and 100 after
    worse = [counted("0", [[89, 1], [0, 10]]), counted("1", table), counted("2", table)]
    assert broken_images(side(before, "segment"), side(worse, "segment")) == ("0",)


def test_records_without_a_grid_still_tell_whether_a_pixel_changed():
    old = [SegmentationRecord(f"{i}", SIZE, np.array([[9, 1], [0, 10]])) for i in range(2)]
    new = [old[0], SegmentationRecord("1", SIZE, np.array([[8, 2], [0, 10]]))]
    assert changes(old, new, "segment", COCO) == Changes("segment", 1, len(old))


def test_an_image_is_broken_if_a_true_box_is_not_found_any_more():
    truth = ([10, 10, 30, 30], [60, 60, 80, 80])
    told = {"truth": truth, "labels": (0, 0)}
    before = [found(n, truth, [0.9, 0.8], [0, 0], **told) for n in "abc"]
    after = [
        found("a", [[12, 10, 32, 30], truth[1]], [0.9, 0.8], [0, 0], **told),  # moved, still found
        found("b", truth, [0.9, 0.4], [0, 0], **told),  # the second one is below the score threshold
        found("c", [*truth, [0, 0, 9, 9]], [0.9, 0.8, 0.7], [0, 0, 0], **told),  # one too many breaks none
    ]
    assert broken_images(side(before), side(after)) == ("b",)
    got = compare(side(before), side(after), replicates=10)
    assert (got.changed, got.changes.boxes_lost, got.changes.boxes_gained) == (2, 1, 1)
    assert "in 2 of 3 images (1 lost, 1 gained;" in str(got)
