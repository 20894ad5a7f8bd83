"""COCO's twelve numbers against its reference code, on small hostile data sets."""

import contextlib
import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.metrics.boxes import detection_table, truth_table
from holdfast.metrics.coco import KEYS, CocoResult, coco_numbers

pycocotools_coco = pytest.importorskip("pycocotools.coco")
pycocotools_eval = pytest.importorskip("pycocotools.cocoeval")

# Few values, so that boxes coincide, overlaps fall exactly on thresholds and scores tie.
SIDES = st.sampled_from([2.0, 3.0, 4.0, 10.0, 20.0, 32.0, 40.0, 96.0, 97.5, 120.0])
CORNERS = st.sampled_from([0.0, 0.0, 1.0, 2.0, 5.0, 10.0, 33.3])
SCORES = st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.5, 0.75, 0.9, 1.0])
AREAS = st.sampled_from([0.0, 5.0, 1024.0, 1025.0, 5000.0, 9216.0, 9217.0, 20000.0])


@st.composite
def data_sets(draw):
    """Images, classes, truth rows and detection rows; some images and classes stay empty."""
    images, classes = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    box = st.tuples(CORNERS, CORNERS, SIDES, SIDES)
    where = (st.integers(0, images - 1), st.integers(0, classes - 1))
    truth = st.tuples(*where, box, AREAS, st.sampled_from([0, 0, 0, 1]))
    found = st.tuples(*where, box, SCORES)
    return (
        images,
        classes,
        draw(st.lists(truth, max_size=14)),
        draw(st.lists(found, max_size=30)),
    )


def reference(images, classes, truth, found, first_id=1):
    """The twelve numbers, the precision and the recall arrays of pycocotools; ids start at 1."""
    with contextlib.redirect_stdout(io.StringIO()):
        gt = pycocotools_coco.COCO()
        gt.dataset = {
            "info": {},
            "images": [{"id": i + 1} for i in range(images)],
            "categories": [{"id": c + 1} for c in range(classes)],
            "annotations": [
                {
                    "id": n + first_id,
                    "image_id": i + 1,
                    "category_id": c + 1,
                    "bbox": list(b),
                    "area": a,
                    "iscrowd": k,
                }
                for n, (i, c, b, a, k) in enumerate(truth)
            ],
        }
        gt.createIndex()
        rows = [
            {"image_id": i + 1, "category_id": c + 1, "bbox": list(b), "score": s} for i, c, b, s in found
        ]
        dt = gt.loadRes(rows) if rows else pycocotools_coco.COCO()
        evaluation = pycocotools_eval.COCOeval(gt, dt, "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return evaluation.stats, evaluation.eval["precision"][..., -1], evaluation.eval["recall"]


def ours(images, classes, truth, found) -> CocoResult:
    image, category, box, area, crowd = zip(*truth, strict=True) if truth else ((),) * 5
    table = truth_table(np.array(image, int), np.array(category, int), xywh=list(box), area=area, crowd=crowd)
    image, category, box, score = zip(*found, strict=True) if found else ((),) * 4
    detections = detection_table(np.array(image, int), np.array(category, int), score, xywh=list(box))
    return coco_numbers(table, detections, images=images, classes=classes)


def check(data):
    stats, precision, recall = reference(*data)
    result = ours(*data)
    np.testing.assert_allclose([result.numbers[k] for k in KEYS], stats, rtol=0, atol=1e-9)
    np.testing.assert_array_equal(result.precision, precision)
    np.testing.assert_array_equal(result.recall, recall)


@settings(max_examples=150, deadline=None)
@given(data_sets())
def test_equal_to_the_reference_code_bit_for_bit(data):
    check(data)


@pytest.mark.parametrize("seed", range(6))
def test_equal_on_crowded_random_scenes(seed):
    """Many boxes per image, more than a hundred detections of one class, ties in score."""
    rng = np.random.default_rng(seed)
    images, classes = 6, 3
    truth, found = [], []
    for image in range(images - 1):  # the last image stays empty
        for _ in range(int(rng.integers(8, 25))):
            box = np.round(np.r_[rng.uniform(0, 200, 2), np.exp(rng.uniform(1, 5.2, 2))], 2)
            c = int(rng.integers(classes - 1))  # the last class has no truth
            truth.append(
                (image, c, box, float(box[2] * box[3] * rng.choice([0.6, 1])), int(rng.random() < 0.1))
            )
            for _ in range(int(rng.integers(4, 24))):
                noisy = np.round(box + rng.normal(0, 0.08, 4) * np.r_[box[2:], box[2:]], 1)
                noisy[2:] = np.maximum(noisy[2:], 1)
                found.append((image, int(rng.choice([c, c, c, 2])), noisy, round(float(rng.random()), 1)))
    order = rng.permutation(len(found))
    found = [found[i] for i in order]
    found += [(5, 0, np.array([0.0, 0.0, 9.0, 9.0]), 0.95)]
    assert np.bincount([i * 3 + c for i, c, *_ in found]).max() > 100
    check((images, classes, truth, found))


def test_annotation_id_zero_is_where_we_part_from_the_reference():
    """pycocotools takes the id of the annotation as the mark of a match, so id 0 is never matched."""
    truth, found = [(0, 0, (0.0, 0.0, 40.0, 40.0), 1600.0, 0)], [(0, 0, (0.0, 0.0, 40.0, 40.0), 0.9)]
    stats, _, _ = reference(1, 1, truth, found, first_id=0)
    assert stats[0] == 0.0
    assert reference(1, 1, truth, found)[0][0] == pytest.approx(1.0)
    assert ours(1, 1, truth, found).numbers["AP"] == pytest.approx(1.0)
