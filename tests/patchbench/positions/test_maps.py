"""Maps of a model: equal to the user's file run at every position, one by one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.errors import InputError, ModelError
from holdfast.data.open import open_dataset
from holdfast.graph.load import load_model
from holdfast.metrics.boxes import single_values
from holdfast.patchbench.layout import Target
from holdfast.patchbench.positions.models import map_positions, open_detector
from holdfast.patchbench.positions.sweep import SafetyRule
from holdfast.stages.decode.libjpeg import pillow
from holdfast.stages.infer import onnxruntime
from holdfast.stages.normalise import card as normalise
from holdfast.stages.resize.libraries import pillow_bilinear


@pytest.fixture(scope="module")
def detector():
    return open_detector(load_model("signs-single"))


@pytest.fixture(scope="module")
def picture(detector):
    entry = open_dataset("signs:3:8", task="single").entries[1]
    return pillow_bilinear(pillow(entry.load().data), detector.model.card.input.size)


def one_by_one(model, picture, patch, target=None):
    """The map by the plain pipeline: uint8 pixels, the file, the head's own reading."""
    run = onnxruntime(model, 1)

    def says(pixels):
        raw = run(normalise(pixels, model.card.input)[None])
        return raw["box"][0].astype(np.float64), int(np.argmax(raw["scores"]))

    box, label = says(picture) if target is None else (np.array(target.box), target.label)
    k, m = patch.shape[:2]
    found = np.zeros((picture.shape[0] - k + 1, picture.shape[1] - m + 1))
    for row in range(found.shape[0]):
        for column in range(found.shape[1]):
            pixels = picture.copy()
            pixels[row : row + k, column : column + m] = patch
            there, said = says(pixels)
            found[row, column] = single_values([there], [said], [box], [label])[0]
    return found


def test_the_whole_map_is_that_of_the_file(detector, picture):
    patch = np.zeros((30, 30, 3), np.uint8)  # large: some positions are unsafe, 35 × 35 in all
    wanted = one_by_one(detector.model, picture, patch)
    made = map_positions(detector, picture, patch, jobs=2)
    assert made.outputs.shape == (35, 35)
    np.testing.assert_allclose(made.outputs, wanted, atol=2e-6)
    assert (made.unsafe == (wanted <= 0.5)).all()
    assert made.clean == 1.0
    assert made.minimum == pytest.approx(wanted.min(), abs=1e-6)
    assert made.robust == pytest.approx((wanted > 0.5).mean())
    assert made.replayed >= 16
    assert made.difference < 1e-5


@settings(max_examples=6, deadline=None)
@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_any_patch_gives_the_outputs_of_the_file(detector, picture, height, width, seed):
    rng = np.random.default_rng(seed)
    patch = rng.integers(0, 256, (height, width, 3)).astype(np.uint8)
    made = map_positions(detector, picture, patch)
    assert made.how == "batches"
    rows, columns = 65 - height, 65 - width
    assert made.outputs.shape == (rows, columns)
    run = onnxruntime(detector.model, 1)
    target = detector.predict(detector.tensor(picture)[None])
    random = np.stack([rng.integers(0, end, 20) for end in (rows, columns)], axis=1).tolist()
    for row, column in [(0, 0), (0, columns - 1), (rows - 1, 0), (rows - 1, columns - 1), *random]:
        pixels = picture.copy()
        pixels[row : row + height, column : column + width] = patch
        raw = run(normalise(pixels, detector.model.card.input)[None])
        wanted = single_values(raw["box"], [int(np.argmax(raw["scores"]))], [target.box], [target.label])[0]
        assert made.outputs[row, column] == pytest.approx(wanted, abs=2e-6)


def test_a_patch_that_changes_nothing_is_not_run(detector, picture):
    dark = picture.copy()
    dark[:40] = 0
    made = map_positions(detector, dark, np.zeros((5, 5, 3), np.uint8))
    assert made.unchanged == 36 * 60
    assert (made.outputs[:36] == made.clean).all()
    allblack = map_positions(detector, np.zeros((64, 64, 3), np.uint8), np.zeros((5, 5, 3), np.uint8))
    assert allblack.unchanged == 60 * 60
    assert allblack.replayed == 0


def test_a_given_target_and_both_thresholds(detector, picture):
    said = detector.predict(detector.tensor(picture)[None])
    other = Target((said.label + 1) % 3, said.box)
    patch = np.zeros((40, 40, 3), np.uint8)
    made = map_positions(detector, picture, patch, other, SafetyRule(0.0, strict=False))
    assert made.clean == 0.0
    assert made.unsafe[made.outputs == 0].all()
    strict = map_positions(detector, picture, patch, other, SafetyRule(0.0, strict=True))
    assert not strict.unsafe.any()
    assert "< 0" in str(strict.bar)
    assert "≤ 0" in str(made.bar)


def test_bad_input_is_one_line(detector, picture):
    with pytest.raises(InputError, match="at most 64×64"):
        map_positions(detector, picture, np.zeros((65, 65, 3), np.uint8))
    with pytest.raises(InputError, match="expected a picture"):
        map_positions(detector, picture[:32], np.zeros((3, 3, 3), np.uint8))
    with pytest.raises(ModelError, match="task single"):
        open_detector(load_model("signs-class"))
