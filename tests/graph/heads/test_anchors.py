"""Anchors and deltas: the equations of the SysNoise appendix, forwards and back."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.errors import CardError
from holdfast.core.model import Card, Head, Input
from holdfast.core.registry import part
from holdfast.core.types import Size
from holdfast.graph.candidates import apply_deltas, base_anchors, spread
from holdfast.graph.card import numbered

K = 3
STRIDES, RATIOS, SCALES = (16, 32), (0.5, 1.0), (1.0, 2.0)
MEANS, STDS = (0.0, 0.01, 0.0, 0.0), (0.1, 0.1, 0.2, 0.2)
GEOMETRY = {"strides": STRIDES, "ratios": RATIOS, "scales": SCALES, "means": MEANS, "stds": STDS}


def card(score=0.05, classes=K, **options):
    return Card("detect", Input(Size(96, 64)), Head("anchors", options), numbered(classes), score=score)


def run(raw, wanted):
    return part("head", "anchors").function(raw, wanted)


def all_anchors(size_of, major="ratios"):
    parts = []
    for stride in STRIDES:
        base = []
        outer, inner = (RATIOS, SCALES) if major == "ratios" else (SCALES, RATIOS)
        for a in outer:
            for b in inner:
                ratio, scale = (a, b) if major == "ratios" else (b, a)
                w, h = size_of(stride) * scale / math.sqrt(ratio), size_of(stride) * scale * math.sqrt(ratio)
                base.append([w, h])
        for y in range(64 // stride):
            for x in range(96 // stride):
                parts += [
                    [x * stride - w / 2, y * stride - h / 2, x * stride + w / 2, y * stride + h / 2]
                    for w, h in base
                ]
    return np.array(parts)


def encode(anchor, box, offset):
    """Deltas that turn the anchor into the box: the appendix's equations solved for them."""
    side = anchor[2:] - anchor[:2]
    wanted = box[2:] + offset - box[:2]
    centre = (box[:2] + box[2:] + offset) / 2
    d = np.concatenate([(centre - (anchor[:2] + anchor[2:]) / 2) / side, np.log(wanted / side)])
    return (d - MEANS) / STDS


@settings(max_examples=60, deadline=None)
@given(
    st.tuples(st.floats(0, 90), st.floats(0, 60), st.floats(4, 60), st.floats(4, 60)),
    st.integers(0, 119),
    st.sampled_from([0.0, 1.0]),
    st.sampled_from(["flat", "maps"]),
    st.sampled_from(["ratios", "scales"]),
    st.booleans(),
)
def test_round_trip(place, row, offset, form, major, sized):
    x, y, w, h = place
    box = np.array([x, y, x + w, y + h])
    anchors = all_anchors((lambda s: 3.0 * s) if sized else (lambda s: 4.0 * s), major)
    assert len(anchors) == 120  # (4·6 + 2·3) cells × 4
    scores, deltas = np.full((120, K), -20.0), np.zeros((120, 4))
    scores[row, 1] = np.log(0.7 / 0.3)
    deltas[row] = encode(anchors[row], box, offset)
    options = {**GEOMETRY, "offset": offset, "major": major}
    options |= {"sizes": (48.0, 96.0)} if sized else {}
    if form == "flat":
        raw = {"d": deltas[None], "s": scores[None]}
    else:
        raw = {}
        for name, rows in (("d", deltas), ("s", scores)):
            for i, (part_rows, shape) in enumerate(((rows[:96], (4, 6)), (rows[96:], (2, 3)))):
                grid = part_rows.reshape(*shape, 4, -1).transpose(2, 3, 0, 1)
                raw[f"{name}{i}"] = grid.reshape(1, -1, *shape)
    found = run(raw, card(**options, **({"outputs": ("s", "d")} if form == "flat" else {})))
    assert len(found) == 1
    assert np.abs(found.boxes[0] - box).max() < 1e-4
    assert found.scores[0] == pytest.approx(0.7)
    assert found.classes.tolist() == [1]


def test_the_offset_moves_only_the_right_and_lower_side():
    anchor, deltas = np.array([[10.0, 10, 30, 50]]), np.array([[0.1, -0.2, 0.3, 0.1]])
    plain = apply_deltas(anchor, deltas, [0] * 4, [1] * 4, 0.0)
    assert apply_deltas(anchor, deltas, [0] * 4, [1] * 4, 1.0) - plain == pytest.approx(
        np.array([[0, 0, -1, -1]])
    )


def test_sides_are_clamped_at_1000_over_16():
    got = apply_deltas(np.array([[0.0, 0, 16, 16]]), np.array([[0, 0, 99.0, 99.0]]), [0] * 4, [1] * 4, 0.0)
    assert got[0, 2] - got[0, 0] == pytest.approx(1000)


def test_whole_anchors_and_their_centres():
    base = base_anchors(32, [0.5], [1.0], "ratios", whole=True)
    assert base.tolist() == [[-23, -11, 23, 11]]
    assert spread(base, 1, 2, 8, 0.5)[1].tolist() == [12 - 23, 4 - 11, 12 + 23, 4 + 11]


@pytest.mark.parametrize("background", ["first", "last"])
@pytest.mark.parametrize("own", [True, False])
def test_faster_rcnn_over_proposals(background, own):
    """Softmax with a background, and deltas of each class of its own."""
    proposals = np.array([[10.0, 10, 50, 50], [0, 0, 8, 8]])
    scores = np.zeros((2, K + 1))
    column = 2 if background == "first" else 1  # class 1
    scores[0, column] = 9.0
    scores[1, 0 if background == "first" else K] = 9.0  # nothing there
    deltas = np.zeros((2, K + 1, 4))
    deltas[0, column] = [1.0, 0, 0, 0]  # · std 0.1 · width 40 = 4 pixels to the right
    deltas = deltas.reshape(2, -1) if own else deltas[:, column]
    raw = {"rois": proposals, "cls": scores, "reg": deltas}
    options = {"proposals": "rois", "activation": "softmax", "background": background, "stds": STDS}
    found = run(raw, card(outputs=("cls", "reg"), **options))
    assert found.boxes == pytest.approx(np.array([[14, 10, 54, 50]]))
    assert found.classes.tolist() == [1]
    assert (
        len(run({**raw, "cls": np.zeros((2, K + 1))}, card(score=0.5, outputs=("cls", "reg"), **options)))
        == 0
    )


@pytest.mark.parametrize(
    ("options", "classes", "told"),
    [
        ({}, 4, r"expected 4 scores and 4 deltas for each of 4 anchors per cell, got 's' \(1, 120, 3\)"),
        ({"strides": (8, 16)}, 3, r"120 anchors are not 4 per cell at strides \[8, 16\] of a 96×64 input"),
        ({"means": (0.0,)}, 3, "means: expected 4 numbers for x y w h"),
        ({"sizes": (1.0,)}, 3, "sizes: expected 2, one for each stride"),
        ({"proposals": "rois"}, 3, "no output is named 'rois'"),
    ],
)
def test_wrong_cards(options, classes, told):
    raw = {"s": np.zeros((1, 120, 3)), "d": np.zeros((1, 120, 4))}
    with pytest.raises(CardError, match=told):
        run(raw, card(classes=classes, **{**GEOMETRY, **options}))
