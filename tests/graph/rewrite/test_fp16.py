"""float16 and bfloat16: what is rounded, that ONNX Runtime keeps it rounded, and what overflows."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from holdfast.core.model import Card, Head, Input
from holdfast.core.registry import part
from holdfast.core.types import Size
from holdfast.graph.rewrite.fp16 import bf16, fp16, fp16_weights, to_kind
from holdfast.graph.rewrite.types import RewriteContext
from holdfast.graph.session import runtime

CONTEXT = RewriteContext(Card("classify", Input(Size(12, 12)), Head("classifier"), ("a", "b")))


def network(scale=1.0, seed=0):
    """Two convolutions with a ReLU and a Resize between them, and a softmax."""
    rng = np.random.default_rng(seed)
    weights = {
        "w0": rng.normal(0, 0.3 * scale, (4, 3, 3, 3)),
        "b0": rng.normal(0, 0.1, 4),
        "w1": rng.normal(0, 0.3, (5, 4, 3, 3)),
        "scales": np.array([1, 1, 1.7, 1.7]),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w0", "b0"], ["c0"]),
        helper.make_node("Relu", ["c0"], ["r0"]),
        helper.make_node("Resize", ["r0", "", "scales"], ["u"], mode="linear"),
        helper.make_node("Conv", ["u", "w1"], ["c1"]),
        helper.make_node("GlobalAveragePool", ["c1"], ["p"]),
        helper.make_node("Flatten", ["p"], ["logits"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 12, 12])
    y = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", 5])
    stored = [numpy_helper.from_array(v.astype(np.float32), k) for k, v in weights.items()]
    graph = helper.make_graph(nodes, "g", [x], [y], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def run(model, x):
    return (
        runtime()
        .InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        .run(None, {"x": x})[0]
    )


def copied(model):
    same = onnx.ModelProto()
    same.CopyFrom(model)
    return same


X = np.random.default_rng(5).normal(0, 1, (1, 3, 12, 12)).astype(np.float32)


@pytest.mark.parametrize(("rewrite", "kind", "error"), [(fp16, "float16", 2e-3), (bf16, "bfloat16", 2e-2)])
def test_what_comes_out_is_on_the_grid_and_near(rewrite, kind, error):
    made = rewrite(network(), CONTEXT)
    got, exact = run(made.model, X), run(network(), X)
    assert np.array_equal(got, to_kind(got, kind))
    assert 0 < np.abs(got - exact).max() < error
    assert kind in made.how


def test_it_equals_rounding_by_hand_layer_by_layer():
    """The optimiser of ONNX Runtime takes casts out of a float16 graph; it must not take out these."""
    model = network()
    w = {t.name: to_kind(numpy_helper.to_array(t), "float16") for t in model.graph.initializer}
    made = fp16(copied(model), CONTEXT)
    inner = copied(made.model)
    inner.graph.output.append(helper.make_tensor_value_info("r0:rounded", TensorProto.FLOAT, None))
    session = runtime().InferenceSession(inner.SerializeToString(), providers=["CPUExecutionProvider"])
    got = session.run(["r0:rounded"], {"x": X})[0]
    x16 = to_kind(X, "float16")[0]
    windows = np.lib.stride_tricks.sliding_window_view(x16, (3, 3), axis=(1, 2))
    by_hand = np.einsum("chwij,ocij->ohw", windows.astype(np.float64), w["w0"].astype(np.float64))
    by_hand = np.maximum(by_hand + w["b0"].astype(np.float64)[:, None, None], 0)
    wanted = to_kind(by_hand.astype(np.float32), "float16")
    # A sum in another order may fall on the other side of a tie, rarely.
    assert (got[0] != wanted).mean() < 0.01
    assert np.abs(got[0] - wanted).max() <= np.abs(wanted).max() * 2**-10


def test_bfloat16_of_an_old_opset():
    model = network()
    model.opset_import[0].version = 11
    model.graph.node[2].input[1] = "scales"  # a region, which older ones ask for and do not use
    assert bf16(model, CONTEXT).model.opset_import[0].version >= 13


def test_weights_alone_change_less():
    exact = run(network(), X)
    both, weights = (run(f(network(), CONTEXT).model, X) for f in (fp16, fp16_weights))
    assert not np.array_equal(weights, exact)
    assert not np.array_equal(weights, both)


def test_the_factors_of_a_resize_are_not_weights():
    made = bf16(network(), CONTEXT).model
    stored = {t.name: numpy_helper.to_array(t) for t in made.graph.initializer}
    scales = [v for v in stored.values() if v.shape == (4,) and v[0] == 1 and v[1] == 1]
    assert scales
    assert scales[0][2] == np.float32(1.7)


def test_overflowing_weights_are_named():
    how = fp16(network(scale=1e6), CONTEXT).how
    assert "65504" in how
    assert "w0" in how
    assert "65504" not in bf16(network(scale=1e6), CONTEXT).how


@pytest.mark.parametrize(("rewrite", "factor", "largest"), [(fp16, 1e3, 65504.0), (bf16, 1e36, None)])
def test_an_end_of_a_clip_that_is_none_does_not_hide_what_overflows(rewrite, factor, largest):
    most = np.float32(np.finfo(np.float32).max)
    nodes = [
        helper.make_node("Mul", ["x", "w"], ["m"]),
        helper.make_node("Clip", ["m", "low", "most"], ["y"]),
    ]
    stored = [
        numpy_helper.from_array(np.float32(v), k) for k, v in (("w", factor), ("low", 0), ("most", most))
    ]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    made = run(rewrite(model, CONTEXT).model, np.array([400.0, -1.0], np.float32))
    assert made.tolist() == [np.inf, 0.0], f"not the {largest} that a finite end would make of it"


def test_two_builds_give_the_same_bytes():
    first, second = (fp16(network(), CONTEXT).model.SerializeToString() for _ in range(2))
    assert first == second


def test_a_graph_without_floats_is_left_as_it_came():
    x, y = (helper.make_tensor_value_info(n, TensorProto.INT64, [2]) for n in "xy")
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "g", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    made = fp16(copied(model), CONTEXT)
    assert made.changed == ()
    assert made.model.SerializeToString() == model.SerializeToString()


@pytest.mark.parametrize("value", [1.0, 1.00390625, 3.1415927, -2.7e-30, 65504.0, np.inf, 0.0, -0.0])
def test_bfloat16_is_the_nearest_of_its_kind(value):
    x = np.array([value], np.float32)
    cast = helper.make_node("Cast", ["x"], ["h"], to=TensorProto.BFLOAT16)
    back = helper.make_node("Cast", ["h"], ["y"], to=TensorProto.FLOAT)
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1]) for n in "xy"]
    graph = helper.make_graph([cast, back], "g", info[:1], info[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    assert np.array_equal(run(model, x), to_kind(x, "bfloat16"))


def test_they_are_options_of_precision():
    for name in ("fp16", "fp16-weights", "bf16", "bf16-weights"):
        assert part("rewrite", name).facts["family"] == "precision"
