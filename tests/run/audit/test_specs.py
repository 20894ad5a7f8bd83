"""Specifications in an audit: decided on the user's file, asked of other runtimes on their own outputs."""

import numpy as np
import pytest
from onnx import TensorProto, helper

import making
from holdfast.core.errors import InputError
from holdfast.core.pipeline import pipeline_of
from holdfast.core.verdict import Verdict
from holdfast.graph.load import load_model
from holdfast.noise.families import option
from holdfast.run.audit.specs import decided, recheck_specs, specs
from holdfast.run.store import Store
from holdfast.stages.infer import onnxruntime
from holdfast.verify import decide

SIDE, INPUTS = 2, 12
LONG = 300.0  # seconds: the first proof loads the engines, on a busy machine slowly


@pytest.fixture
def model(tmp_path):
    """Bright (class 1) if the mean over 3×2×2 inputs is over one half: Y_1 − Y_0 = 6 · mean − 3."""
    weights = {"w": np.array([[-1.0] * 3, [1.0] * 3], np.float32).T, "b": np.array([1.5, -1.5], np.float32)}
    nodes = [
        helper.make_node("GlobalAveragePool", ["x"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "w", "b"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, SIDE, SIDE])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 2])
    path = making.save_graph(tmp_path / "net.onnx", nodes, [x], [y], weights)
    path.with_suffix(".toml").write_text(making.CLASS_CARD.replace("[16, 16]", f"[{SIDE}, {SIDE}]"))
    return load_model(path)


def spec(path, low, high=1.0, inputs=INPUTS):
    """A file that asks whether Y_0 ≥ Y_1 (dark) anywhere in the box."""
    names = [*(f"X_{i}" for i in range(inputs)), "Y_0", "Y_1"]
    lines = [f"(declare-const {name} Real)" for name in names]
    lines += [f"(assert (>= X_{i} {low}))(assert (<= X_{i} {high}))" for i in range(inputs)]
    path.write_text("\n".join([*lines, "(assert (>= Y_0 Y_1))"]))
    return path


@pytest.fixture
def both(tmp_path):
    return [spec(tmp_path / "bright.vnnlib", 0.6), spec(tmp_path / "any.vnnlib", 0.3)]


def changed(pipeline, change, name="odd"):
    """The pipeline with an infer stage that changes the outputs of some inputs."""

    def infer(model, threads=0):
        run = onnxruntime(model, threads)
        return lambda tensor: {key: change(tensor, value) for key, value in run(tensor).items()}

    return pipeline.replace(infer=infer)


def test_each_specification_has_its_answer_and_its_command(model, both):
    holds, violated = specs(model, both, LONG)
    assert (holds.threat, holds.image, holds.answer) == ("bright.vnnlib", "", "holds")
    assert (violated.threat, violated.answer) == ("any.vnnlib", "violated")
    assert holds.engine and violated.engine  # noqa: PT018
    assert "holdfast verify" in holds.command
    assert str(both[0]) in holds.command


def test_no_time_and_failures_are_unknown_never_holds(model, both, monkeypatch):
    for status in ("unknown", "timeout", "error"):
        monkeypatch.setattr(decide, "_decided", lambda *given, s=status: Verdict(s, "none", 0.0, note="why"))
        assert {one.answer for one in specs(model, both, 1)} == {"unknown"}

    def failing(*given):
        raise KeyError("nobody foresaw this")

    monkeypatch.setattr(decide, "_decided", failing)
    (one, _) = specs(model, both, 1)
    assert one.answer == "unknown"
    assert "failed" in one.note
    assert "nobody foresaw this" in one.note


def test_a_file_of_another_network_is_refused_before_anything_is_decided(model, both, tmp_path, monkeypatch):
    monkeypatch.setattr(decide, "verify", lambda *given: pytest.fail("something was decided"))
    with pytest.raises(InputError, match="12"):
        specs(model, [*both, spec(tmp_path / "other.vnnlib", 0.5, inputs=5)], 10)
    with pytest.raises(InputError, match="twice"):
        specs(model, [both[0], both[0]], 10)


def test_what_was_decided_is_not_asked_again_and_keeps_its_witness(model, both, tmp_path, monkeypatch):
    store = Store(tmp_path / "cells")
    first = decided(model, both, LONG, store=store)
    monkeypatch.setattr(decide, "verify", lambda *given: pytest.fail("asked again"))
    again = decided(model, both, LONG, store=store)
    assert [one.proof for one in again] == [one.proof for one in first]
    assert again[0].witness is None
    assert again[1].witness.shape == (1, 3, SIDE, SIDE)
    assert np.array_equal(again[1].witness, first[1].witness)


def test_what_was_not_decided_is_asked_again(model, both, tmp_path, monkeypatch):
    store = Store(tmp_path / "cells")
    with monkeypatch.context() as patch:
        patch.setattr(decide, "_decided", lambda *given: Verdict("timeout", "none", 0.0))
        decided(model, both, 1, store=store)
    assert [one.proof.answer for one in decided(model, both, LONG, store=store)] == ["holds", "violated"]


def test_a_witness_is_replayed_and_a_box_that_holds_stays_open(model, both):
    answers = decided(model, both, LONG)
    clean = pipeline_of(model.card)
    same = changed(clean, lambda tensor, value: value)
    rows = recheck_specs(model, answers, {"runtime=same": same}, LONG, points=30)
    assert [(r.threat, r.was, r.now) for r in rows] == [
        ("bright.vnnlib", "holds", "unknown"),
        ("any.vnnlib", "violated", "violated"),
    ]
    assert rows[0].tried == 30
    assert rows[1].tried == 1
    assert "the witness" in rows[1].note
    assert not any(r.finding for r in rows)


def test_a_box_that_breaks_elsewhere_is_a_finding(model, both):
    answers = decided(model, both[:1], LONG)

    def off(tensor, value):
        return value + np.array([[0.7, 0.0]], np.float32) if tensor.mean() < 0.605 else value

    (row,) = recheck_specs(model, answers, {"precision=odd": changed(pipeline_of(model.card), off)}, 20)
    assert (row.was, row.now, row.finding) == ("holds", "violated", True)
    assert 1 <= row.tried <= 3  # the lower corner is among the first


def test_steps_from_the_nearest_point_find_what_chance_does_not(model, both):
    """One corner of 4096 breaks it, and every input that is nearer to it is nearer to breaking it."""
    answers = decided(model, both[:1], LONG)
    corner = np.array([0.6, 1.0] * 6, np.float32).reshape(1, 3, SIDE, SIDE)

    def near(tensor, value):
        away = np.abs(tensor - corner).sum()
        return np.array([[0.0, away - 0.01]], np.float32)

    odd = changed(pipeline_of(model.card), near)
    (row,) = recheck_specs(model, answers, {"precision=odd": odd}, 60, points=2000)
    assert row.now == "violated"
    (few,) = recheck_specs(model, answers, {"precision=odd": odd}, 60, points=5)
    assert (few.now, few.tried) == ("unknown", 5)


def test_a_witness_that_fails_elsewhere_leaves_it_open(model, both):
    answers = decided(model, both[1:], LONG)
    safe = changed(pipeline_of(model.card), lambda tensor, value: np.array([[0.0, 9.0]], np.float32))
    (row,) = recheck_specs(model, answers, {"precision=safe": safe}, LONG, points=10)
    assert (row.was, row.now, row.tried) == ("violated", "unknown", 10)
    assert "the witness does not break it there" in row.note


def test_doubts_of_a_runtime_leave_it_open(model, both):
    answers = decided(model, both, LONG)
    clean = pipeline_of(model.card)

    def failing(tensor, value):
        raise KeyError("nobody foresaw this")

    odd = {
        "runtime=nan": changed(clean, lambda tensor, value: value * np.nan),
        "runtime=failing": changed(clean, failing),
    }
    rows = recheck_specs(model, answers, odd, LONG, points=5)
    assert [r.now for r in rows] == ["unknown"] * 4
    assert "not finite" in rows[0].note
    assert "nobody foresaw this" in rows[2].note


def test_real_precisions_are_asked_and_others_left_out(model, both):
    answers = decided(model, both, LONG)
    clean = pipeline_of(model.card)
    names = ("precision=fp16", "precision=int8", "decode=opencv")
    rows = recheck_specs(model, answers, {n: option(n).noise(clean) for n in names}, 20, points=20)
    found = [(r.deployment, r.threat, r.now) for r in rows]
    assert found == [
        ("precision=fp16", "bright.vnnlib", "unknown"),
        ("precision=fp16", "any.vnnlib", "violated"),
        ("precision=int8", "bright.vnnlib", "unknown"),
        ("precision=int8", "any.vnnlib", "unknown"),
    ]
    assert "calibration images" in rows[2].note


def test_when_time_is_up_one_point_is_still_run(model, both):
    answers = decided(model, both, LONG)
    rows = recheck_specs(
        model, answers, {"o": changed(pipeline_of(model.card), lambda t, v: v)}, 0.0, points=500
    )
    assert [r.tried for r in rows] == [1, 1]


def test_points_are_the_same_for_the_same_seed(model, both):
    answers = decided(model, both[:1], LONG)
    seen = []

    def looking(tensor, value):
        seen.append(tensor.copy())
        return value

    odd = {"o": changed(pipeline_of(model.card), looking)}
    for seed in (1, 1, 2):
        recheck_specs(model, answers, odd, LONG, points=20, seed=seed)
    one, same, other = (np.stack(seen[i : i + 20]) for i in (0, 20, 40))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)
    assert ((one >= np.float32(0.6)) & (one <= 1.0)).all()
