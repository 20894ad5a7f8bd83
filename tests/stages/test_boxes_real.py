"""Box options on a real detector: what each may move, and by how much."""

import numpy as np
import pytest

from holdfast.core.pipeline import load_pipeline, pipeline_of
from holdfast.core.registry import names, part
from holdfast.data.open import open_dataset
from holdfast.graph.load import load_model
from holdfast.stages.post import BoxPostProcessing, by_card, no_effect


@pytest.fixture(scope="module")
def seen(shared_data):
    """The card of yolox_nano, and raw outputs and frames of four images."""
    model = load_model(shared_data / "models" / "yolox_nano.onnx")
    machine = load_pipeline(pipeline_of(model.card), model, 1)
    made = [machine.prepare(e.load().data) for e in open_dataset(shared_data / "coco128").entries[:4]]
    return model.card, [(machine.run(p.tensor), p.frame) for p in made]


def best(found):
    """The detections that are sure, which no option makes or unmakes here."""
    return found.take(found.scores >= 0.5)


def test_each_option_moves_what_it_may(seen):
    card, images = seen
    sure = 0
    for raw, frame in images:
        plain = best(by_card(raw, frame, card))
        sure += len(plain)
        sides = np.tile(plain.boxes[:, 2:] - plain.boxes[:, :2], 2)
        pixel = np.array([1 / frame.scale_x, 1 / frame.scale_y] * 2)
        limits = {
            "offset": np.array([0, 0, 1, 1]) * pixel,
            "exp-fp16": sides * 2e-3,  # binary16: half a unit of 2^−10, of the argument and of the result
            "exp-clamp": 0.0,
            "nms-inclusive": 0.0,
            "nms-plus-one": 0.0,
        }
        for name in names("boxes"):
            assert no_effect(name, card) == ""
            found = best(part("boxes", name).function(BoxPostProcessing())(raw, frame, card))
            assert found.classes.tolist() == plain.classes.tolist(), name
            moved = np.abs(found.boxes - plain.boxes)
            assert (moved <= limits.get(name, pixel) + 1e-9).all(), name
            assert moved.any() == (name in ("offset", "exp-fp16") or name.startswith("round")), name
    assert sure >= 8


def test_no_option_is_the_cards_post_bit_for_bit(seen):
    card, images = seen
    for raw, frame in images:
        ours, cards = BoxPostProcessing()(raw, frame, card), by_card(raw, frame, card)
        np.testing.assert_array_equal(ours.boxes, cards.boxes)
        np.testing.assert_array_equal(ours.scores, cards.scores)
