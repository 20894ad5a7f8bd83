"""Finite domains: every answer is compared with the truth by trying the float32 that matter."""

import itertools
from functools import cache

import numpy as np
import onnxruntime
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from helpers.models import save_graph
from holdfast.core.model import Network
from holdfast.core.property import Budget, InputBox, LinearConstraints, Property
from holdfast.graph.inspect import read_proto
from holdfast.verify import enumerate as engine
from holdfast.verify.finite import InputCells, NotFinite, cells_of, number, ordinal
from holdfast.verify.problem import Deadline, domain_of, first_float, last_float
from holdfast.verify.replay import runner_of

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
CUTS = {
    "Cast": [
        helper.make_node("Cast", ["s"], ["i"], to=INT64),
        helper.make_node("Cast", ["i"], ["c"], to=FLOAT),
    ],
    **{op: [helper.make_node(op, ["s"], ["c"])] for op in ("Floor", "Ceil", "Round")},
}
# A width of half the distance to the next float32: only the lower end is one, so the input is fixed.
BARELY = (1.1115673780441284, 5.960464477539063e-08)


def branch():
    """A graph of its own that reads x without having it as an input."""
    nodes = [helper.make_node("Abs", ["x"], ["inner"])]
    return helper.make_graph(nodes, "branch", [], [helper.make_tensor_value_info("inner", FLOAT, [1, 1])])


BRANCHES = {"then_branch": branch(), "else_branch": branch()}


def network(folder, nodes, weights, inputs=2, outputs=1, name="net"):
    x = helper.make_tensor_value_info("x", FLOAT, [1, inputs])
    y = helper.make_tensor_value_info("y", FLOAT, [1, outputs])
    return save_graph(folder / f"{name}.onnx", nodes, [x], [y], weights)


def rounded(folder, cut, inputs=2, seed=0, scale=1.0):
    """A file in which scaled inputs are rounded and go through a small wild net."""
    rng = np.random.default_rng(seed)
    weights = {
        "scale": np.full(1, scale, np.float32),
        "w1": rng.normal(size=(inputs, 6)).astype(np.float32),
        "b1": rng.normal(size=6).astype(np.float32),
        "w2": rng.normal(size=(6, 1)).astype(np.float32),
        "b2": rng.normal(size=1).astype(np.float32),
    }
    nodes = [
        helper.make_node("Mul", ["x", "scale"], ["s"]),
        *CUTS[cut],
        helper.make_node("Gemm", ["c", "w1", "b1"], ["h"]),
        helper.make_node("Sin", ["h"], ["r"]),
        helper.make_node("Gemm", ["r", "w2", "b2"], ["y"]),
    ]
    return network(folder, nodes, weights, inputs)


def question(path, lower, upper, bound, rows=((1.0,),)):
    box = InputBox(np.atleast_2d(lower), np.atleast_2d(upper))
    return Property(Network("net", path), box, (LinearConstraints(np.asarray(rows), np.atleast_1d(bound)),))


def answer(asked, seconds=60.0):
    """The engine's answer, the same whether it runs the file as a whole or takes it apart."""
    graph, domain = read_proto(asked.model.path), domain_of(asked)
    runner = cache(lambda: runner_of(asked, domain))
    found = []
    for short in (np.inf, -1.0):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(engine, "_SHORT", short)
            found.append(engine.enumerated(asked, graph, domain, runner, Deadline(Budget(seconds))))
    assert found[0].status == found[1].status
    assert (found[0].margin is None) == (found[1].margin is None)
    assert found[0].margin is None or found[0].margin == pytest.approx(found[1].margin, abs=1e-5)
    return found[1]


def truth(path, lower, upper, scale=1.0):
    """The smallest output over all float32 that lie at, or next to, an end or a border of a cell."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    axes = []
    for low, high in zip(lower, upper, strict=True):
        first, last = first_float(np.array([low]))[0], last_float(np.array([high]))[0]
        edge = np.arange(np.floor(low * scale) - 1, np.ceil(high * scale) + 1.5, 0.5) / scale
        near = (ordinal(edge.astype(np.float32))[:, None] + np.arange(-2, 3)).ravel()
        values = np.concatenate([number(near), [first, last]]).astype(np.float32)
        axes.append(np.unique(values[(first <= values) & (values <= last)]))
    points = itertools.product(*axes)
    return min(float(session.run(None, {"x": np.array([p], np.float32)})[0][0, 0]) for p in points)


@pytest.mark.parametrize("cut", list(CUTS))
@given(
    st.lists(st.tuples(st.floats(-3, 3, width=32), st.floats(0, 4, width=32)), min_size=1, max_size=2),
    st.integers(0, 5),
    st.sampled_from([1.0, -1.5, 0.3]),
)
@example([(0.0, 1.0), BARELY], 0, 1.0)
@example([BARELY], 0, 1.0)
@settings(max_examples=6, deadline=None)
def test_the_answer_is_the_truth(tmp_path_factory, cut, ranges, seed, scale):
    path = rounded(tmp_path_factory.mktemp("net"), cut, len(ranges), seed, scale)
    lower = np.array([low for low, _ in ranges], np.float64)
    upper = np.array([low + size for low, size in ranges], np.float64)
    least = truth(path, lower, upper, abs(scale))
    held = answer(question(path, lower, upper, least - 0.01))
    assert held.status == "holds"
    assert held.margin == pytest.approx(0.01, abs=1e-5)
    broken = answer(question(path, lower, upper, least + 1e-5))
    assert broken.status == "violated"
    free = np.nextafter(lower.astype(np.float32), np.float32(np.inf)) <= upper  # the next float32 is within
    assert ((lower[free] <= broken.witness) & (broken.witness <= upper[free])).all()


def spike(folder, at):
    """A file whose output is 0 when its input, cut, is `at` and positive elsewhere."""
    nodes = [
        helper.make_node("Cast", ["x"], ["i"], to=INT64),
        helper.make_node("Cast", ["i"], ["c"], to=FLOAT),
        helper.make_node("Sub", ["c", "at"], ["d"]),
        helper.make_node("Abs", ["d"], ["y"]),
    ]
    return network(folder, nodes, {"at": np.full(1, at, np.float32)}, 1)


@pytest.mark.parametrize(
    ("at", "lower", "upper", "status", "witness"),
    [
        (62, 0, 62, "violated", 62),  # reached at exactly 62.0 only
        (62, 0, np.nextafter(62, 0), "holds", None),
        (0, 0, 62, "violated", 0),
        (-3, -3, 5, "violated", -3),
        (-3, np.nextafter(-3, 0), 5, "holds", None),  # truncation: -2.99 is -2
        (0, -0.75, -0.5, "violated", -0.5),
        (2, 2.5, 2.7, "violated", 2.5),
        (3, 2.5, 2.7, "holds", None),
        (-1, -1.0, -1.0, "violated", -1.0),
    ],
)
def test_ends_negatives_and_single_cells(tmp_path, at, lower, upper, status, witness):
    found = answer(question(spike(tmp_path, at), [lower], [upper], 0.0))
    assert found.status == status
    if witness is not None and lower < upper:
        value = float(found.witness[0])
        assert np.trunc(value) == at
        assert lower <= value <= upper


def test_dropping_the_last_cell_is_caught(tmp_path, monkeypatch):
    asked = question(spike(tmp_path, 62), [0], [62], 0.0)
    assert answer(asked).status == "violated"

    def without_the_last(*rest):
        cells = cells_of(*rest)
        return InputCells(cells.first[:-1], cells.last[:-1])

    monkeypatch.setattr(engine.finite, "cells_of", without_the_last)
    assert answer(asked).status == "holds"  # so the test above would fail


def striped(folder, size=6):
    """As the sign benchmark does: the last two inputs are positions that are cut and used to slice."""
    rng = np.random.default_rng(3)
    weights = {
        "minus": np.array([-1]),
        "start": np.array([0]),
        "pix": np.array([2 * size * size]),
        "shape": np.array([1, 2, size, size]),
        "p0": np.array(2 * size * size),
        "p1": np.array(2 * size * size + 1),
        "one": np.array(1),
        "ax0": np.array([0]),
        "ones": np.ones((1, 2, size, size), np.float32),
        "axis1": np.array([1]),
        "axis2": np.array([2]),
        "step": np.array([1]),
        "kernel": rng.normal(size=(3, 2, 3, 3)).astype(np.float32),
        "w": rng.normal(size=(3 * (size - 2) ** 2, 1)).astype(np.float32),
    }
    node = helper.make_node
    cut = []
    for p in ("0", "1"):
        cut += [
            node("Gather", ["flat", f"p{p}"], [f"g{p}"]),
            node("Cast", [f"g{p}"], [f"i{p}"], to=INT64),
            node("Add", [f"i{p}", "one"], [f"e{p}"]),
            node("Unsqueeze", [f"i{p}", "ax0"], [f"from{p}"]),
            node("Unsqueeze", [f"e{p}", "ax0"], [f"to{p}"]),
        ]
    nodes = [
        node("Reshape", ["x", "minus"], ["flat"]),
        node("Slice", ["flat", "start", "pix"], ["image"]),
        node("Reshape", ["image", "shape"], ["picture"]),
        *cut,
        node("Slice", ["ones", "from0", "to0", "axis1", "step"], ["part"]),
        node("Slice", ["part", "from1", "to1", "axis2", "step"], ["piece"]),
        node("ReduceSum", ["piece"], ["blank"], keepdims=0),
        node("Cast", ["from0"], ["f0"], to=FLOAT),
        node("Cast", ["from1"], ["f1"], to=FLOAT),
        node("Mul", ["f0", "f1"], ["f"]),
        node("Sum", ["blank", "f"], ["shift"]),
        node("Mul", ["picture", "shift"], ["masked"]),
        node("Conv", ["masked", "kernel"], ["h"]),
        node("Relu", ["h"], ["r"]),
        node("Flatten", ["r"], ["v"]),
        node("MatMul", ["v", "w"], ["y"]),
    ]
    return network(folder, nodes, weights, 2 * size * size + 2)


def test_equal_cells_are_computed_once_and_only_positions_are_free(tmp_path):
    size = 6
    path = striped(tmp_path, size)
    image = np.random.default_rng(0).random(2 * size * size).astype(np.float32)
    lower, upper = np.append(image, [0, 0]), np.append(image, [9, 5])
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    cells = itertools.product(range(10), range(6))
    outputs = [session.run(None, {"x": np.append(image, c).astype(np.float32)[None]})[0][0, 0] for c in cells]
    found = answer(question(path, lower, upper, min(outputs) - 0.5))
    assert found.status == "holds"
    assert found.margin == pytest.approx(0.5, abs=1e-4)
    shifts = {(size if channel < 2 else 0) + channel * row for channel in range(10) for row in range(6)}
    assert found.note.startswith(f"60 cells, {len(shifts)} of them distinct")
    assert answer(question(path, lower, upper, min(outputs) + 1e-3)).status == "violated"


def test_each_case_is_asked_in_its_own_box(tmp_path):
    path = spike(tmp_path, 5)
    left, right = (
        InputBox(np.array([[0.0]]), np.array([[3.0]])),
        InputBox(np.array([[5.5]]), np.array([[8.0]])),
    )
    around = InputBox(np.array([[0.0]]), np.array([[8.0]]))
    low = LinearConstraints(np.array([[1.0]]), np.array([0.5]))

    def asked(*cases):
        return Property(
            Network("net", path),
            around,
            tuple(LinearConstraints(low.matrix, low.bound, None, b) for b in cases),
        )

    assert answer(asked(left)).status == "holds"
    found = answer(asked(left, right))
    assert found.status == "violated"
    assert 5.5 <= found.witness[0] < 6


def test_skipping_a_case_is_caught(tmp_path, monkeypatch):
    left, right = (InputBox(np.array([[a]]), np.array([[b]])) for a, b in ((0.0, 3.0), (5.5, 8.0)))
    unsafe = tuple(LinearConstraints(np.array([[1.0]]), np.array([0.5]), None, box) for box in (left, right))
    asked = Property(Network("net", spike(tmp_path, 5)), InputBox(left.lower, right.upper), unsafe)
    assert answer(asked).status == "violated"
    real = engine._boxes
    monkeypatch.setattr(engine, "_boxes", lambda *rest: real(*rest)[:-1])
    assert answer(asked).status == "holds"  # so the tests above would fail


def test_a_conjunction_needs_all_its_rows(tmp_path):
    path = spike(tmp_path, 5)
    both = answer(question(path, [0], [9], [2.5, -1.5], [[1.0], [-1.0]]))  # 1.5 <= |x - 5| <= 2.5
    assert both.status == "violated"
    assert abs(np.trunc(both.witness[0]) - 5) == 2
    assert answer(question(path, [0], [9], [1.75, -1.25], [[1.0], [-1.0]])).status == "holds"


def test_constraints_on_fixed_inputs_count_and_on_free_ones_are_refused(tmp_path):
    path = rounded(tmp_path, "Floor")
    box = InputBox(np.array([[0.0, 0.5]]), np.array([[3.0, 0.5]]))
    for bound, status in ((1.0, "violated"), (0.0, "holds")):  # 0 <= bound - x1
        rows = LinearConstraints(np.zeros((1, 1)), np.array([bound]), np.array([[0.0, 1.0]]))
        assert answer(Property(Network("net", path), box, (rows,))).status == status
    rows = LinearConstraints(np.zeros((1, 1)), np.array([1.0]), np.array([[1.0, 0.0]]))
    with pytest.raises(NotFinite, match="ties"):
        answer(Property(Network("net", path), box, (rows,)))


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([helper.make_node("Abs", ["x"], ["y"])], "neither a rounding"),
        ([helper.make_node("Identity", ["x"], ["y"])], "reads a free input as it is"),
        ([helper.make_node("Floor", ["x"], ["f"]), helper.make_node("Add", ["f", "x"], ["y"])], "mixes"),
        (
            [helper.make_node("Div", ["one", "x"], ["d"]), helper.make_node("Floor", ["d"], ["y"])],
            "divided by",
        ),
        (
            [
                helper.make_node("Cast", ["x"], ["d"], to=TensorProto.DOUBLE),
                helper.make_node("Floor", ["d"], ["f"]),
                helper.make_node("Cast", ["f"], ["y"], to=FLOAT),
            ],
            "precision",
        ),
        ([helper.make_node("Floor", ["x"], ["y"], domain="com.microsoft")], "not known"),
        (
            [helper.make_node("Floor", ["one"], ["f"]), helper.make_node("If", ["yes"], ["y"], **BRANCHES)],
            "contains a subgraph",
        ),
        ([helper.make_node("Mul", ["x", "x"], ["d"]), helper.make_node("Floor", ["d"], ["y"])], "depends"),
    ],
)
def test_a_free_input_that_gets_past_the_cuts_is_told(tmp_path, nodes, message):
    path = network(tmp_path, nodes, {"one": np.ones(1, np.float32), "yes": np.array(True)}, 1)
    with pytest.raises(NotFinite, match=message):
        answer(question(path, [-1], [1], 0.0))


def test_a_cast_beyond_its_type_is_refused(tmp_path):
    nodes = [
        helper.make_node("Cast", ["x"], ["i"], to=TensorProto.UINT8),
        helper.make_node("Cast", ["i"], ["y"], to=FLOAT),
    ]
    path = network(tmp_path, nodes, {}, 1)
    assert answer(question(path, [-0.9], [255.9], -1.0)).status == "holds"
    with pytest.raises(NotFinite, match="uint8 cannot represent"):
        answer(question(path, [-1], [3], -1.0))


def test_too_many_cells_and_no_time_are_said(tmp_path, monkeypatch):
    path = rounded(tmp_path, "Floor")
    assert answer(question(path, [0, 0], [50, 50], -99.0), seconds=0.0).status == "timeout"
    found = answer(question(path, [0, 0], [1e5, 1e5], -99.0))
    assert found.status == "unknown"
    assert "10,000,200,001 cells" in found.note
    monkeypatch.setattr(engine, "LIMIT", 100)
    assert "more than 100 cells" in answer(question(path, [0, 0], [1e5, 1e5], -99.0)).note


@pytest.mark.parametrize(("bound", "status"), [(-0.00003, "holds"), (0.00003, "violated")])
def test_cells_near_the_threshold_are_named(tmp_path, bound, status):
    found = answer(question(spike(tmp_path, 4), [0], [9], bound))
    assert found.status == status
    assert "depend on the runtime: (4) by" in found.note


def test_outputs_that_are_not_finite_are_no_proof(tmp_path):
    nodes = [helper.make_node("Floor", ["x"], ["f"]), helper.make_node("Reciprocal", ["f"], ["y"])]
    found = answer(question(network(tmp_path, nodes, {}, 1), [0], [3], -1.0))
    assert found.status == "unknown"
    assert "non-finite" in found.note


def after(value):
    return float(np.nextafter(np.float32(value), np.float32(np.inf)))


def test_cells_hold_every_float32_once():
    cells = cells_of(lambda x: np.trunc(x)[None], np.float32(-2.5), np.float32(1.0), 100)
    assert cells.first.tolist() == [-2.5, after(-2), after(-1), 1.0]
    assert cells.last.tolist() == [-2.0, -1.0, -after(-1), 1.0]
    assert cells.middle.tolist() == [-2.0, -1.0, 0.0, 1.0]
    values = np.array([-1.5, -1e-45, 0.0, 1e-45, 3e38], np.float32)
    assert (number(ordinal(values)) == values).all()
    assert (np.diff(ordinal(values)) > 0).all()


@pytest.mark.slow
def test_all_sign_instances_are_right(shared_data):
    import csv

    from holdfast.verify.vnnlib import property_of, read_vnnlib

    folder = shared_data / "vnncomp" / "cctsdb_yolo"
    counts = {"holds": 0, "violated": 0}
    for net, spec, _ in csv.reader((folder / "instances.csv").read_text().splitlines()):
        paths = [next(p for p in (folder / n, folder / f"{n}.gz") if p.exists()) for n in (net, spec)]
        asked = property_of(read_vnnlib(paths[1]), Network("net", paths[0]))
        counts[answer(asked).status] += 1
    assert counts == {"holds": 11, "violated": 28}
