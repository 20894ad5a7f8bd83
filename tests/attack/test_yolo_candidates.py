"""YOLOv3's and YOLOX's candidates: thresholded, they are what the numpy heads find."""

import numpy as np
import pytest
import torch

from holdfast.attack.gradient.candidates import candidates_of, odds_of_two_logits
from holdfast.core.errors import CardError
from holdfast.core.model import Card, Head, Input
from holdfast.core.registry import part
from holdfast.core.types import Size
from holdfast.graph.card import numbered

K, SIZE = 3, Size(64, 32)
ANCHORS = [[[10, 14], [23, 27]], [[37, 58], [81, 82]]]


def maps(rng, layout="nchw"):
    made = [rng.normal(0, 1.5, (1, 2 * (5 + K), h, w)) for h, w in ((2, 4), (1, 2))]
    if layout == "nhwc":
        made = [m.transpose(0, 2, 3, 1) for m in made]
    if layout == "split":
        made = [m.reshape(1, 2, 5 + K, *m.shape[2:]).transpose(0, 1, 3, 4, 2) for m in made]
    return {f"o{i}": m for i, m in enumerate(made)}


def cells(rng):
    count = 8 * 4 + 4 * 2 + 2 * 1
    made = rng.normal(0, 1, (1, count, 5 + K))
    made[:, :, 4:] = 1 / (1 + np.exp(-2 * made[:, :, 4:]))
    return {"o": made}


CASES = {
    "maps": ("yolov3", maps, {"anchors": ANCHORS}),
    "rows last": ("yolov3", lambda r: maps(r, "nhwc"), {"anchors": ANCHORS}),
    "anchors first": ("yolov3", lambda r: maps(r, "split"), {"anchors": ANCHORS, "scale_xy": [1.05, 1.2]}),
    "by stride": ("yolov3", maps, {"anchors": ANCHORS[::-1], "strides": [32, 16]}),
    "yolox": ("yolox", cells, {"multi_label": True}),
    "yolox logits": ("yolox", cells, {"multi_label": True, "activation": "sigmoid"}),
    "yolox decoded": ("yolox", cells, {"multi_label": True, "decoded": True}),
}


@pytest.mark.parametrize("case", CASES)
def test_as_the_head_finds_them(case):
    name, make, options = CASES[case]
    card = Card("detect", Input(SIZE), Head(name, options), numbered(K), score=0.3)
    raw = make(np.random.default_rng(4))
    said = part("head", name).function(raw, card)
    batch = {k: torch.tensor(np.concatenate([v, v])) for k, v in raw.items()}
    found = candidates_of(card)(batch, card)
    index, classes = (found.scores[1] >= card.score).nonzero(as_tuple=True)
    ours = np.column_stack([found.boxes[1, index], found.scores[1, index, classes], classes])
    theirs = np.column_stack([said.boxes, said.scores, said.classes])
    assert len(theirs) == len(ours) > 3
    order = [np.lexsort(rows.T) for rows in (ours, theirs)]
    assert np.allclose(ours[order[0]], theirs[order[1]], atol=1e-6)
    odds = torch.log(found.scores) - torch.log1p(-found.scores)
    assert torch.allclose(found.energy, odds, atol=1e-4)


def test_energy_has_a_slope_where_scores_are_flat():
    logits = torch.tensor([40.0, -60.0, 0.0, -150.0], requires_grad=True)
    energy = odds_of_two_logits(logits, torch.tensor([30.0, 50.0, 0.0, -120.0]))
    (slope,) = torch.autograd.grad(energy.sum(), logits)
    assert torch.isfinite(energy).all()
    assert torch.isfinite(slope).all()
    assert energy[3].item() == -270.0
    assert energy[2].item() == pytest.approx(-np.log(3))
    assert slope[1].item() == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("shape", [(1, 42, 5), (1, 41, 5 + K)])
def test_a_wrong_card_is_told(shape):
    card = Card("detect", Input(SIZE), Head("yolox"), numbered(K))
    with pytest.raises(CardError, match="yolox"):
        candidates_of(card)({"o": torch.zeros(shape)}, card)
