"""8-bit integers in a graph: what is quantised, what is not, and how near it stays."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, quantize_static

from holdfast.core.model import Card, Head, Input
from holdfast.core.registry import names, part
from holdfast.core.types import Size
from holdfast.graph.rewrite.calibration import observe
from holdfast.graph.rewrite.int8 import int8_minmax, int8_mixed, int8_per_tensor
from holdfast.graph.rewrite.quant_plan import plan_of, tidy
from holdfast.graph.rewrite.types import CannotRewrite, RewriteContext
from holdfast.graph.session import runtime

CARD = Card("detect", Input(Size(16, 16)), Head("yolox"), ("a",))
RNG = np.random.default_rng(7)
IMAGES = [RNG.normal(0, 1, (1, 3, 16, 16)).astype(np.float32) for _ in range(12)]
CONTEXT = RewriteContext(CARD, lambda: iter(IMAGES))
INT8 = [n for n in names("rewrite") if n.startswith("int8") and n != "int8-dynamic"]


def weight(*shape, scale=0.3, seed=0):
    return np.random.default_rng(seed).normal(0, scale, shape).astype(np.float32)


def model_of(nodes, weights, outputs, opset=13, shape=(1, 3, 16, 16)):
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, list(shape))
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in outputs.items()]
    stored = [numpy_helper.from_array(np.asarray(v), k) for k, v in weights.items()]
    graph = helper.make_graph(nodes, "g", [x], ends, stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=7)


def detector(opset=13):
    """Conv, batch norm, SiLU, a residual, a pool, two heads whose outputs are activated and joined."""
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["c0"], "stem", pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c0", "g", "b", "m", "v"], ["n0"], "norm"),
        helper.make_node("Sigmoid", ["n0"], ["s0"]),
        helper.make_node("Mul", ["n0", "s0"], ["a0"], "silu"),
        helper.make_node("Conv", ["a0", "w1", "b1"], ["c1"], "middle", pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["c1", "a0"], ["r"], "residual"),
        helper.make_node("MaxPool", ["r"], ["p"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["p", "w2", "b2"], ["box"], "boxes"),
        helper.make_node("Conv", ["p", "w3", "b3"], ["raw"], "scores"),
        helper.make_node("Sigmoid", ["raw"], ["score"], "activate"),
        helper.make_node("Concat", ["box", "score"], ["y"], "join", axis=1),
    ]
    weights = {
        "w0": weight(8, 3, 3, 3), "g": np.ones(8, np.float32) * 1.5, "b": weight(8, seed=1),
        "m": weight(8, seed=2), "v": np.ones(8, np.float32), "w1": weight(8, 8, 3, 3, scale=0.1),
        "b1": weight(8, seed=3), "w2": weight(4, 8, 1, 1), "b2": weight(4, scale=40.0),
        "w3": weight(2, 8, 1, 1), "b3": weight(2),
    }  # fmt: skip
    return model_of(nodes, weights, {"y": [1, 6, 8, 8]}, opset)


def run(model, x, outputs=None):
    options = runtime().SessionOptions()
    options.log_severity_level = 4
    session = runtime().InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(outputs, {"x": x})[0]


def noise_over_signal(rewrite, model):
    made = rewrite(onnx.ModelProto.FromString(model.SerializeToString()), CONTEXT).model
    wrong = [run(made, x) - run(model, x) for x in IMAGES]
    return np.mean(np.square(wrong)) / np.mean(np.square([run(model, x) for x in IMAGES]))


@pytest.mark.parametrize("name", INT8)
def test_every_method_stays_near_and_says_how(name):
    rewrite = part("rewrite", name).function
    assert part("rewrite", name).facts["calibrated"]
    assert 0 < noise_over_signal(rewrite, detector()) < 0.01
    made = rewrite(detector(), CONTEXT)
    assert made.how.startswith("12 images, ")
    assert "QDQ" in made.how
    assert len(made.changed) == (2 if name == "int8-mixed" else 4)  # it leaves the two heads in float32


def test_the_plan_of_a_detector():
    model = tidy(detector())
    plan = plan_of(model)
    assert not [n for n in model.graph.node if n.op_type == "BatchNormalization"]
    assert len(plan.layers) == 4
    # The image, SiLU's output, the middle layer's output before the sum, the sum: not what heads make.
    assert [name for name in plan.readers if name in ("x", "a0", "c1", "r")] == list(plan.readers)
    assert len(plan.readers) == 4
    assert plan.in_float32 == ("Sigmoid",)  # and the heads' own outputs, which no one quantises


def test_outputs_of_heads_are_not_quantised():
    made = int8_minmax(detector(), CONTEXT).model
    rounded = {n.input[0] for n in made.graph.node if n.op_type == "QuantizeLinear"}
    assert rounded == {"x", "a0", "c1", "r"}
    # 4 boxes and 2 scores: far more different numbers than 8 bits have
    assert len(np.unique(np.concatenate([run(made, x)[0, :4] for x in IMAGES]))) > 1000


def test_weights_and_biases_are_integers():
    made = int8_minmax(detector(), CONTEXT).model
    stored = {t.name: numpy_helper.to_array(t) for t in made.graph.initializer}
    kinds = {v.dtype.name for k, v in stored.items() if k.endswith(":integers")}
    assert kinds == {"int8", "int32"}
    assert not [k for k, v in stored.items() if v.dtype == np.float32 and v.ndim == 4]
    per_channel = [v for k, v in stored.items() if k.endswith("w1:scale")]
    assert per_channel[0].shape == (8,)
    whole = {t.name: t for t in int8_per_tensor(detector(), CONTEXT).model.graph.initializer}
    assert list(next(t for k, t in whole.items() if k.endswith("w1:scale")).dims) == []


def test_integer_kernels_run_it(tmp_path):
    nodes = [
        helper.make_node("Conv", ["x", "w0", "b0"], ["c0"], "first"),
        helper.make_node("Relu", ["c0"], ["r0"]),
        helper.make_node("Conv", ["r0", "w1"], ["y"], "second"),
    ]
    weights = {"w0": weight(8, 3, 3, 3), "b0": weight(8), "w1": weight(4, 8, 1, 1)}
    made = int8_minmax(model_of(nodes, weights, {"y": [1, 4, 14, 14]}), CONTEXT).model
    options = runtime().SessionOptions()
    options.log_severity_level = 4
    options.optimized_model_filepath = str(tmp_path / "seen.onnx")
    runtime().InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])
    assert "QLinearConv" in {n.op_type for n in onnx.load(tmp_path / "seen.onnx").graph.node}


class Reader(CalibrationDataReader):
    def __init__(self):
        self.images = iter(IMAGES)

    def get_next(self):
        image = next(self.images, None)
        return None if image is None else {"x": image}


def constants(model):
    return {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}


def grids(model, operator, dtype):
    """Scale and zero point of every node of the operator whose integers are of the type, by its tensor."""
    stored, found = constants(model), {}
    for node in model.graph.node:
        if node.op_type == operator and stored[node.input[2]].dtype == dtype:
            found[node.input[0]] = stored[node.input[1]], stored[node.input[2]]
    return found


@pytest.mark.parametrize(("rewrite", "per_channel"), [(int8_minmax, True), (int8_per_tensor, False)])
def test_min_max_grids_and_weights_are_those_of_onnx_runtimes_quantize_static(tmp_path, rewrite, per_channel):
    nodes = [
        helper.make_node("Conv", ["x", "w0", "b0"], ["c0"], "first"),
        helper.make_node("Relu", ["c0"], ["r0"]),
        helper.make_node("Conv", ["r0", "w1"], ["c1"], "second"),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("Conv", ["r1", "w2"], ["y"], "third"),
    ]
    weights = {
        "w0": weight(8, 3, 3, 3), "b0": weight(8), "w1": weight(4, 8, 1, 1, seed=1),
        "w2": weight(2, 4, 1, 1, seed=2),
    }  # fmt: skip
    model = model_of(nodes, weights, {"y": [1, 2, 14, 14]})
    ours = rewrite(onnx.ModelProto.FromString(model.SerializeToString()), CONTEXT).model
    quantize_static(model, tmp_path / "theirs.onnx", Reader(), per_channel=per_channel)
    theirs = onnx.load(tmp_path / "theirs.onnx")
    wanted = grids(theirs, "QuantizeLinear", np.int8)
    got = grids(ours, "QuantizeLinear", np.int8)
    assert list(got) == ["x", "r0", "r1"]
    for name, (scale, zero) in got.items():
        assert scale == pytest.approx(wanted[name][0], rel=1e-6)
        assert zero == wanted[name][1]
    for kind, parts in ((np.int8, ("w0", "w1", "w2")), (np.int32, ("b0",))):
        own, other = (grids(made, "DequantizeLinear", kind) for made in (ours, theirs))
        for part_of in parts:
            mine = next(k for k in own if k.endswith(f":{part_of}:integers"))
            its = next(k for k in other if k.startswith(part_of))
            assert np.allclose(own[mine][0], other[its][0], rtol=1e-6)
            assert np.abs(constants(ours)[mine].astype(int) - constants(theirs)[its]).max() <= 1


def test_several_methods_run_the_calibration_images_twice_in_all():
    runs = []
    context = RewriteContext(CARD, lambda: runs.append(1) or iter(IMAGES))
    shared = [part("rewrite", name).function(detector(), context).model for name in INT8]
    assert len(runs) == 2  # extremes, then the histogram
    fresh = [RewriteContext(CARD, lambda: iter(IMAGES)) for _ in INT8]
    alone = [part("rewrite", n).function(detector(), c).model for n, c in zip(INT8, fresh, strict=True)]
    assert [m.SerializeToString() for m in shared] == [m.SerializeToString() for m in alone]


def test_an_old_opset_is_brought_up():
    made = int8_mixed(detector(opset=11), CONTEXT).model
    assert made.opset_import[0].version >= 13
    assert noise_over_signal(int8_mixed, detector(opset=11)) < 0.01


def test_two_builds_give_the_same_bytes():
    first, second = (int8_mixed(detector(), CONTEXT).model.SerializeToString() for _ in range(2))
    assert first == second


def test_without_images_it_says_what_is_missing():
    with pytest.raises(CannotRewrite, match="calibration images"):
        int8_mixed(detector(), RewriteContext(CARD))
    with pytest.raises(CannotRewrite, match="no calibration image"):
        int8_mixed(detector(), RewriteContext(CARD, lambda: iter(())))


def test_a_graph_without_layers_is_left_as_it_came():
    model = model_of([helper.make_node("Relu", ["x"], ["y"])], {}, {"y": [1, 3, 16, 16]})
    before = model.SerializeToString()
    made = int8_mixed(model, CONTEXT)
    assert made.changed == ()
    assert made.model.SerializeToString() == before


def uneven():
    """A depthwise convolution of channels whose sizes differ a thousandfold."""
    sizes = np.array([1000.0, 1, 1, 1, 1, 1, 1, 1], np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["c0"], "stem"),
        helper.make_node("Sigmoid", ["c0"], ["s0"]),
        helper.make_node("Mul", ["c0", "s0"], ["a0"]),
        helper.make_node("Conv", ["a0", "w1"], ["c1"], "depthwise", group=8),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("Conv", ["r1", "w2"], ["y"], "last"),
    ]
    weights = {
        "w0": weight(8, 3, 1, 1) * sizes[:, None, None, None],
        "w1": weight(8, 1, 3, 3) / sizes[:, None, None, None],
        "w2": weight(4, 8, 1, 1),
    }
    return model_of(nodes, weights, {"y": [1, 4, 14, 14]})


def test_a_layer_whose_input_is_uneven_stays_in_float32():
    made = int8_mixed(uneven(), CONTEXT)
    assert "depthwise" in made.how
    assert set(made.changed) == {"stem"}
    assert "the last layer in float32" in made.how
    assert noise_over_signal(int8_mixed, uneven()) < 0.2 * noise_over_signal(int8_minmax, uneven())


def test_dead_channels_and_large_biases_do_not_overflow():
    w = weight(4, 3, 1, 1)
    w[2] = 0.0
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["y"], "only")]
    bias = np.array([0, 1, 5e4, -3], np.float32)
    model = model_of(nodes, {"w": w, "b": bias}, {"y": [1, 4, 16, 16]})
    made = int8_mixed(model, CONTEXT).model
    assert np.abs(run(made, IMAGES[0])[0, 2] - 5e4).max() < 1.0


@pytest.mark.parametrize("transposed", [0, 1])
def test_a_gemm_behind_a_flatten(transposed):
    shape = (5, 48) if transposed else (48, 5)
    nodes = [
        helper.make_node("AveragePool", ["x"], ["p"], kernel_shape=[4, 4], strides=[4, 4]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "w", "b"], ["y"], "head", transB=transposed),
    ]
    model = model_of(nodes, {"w": weight(*shape), "b": weight(5)}, {"y": [1, 5]})
    assert 0 < noise_over_signal(int8_mixed, model) < 0.01
    assert int8_mixed(model, CONTEXT).changed == ("head",)


def test_padding_with_zeros_moves_the_grid_and_with_others_does_not():
    def padded(value):
        nodes = [
            helper.make_node("Relu", ["x"], ["r"]),
            helper.make_node("Pad", ["r", "pads", "value"], ["p"]),
            helper.make_node("Conv", ["p", "w"], ["y"], "conv"),
        ]
        pads = np.array([0, 0, 1, 1, 0, 0, 1, 1], np.int64)
        values = {"pads": pads, "value": np.float32(value), "w": weight(2, 3, 3, 3)}
        return tuple(plan_of(model_of(nodes, values, {"y": [1, 2, 16, 16]})).readers)

    assert padded(0.0) == ("r",)
    assert padded(9.0) == ("p",)


def test_observation_counts_all_values_and_finds_the_extremes():
    model = tidy(detector())
    found = observe(model, ["x", "a0"], lambda: iter(IMAGES))
    assert found.images == 12
    assert found.statistics["x"].low == min(x.min() for x in IMAGES)
    assert found.statistics["x"].high == max(x.max() for x in IMAGES)
    assert found.statistics["x"].counts.sum() == sum(x.size for x in IMAGES)
    assert np.allclose(found.means["x"], np.mean(IMAGES, axis=(0, 1, 3, 4)), atol=1e-6)
    assert np.allclose(found.variances["x"], np.var(IMAGES, axis=(0, 1, 3, 4)), atol=1e-5)
