"""Heads whose boxes are already decoded: YOLOv5, YOLOv8, boxes after NMS, selected indices."""

import numpy as np
import pytest

from holdfast.core.errors import CardError
from holdfast.core.model import Card, Head, Input
from holdfast.core.registry import part
from holdfast.core.types import Size
from holdfast.graph.card import numbered

BOX = [10.0, 12.0, 50.0, 40.0]  # xyxy
CENTRE = [30.0, 26.0, 40.0, 28.0]


def card(head, classes=3, score=0.1, **options):
    return Card("detect", Input(Size(96, 64)), Head(head, options), numbered(classes), score=score)


def run(raw, wanted):
    return part("head", wanted.head.name).function({k: np.asarray(v) for k, v in raw.items()}, wanted)


def only(found, score=0.8, label=2):
    assert len(found) == 1
    assert found.boxes[0] == pytest.approx(BOX)
    assert found.scores[0] == pytest.approx(score)
    assert found.classes.tolist() == [label]


def test_yolov5():
    raw = np.zeros((1, 5, 8))
    raw[0, 3] = [*CENTRE, 0.9, 0.2, 0.05, 0.8]
    raw[0, 4] = [*CENTRE, 0.05, 1, 1, 1]  # objectness below the threshold
    both = run({"o": raw}, card("yolov5"))
    assert both.classes.tolist() == [0, 2]
    assert both.scores == pytest.approx([0.18, 0.72])
    only(run({"o": raw}, card("yolov5", multi_label=False)), 0.72)
    raw[0, :, :4] /= [96, 64, 96, 64]
    only(run({"o": raw}, card("yolov5", multi_label=False, normalised=True)), 0.72)
    with pytest.raises(
        CardError, match=r"\(1, 5, 8\): expected \(1, boxes, 5 \+ 4 classes\); correct `classes`"
    ):
        run({"o": raw}, card("yolov5", classes=4))


@pytest.mark.parametrize("turned", [False, True])
def test_yolov8(turned):
    raw = np.zeros((1, 7, 20))
    raw[0, :, 11] = [*CENTRE, 0.05, 0.2, 0.8]
    raw = raw.transpose(0, 2, 1) if turned else raw
    assert run({"o": raw}, card("yolov8")).classes.tolist() == [1, 2]
    only(run({"o": raw}, card("yolov8", multi_label=False)))
    with pytest.raises(CardError, match=r"expected \(1, 4 \+ 4 classes, boxes\) or its transpose"):
        run({"o": raw}, card("yolov8", classes=4))


FORMS = {
    "xyxy": BOX,
    "yxyx": [12.0, 10.0, 40.0, 50.0],
    "cxcywh": CENTRE,
    "xywh": [10.0, 12.0, 40.0, 28.0],
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("batch", [False, True])
def test_boxes_scores_labels(form, batch):
    raw = {
        "labels": np.array([3, 1, 0]),
        "boxes": np.array([FORMS[form], [0, 0, 1, 1], [0, 0, 0, 0]]),
        "scores": np.array([0.8, 0.01, 0.0]),
    }
    raw = {k: v[None] for k, v in raw.items()} if batch else raw
    only(run(raw, card("boxes", form=form, label_offset=1)))
    unnamed = dict(zip("abc", raw.values(), strict=True))
    only(run(unnamed, card("boxes", form=form, label_offset=1)))


def test_boxes_in_parts_of_the_input_with_a_count_and_padding():
    raw = {
        "num_dets": np.array([[1]]),
        "det_boxes": np.array([[BOX, BOX]]) / [96, 64, 96, 64],
        "det_scores": np.array([[0.8, 0.7]]),
        "det_classes": np.array([[2, 2]]),
    }
    only(run(raw, card("boxes", normalised=True)))
    raw["det_classes"] = np.array([[2, -1]])
    raw["num_dets"] = np.array([[2]])
    only(run(raw, card("boxes", normalised=True)))


def test_boxes_as_columns():
    only(run({"o": [[[*BOX, 0.8, 2], [*BOX, 0.0, 0]]]}, card("boxes")))
    seven = ["-", "x1", "y1", "x2", "y2", "label", "score"]
    only(run({"o": [[0, *BOX, 2, 0.8]]}, card("boxes", columns=seven)))
    only(run({"o": [[*CENTRE, 0.8, 2]]}, card("boxes", columns=["cx", "cy", "w", "h", "score", "label"])))
    assert len(run({"o": np.zeros((0, 6))}, card("boxes"))) == 0


@pytest.mark.parametrize(
    ("raw", "options", "told"),
    [
        (
            {"o": [[*BOX, 0.8, 3]]},
            {},
            r"a label is 3, but the card names 3 classes \(0 to 2\); correct `classes`",
        ),
        ({"o": [[*BOX, 0.8]]}, {}, r"output 'o' \(1, 5\): expected the columns \['x1', 'y1'"),
        ({"o": [[*BOX, 0.8, 3]]}, {"boxes": "q"}, "no output is named|cannot tell which"),
        ({"a": [BOX], "b": [0.8]}, {}, "cannot tell which output holds the labels among 'a'"),
        ({"boxes": [BOX, BOX], "scores": [0.8], "labels": [1]}, {}, "got 2 boxes, 1 scores, 1 labels"),
    ],
)
def test_boxes_wrong_cards(raw, options, told):
    with pytest.raises(CardError, match=told):
        run(raw, card("boxes", **options))


def test_selected_indices():
    four = np.zeros((1, 6, 4))
    four[0, 4] = [12, 10, 40, 50]
    scores = np.zeros((1, 3, 6))
    scores[0, 2, 4], scores[0, 1, 0] = 0.8, 0.01
    raw = {"picks": np.array([[0, 2, 4], [0, 1, 0], [-1, -1, -1]]), "scores": scores, "four": four}
    only(run(raw, card("selected")))
    four[0, 4] = [40, 50, 12, 10]  # NonMaxSuppression takes corners in either order
    only(run(raw, card("selected")))
    four[0, 4] = np.array(BOX) / [96, 64, 96, 64]
    only(run(raw, card("selected", form="xyxy", normalised=True, outputs=["four", "scores", "picks"])))
    four[0, 4] = CENTRE
    only(run(raw, card("selected", form="cxcywh")))
    with pytest.raises(CardError, match=r"expected boxes \(1, n, 4\), scores \(1, 4 classes, n\)"):
        run(raw, card("selected", classes=4))


def test_columns_behind_the_classes_are_not_scores():
    raw = np.zeros((1, 9, 5))
    raw[0, :, 3] = [*CENTRE, 0.2, 0.05, 0.8, 0.9, 99.0]
    only(run({"o": raw}, card("yolov8", multi_label=False, trailing=2)))
    only(run({"o": raw.transpose(0, 2, 1)}, card("yolov8", multi_label=False, trailing=2)))
    with pytest.raises(CardError, match=r"4 \+ 3 classes \+ 3 trailing columns"):
        run({"o": raw}, card("yolov8", trailing=3))


@pytest.mark.parametrize("angle", [0.5 * np.pi, -0.5 * np.pi])
def test_the_upright_box_around_a_rotated_one(angle):
    turned = [*CENTRE[:2], CENTRE[3], CENTRE[2]]
    raw = np.zeros((1, 8, 5))
    raw[0, :, 3] = [*turned, 0.0, 0.0, 0.8, angle]
    only(run({"o": raw}, card("yolov8", trailing=1, angle=True)))
    table = np.array([[*turned, 0.8, 2, angle]])
    columns = ("cx", "cy", "w", "h", "score", "label", "angle")
    only(run({"o": table}, card("boxes", columns=columns)))
    with pytest.raises(CardError, match="set trailing = 1"):
        run({"o": raw[:, :7]}, card("yolov8", angle=True))


def test_a_rotated_square_needs_a_larger_upright_box():
    raw = np.zeros((1, 8, 1))
    raw[0, :, 0] = [50, 50, 10, 10, 0, 0, 0.8, np.pi / 4]
    found = run({"o": raw}, card("yolov8", trailing=1, angle=True))
    half = 10 / np.sqrt(2)
    assert found.boxes[0] == pytest.approx([50 - half, 50 - half, 50 + half, 50 + half])


def test_rtdetr_gives_the_best_class_of_each_query():
    raw = np.zeros((1, 5, 7))
    raw[0, 1] = [*(np.array(CENTRE) / [96, 64, 96, 64]), 0.2, 0.3, 0.8]
    only(run({"o": raw}, card("rtdetr")))
    assert part("head", "rtdetr").facts["nms"] is False
    with pytest.raises(CardError, match=r"\(1, queries, 4 \+ 2 classes\)"):
        run({"o": raw}, card("rtdetr", classes=2))
