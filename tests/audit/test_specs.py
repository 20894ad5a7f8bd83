"""Specifications in an audit: decided on the user's file, asked of other runtimes on their own outputs."""

import sys

import numpy as np
import pytest
from onnx import TensorProto, helper

from helpers import models as making
from holdfast.audit import specs as asking
from holdfast.audit.specs import decide_specs, recheck_specs
from holdfast.core.errors import InputError
from holdfast.core.pipeline import pipeline_of
from holdfast.engine.store import FolderStore
from holdfast.graph.load import load_model
from holdfast.stages.families import option
from holdfast.stages.infer import onnxruntime
from holdfast.verify.vnncomp import instance as attempt

SIDE, INPUTS = 2, 12
LONG = 300.0  # seconds: the first proof loads the engines, on a busy machine slowly


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("specs")


@pytest.fixture(scope="module")
def model(folder):
    """Bright (class 1) if the mean over 3×2×2 inputs is over one half: Y_1 − Y_0 = 6 · mean − 3."""
    weights = {"w": np.array([[-1.0] * 3, [1.0] * 3], np.float32).T, "b": np.array([1.5, -1.5], np.float32)}
    nodes = [
        helper.make_node("GlobalAveragePool", ["x"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "w", "b"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, SIDE, SIDE])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 2])
    path = making.save_graph(folder / "net.onnx", nodes, [x], [y], weights)
    path.with_suffix(".toml").write_text(making.CLASS_CARD.replace("[16, 16]", f"[{SIDE}, {SIDE}]"))
    return load_model(path)


def spec(path, low, high=1.0, inputs=INPUTS):
    """A file that asks whether Y_0 ≥ Y_1 (dark) anywhere in the box."""
    names = [*(f"X_{i}" for i in range(inputs)), "Y_0", "Y_1"]
    lines = [f"(declare-const {name} Real)" for name in names]
    lines += [f"(assert (>= X_{i} {low}))(assert (<= X_{i} {high}))" for i in range(inputs)]
    path.write_text("\n".join([*lines, "(assert (>= Y_0 Y_1))"]))
    return path


@pytest.fixture(scope="module")
def both(folder):
    return [spec(folder / "bright.vnnlib", 0.6), spec(folder / "any.vnnlib", 0.3)]


@pytest.fixture(scope="module")
def answers(model, both, folder):
    return decide_specs(model, both, LONG, FolderStore(folder / "cells"))


@pytest.fixture
def store(tmp_path):
    return FolderStore(tmp_path / "cells")


def changed(pipeline, change, name="odd"):
    """The pipeline with an infer stage that changes the outputs of some inputs."""

    def infer(model, threads=0):
        run = onnxruntime(model, threads)
        return lambda tensor: {key: change(tensor, value) for key, value in run(tensor).items()}

    return pipeline.replace(infer=infer)


def saying(word, code=3, **facts):
    """A command that says this of every specification and writes these facts; `witness` is a text."""
    witness = facts.pop("witness", "")
    lines = [
        "import json, pathlib, sys",
        "given = sys.argv[1:]",
        "place = {k: pathlib.Path(v) for k, v in zip(given, given[1:])}",
        f"place['--json'].write_text(json.dumps({facts!r}))",
        f"place['--witness'].write_text({witness!r})" if witness else "",
        f"print({word!r})",
        f"sys.exit({code})",
    ]
    return [sys.executable, "-c", "\n".join(lines)]


def says(monkeypatch, command):
    """Nothing; specifications are from now on put to that command instead of `holdfast verify`."""
    monkeypatch.setattr(asking, "verify_command", lambda: command)


def test_each_specification_has_its_answer_and_its_command(both, answers):
    holds, violated = (one.proof for one in answers)
    assert (holds.threat, holds.image, holds.answer) == ("bright.vnnlib", "", "holds")
    assert holds.margin == pytest.approx(0.6, abs=1e-3)
    assert (violated.threat, violated.answer, violated.margin) == ("any.vnnlib", "violated", None)
    assert holds.engine not in ("", "none")
    assert violated.engine not in ("", "none")
    assert "holdfast verify" in holds.command
    assert str(both[0]) in holds.command


def test_no_time_and_failures_are_unknown_never_holds(model, both, store, monkeypatch):
    for word, said in (("unknown", "why"), ("timeout", "not decided in time; why")):
        says(monkeypatch, saying(word, 3, engine="odd", note="why"))
        assert {(one.proof.answer, one.proof.note) for one in decide_specs(model, both, 60, store)} == {
            ("unknown", said)
        }
    for command, said in (
        (saying("error", 2, note="nobody foresaw this"), "failed; nobody foresaw this"),
        (saying("holds", 7), "exit code 7"),
        ([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"], "SIGKILL"),
    ):
        says(monkeypatch, command)
        one = decide_specs(model, both, 60, store)[0].proof
        assert one.answer == "unknown"
        assert said in one.note


def test_a_process_that_does_not_end_is_ended(model, both, store, monkeypatch):
    monkeypatch.setattr(attempt, "GRACE", 0.5)
    says(monkeypatch, [sys.executable, "-c", "import time; time.sleep(600)"])
    one = decide_specs(model, both[:1], 0.5, store)[0].proof
    assert one.answer == "unknown"
    assert "killed" in one.note


def test_a_witness_counts_only_if_it_replays(model, both, store, monkeypatch):
    def text(value, inputs=INPUTS):
        return "(" + " ".join(f"(X_{i} {value})" for i in range(inputs)) + " (Y_0 9.0) (Y_1 0.0))"

    for witness, said in (
        (text(0.75), "did not replay: the outputs are safe"),
        (text(0.125), "did not replay"),
        (text(0.375, INPUTS - 1), "failed"),
        ("", "failed"),
    ):
        says(monkeypatch, saying("violated", 1, witness=witness))
        one = decide_specs(model, both[1:], 60, store)[0].proof
        assert one.answer == "unknown"
        assert said in one.note
    says(monkeypatch, saying("violated", 1, witness=text(0.375)))
    assert decide_specs(model, both[1:], 60, store)[0].proof.answer == "violated"


def test_a_file_of_another_network_is_refused_before_anything_is_decided(
    model, both, store, tmp_path, monkeypatch
):
    monkeypatch.setattr(asking, "begin", lambda *given: pytest.fail("something was decided"))
    with pytest.raises(InputError, match="12"):
        decide_specs(model, [*both, spec(tmp_path / "other.vnnlib", 0.5, inputs=5)], 10, store)
    with pytest.raises(InputError, match="duplicate"):
        decide_specs(model, [both[0], both[0]], 10, store)


def test_what_was_decided_is_not_asked_again_and_keeps_its_witness(model, both, store, monkeypatch):
    done = []
    first = decide_specs(model, both, LONG, store=store, progress=lambda one, found: done.append(one))
    assert done == [1, 1]
    monkeypatch.setattr(asking, "begin", lambda *given: pytest.fail("asked again"))
    again = decide_specs(model, both, LONG, store=store)
    assert [one.proof for one in again] == [one.proof for one in first]
    assert again[0].witness is None
    assert again[1].witness.shape == (1, 3, SIDE, SIDE)
    assert np.array_equal(again[1].witness, first[1].witness)


def test_what_was_not_decided_is_asked_again(model, both, store, monkeypatch):
    with monkeypatch.context() as patch:
        says(patch, saying("timeout"))
        decide_specs(model, both, 60, store=store)
    says(monkeypatch, saying("holds", 0))
    assert [one.proof.answer for one in decide_specs(model, both, 60, store=store)] == ["holds", "holds"]


def test_a_witness_is_replayed_and_a_box_that_holds_stays_open(model, answers):
    clean = pipeline_of(model.card)
    same = changed(clean, lambda tensor, value: value)
    rows = recheck_specs(model, answers, {"runtime=same": same}, LONG, points=30)
    assert [(r.threat, r.was, r.now) for r in rows] == [
        ("bright.vnnlib", "holds", "unknown"),
        ("any.vnnlib", "violated", "violated"),
    ]
    assert rows[0].tried == 30
    assert rows[1].tried == 1
    assert "the counterexample" in rows[1].note
    assert not any(r.finding for r in rows)


def test_a_box_that_breaks_elsewhere_is_a_finding(model, answers):
    answers = answers[:1]

    def off(tensor, value):
        return value + np.array([[0.7, 0.0]], np.float32) if tensor.mean() < 0.605 else value

    (row,) = recheck_specs(model, answers, {"precision=odd": changed(pipeline_of(model.card), off)}, 20)
    assert (row.was, row.now, row.finding) == ("holds", "violated", True)
    assert 1 <= row.tried <= 3  # the lower corner is among the first


def test_steps_from_the_nearest_point_find_what_chance_does_not(model, answers):
    """One corner of 4096 breaks it, and every input that is nearer to it is nearer to breaking it."""
    answers = answers[:1]
    corner = np.array([0.6, 1.0] * 6, np.float32).reshape(1, 3, SIDE, SIDE)

    def near(tensor, value):
        away = np.abs(tensor - corner).sum()
        return np.array([[0.0, away - 0.01]], np.float32)

    odd = changed(pipeline_of(model.card), near)
    (row,) = recheck_specs(model, answers, {"precision=odd": odd}, 60, points=2000)
    assert row.now == "violated"
    (few,) = recheck_specs(model, answers, {"precision=odd": odd}, 60, points=5)
    assert (few.now, few.tried) == ("unknown", 5)


def test_a_witness_that_fails_elsewhere_leaves_it_open(model, answers):
    answers = answers[1:]
    safe = changed(pipeline_of(model.card), lambda tensor, value: np.array([[0.0, 9.0]], np.float32))
    (row,) = recheck_specs(model, answers, {"precision=safe": safe}, LONG, points=10)
    assert (row.was, row.now, row.tried) == ("violated", "unknown", 10)
    assert "the counterexample does not violate it here" in row.note


def test_doubts_of_a_runtime_leave_it_open(model, answers):
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


def test_real_precisions_are_asked_and_others_left_out(model, answers):
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


def test_when_time_is_up_one_point_is_still_run(model, answers):
    rows = recheck_specs(
        model, answers, {"o": changed(pipeline_of(model.card), lambda t, v: v)}, 0.0, points=500
    )
    assert [r.tried for r in rows] == [1, 1]


def test_points_are_the_same_for_the_same_seed(model, answers):
    answers = answers[:1]
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
