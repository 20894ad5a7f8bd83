"""The verifier as a whole: which engine is asked, and that no doubt or failure ever becomes `holds`."""

import dataclasses
import time

import numpy as np
import pytest
from onnx import TensorProto, helper

from helpers.bounds import KINDS, Row, dense_net, problem
from helpers.models import save_graph
from holdfast.core.model import Network
from holdfast.core.property import Budget, InputBox, LinearConstraints, PatchAnywhere, Property
from holdfast.verify import run as decide
from holdfast.verify.problem import Deadline, EngineResult
from holdfast.verify.run import verify

FLOAT = TensorProto.FLOAT
OPEN = EngineResult("unknown", "attack")
NAMES = {
    "sweep:search": "sweep",
    "lowdim.search:search": "few",
    "split.search:search": "split",
    "falsify:falsify": "falsify",
    "bab.decide:decide": "branch",
}


def network(folder, batch=1, last=None, outputs=2):
    """A file: 2 inputs, 8 relus, `outputs` outputs, and perhaps one more layer."""
    rng = np.random.default_rng(4)
    weights = {
        "w1": rng.normal(size=(2, 8)).astype(np.float32),
        "b1": rng.normal(size=8).astype(np.float32),
        "w2": rng.normal(size=(8, outputs)).astype(np.float32),
        "b2": rng.normal(size=outputs).astype(np.float32),
    }
    nodes = [
        helper.make_node("Gemm", ["x", "w1", "b1"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Gemm", ["r", "w2", "b2"], ["z" if last else "y"]),
    ]
    if last:
        nodes.append(helper.make_node(last, ["z"], ["y"]))
    x = helper.make_tensor_value_info("x", FLOAT, [batch, 2])
    y = helper.make_tensor_value_info("y", FLOAT, [batch, outputs])
    return Network("net", save_graph(folder / "net.onnx", nodes, [x], [y], weights))


def values(model, points):
    import onnxruntime

    session = onnxruntime.InferenceSession(str(model.path), providers=["CPUExecutionProvider"])
    return np.concatenate([session.run(None, {"x": point[None]})[0] for point in points.astype(np.float32)])


def asked(model, rows, bound, low=-1.0, high=1.0):
    box = InputBox(np.full((1, 2), low), np.full((1, 2), high))
    return Property(model, box, (LinearConstraints(np.atleast_2d(rows), np.atleast_1d(bound)),))


@pytest.fixture(scope="module")
def grid():
    side = np.linspace(-1, 1, 41)
    return np.stack(np.meshgrid(side, side), -1).reshape(-1, 2).astype(np.float32)


@pytest.fixture
def proven(monkeypatch):
    """A function that makes every proof engine answer so, and gives the names of those asked."""
    told = []

    def engines(answer, **named):
        def ask(engine, problem, *rest):
            name = NAMES[engine]
            told.append(name)
            found = named.get(name, answer)
            if isinstance(found, BaseException):
                raise found
            return found

        monkeypatch.setattr(decide, "_run_engine", ask)
        return told

    return engines


def test_the_engine_decides_and_the_verdict_says_what_a_proof_is_sound_for(tmp_path, proven):
    model = network(tmp_path)
    told = proven(EngineResult("holds", "few", margin=0.5))
    verdict = decide.verify(asked(model, [1, -1], -9.0), Budget(10))
    assert (verdict.status, verdict.engine, verdict.bound, told) == ("holds", "few", 0.5, ["few"])
    assert verdict.note == "proven for every evaluation in float32"
    assert not verdict.real_only


def test_a_proof_found_for_real_arithmetic_alone_is_marked_as_one(tmp_path, monkeypatch, proven):
    proven(OPEN, few=EngineResult("holds", "few", margin=0.5))
    once = decide._run_engine
    only_real = lambda *given: OPEN if given[1].net.roundoff else once(*given)  # noqa: E731
    monkeypatch.setattr(decide, "_run_engine", only_real)
    verdict = decide.verify(asked(network(tmp_path), [1, -1], -9.0), Budget(10))
    assert (verdict.status, verdict.real_only, verdict.bound) == ("holds", True, 0.5)
    assert "not for float32: rounding may reach" in verdict.note
    assert "margin is 0.5" in verdict.note


def test_where_rounding_is_in_the_way_no_other_engine_is_asked_to_count_it(tmp_path, monkeypatch, proven):
    told = proven(
        EngineResult("unknown", "few", at_limit=True), branch=EngineResult("holds", "branch", margin=0.5)
    )
    verdict = decide.verify(asked(network(tmp_path), [1, -1], -9.0), Budget(10))
    assert (verdict.status, verdict.real_only) == ("holds", True)
    assert told == ["few", "few", "split", "falsify", "split", "branch"]


def test_an_engine_that_fails_is_followed_by_others_and_is_an_error_if_none_decides(tmp_path, proven):
    question = asked(network(tmp_path), [1, -1], -9.0)
    told = proven(EngineResult("holds", "branch"), few=ValueError("bang"), split=OPEN, falsify=OPEN)
    assert decide.verify(question).status == "holds"
    assert told == ["few", "split", "falsify", "split", "branch"]
    proven(EngineResult("unknown", "branch"), few=ValueError("bang"), split=OPEN, falsify=OPEN)
    verdict = decide.verify(question)
    assert verdict.status == "error"
    assert "bang" in verdict.note


@pytest.mark.parametrize("trouble", [RuntimeError("x"), KeyError("x"), AssertionError(), ZeroDivisionError()])
def test_any_exception_is_an_error(tmp_path, monkeypatch, trouble):
    def broken(*rest):
        raise trouble

    for place in ("domain_of", "read_proto", "_search", "runner_of"):
        with monkeypatch.context() as patch:
            patch.setattr(decide, place, broken)
            verdict = decide.verify(asked(network(tmp_path), [1, -1], -9.0))
            assert verdict.status == "error", place
            assert type(trouble).__name__ in verdict.note


def order(net, seconds=60.0, spent=0.0):
    """The engines a net is given to, and the share of the time each may use."""
    told = []

    def ask(engine, problem, clock, *rest):
        told.append((NAMES[engine], round(clock.budget.seconds / seconds, 2)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decide, "_run_engine", ask)
        clock = Deadline(Budget(seconds), time.monotonic() - spent)
        for engine in decide._engines(problem(net), clock, np.random.default_rng(0)):
            engine()
    return told


def test_engines_are_chosen_by_structure():
    rng = np.random.default_rng(0)
    rest = [("split", 0.05), ("falsify", 1.0), ("split", 0.5), ("branch", 1.0)]
    assert order(dense_net(rng, inputs=1)) == [("sweep", 1.0), ("few", 0.7), *rest]
    assert order(dense_net(rng, inputs=5)) == [("few", 0.7), *rest]
    assert order(KINDS["maxima"](rng)) == [("few", 0.7), *rest]
    assert order(dense_net(rng, "sigmoid", inputs=1)) == rest
    assert order(dense_net(rng, inputs=21)) == [("falsify", 1.0), ("branch", 1.0)]
    row = Row(rng, (3,))
    row.dense(row.curve(row.dense(0, 1001), "relu"), 1)
    assert order(row.net()) == rest


def test_shares_are_of_what_is_left():
    assert order(dense_net(np.random.default_rng(0)), 100.0, 50.0)[:2] == [
        ("few", 0.85),
        ("split", 0.53),
    ]
    assert order(dense_net(np.random.default_rng(0)), 10.0, 50.0) == []


def test_memory_and_ctrl_c(tmp_path, proven):
    question = asked(network(tmp_path), [1, -1], -9.0)
    proven(MemoryError())
    verdict = decide.verify(question)
    assert (verdict.status, verdict.note) == ("unknown", "out of memory")
    proven(None, few=KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        decide.verify(question)


def test_a_violation_that_does_not_replay_is_unknown(tmp_path, proven):
    proven(EngineResult("violated", "few", np.zeros(2, np.float32)))
    verdict = decide.verify(asked(network(tmp_path), [1, -1], -99.0))
    assert verdict.status == "unknown"
    assert "did not replay" in verdict.note


def test_time_that_is_up_is_a_timeout(tmp_path, proven):
    proven(EngineResult("unknown", "few"), falsify=OPEN)
    assert decide.verify(asked(network(tmp_path), [1, -1], -9.0), Budget(0.0)).status == "timeout"
    proven(EngineResult("timeout", "branch", note="5 open"), few=OPEN, split=OPEN, falsify=OPEN)
    verdict = decide.verify(asked(network(tmp_path), [1, -1], -9.0), Budget(60.0))
    assert (verdict.status, verdict.note) == ("timeout", "attack; attack; attack; attack; branch: 5 open")


def test_a_missing_library_is_told_with_the_pip_line(tmp_path, proven):
    proven(None, few=ModuleNotFoundError("No module named 'numba'", name="numba"))
    verdict = decide.verify(asked(network(tmp_path), [1, -1], -9.0))
    assert verdict.status == "error"
    assert "needs numba, which is not installed: pip install 'holdfast[verify]'" in verdict.note


def test_other_sets_than_boxes_are_refused(tmp_path):
    question = asked(network(tmp_path), [1, -1], -9.0)
    other = dataclasses.replace(question, threat=PatchAnywhere(np.zeros((1, 2, 2)), 1, 1))
    verdict = decide.verify(other)
    assert verdict.status == "error"
    assert "PatchAnywhere" in verdict.note


def test_a_specification_of_other_outputs_is_an_error(tmp_path):
    assert "expected 3 outputs, got 2" in decide.verify(asked(network(tmp_path), [1, 0, 0], 0.0)).note


def test_the_door_calls_it(tmp_path, proven):
    proven(EngineResult("holds", "few", margin=1.0))
    assert verify(asked(network(tmp_path), [1, -1], -9.0), Budget(5)).status == "holds"


@pytest.mark.parametrize("last", [None, "Softmax"])
def test_real_engines_are_right(tmp_path, grid, last):
    pytest.importorskip("torch")
    model = network(tmp_path, last=last)
    outputs = values(model, grid)
    least = float((outputs[:, 0] - outputs[:, 1]).min())
    plain = values(network(tmp_path / "plain"), grid)
    assert (plain[:, 0] > plain[:, 1]).any()
    status = "violated" if least <= 0 else "holds"
    assert decide.verify(asked(model, [1, -1], 0.0), Budget(10)).status == status
    if last is None:
        assert decide.verify(asked(model, [1, -1], least - 1.0), Budget(10)).status == "holds"
        assert decide.verify(asked(model, [1, -1], least + 0.1), Budget(10)).status == "violated"


def one_input(folder, last=None):
    """A file of one input: 6 relus, one output, and perhaps a curve on it."""
    rng = np.random.default_rng(2)
    weights = {
        "w1": rng.normal(size=(1, 6)).astype(np.float32),
        "b1": rng.normal(size=6).astype(np.float32),
        "w2": rng.normal(size=(6, 1)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Gemm", ["x", "w1", "b1"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "w2"], ["z" if last else "y"]),
    ]
    if last:
        nodes.append(helper.make_node(last, ["z"], ["y"]))
    x, y = (helper.make_tensor_value_info(name, FLOAT, [1, 1]) for name in "xy")
    return Network("net", save_graph(folder / "net.onnx", nodes, [x], [y], weights))


@pytest.mark.parametrize(("last", "engine"), [(None, "sweep"), ("Tanh", "input splitting")])
def test_one_input_is_swept_and_the_end_of_the_range_counts(tmp_path, last, engine):
    pytest.importorskip("torch")
    model = one_input(tmp_path, last)
    points = np.linspace(-2, 2, 4001, dtype=np.float32)[:, None]
    outputs = values(model, points)[:, 0]
    for side, place in ((1.0, outputs.argmin()), (-1.0, outputs.argmax())):
        for end, bound, status in (
            (2.0, side * outputs[place] - 1e-3, "holds"),
            (2.0, side * outputs[place] + 1e-5, "violated"),
        ):
            box = InputBox(np.full((1, 1), -end), np.full((1, 1), end))
            question = Property(model, box, (LinearConstraints(np.full((1, 1), side), np.array([bound])),))
            verdict = decide.verify(question, Budget(60))
            assert (verdict.status, verdict.engine) == (status, engine)
    assert 0 in (outputs.argmin(), outputs.argmax()) or len(points) - 1 in (
        outputs.argmin(),
        outputs.argmax(),
    )


def test_thresholds_on_a_softmax_are_proven_and_refuted(tmp_path, grid):
    pytest.importorskip("torch")
    model = network(tmp_path, last="Softmax", outputs=3)
    least = float(values(model, grid)[:, 1].min())
    assert decide.verify(asked(model, [0, 1, 0], least + 0.02), Budget(10)).status == "violated"
    assert decide.verify(asked(model, [0, 1, 0], least / 100), Budget(10)).status == "holds"
    verdict = decide.verify(asked(model, [0.5, 1, 0], 0.1), Budget(2))
    assert verdict.status in ("unknown", "violated")
