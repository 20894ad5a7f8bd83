"""Ceil mode: which pools turn, by how much, and when nothing is to be done."""

import gzip

import numpy as np
import onnx
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from helpers.graphs import context, halved, image, model, node, run, slow_pool, weight
from helpers.models import CLASS_CARD
from holdfast.core.registry import part
from holdfast.graph.load import load_model
from holdfast.graph.rewrite.ceil import ceil, ceil_average
from holdfast.graph.rewrite.follow.shapes import PoolWindow, ceils, pooled, windows_of
from holdfast.graph.rewrite.types import CannotRewrite, RewriteContext
from holdfast.stages.deployed import DeployedInference, with_rewrite

windows = st.builds(
    PoolWindow,
    kernel=st.integers(1, 5),
    stride=st.integers(1, 4),
    before=st.integers(0, 4),
    after=st.integers(0, 4),
    dilation=st.integers(1, 2),
)


def test_the_equation_by_hand():
    # eq. 8 for W = 112, K = 3, P = 1, S = 2: (112 − 3 + 2)/2 = 55.5
    stem = PoolWindow(3, 2, 1, 1)
    assert (pooled(112, stem, ceil=False), pooled(112, stem, ceil=True)) == (56, 57)
    assert pooled(113, stem, ceil=False) == pooled(113, stem, ceil=True) == 57
    # K = 2, S = 3, P_after = 1 on 3 cells: ⌈2/3⌉ + 1 = 2, but the second would begin in the padding
    assert pooled(3, PoolWindow(2, 3, 0, 1), ceil=True) == 1
    assert pooled(4, PoolWindow(2, 3, 0, 1), ceil=True) == 2
    assert pooled(2, PoolWindow(5), ceil=True) == 0


@settings(max_examples=50, deadline=None)
@given(cells=st.integers(1, 40), window=windows)
def test_the_size_is_the_number_of_places(cells, window):
    """Counted: floor takes windows that end in the padding, ceil those that begin before its end."""
    last = cells + window.before + window.after - window.reach  # where the last whole window begins
    starts = range(0, 60, window.stride)
    down = sum(s <= last for s in starts)
    up = sum(s < last + window.stride and s < cells + window.before for s in starts) if last >= 0 else 0
    assume(max(window.before, window.after) < window.kernel)  # as all frameworks want it
    assert pooled(cells, window, ceil=False) == down
    assert pooled(cells, window, ceil=True) == up
    assert down <= up <= down + 1


def turning(operator):
    """The rewrite that turns this kind of pool."""
    return ceil if operator == "MaxPool" else ceil_average


def test_max_and_average_pools_are_options_of_their_own():
    nodes = [halved("a", "x"), halved("y", "a", "AveragePool")]
    for turn, up in ((ceil, [True, False]), (ceil_average, [False, True])):
        found = turn(model(nodes, ["y"]), context())
        assert [ceils(pool) for pool in found.model.graph.node] == up
        assert run(found.model, image(20))[0].shape == (1, 3, 6, 6)  # with both down 20, 10, 5
    both = with_rewrite(with_rewrite("onnxruntime", "ceil"), "ceil-average")
    assert set(both.rewrites) == {"ceil", "ceil-average"}
    assert with_rewrite(both, "ceil").rewrites.count("ceil") == 1


pool_cases = st.tuples(
    st.integers(3, 13), st.integers(1, 4), st.integers(2, 4), st.integers(0, 3), st.integers(0, 3),
    st.sampled_from(["MaxPool", "AveragePool"]), st.booleans(), st.sampled_from([10, 17, 22]),
)  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(case=pool_cases)
def test_the_runtime_pools_as_the_rule_says(case):
    cells, kernel, stride, before, after, kind, include, opset = case
    before, after = min(before, kernel - 1), min(after, kernel - 1)
    window = PoolWindow(kernel, stride, before, after)
    if pooled(cells, window, ceil=False) < 1:
        return
    options = {"count_include_pad": int(include)} if kind == "AveragePool" else {}
    options |= {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [before] * 2 + [after] * 2}
    made = model(
        [node(kind, ["x"], ["y"], name="pool", **options)], ["y"], height=cells, opset=opset, channels=1
    )
    bytes_before = made.SerializeToString()
    seen = image(cells, channels=1)
    found = turning(kind)(made, context(cells))
    up = pooled(cells, window, ceil=True)
    if up == pooled(cells, window, ceil=False):
        assert found.changed == ()
        assert found.model.SerializeToString() == bytes_before
        return
    assert found.changed == ("pool",)
    slow = slow_pool(seen[0, 0].astype(np.float64), kind, [window] * 2, (up, up), include)
    assert np.allclose(run(found.model, seen)[0][0, 0], slow, atol=1e-5)


def test_twice_is_once_back():
    """Also for a pool whose own size depends on the mode only where the first one does not turn."""
    nodes = [halved("a", "x"), halved("b", "a"), node("Relu", ["b"], ["y"])]
    seen = image(20)
    made = model(nodes, ["y"])
    once = ceil(model(nodes, ["y"]), context()).model
    assert run(once, seen)[0].shape == (1, 3, 6, 6)  # 20, 11, 6; rounding down 20, 10, 5
    twice = ceil(once, context())
    assert np.array_equal(run(twice.model, seen)[0], run(made, seen)[0])


def test_a_mode_of_up_is_turned_down():
    pool = halved("y", "x", pads=[0, 0, 0, 0], ceil_mode=1)
    seen = image(20)
    found = ceil(model([pool], ["y"]), context())
    assert not ceils(found.model.graph.node[0])
    assert run(found.model, seen)[0].shape == (1, 3, 9, 9)
    assert found.how == "1 MaxPool changed"


@pytest.mark.parametrize(
    "nodes",
    [
        [node("MaxPool", ["x"], ["y"], kernel_shape=[5, 5], pads=[2] * 4)],  # SPP: stride 1
        [node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2], strides=[2, 2])],  # 20 / 2: no remainder
        [
            node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2], strides=[3, 3], pads=[0, 0, 2, 2])
        ],  # in the padding
        [node("MaxPool", ["x"], ["y"], kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_UPPER")],
        [node("AveragePool", ["x"], ["y"], kernel_shape=[20, 20], strides=[20, 20])],
        [node("GlobalAveragePool", ["x"], ["y"])],
        [node("Relu", ["x"], ["y"])],
    ],
    ids=["stride 1", "divides", "padding", "same", "whole", "global", "none"],
)
def test_no_effect_is_the_identity_bit_for_bit(nodes):
    made = model(nodes, ["y"])
    before = made.SerializeToString()
    found = ceil(made, context())
    assert (found.changed, found.how) == ((), "")
    assert found.model.SerializeToString() == before


def test_odd_and_even_sides_are_each_their_own():
    found = ceil(model([halved("y", "x")], ["y"], height=20, width=21), context(20, 21))
    assert run(found.model, image(20, 21))[0].shape == (1, 3, 11, 11)  # down: 10 × 11
    assert [w.stride for w in windows_of(found.model.graph.node[0])] == [2, 2]


def test_padding_valid_rounds_up_too():
    pool = node("MaxPool", ["x"], ["y"], kernel_shape=[3, 3], strides=[2, 2], auto_pad="VALID")
    made = model([pool], ["y"])
    seen = image()
    assert run(made, seen)[0].shape == (1, 3, 9, 9)
    found = ceil(made, context())
    assert run(found.model, seen)[0].shape == (1, 3, 10, 10)
    assert run(ceil(found.model, context()).model, seen)[0].shape == (1, 3, 9, 9)


@pytest.mark.parametrize("operator", ["MaxPool", "AveragePool", "LpPool"])
def test_padding_valid_that_rounds_up_is_turned_down(operator):
    window = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4}  # VALID does not read the pads
    pool = node(operator, ["x"], ["y"], auto_pad="VALID", ceil_mode=1, **window)
    made, seen = model([pool], ["y"], opset=18), image()
    assert run(made, seen)[0].shape == (1, 3, 10, 10)
    turn = turning(operator)
    down = turn(made, context())
    assert (run(down.model, seen)[0].shape, down.how) == ((1, 3, 9, 9), f"1 {operator} changed")
    assert run(turn(down.model, context()).model, seen)[0].shape == (1, 3, 10, 10)


def test_before_opset_10_the_end_is_padded():
    seen = image(20)
    new, old = (ceil(model([halved("y", "x")], ["y"], opset=o), context()).model for o in (17, 9))
    assert np.array_equal(run(old, seen)[0], run(new, seen)[0])
    average = halved("y", "x", "AveragePool", count_include_pad=1)
    with pytest.raises(
        CannotRewrite, match="AveragePool 'y' counts its padding, and opset 9 has no ceil_mode"
    ):
        ceil_average(model([average], ["y"], opset=9), context())


def test_a_batch_that_is_free_stays_free():
    nodes = [
        halved("p", "x"),
        node("Reshape", ["p", "t"], ["f"]),
        node("Transpose", ["f"], ["y"], perm=[0, 2, 1]),
    ]
    made = model(nodes, ["y"], {"t": np.array([-1, 3, 100])}, batch="n")
    found = ceil(made, context())
    assert run(found.model, image(batch=4))[0].shape == (4, 121, 3)


def test_free_sides_are_those_of_the_card():
    made = model([halved("y", "x")], ["y"], height="h", width="w", batch="n")
    assert ceil(made, context(21)).changed == ()
    assert ceil(made, context(20)).changed == ("y",)


def test_through_the_pipeline_and_from_a_gz(tmp_path):
    nodes = [
        halved("p", "x"), node("GlobalAveragePool", ["p"], ["g"]), node("Flatten", ["g"], ["f"]),
        node("Gemm", ["f", "w"], ["y"], name="classes"),
    ]  # fmt: skip
    made = model(nodes, ["y"], {"w": weight(3, 2)}, height=16, batch="n")
    seen = image(16)
    path = tmp_path / "tiny.onnx.gz"
    path.write_bytes(gzip.compress(made.SerializeToString()))
    (tmp_path / "tiny.toml").write_text(CLASS_CARD)
    loaded = load_model(path)
    found = DeployedInference(("ceil",))(loaded, 1)(seen)["y"]
    wanted = run(ceil(made, RewriteContext(loaded.card)).model, seen)[0]
    assert np.array_equal(found, wanted)
    assert not np.array_equal(found, DeployedInference()(loaded, 1)(seen)["y"])
    built = DeployedInference(("ceil",), folder=tmp_path / "kept").built(loaded)
    assert (built.changed, built.how) == (("p",), ("1 MaxPool changed",))
    assert np.array_equal(run(onnx.load(built.path), seen)[0], wanted)


def test_facts():
    facts = part("rewrite", "ceil").facts
    assert facts["family"] == "ceil"
    assert facts["systems"]
