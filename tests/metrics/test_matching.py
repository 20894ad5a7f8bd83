import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.errors import InputError, UnknownName
from holdfast.metrics.boxes import detection_table, truth_table
from holdfast.metrics.boxes import iou as overlaps
from holdfast.metrics.matching import FALSE_POSITIVE, IGNORED, TRUE_POSITIVE, match
from holdfast.metrics.rules import RULES, APRule, rule_named

LECTURE, VOC, COCO = RULES["lecture"], RULES["voc"], RULES["coco"]


def one_image(true, found, scores, rule, iou=0.5, **columns):
    truth = truth_table([0] * len(true), [0] * len(true), xyxy=true, **columns)
    detections = detection_table([0] * len(found), [0] * len(found), scores, xyxy=found)
    return match(truth, detections, rule, iou, images=1, classes=1)


def outcomes(matches, n):
    """Outcome by row of the detection table; None for those not considered."""
    result = [None] * n
    for row, outcome in zip(matches.detection.tolist(), matches.outcome.tolist(), strict=True):
        result[row] = outcome
    return result


def test_an_overlap_on_the_threshold_counts_for_coco_and_not_for_the_lecture():
    half = [[0, 0, 10, 5]]  # IoU exactly 0.5 with a 10×10 box
    assert one_image([[0, 0, 10, 10]], half, [0.9], COCO).outcome.tolist() == [TRUE_POSITIVE]
    assert one_image([[0, 0, 10, 10]], half, [0.9], LECTURE).outcome.tolist() == [FALSE_POSITIVE]
    assert one_image([[0, 0, 10, 10]], half, [0.9], LECTURE, iou=0.4999).outcome.tolist() == [TRUE_POSITIVE]


def test_plus_one_is_used_by_voc():
    # without +1: 0.5; with +1: 66/121
    assert one_image([[0, 0, 10, 10]], [[0, 0, 10, 5]], [1.0], VOC, iou=0.54).outcome.tolist() == [
        TRUE_POSITIVE
    ]
    plain = dataclasses.replace(VOC, plus_one=False)
    assert one_image([[0, 0, 10, 10]], [[0, 0, 10, 5]], [1.0], plain, iou=0.54).outcome.tolist() == [
        FALSE_POSITIVE
    ]


def test_a_taken_box_is_a_false_positive_for_voc_and_the_next_free_box_for_coco():
    true = [[0, 0, 10, 10], [0, 1, 10, 11]]
    found = [[0, 0, 10, 10], [0, 0, 10, 10]]
    assert one_image(true, found, [0.9, 0.8], VOC).outcome.tolist() == [TRUE_POSITIVE, FALSE_POSITIVE]
    coco = one_image(true, found, [0.9, 0.8], COCO)
    assert coco.outcome.tolist() == [TRUE_POSITIVE, TRUE_POSITIVE]
    assert coco.truth.tolist() == [0, 1]
    assert coco.best.tolist() == [0, 0]


def test_the_higher_score_chooses_first_wherever_it_stands():
    m = one_image([[0, 0, 10, 10]], [[0, 0, 10, 9], [0, 0, 10, 10]], [0.3, 0.8], VOC)
    assert m.detection.tolist() == [1, 0]
    assert outcomes(m, 2) == [FALSE_POSITIVE, TRUE_POSITIVE]


def test_equal_scores_keep_the_order_of_rows():
    boxes = [[0, 0, 10, 10]] * 3
    for rule in RULES.values():
        m = one_image([[0, 0, 10, 10]], boxes, [0.5] * 3, rule)
        assert m.detection.tolist() == [0, 1, 2]
        assert outcomes(m, 3) == [TRUE_POSITIVE, FALSE_POSITIVE, FALSE_POSITIVE]


def test_equal_scores_of_several_images_keep_the_order_of_images():
    detections = detection_table([2, 0, 1, 0], [0] * 4, [0.5] * 4, xyxy=[[0, 0, 1, 1]] * 4)
    truth = truth_table(np.zeros(0, int), np.zeros(0, int), xyxy=[])
    assert match(truth, detections, VOC, 0.5, images=3, classes=1).detection.tolist() == [1, 3, 2, 0]


def test_of_equally_good_boxes_coco_takes_the_last_and_voc_the_first():
    true = [[0, 0, 10, 10], [0, 0, 10, 10]]
    assert one_image(true, [[0, 0, 10, 10]], [0.9], COCO).truth.tolist() == [1]
    assert one_image(true, [[0, 0, 10, 10]], [0.9], VOC).truth.tolist() == [0]


def test_difficult_boxes_are_neither_hit_nor_miss_for_voc():
    boxes = [[0, 0, 10, 10]]
    m = one_image(boxes, boxes * 2, [0.9, 0.8], VOC, difficult=[True])
    assert m.outcome.tolist() == [IGNORED, IGNORED]
    assert m.positives.tolist() == [0]
    ordinary = one_image(boxes, boxes * 2, [0.9, 0.8], LECTURE, difficult=[True])
    assert ordinary.outcome.tolist() == [TRUE_POSITIVE, FALSE_POSITIVE]
    assert ordinary.positives.tolist() == [1]


def test_a_crowd_takes_any_number_of_detections_for_coco():
    m = one_image([[0, 0, 100, 100]], [[0, 0, 10, 10], [20, 20, 30, 30]], [0.9, 0.8], COCO, crowd=[True])
    assert m.outcome.tolist() == [IGNORED, IGNORED]
    assert m.overlap.tolist() == [1.0, 1.0]
    assert one_image([[0, 0, 100, 100]], [[0, 0, 10, 10]], [0.9], VOC, crowd=[True]).outcome.tolist() == [
        FALSE_POSITIVE
    ]


def test_a_counted_box_is_preferred_to_a_better_crowd():
    m = one_image([[0, 0, 10, 10], [0, 0, 50, 50]], [[0, 0, 10, 8]], [0.9], COCO, crowd=[False, True])
    assert m.outcome.tolist() == [TRUE_POSITIVE]
    assert m.truth.tolist() == [0]


def test_only_the_best_detections_of_an_image_and_class_are_considered():
    rule = dataclasses.replace(COCO, max_dets=2)
    boxes = [[0, 0, 10, 10], [20, 20, 30, 30], [50, 50, 60, 60]]
    m = one_image([[50, 50, 60, 60]], boxes, [0.5, 0.9, 0.1], rule)
    assert outcomes(m, 3) == [FALSE_POSITIVE, FALSE_POSITIVE, None]
    assert one_image([[50, 50, 60, 60]], boxes, [0.5, 0.9, 0.1], COCO).outcome.tolist()[-1] == TRUE_POSITIVE


def test_index_zero_is_an_image_and_a_class_like_any_other():
    """pycocotools takes an annotation of id 0 for unmatched; here indices are never flags."""
    m = one_image([[0, 0, 10, 10]], [[0, 0, 10, 10]], [0.9], COCO)
    assert (m.truth.tolist(), m.detection.tolist(), m.outcome.tolist()) == ([0], [0], [TRUE_POSITIVE])


def test_boxes_that_do_not_meet_never_match_even_at_threshold_zero():
    assert one_image([[0, 0, 10, 10]], [[50, 50, 60, 60]], [0.9], COCO, iou=0.0).outcome.tolist() == [
        FALSE_POSITIVE
    ]


@pytest.mark.parametrize("iou", [-0.1, 1.1, float("nan")])
def test_a_threshold_outside_0_to_1_is_refused(iou):
    with pytest.raises(InputError, match="iou threshold: expected a number from 0 to 1"):
        one_image([], [], [], VOC, iou=iou)


def test_an_index_beyond_the_classes_is_refused():
    truth = truth_table([0], [3], xyxy=[[0, 0, 1, 1]])
    with pytest.raises(InputError, match="truth row 0: category index 3 but there are only 2"):
        match(
            truth,
            detection_table(np.zeros(0, int), np.zeros(0, int), [], xyxy=[]),
            VOC,
            0.5,
            images=1,
            classes=2,
        )


def test_a_rule_prints_every_choice_in_one_line():
    text = str(RULES["voc2007"])
    assert "\n" not in text
    for words in (
        "voc2007",
        "11-point",
        "IoU ≥",
        "+1 pixel",
        "a detection whose best box is matched already is a false positive",
        "difficult ignored",
    ):
        assert words in text
    assert "IoU > threshold" in str(LECTURE)
    assert "(recall 0, precision 1) and (1, 0)" in str(LECTURE)
    assert "≤ 100 detections" in str(COCO)
    assert len({str(rule) for rule in RULES.values()}) == len(RULES)


def test_an_unknown_rule_names_the_nearest():
    with pytest.raises(UnknownName, match=r"unknown rule 'voc2012'\. Did you mean 'voc'"):
        rule_named("voc2012")
    assert rule_named("voc") is VOC
    with pytest.raises(InputError, match="max_dets must be 1 or more"):
        APRule("x", "11-point", max_dets=0)


def simple_greedy(truth, detections, rule, iou):
    """The same matching as loops over images and classes, straight from the definitions."""
    result = {}
    for image, category in {*zip(detections.image.tolist(), detections.category.tolist(), strict=True)}:
        mine = np.flatnonzero((truth.image == image) & (truth.category == category))
        rows = np.flatnonzero((detections.image == image) & (detections.category == category))
        rows = sorted(rows.tolist(), key=lambda r: -detections.score[r])[: rule.max_dets]
        region = truth.crowd[mine] if rule.crowd == "region" else None
        table = overlaps(detections.xyxy[rows], truth.xyxy[mine], crowd=region, plus_one=rule.plus_one)
        hidden = (truth.difficult[mine] & (rule.difficult == "ignored")) | (
            truth.crowd[mine] & (rule.crowd != "ordinary")
        )
        taken = set()
        for line, row in zip(table, rows, strict=True):
            good = [
                j
                for j in range(len(mine))
                if line[j] > 0 and (line[j] > iou or (line[j] == iou and not rule.iou_strict))
            ]
            if rule.taken == "false positive":
                best = int(np.argmax(line)) if len(mine) else -1
                choice = [best] if best in good and best not in taken else []
                reusable = hidden
            else:
                reusable = truth.crowd[mine]
                good = [j for j in good if j not in taken]
                choice = sorted(good, key=lambda j: (hidden[j], -line[j], -j))[:1]
            result[row] = (FALSE_POSITIVE, -1)
            for j in choice:
                result[row] = (IGNORED if hidden[j] else TRUE_POSITIVE, int(mine[j]))
                if not reusable[j]:
                    taken.add(j)
    return result


@st.composite
def scenes(draw):
    box = st.tuples(*[st.integers(0, 6)] * 2, *[st.sampled_from([4, 6, 8])] * 2)
    flag = st.sampled_from([False, False, True])
    where = (st.integers(0, 2), st.integers(0, 1))
    true = draw(st.lists(st.tuples(*where, box, flag, flag), max_size=10))
    found = draw(st.lists(st.tuples(*where, box, st.sampled_from([0.1, 0.5, 0.5, 0.9])), max_size=14))
    return true, found


@settings(max_examples=150, deadline=None)
@given(scenes(), st.sampled_from(list(RULES)), st.sampled_from([0.25, 0.5, 0.75]), st.sampled_from([None, 2]))
def test_equal_to_plain_loops(scene, name, iou, max_dets):
    true, found = scene
    rule = dataclasses.replace(RULES[name], max_dets=max_dets)
    columns = [list(c) for c in zip(*true, strict=True)] if true else [[]] * 5
    truth = truth_table(
        np.array(columns[0], int),
        np.array(columns[1], int),
        xywh=columns[2],
        crowd=columns[3],
        difficult=columns[4],
    )
    columns = [list(c) for c in zip(*found, strict=True)] if found else [[]] * 4
    detections = detection_table(
        np.array(columns[0], int), np.array(columns[1], int), columns[3], xywh=columns[2]
    )
    m = match(truth, detections, rule, iou, images=3, classes=2)
    got = {
        d: (o, t) for d, o, t in zip(m.detection.tolist(), m.outcome.tolist(), m.truth.tolist(), strict=True)
    }
    assert got == simple_greedy(truth, detections, rule, iou)
    order = sorted(got, key=lambda r: (detections.category[r], -detections.score[r], detections.image[r], r))
    assert m.detection.tolist() == order
