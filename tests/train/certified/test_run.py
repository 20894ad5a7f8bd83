"""`holdfast train certified`: examples, batches, stages, and the file that it writes."""

import itertools
import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from holdfast.data.open import open_dataset  # noqa: E402
from holdfast.graph.load import load_model  # noqa: E402
from holdfast.train.certified import run  # noqa: E402


@pytest.fixture(scope="module")
def examples():
    data = open_dataset("signs:1:6", task="single")
    return run.read_examples(data, run.card_of(data.classes))


def test_examples_are_what_the_network_sees(examples):
    assert examples.images.shape == (6, 64, 64, 3)
    assert ((examples.boxes[:, :2] < examples.boxes[:, 2:]) & (examples.boxes >= 0).all(1)[:, None]).all()
    assert set(examples.labels.tolist()) <= {0, 1, 2}


def test_batches_move_boxes_with_their_images_and_mark_one_patch_each(examples):
    stage = run.PatchStage("p", 1, 40, 0, 1e-3, 1e-3, patch=3, weight=0.4)
    images, boxes, _labels, patch, weight = run.draw_batch(examples, stage, np.random.default_rng(0))
    assert images.shape == (40, 3, 64, 64)
    assert 0 <= float(images.min()) <= float(images.max()) <= 1
    assert ((boxes >= -1e-6) & (boxes <= 1 + 1e-6)).all()
    assert patch.sum((1, 2, 3)).tolist() == [9] * 40
    assert float(weight) == pytest.approx(0.4)
    again = run.draw_batch(examples, stage, np.random.default_rng(0))
    assert torch.equal(images, again[0])
    # The picture under the moved box is the picture under the first one.
    index = np.random.default_rng(0).integers(6, size=40)
    shift = (boxes.numpy() - examples.boxes[index])[:, :2] * 64
    np.testing.assert_allclose(shift, shift.round(), atol=1e-4)
    for at in range(5):
        right, down = shift[at].round().astype(int)
        source = examples.images[index[at]].astype(np.float64).mean(2)[16:48, 16:48]
        moved = images[at].numpy().mean(0)[16 + down : 48 + down, 16 + right : 48 + right]
        assert np.corrcoef(source.ravel(), moved.ravel())[0, 1] > 0.99


def test_stages_grow_the_patch_and_the_weight_while_the_rate_falls():
    plan = run.stages(1600, 5, 32, 2e-3)
    assert sum(stage.steps for stage in plan) == 1600
    assert [stage.patch for stage in plan] == [0, 2, 4, 5, 5, 5]
    assert [stage.weight for stage in plan] == sorted(stage.weight for stage in plan)
    assert all(stage.high > stage.low for stage in plan)
    assert all(a.low == pytest.approx(b.high) for a, b in itertools.pairwise(plan))


def test_command_writes_a_detector_with_its_card_and_figures(holdfast, tmp_path):
    words = (
        "signs:1:24",
        "--steps",
        8,
        "--batch",
        4,
        "--held-out",
        0.25,
        "-o",
        "new.onnx",
        "--json",
        "r.json",
    )
    done = holdfast("train", "certified", *words)
    assert done.code == 0, done
    assert "positions bounded" in done.out
    assert "Next: holdfast patchbench certify new.onnx signs:2:24 --patch 3\n" in done.out
    result = json.loads((tmp_path / "r.json").read_text())
    assert (result["trained_on"], result["tested_on"], result["patch"]) == (18, 6, 3)
    model = load_model(tmp_path / "new.onnx")
    assert model.card.task == "single"
    assert model.card.classes == ("mandatory", "prohibitory", "warning")
    before = model.sha256
    assert holdfast("train", "certified", *words).code == 0
    assert load_model(tmp_path / "new.onnx").sha256 == before
    evaluated = holdfast("evaluate", "new.onnx", "signs:1:2")
    assert evaluated.code == 0, evaluated


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["signs:1:4", "-o", "new.txt"], "expected the name of a new .onnx file"),
        (["signs:1:4", "-o", "new.onnx", "--held-out", "1"], "expected a share between 0 and 1"),
        (["signs:1:4", "-o", "new.onnx", "--patch", "17"], "--patch"),
    ],
)
def test_bad_input_is_one_line(holdfast, words, said):
    done = holdfast("train", "certified", *words)
    assert done.code == 2
    assert said in done.err
