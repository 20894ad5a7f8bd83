"""Dynamic 8 bits, and all precisions on graphs of language models: several inputs, masks, pasts, branches."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from helpers import language as texting
from holdfast.core.registry import part
from holdfast.graph.rewrite.calibration import observe
from holdfast.graph.rewrite.fp16 import bf16, fp16
from holdfast.graph.rewrite.int8 import int8_dynamic, int8_minmax, int8_mixed
from holdfast.graph.rewrite.types import CannotRewrite, RewriteContext
from holdfast.graph.session import runtime

ALL = [fp16, bf16, int8_dynamic, int8_mixed, int8_minmax]
LAYOUTS = [{}, {"past": True}, {"mask": "mul"}]


def dense(nodes, weights, inputs=8, outputs=4):
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", inputs])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", outputs])
    stored = [numpy_helper.from_array(v, k) for k, v in weights.items()]
    graph = helper.make_graph(nodes, "g", [x], [y], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=7)


def run(model, feeds, optimised=True):
    ort = runtime()
    options = ort.SessionOptions()
    options.log_severity_level = 4
    if not optimised:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    known = {i.name for i in session.get_inputs()}
    return session.run(None, {k: v for k, v in feeds.items() if k in known})[0]


def texts(shape, count=16):
    drawn = [np.random.default_rng(i).integers(0, shape.words, (1, 4 + i % 7)) for i in range(count)]
    return RewriteContext(None, lambda: (texting.feeds(shape, ids) for ids in drawn), "text")


def by_hand(x, weight):
    """The product on the grids of DynamicQuantizeLinear and of weights a channel, in plain integers."""
    low, high = min(float(x.min()), 0.0), max(float(x.max()), 0.0)
    step = np.float32(np.float32(high - low) / np.float32(255))
    zero = int(np.clip(np.rint(-low / step), 0, 255))
    integers = np.clip(np.rint(x / step) + zero, 0, 255).astype(np.int64)
    scale = (np.abs(weight).max(axis=0) / 127).astype(np.float32)
    rounded = np.clip(np.rint(weight / scale), -127, 127).astype(np.int64)
    return ((integers - zero) @ rounded) * (step * scale)


@pytest.mark.parametrize("optimised", [True, False])
def test_a_product_is_the_one_of_plain_integers_even_where_16_bits_would_overflow(optimised):
    rng = np.random.default_rng(3)
    weight = rng.choice([-1.0, 1.0], (64, 4)).astype(np.float32)  # every integer is ±127
    weight[:, 0] = 1.0
    x = np.abs(rng.normal(3, 0.1, (5, 64))).astype(np.float32)  # every integer is near 255
    made = int8_dynamic(
        dense([helper.make_node("MatMul", ["x", "w"], ["y"])], {"w": weight}, 64), RewriteContext()
    )
    got = run(made.model, {"x": x}, optimised)
    assert np.allclose(got, by_hand(x, weight), rtol=1e-5)


def test_gemm_with_its_factors_and_a_turned_weight():
    rng = np.random.default_rng(0)
    weight, bias = rng.normal(size=(4, 8)).astype(np.float32), rng.normal(size=4).astype(np.float32)
    node = helper.make_node("Gemm", ["x", "w", "b"], ["y"], transB=1, alpha=0.5, beta=3.0)
    model = dense([node], {"w": weight, "b": bias})
    x = rng.normal(size=(6, 8)).astype(np.float32)
    made = int8_dynamic(model, RewriteContext())
    assert len(made.changed) == 1
    assert np.allclose(run(made.model, {"x": x}), by_hand(x, weight.T) * 0.5 + 3 * bias, atol=1e-5)


def test_layers_that_read_the_same_tensor_share_its_grid_and_others_stay():
    rng = np.random.default_rng(0)
    weights = {k: rng.normal(size=(8, 4)).astype(np.float32) for k in ("q", "k")}
    weights |= {"w": rng.normal(size=(4, 8)).astype(np.float32)}
    nodes = [
        helper.make_node("MatMul", ["x", "q"], ["a"], "query"),
        helper.make_node("MatMul", ["x", "k"], ["b"], "key"),
        helper.make_node("Mul", ["a", "b"], ["c"]),
        helper.make_node("MatMul", ["c", "turned"], ["y"], "of two tensors"),
        helper.make_node("Transpose", ["x2"], ["turned"]),
    ]
    x2 = helper.make_tensor_value_info("x2", TensorProto.FLOAT, [4, 4])
    model = dense([nodes[0], nodes[1], nodes[2], nodes[4], nodes[3]], {"q": weights["q"], "k": weights["k"]})
    model.graph.input.append(x2)
    made = int8_dynamic(model, RewriteContext())
    kinds = [n.op_type for n in made.model.graph.node]
    assert (kinds.count("DynamicQuantizeLinear"), kinds.count("MatMulInteger"), kinds.count("MatMul")) == (
        1,
        2,
        1,
    )
    assert "2 fully connected layers" in made.how
    assert "1 × MatMul without a weight" in made.how
    assert not [
        w for w in made.model.graph.initializer if w.data_type == TensorProto.FLOAT and len(w.dims) == 2
    ]


def test_a_graph_without_fully_connected_layers_stays_as_it_is():
    model = dense([helper.make_node("Relu", ["x"], ["y"])], {}, 4, 4)
    made = int8_dynamic(model, RewriteContext())
    assert made.changed == ()
    assert made.model == model


def test_pictures_have_it_on_demand_only():
    facts = part("rewrite", "int8-dynamic").facts
    assert facts["family"] == "precision"
    assert facts["default"] is False


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("rewrite", ALL)
def test_a_language_model_stays_near_also_where_a_whole_row_is_masked(rewrite, layout):
    shape = texting.Shape(**layout)
    model = texting.causal(shape)
    ids = np.random.default_rng(1).integers(0, shape.words, (3, 9))
    mask = np.ones_like(ids)
    mask[1, :4] = 0  # padded on the left: the first rows of attention see nothing at all
    feeds = texting.feeds(shape, ids, mask)
    clean = run(model, feeds)
    made = rewrite(model, texts(shape))
    noised = run(made.model, feeds)
    assert np.isfinite(noised).all()
    error = np.square(noised - clean)[mask == 1].mean() / np.square(clean)[mask == 1].mean()
    assert 0 < error < 0.01
    assert {i.name for i in made.model.graph.input} == {i.name for i in texting.causal(shape).graph.input}


def test_the_embeddings_and_the_masks_are_no_layers_of_the_static_plan():
    shape = texting.Shape()
    made = int8_mixed(texting.causal(shape), texts(shape, 12))
    assert made.how.startswith("12 texts, percentile")
    stored = {w.name: w for w in made.model.graph.initializer}
    assert stored["embed"].data_type == TensorProto.FLOAT
    scales = [numpy_helper.to_array(w) for name, w in stored.items() if name.endswith(":scale")]
    assert max(s.max() for s in scales) < 1e3


def test_texts_of_different_lengths_are_observed_and_channels_are_the_last_axis():
    shape = texting.Shape(layers=1)
    model = texting.causal(shape)
    gathered = next(n for n in model.graph.node if n.op_type == "Gather" and n.input[0] == "embed").output[0]
    probabilities = next(n for n in model.graph.node if n.op_type == "Softmax").output[0]
    context = texts(shape)
    seen = observe(model, [gathered, probabilities], context.calibration, unit="text")
    assert seen.images == 16
    drawn = [feeds["input_ids"] for feeds in context.calibration()]
    table = texting.weights_of(shape)["embed"]
    assert np.allclose(seen.means[gathered], np.mean([table[ids[0]].mean(axis=0) for ids in drawn], axis=0))
    assert np.shape(seen.means[probabilities]) == ()  # as many columns as the text is long: no channels


def test_what_cannot_be_calibrated_says_so():
    shape = texting.Shape()
    with pytest.raises(CannotRewrite, match="need calibration texts"):
        int8_mixed(texting.causal(shape), RewriteContext(unit="text"))
    with pytest.raises(CannotRewrite, match="no calibration text could be read"):
        int8_mixed(texting.causal(shape), RewriteContext(None, lambda: iter(()), "text"))
    wrong = RewriteContext(None, lambda: iter([{"input_ids": np.zeros((1, 3), np.int64)}]), "text")
    with pytest.raises(CannotRewrite, match="cannot run a calibration text"):
        int8_mixed(texting.causal(shape), wrong)


def test_constants_that_only_an_inner_graph_reads_are_kept():
    shape = texting.Shape(merged=True)
    model = texting.causal(shape)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8])
    more = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4])
    model.graph.input.append(x)
    model.graph.output.append(more)
    model.graph.node.append(helper.make_node("MatMul", ["x", "outside"], ["y"], name="outside"))
    weight = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weight, "outside"))
    feeds = texting.feeds(shape, [[3, 4, 5]]) | {"x": np.ones((1, 8), np.float32)}
    clean = run(model, feeds)
    made = int8_dynamic(model, RewriteContext())
    assert "graph inside If" in made.how
    assert np.array_equal(run(made.model, feeds), clean)
    onnx.checker.check_model(made.model)


def test_layers_behind_a_norm_with_one_huge_channel_stay_in_float32_in_the_careful_plan_alone():
    shape = texting.Shape(layers=1)
    model = texting.causal(shape)
    for name, factor in (("0.second.scale", 300), ("0.second.shift", 300), ("0.up", 1 / 300)):
        stored = next(w for w in model.graph.initializer if w.name == name)
        values = numpy_helper.to_array(stored).copy()
        values[3] *= factor
        stored.CopyFrom(numpy_helper.from_array(values, name))
    feeds = texting.feeds(shape, np.random.default_rng(1).integers(0, shape.words, (1, 9)))
    clean = run(model, feeds)

    def error(rewrite):
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        made = rewrite(copy, texts(shape))
        return np.square(run(made.model, feeds) - clean).mean() / np.square(clean).mean(), made.how

    careful, how = error(int8_mixed)
    plain, other = error(int8_minmax)
    assert "of uneven input in float32" in how
    assert "uneven" not in other
    assert careful < plain / 2


@pytest.mark.parametrize("lengths", [(8, 8, 8), (8, 5, 11)])
def test_what_enters_a_convolution_has_its_channels_on_axis_1_however_it_is_fed(lengths):
    rng = np.random.default_rng(2)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, "t"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 6, "t"])
    weights = {"w": rng.normal(size=(6, 4, 3)), "b": rng.normal(size=6)}
    stored = [numpy_helper.from_array(v.astype(np.float32), k) for k, v in weights.items()]
    node = helper.make_node("Conv", ["x", "w", "b"], ["y"], pads=[1, 1])
    graph = helper.make_graph([node], "g", [x], [y], stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    means = np.array([5.0, -1.0, 0.0, 2.0])
    waves = [(rng.normal(size=(1, 4, n)) + means[:, None]).astype(np.float32) for n in lengths]
    made = []
    for given in (lambda: iter(waves), lambda: ({"x": wave} for wave in waves)):
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        seen = observe(copy, ["x"], given)
        np.testing.assert_allclose(seen.means["x"], means, atol=1.0)
        made.append(int8_minmax(copy, RewriteContext(None, given, "input")).model.SerializeToString())
    assert made[0] == made[1]
