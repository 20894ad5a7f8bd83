"""YOLOv3, FastestDet, NanoDet, YOLOX: known boxes are written into raw tensors and must come back."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.errors import CardError
from holdfast.core.model import Card, Head, Input
from holdfast.core.registry import part
from holdfast.core.types import Size
from holdfast.graph.card import numbered

SIZE = (96, 64)
K = 3
box_at = st.tuples(
    st.floats(3, 93),
    st.floats(3, 61),
    st.floats(2, 60),
    st.floats(2, 60),
    st.floats(0.05, 0.99),
    st.integers(0, K - 1),
)


def card(head, score=0.04, classes=K, **options):
    return Card("detect", Input(Size(*SIZE)), Head(head, options), numbered(classes), score=score)


def run(raw, wanted):
    return part("head", wanted.head.name).function(raw, wanted)


def logit(p):
    return np.log(p / (1 - p))


def check(found, truth, tolerance=1e-4):
    cx, cy, w, h, score, label = truth
    assert len(found) == 1
    assert np.abs(found.boxes[0] - [cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2]).max() < tolerance
    assert abs(found.scores[0] - score) < 1e-6
    assert found.classes[0] == label


ANCHORS = (((10, 14), (23, 27)), ((40, 30), (50, 60)))
STRIDES = (16, 32)


def yolov3_maps(truth, scale, anchor, scale_xy):
    """Two maps in which only the cell of the truth has an object, of the given scale and anchor."""
    cx, cy, w, h, score, label = truth
    maps = [np.full((1, 2, 5 + K, SIZE[1] // s, SIZE[0] // s), -20.0) for s in STRIDES]
    x, y = int(cx // STRIDES[scale]), int(cy // STRIDES[scale])
    cell = maps[scale][0, anchor, :, y, x]
    inside = np.array([cx / STRIDES[scale] - x, cy / STRIDES[scale] - y])
    # A centre on the border of a cell has no finite logit: the reach of scale_xy gives it one.
    cell[:2] = logit(np.clip((inside + 0.5 * (scale_xy - 1)) / scale_xy, 1e-9, 1 - 1e-9))
    cell[2:4] = np.log(np.array([w, h]) / ANCHORS[scale][anchor])
    cell[4], cell[5 + label] = logit(np.sqrt(score)), logit(np.sqrt(score))
    return [m.reshape(1, -1, *m.shape[3:]) for m in maps]


@settings(max_examples=60, deadline=None)
@given(
    box_at,
    st.integers(0, 1),
    st.integers(0, 1),
    st.sampled_from([1.0, 1.05]),
    st.sampled_from(["nchw", "nhwc", "5d"]),
    st.booleans(),
)
def test_yolov3_round_trip(truth, scale, anchor, scale_xy, layout, by_name):
    maps = yolov3_maps(truth, scale, anchor, scale_xy)
    if layout == "nhwc":
        maps = [m.transpose(0, 2, 3, 1) for m in maps]
    if layout == "5d":
        maps = [m.reshape(1, 2, 5 + K, *m.shape[2:]).transpose(0, 1, 3, 4, 2) for m in maps]
    raw = {"large": maps[1], "small": maps[0]}  # the model's order is not the card's
    how = {"outputs": ("small", "large")} if by_name else {"strides": STRIDES}
    options = {"scale_xy": (scale_xy, scale_xy)} if scale_xy != 1 else {}
    check(run(raw, card("yolov3", anchors=ANCHORS, **how, **options)), truth)


def test_yolov3_gives_all_classes_or_the_best():
    (small, large) = yolov3_maps((20, 20, 10, 10, 0.64, 1), 0, 0, 1.0)
    small.reshape(1, 2, 5 + K, 4, 6)[0, 0, 7, 1, 1] = logit(0.5)
    raw = {"a": small, "b": large}
    both = run(raw, card("yolov3", anchors=ANCHORS))
    assert sorted(zip(both.classes.tolist(), both.scores.round(6).tolist(), strict=True)) == [
        (1, 0.64),
        (2, 0.4),
    ]
    assert run(raw, card("yolov3", anchors=ANCHORS, multi_label=False)).classes.tolist() == [1]
    assert len(run(raw, card("yolov3", score=0.7, anchors=ANCHORS))) == 0


def test_yolov3_takes_maps_one_cell_larger():
    """A pool in ceil mode makes a map larger; its cells stay where they were."""
    small, large = yolov3_maps((20, 20, 10, 10, 0.64, 1), 0, 0, 1.0)
    grown = np.full((1, 2 * (5 + K), 5, 7), -20.0)
    grown[:, :, :4, :6] = small
    check(run({"a": grown, "b": large}, card("yolov3", anchors=ANCHORS)), (20, 20, 10, 10, 0.64, 1))


def test_extreme_outputs_stay_finite():
    small, large = yolov3_maps((20, 20, 10, 10, 0.64, 1), 0, 0, 1.0)
    found = run({"a": np.full_like(small, 1e4), "b": large}, card("yolov3", anchors=ANCHORS))
    assert np.isfinite(found.boxes).all()


@pytest.mark.parametrize(
    ("options", "classes", "told"),
    [
        (
            {"anchors": ANCHORS},
            4,
            r"output 'a' \(1, 16, 4, 6\): expected 2 anchors × \(5 \+ 4 classes\) = 18 channels; correct",
        ),
        ({"anchors": ANCHORS[:1]}, 3, "the card lists them for 1 outputs, the model has 2: 'a'"),
        ({"anchors": ANCHORS, "outputs": ("a", "c")}, 3, "no output is named 'c'; the model has 'a'"),
        ({"anchors": ANCHORS, "strides": (8,)}, 3, "strides: expected 2 numbers, one per output"),
        (
            {"anchors": ANCHORS, "strides": (8, 16)},
            3,
            r"expected a map of stride 8 of the 96×64 input, got 6×4 cells",
        ),
        ({"anchors": (((1, 2, 3), (1, 2)),) * 2}, 3, r"expected \[width, height\] pairs"),
        ({}, 3, "head.anchors: missing; give a list of lists of lists of numbers"),
        ({"anchors": ANCHORS, "scale": 2}, 3, "head.scale: unknown field; did you mean 'scale_xy'"),
    ],
)
def test_yolov3_wrong_cards(options, classes, told):
    small, large = yolov3_maps((20, 20, 10, 10, 0.64, 1), 0, 0, 1.0)
    with pytest.raises(CardError, match=told) as caught:
        run({"a": small, "b": large}, card("yolov3", classes=classes, **options))
    assert str(caught.value).startswith("head 'yolov3': ")


@settings(max_examples=40, deadline=None)
@given(box_at)
def test_fastestdet_round_trip(truth):
    cx, cy, w, h, score, label = truth
    raw = np.zeros((1, 5 + K, 4, 6))
    cell = raw[0, :, int(cy // 16), int(cx // 16)]
    cell[0] = score
    cell[1:3] = np.arctanh([cx / 16 - int(cx // 16), cy / 16 - int(cy // 16)])
    cell[3:5] = logit(np.array([w / 96, h / 64]))
    cell[5 + label] = score
    check(run({"o": raw}, card("fastestdet")), truth)


@settings(max_examples=40, deadline=None)
@given(
    box_at,
    st.integers(0, 2),
    st.sampled_from([0.5, 0.0]),
    st.sampled_from(["none", "sigmoid"]),
    st.booleans(),
)
def test_nanodet_round_trip(truth, level, centre, activation, joined):
    cx, cy, w, h, score, label = truth
    strides, bins = (8, 16, 32), 9
    stride = strides[level]
    quiet = -20.0 if activation == "sigmoid" else 0.0
    cells = [(SIZE[1] // s) * (SIZE[0] // s) for s in strides]
    scores = [np.full((1, n, K), quiet) for n in cells]
    sides = [np.zeros((1, n, 4 * bins)) for n in cells]
    x, y = int(cx // stride), int(cy // stride)
    row = y * (SIZE[0] // stride) + x
    scores[level][0, row, label] = logit(score) if activation == "sigmoid" else score
    centres = (np.array([x, y]) + centre) * stride
    box = np.array([cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2])
    far = np.concatenate([centres - box[:2], box[2:] - centres]) / stride
    if far.min() < 0 or far.max() > bins - 1:
        return  # the cell cannot tell of this box
    for side, d in enumerate(far):  # a distribution over the two bins around d has d as its mean
        low = min(int(d), bins - 2)
        spread = sides[level][0, row].reshape(4, bins)[side]
        spread[:] = -40.0
        spread[low], spread[low + 1] = np.log(max(1 - (d - low), 1e-12)), np.log(max(d - low, 1e-12))
    options = {"centre": centre, "activation": activation}
    raw = {f"o{i}": t for i, t in enumerate([*sides, *scores])}
    if joined:
        raw = {"o": np.concatenate([np.concatenate(scores, 1), np.concatenate(sides, 1)], 2)}
    check(run(raw, card("nanodet", **options)), truth)


def test_nanodet_finds_nothing_in_a_quiet_level():
    raw = {"s": np.zeros((1, 24, K)), "b": np.zeros((1, 24, 32))}
    assert len(run(raw, card("nanodet", strides=(16,)))) == 0


@pytest.mark.parametrize(
    ("shapes", "told"),
    [
        ({"s": (1, 24, 4), "b": (1, 24, 32)}, r"expected scores \(1, cells, 3 classes\) and bins"),
        ({"s": (1, 25, 3), "b": (1, 25, 32)}, "25 cells are not those of stride 16 of a 96×64 input"),
    ],
)
def test_nanodet_wrong_cards(shapes, told):
    with pytest.raises(CardError, match=told):
        run({n: np.zeros(s) for n, s in shapes.items()}, card("nanodet", strides=(16,)))


@settings(max_examples=40, deadline=None)
@given(box_at, st.integers(0, 2), st.sampled_from(["none", "sigmoid"]), st.booleans())
def test_yolox_round_trip(truth, level, activation, decoded):
    cx, cy, w, h, score, label = truth
    strides = (8, 16, 32)
    stride = strides[level]
    counts = [(SIZE[1] // s) * (SIZE[0] // s) for s in strides]
    quiet = -20.0 if activation == "sigmoid" else 0.0
    raw = np.full((1, sum(counts), 5 + K), quiet)
    x, y = int(cx // stride), int(cy // stride)
    cell = raw[0, sum(counts[:level]) + y * (SIZE[0] // stride) + x]
    cell[:4] = (
        [cx, cy, w, h]
        if decoded
        else [cx / stride - x, cy / stride - y, np.log(w / stride), np.log(h / stride)]
    )
    value = logit(np.sqrt(score)) if activation == "sigmoid" else np.sqrt(score)
    cell[4], cell[5 + label] = value, value
    check(run({"o": raw}, card("yolox", activation=activation, decoded=decoded)), truth)


def test_yolox_wrong_cards():
    with pytest.raises(CardError, match=r"expected \(1, cells, 5 \+ 3 classes\); correct `classes`"):
        run({"o": np.zeros((1, 126, 85))}, card("yolox"))
    with pytest.raises(CardError, match=r"120 cells are not those of strides \[8, 16, 32\] of a 96×64 input"):
        run({"o": np.zeros((1, 120, 8))}, card("yolox"))
    with pytest.raises(CardError, match=r"expected one output, got 2.*name it in the card"):
        run({"o": np.zeros((1, 126, 8)), "p": np.zeros((1, 1))}, card("yolox"))
    with pytest.raises(CardError, match="expected a batch of one image"):
        run({"o": np.zeros((2, 126, 8))}, card("yolox"))
