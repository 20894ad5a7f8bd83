"""What deployed systems do otherwise with boxes: pixels by hand, and which options can do nothing."""

import math
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core import fingerprint
from holdfast.core.model import Card, Head, Input
from holdfast.core.pipeline import Pipeline, frame_of
from holdfast.core.registry import names, part
from holdfast.core.types import Size
from holdfast.graph.candidates import LARGEST, apply_deltas, clamped_exp, exp_of, half_exp
from holdfast.stages.families import option
from holdfast.stages.post import BoxPostProcessing, by_card, no_effect

NET = Input(Size(64, 64))
FRAME = frame_of(Size(64, 64), NET)


def card(head="yolox", classes=("a",), **more):
    options = {"yolox": {"strides": [8]}, "yolov3": {"anchors": [[[16, 16]]], "strides": [8]}}.get(head, {})
    head_options = {**options, **more.pop("options", {})}
    task = "single" if head == "landmark" else "detect"
    return Card(task, NET, Head(head, head_options), classes, score=more.pop("score", 0.1), **more)


def cells(*rows):
    """A YOLOX output with these cells (column, row, dx, dy, tw, th, score) and nothing elsewhere."""
    y = np.zeros((1, 64, 6), np.float32)
    for column, row, dx, dy, tw, th, score in rows:
        y[0, 8 * row + column] = [dx, dy, tw, th, score, 1.0]
    return {"y": y}


def run(raw, wanted, *options, frame=FRAME):
    boxes = BoxPostProcessing()
    for name in options:
        boxes = part("boxes", name).function(boxes)
    return boxes(raw, frame, wanted)


# centre (2.3, 3.1)·8 = (18.4, 24.8), sides 8·e^0.7 = 16.11 and 8·e^1.1 = 24.033
ONE = cells((2, 3, 0.3, 0.1, 0.7, 1.1, 0.9))
EXACT = [
    18.4 - 4 * math.exp(0.7),
    24.8 - 4 * math.exp(1.1),
    18.4 + 4 * math.exp(0.7),
    24.8 + 4 * math.exp(1.1),
]


def test_no_option_is_the_cards_post_bit_for_bit():
    rng = np.random.default_rng(0)
    raw = {"y": rng.normal(0.5, 0.5, (1, 64, 6)).astype(np.float32)}
    ours, cards = BoxPostProcessing()(raw, FRAME, card()), by_card(raw, FRAME, card())
    assert len(cards) > 5
    for name in ("boxes", "scores", "classes"):
        np.testing.assert_array_equal(getattr(ours, name), getattr(cards, name))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("offset", [EXACT[0], EXACT[1], EXACT[2] - 1, EXACT[3] - 1]),
        ("round-floor", [10, 12, 26, 36]),
        ("round-nearest", [10, 13, 26, 37]),
        ("round-ceil", [11, 13, 27, 37]),
        ("nms-inclusive", EXACT),
        ("nms-plus-one", EXACT),
        ("exp-clamp", EXACT),
    ],
)
def test_pixels_of_each_option(name, expected):
    assert pytest.approx(EXACT, abs=1e-3) == [10.345, 12.783, 26.455, 36.817]
    np.testing.assert_allclose(run(ONE, card(), name).boxes, [expected], atol=1e-5)


def test_everything_happens_in_pixels_of_the_network_input():
    wide = frame_of(Size(128, 64), NET)  # x is stretched by two on the way back
    np.testing.assert_allclose(run(ONE, card(), "round-floor", frame=wide).boxes, [[20, 12, 52, 36]])
    moved = run(ONE, card(), "offset", frame=wide).boxes[0] - run(ONE, card(), frame=wide).boxes[0]
    np.testing.assert_allclose(moved, [0, 0, -2, -1], atol=1e-12)


def test_options_combine_in_the_papers_order():
    # 26.455 − 1 = 25.455 and 36.817 − 1 = 35.817, then up
    np.testing.assert_allclose(run(ONE, card(), "round-ceil", "offset").boxes, [[11, 13, 26, 36]])
    assert part("boxes", "offset").function(BoxPostProcessing(rounding="floor")) == BoxPostProcessing(
        offset=True, rounding="floor"
    )


def test_a_card_trained_with_the_offset_is_deployed_without():
    head = Head("anchors", {"proposals": "rois", "outputs": ["cls", "reg"], "offset": 1.0})
    told = Card("detect", NET, head, ("a",), score=0.1)
    raw = {"rois": np.array([[10.0, 10, 30, 50]]), "cls": np.array([[3.0]]), "reg": np.zeros((1, 4))}
    np.testing.assert_allclose(run(raw, told).boxes, [[10, 10, 29, 49]])
    np.testing.assert_allclose(run(raw, told, "offset").boxes, [[10, 10, 30, 50]])


def test_a_box_narrower_than_the_offset_is_empty_not_inside_out():
    thin = cells((2, 3, 0.5, 0.5, -3.0, 0.0, 0.9))  # 8·e^−3 = 0.398 wide
    found = run(thin, card(), "offset").boxes[0]
    assert found[2] == found[0]
    assert found[3] - found[1] == pytest.approx(7)


def test_the_offset_and_rounding_come_before_nms():
    # 8×8 boxes four pixels apart: 4/12 = 0.333; with right and lower sides one less 3·7/(2·49 − 21) = 0.273
    pair = cells((2, 3, 0.0, 0.0, 0.0, 0.0, 0.9), (2, 3, 0, 0, 0, 0, 0.9), (3, 3, -0.5, 0.0, 0.0, 0.0, 0.8))
    assert len(run(pair, card(nms_iou=0.3))) == 1
    assert len(run(pair, card(nms_iou=0.3), "offset")) == 2
    # 4.4 apart: 3.6/12.4 = 0.290; rounded down both x1 = 12 and 16.4 → 16: 4/12
    near = cells((2, 3, 0.0, 0.0, 0.0, 0.0, 0.9), (3, 3, -0.45, 0.0, 0.0, 0.0, 0.8))
    assert len(run(near, card(nms_iou=0.31))) == 2
    assert len(run(near, card(nms_iou=0.31), "round-floor")) == 1


def test_nms_at_the_threshold_and_with_the_last_pixel():
    pair = cells((2, 3, 0.0, 0.0, 0.0, 0.0, 0.9), (3, 3, -0.5, 0.0, 0.0, 0.0, 0.8))  # IoU exactly 1/3
    assert len(run(pair, card(nms_iou=1 / 3))) == 2
    assert len(run(pair, card(nms_iou=1 / 3), "nms-inclusive")) == 1
    assert len(run(pair, card(nms_iou=0.36))) == 2
    assert len(run(pair, card(nms_iou=0.36), "nms-plus-one")) == 1  # 5·9/(2·81 − 45) = 0.385
    assert len(run(pair, card(nms_iou=0.39), "nms-plus-one")) == 2


def test_exp_in_half_precision_by_hand():
    # 0.7 is 0.7001953125 in binary16 (2^−1·(1 + 410/1024)); its exp is 2.014146, the nearest half 2 + 7/512
    assert half_exp(np.array([0.7]))[0] == 2.013671875
    found = run(ONE, card(), "exp-fp16").boxes[0]
    assert found[2] - found[0] == pytest.approx(8 * 2.013671875, abs=1e-9)
    assert half_exp(np.array([0.0, 11.0, 12.0, 1e6, -40.0, -1e6])).tolist() == [
        1.0, 59872.0, 65504.0, 65504.0, 0.0, 0.0
    ]  # fmt: skip


@given(st.floats(-8, 11))
def test_half_exp_is_the_nearest_half_of_a_rounded_argument(x):
    rounded = float(np.float16(x))
    got, exact = float(half_exp(np.array([x]))[0]), math.exp(rounded)
    assert float(np.float16(got)) == got
    below, above = (float(np.nextafter(np.float16(got), np.float16(to))) for to in (0, np.inf))
    assert abs(got - exact) <= min(abs(below - exact), abs(above - exact)) * (1 + 1e-12)


def test_the_clamp_is_that_of_the_appendix():
    assert clamped_exp(np.array([6.0, LARGEST, 1.0])).tolist() == pytest.approx([62.5, 62.5, math.e])
    both = BoxPostProcessing(exp_clamp=True, exp_half=True).exp
    assert both is not None
    # log(62.5) = 4.1352 is 4.13671875 in binary16, whose exp is 62.597; halves are 1/32 apart there
    assert both(np.array([9.0]))[0] == 62.59375
    huge = cells((4, 4, 0.0, 0.0, 6.0, 0.0, 0.9))
    found = part("head", "yolox").function(huge, card(), exp=BoxPostProcessing(exp_clamp=True).exp).boxes[0]
    assert found[2] - found[0] == pytest.approx(8 * 62.5)
    assert part("head", "yolox").function(huge, card()).boxes[0, 2] == pytest.approx(32 + 4 * math.exp(6))


def test_the_appendix_by_hand():
    """One anchor with every constant at work, each number computed from the printed code."""
    anchor = np.array([[10.0, 20.0, 50.0, 100.0]])  # centre (30, 60), sides 40 × 80
    deltas = np.array([[1.0, -2.0, 3.0, 50.0]])
    means, stds = (0.05, 0.0, 0.05, 0.0), (0.05, 0.1, 0.05, 0.2)
    # dx = 0.05 + 0.05 = 0.1, dy = −0.2, dw = 0.15 + 0.05 = 0.2, dh = min(10, log 62.5)
    w, h = 40 * math.exp(0.2), 80 * 62.5
    x, y = 0.1 * 40 + 30, -0.2 * 80 + 60
    for offset in (0.0, 1.0):
        found = apply_deltas(anchor, deltas, means, stds, offset)
        expected = [x - w / 2, y - h / 2, x + w / 2 - offset, y + h / 2 - offset]
        np.testing.assert_allclose(found, [expected], rtol=1e-12)


def test_what_cannot_change_a_head_says_so():
    def reasons(told):
        return {name: no_effect(name, told) for name in names("boxes")}

    assert not any(reasons(card("yolox")).values())
    assert not any(reasons(card("yolov3")).values())
    decoded = reasons(card("yolox", options={"decoded": True}))
    assert "does not decode box sides by exp" in decoded["exp-fp16"]
    assert "does not decode box sides by exp" in decoded["exp-clamp"]
    assert "does not decode box sides by exp" in reasons(card("nanodet"))["exp-fp16"]
    assert reasons(card("anchors"))["exp-fp16"] == ""
    assert "already" in reasons(card("anchors"))["exp-clamp"]
    inside = reasons(card("boxes"))
    assert "cannot be replaced" in inside["nms-inclusive"]
    assert inside["offset"] == inside["round-floor"] == ""
    assert "one box" in reasons(card("landmark", classes=("a", "b")))["nms-plus-one"]


def test_an_option_without_effect_changes_nothing():
    told = card("yolox", options={"decoded": True})
    raw = cells((2, 3, 20.3, 20.1, 10.7, 11.1, 0.9), (3, 3, 24.3, 20.1, 10.7, 11.1, 0.8))
    plain = run(raw, told)
    for name in names("boxes"):
        if no_effect(name, told):
            np.testing.assert_array_equal(run(raw, told, name).boxes, plain.boxes)
    assert exp_of(told) == ""


@settings(max_examples=30, deadline=None)
@given(st.sets(st.sampled_from(sorted(names("boxes")))), st.integers(0, 10**6))
def test_any_combination_gives_boxes_that_can_be_scored(chosen, seed):
    rng = np.random.default_rng(seed)
    raw = {"y": rng.normal(0.3, 1.5, (1, 64, 6)).astype(np.float32)}
    found = run(raw, card(), *sorted(chosen))
    assert (found.boxes[:, 2:] >= found.boxes[:, :2]).all()
    assert np.isfinite(found.boxes).all()


def test_options_are_noises_that_can_be_sent_to_workers_and_named():
    pipeline = Pipeline()
    for name in names("boxes"):
        pipeline = option(f"boxes={name}").noise(pipeline)
    assert isinstance(pipeline.post, BoxPostProcessing)
    assert pipeline.post.offset
    assert pipeline.post.exp_half
    assert pickle.loads(pickle.dumps(pipeline)) == pipeline  # noqa: S301 - our own bytes
    prints = {fingerprint.of(option(f"boxes={name}").noise(Pipeline()).post) for name in names("boxes")}
    assert len(prints) == len(names("boxes"))
    assert option("boxes=offset").paper
    assert not option("boxes=round-floor").paper
