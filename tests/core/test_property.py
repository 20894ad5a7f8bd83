import numpy as np
import pytest

from holdfast.core.errors import InputError
from holdfast.core.model import Card, Head, Input, Model
from holdfast.core.property import (
    InputBox,
    LinearConstraints,
    PatchAnywhere,
    Property,
    Verdict,
    confirm,
    linf_ball,
)
from holdfast.core.types import Size


def question(tmp_path, threat):
    card = Card("classify", Input(Size(2, 1)), Head("classifier"), ("a", "b"))
    unsafe = (LinearConstraints([[1.0, -1.0]], [0.0]),)  # y0 <= y1
    return Property(Model("m", tmp_path / "m.onnx", card, ""), threat, unsafe)


def found(witness):
    return Verdict("violated", "test", 0.1, witness=np.asarray(witness, np.float32))


def identity(x):
    return {"y": x}


def test_a_witness_that_replays_counts(tmp_path):
    verdict = confirm(question(tmp_path, InputBox(np.zeros(2), np.ones(2))), found([0.25, 0.5]), identity)
    assert verdict.status == "violated"
    assert verdict.replay is not None
    assert verdict.replay.violated


@pytest.mark.parametrize(
    ("witness", "why"),
    [([0.5, 0.25], "the outputs are safe"), ([0.5, 2.0], "outside"), ([0.5, 0.5, 0.5], "shape")],
)
def test_a_witness_that_does_not_replay_is_unknown(tmp_path, witness, why):
    verdict = confirm(question(tmp_path, InputBox(np.zeros(2), np.ones(2))), found(witness), identity)
    assert verdict.status == "unknown"
    assert why in verdict.note


def test_a_witness_float32_cannot_hold_is_unknown(tmp_path):
    witness = np.array([0.1, 0.3], np.float64)
    verdict = confirm(
        question(tmp_path, InputBox(np.zeros(2), np.ones(2))),
        Verdict("violated", "test", 0.1, witness),
        identity,
    )
    assert verdict.status == "unknown"
    assert "float32" in verdict.note


class RuntimesOwn(Exception):
    """As onnxruntime's: below Exception and nothing else."""


@pytest.mark.parametrize("kind", [RuntimeError, KeyError, RuntimesOwn])
def test_an_exception_is_an_error_never_holds(tmp_path, kind):
    def broken(x):
        raise kind("runtime fell over")

    verdict = confirm(question(tmp_path, InputBox(np.zeros(2), np.ones(2))), found([0.25, 0.5]), broken)
    assert verdict.status == "error"
    assert "runtime fell over" in verdict.note


def test_nan_outputs_are_no_violation(tmp_path):
    verdict = confirm(
        question(tmp_path, InputBox(np.zeros(2), np.ones(2))), found([0.25, 0.5]), lambda x: {"y": x * np.nan}
    )
    assert verdict.status == "unknown"


def test_holds_passes_through_untouched(tmp_path):
    holds = Verdict("holds", "test", 0.1, bound=0.5)
    assert confirm(question(tmp_path, InputBox(np.zeros(2), np.ones(2))), holds, identity) is holds


def test_violated_needs_a_witness():
    with pytest.raises(InputError, match="expected a counterexample"):
        Verdict("violated", "test", 0.1)


def test_boxes_say_where_they_are_left():
    with pytest.raises(InputError, match="expected lower <= upper"):
        InputBox(np.ones(2), np.zeros(2))
    ball = linf_ball(np.array([0.0, 1.0]), 0.25, 0.0, 1.0)
    assert ball.lower.tolist() == [0.0, 0.75]
    assert ball.upper.tolist() == [0.25, 1.0]
    assert "at [1]" in ball.excludes(np.array([0.0, 0.5]))


def test_a_patch_may_lie_anywhere_but_only_once():
    image = np.full((3, 8, 8), 0.5)
    threat = PatchAnywhere(image, 2, 3)
    patched = image.copy()
    patched[:, 5:7, 2:5] = 1.0
    assert threat.excludes(patched) == ""
    assert threat.excludes(image) == ""
    patched[0, 0, 0] = 0.0
    assert "larger than 2×3" in threat.excludes(patched)
    bright = image.copy()
    bright[0, 0, 0] = 2.0
    assert "leave [0.0, 1.0]" in threat.excludes(bright)


def test_rows_count_their_outputs():
    with pytest.raises(InputError, match="expected 2 outputs, got 3"):
        LinearConstraints([[1.0, 0.0]], [0.0]).slack(np.zeros(3))


def test_a_patch_on_an_image_float32_cannot_hold():
    image = np.full((3, 8, 8), 0.1)
    witness = image.astype(np.float32)
    witness[:, 2:4, 2:4] = 0.5
    assert PatchAnywhere(image, 2, 2).excludes(witness) == ""
    witness[0, 7, 7] = 0.5
    assert "larger than 2×2" in PatchAnywhere(image, 2, 2).excludes(witness)
