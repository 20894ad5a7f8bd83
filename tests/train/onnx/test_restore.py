"""Folded batch normalisation restored, and normalisations that share their weights through Identity nodes."""

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from holdfast.graph.session import runtime
from holdfast.train.onnx import open_trainable
from holdfast.train.onnx.restore import folded_convolutions, own_normalisation_weights, restore_batch_norm

RNG = np.random.default_rng(0)


def tensor(name, *shape):
    return numpy_helper.from_array(RNG.normal(0, 0.5, shape).astype(np.float32), name)


def graph(nodes, weights):
    x = helper.make_tensor_value_info("x", 1, ["n", 3, 8, 8])
    y = helper.make_tensor_value_info("y", 1, ["n", 2])
    proto = helper.make_model(
        helper.make_graph(nodes, "g", [x], [y], weights), opset_imports=[helper.make_opsetid("", 17)]
    )
    proto.ir_version = 8
    return proto


def folded_net():
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], "first", kernel_shape=[3, 3]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Conv", ["r", "v"], ["d"], "bare", kernel_shape=[1, 1]),
        helper.make_node("GlobalAveragePool", ["d"], ["g"]),
        helper.make_node("Conv", ["g", "s", "t"], ["h"], "scores", kernel_shape=[1, 1]),
        helper.make_node("Flatten", ["h"], ["y"]),
    ]
    sizes = {"w": (4, 3, 3, 3), "b": (4,), "v": (5, 4, 1, 1), "s": (2, 5, 1, 1), "t": (2,)}
    return graph(nodes, [tensor(name, *size) for name, size in sizes.items()])


def run(proto, x):
    session = runtime().InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


def test_restored_normalisation_has_the_statistics_and_keeps_the_scores():
    proto, x = folded_net(), RNG.normal(0, 1, (16, 3, 8, 8)).astype(np.float32)
    restored, names = restore_batch_norm(proto, [x[:8], x[8:]])
    onnx.checker.check_model(restored)
    assert names == ("first",)
    np.testing.assert_allclose(run(restored, x), run(proto, x), atol=1e-5)
    weights = {w.name: numpy_helper.to_array(w) for w in restored.graph.initializer}
    probe = onnx.ModelProto()
    probe.CopyFrom(proto)
    probe.graph.output.append(helper.make_tensor_value_info("c", 1, None))
    session = runtime().InferenceSession(probe.SerializeToString(), providers=["CPUExecutionProvider"])
    values = session.run(["c"], {"x": x})[0]
    np.testing.assert_allclose(weights["c:mean"], values.mean((0, 2, 3)), atol=1e-5)
    np.testing.assert_allclose(weights["c:var"], values.var((0, 2, 3)), rtol=1e-4)
    net = open_trainable(restored, shape=(3, 8, 8))
    assert [n.scale for n in net.normalisations] == ["c:scale"]
    assert {"c:scale", "c:bias"} <= set(net.weights)


def test_every_other_convolution_has_its_reason():
    folded, others = folded_convolutions(folded_net())
    assert [node.name for node in folded] == ["first"]
    assert others == [
        "Conv 'bare' has no bias, so nothing was folded into it",
        "Conv 'scores' computes the scores",
    ]


def shared_net():
    nodes = [
        helper.make_node("Identity", ["scale"], ["scale2"], "same_scale"),
        helper.make_node("Identity", ["bias"], ["bias2"]),
        helper.make_node("Conv", ["x", "w"], ["c"], kernel_shape=[1, 1]),
        helper.make_node("BatchNormalization", ["c", "scale", "bias", "mean", "var"], ["d"], "one"),
        helper.make_node("Conv", ["d", "v"], ["e"], kernel_shape=[1, 1]),
        helper.make_node("BatchNormalization", ["e", "scale2", "bias2", "mean2", "var2"], ["f"], "two"),
        helper.make_node("GlobalAveragePool", ["f"], ["g"]),
        helper.make_node("Flatten", ["g"], ["y"]),
    ]
    sizes = {"w": (2, 3, 1, 1), "v": (2, 2, 1, 1), "scale": (2,), "bias": (2,), "mean": (2,), "mean2": (2,)}
    ones = [numpy_helper.from_array(np.ones(2, np.float32), name) for name in ("var", "var2")]
    return graph(nodes, [*(tensor(name, *size) for name, size in sizes.items()), *ones])


def test_normalisations_behind_identity_nodes_have_their_own_scale_and_bias():
    net = open_trainable(shared_net(), shape=(3, 8, 8), own=True)
    pairs = [(n.scale, n.bias) for n in net.normalisations]
    assert pairs == [("scale", "bias"), ("scale2", "bias2")]
    assert {"scale", "bias", "scale2", "bias2"} <= set(net.weights)
    proto = shared_net()
    assert own_normalisation_weights(proto.graph) == ("same_scale", "bias2")
    x = RNG.normal(0, 1, (3, 3, 8, 8)).astype(np.float32)
    shared = shared_net()
    for weight in proto.graph.initializer:  # the same draws
        for other in shared.graph.initializer:
            if other.name == weight.name:
                other.CopyFrom(weight)
    assert run(proto, x) == pytest.approx(run(shared, x))
