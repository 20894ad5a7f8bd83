"""What lowering as a whole promises: compact nets, fixed inputs folded away, clear refusals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper

from helpers.lower import agree, by_runtime, compare, model, one
from holdfast.core.errors import ModelError
from holdfast.graph.ir import Activation, Dense, FreeInputs, Net, evaluate
from holdfast.graph.lower import lower_onnx
from holdfast.graph.torch import TorchNet

RNG = np.random.default_rng(3)


def f(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def n(operator: str, inputs: str, outputs: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(operator, inputs.split(), outputs.split(), **attributes)


def kinds(net: Net) -> list[str]:
    return [type(s).__name__ for s in net.steps]


def perceptron() -> onnx.ModelProto:
    """Normalised input, flattened, two layers: the shape of ACAS Xu and of the MNIST nets."""
    weights = {"m": f(1, 1, 1, 5), "d": np.float32(2), "w": f(5, 4), "b": f(4), "v": f(4, 3), "c": f(3)}
    nodes = [
        n("Sub", "x m", "s"),
        n("Div", "s d", "t"),
        n("Flatten", "t", "f"),
        n("MatMul", "f w", "p"),
        n("Add", "p b", "q"),
        n("Relu", "q", "r"),
        n("MatMul", "r v", "u"),
        n("Add", "u c", "y"),
    ]
    return model(nodes, {"x": (1, 1, 1, 5)}, weights=weights)


def test_a_perceptron_is_dense_relu_dense() -> None:
    assert kinds(agree(perceptron())) == ["FreeInputs", "Dense", "Activation", "Dense"]


def test_fixed_inputs_vanish_from_the_first_layer() -> None:
    lower = np.array([0.0, 0.5, -1.0, 0.1, 0.1])
    upper = np.array([1.0, 0.5, 1.0, 0.1, 0.1 + 1e-12])  # the last two are one float32
    net = lower_onnx(perceptron(), lower, upper)
    assert net.free.tolist() == [0, 2]
    assert net.template.shape == (1, 1, 1, 5)
    assert net.template.ravel()[3] == np.float32(0.1)
    assert kinds(net) == ["FreeInputs", "Dense", "Activation", "Dense"]
    assert isinstance(net.steps[1], Dense)
    assert net.steps[1].weight.shape == (4, 2)


def test_all_inputs_fixed_is_a_constant() -> None:
    point = f(5).astype(np.float64)
    proto = perceptron()
    net = lower_onnx(proto, point, point)
    assert net.inputs == 0
    compare(net, point[None].astype(np.float32), by_runtime(proto, point[None]))


def test_a_residual_net_keeps_its_convolutions() -> None:
    weights = {
        "w": f(4, 2, 3, 3), "z": f(4), "s": f(4), "o": f(4), "m": f(4), "v": np.abs(f(4)) + 0.1,
        "u": f(4, 4, 3, 3), "k": f(4, 2, 1, 1), "a": f(3, 64), "b": f(3),
    }  # fmt: skip
    nodes = [
        n("Conv", "x w z", "c", pads=[1, 1, 1, 1]),
        n("BatchNormalization", "c s o m v", "d"),
        n("Relu", "d", "e"),
        n("Conv", "e u", "g", pads=[1, 1, 1, 1]),
        n("Conv", "x k", "h"),
        n("Add", "g h", "i"),
        n("Relu", "i", "j"),
        n("Flatten", "j", "l"),
        n("Gemm", "l a b", "y", transB=1),
    ]
    net = agree(model(nodes, {"x": (1, 2, 4, 4)}, weights=weights))
    assert sorted(kinds(net)) == sorted(
        ["FreeInputs", "Conv", "Activation", "Conv", "Conv", "WeightedSum", "Activation", "Dense"]
    )


def test_channels_last_nets_need_no_take_in_between() -> None:
    weights = {"w": f(3, 2, 3, 3), "b": f(3), "u": f(2, 3, 1, 1), "v": f(32, 2)}
    nodes = [
        n("Transpose", "x", "a", perm=[0, 3, 1, 2]),
        n("Conv", "a w", "c", pads=[1, 1, 1, 1]),
        n("Transpose", "c", "d", perm=[0, 2, 3, 1]),
        n("Add", "d b", "e"),
        n("Relu", "e", "g"),
        n("Transpose", "g", "h", perm=[0, 3, 1, 2]),
        n("Conv", "h u", "i"),
        n("Transpose", "i", "j", perm=[0, 2, 3, 1]),
        n("Flatten", "j", "k"),
        n("MatMul", "k v", "y"),
    ]
    net = agree(model(nodes, {"x": (1, 4, 4, 2)}, weights=weights))
    assert kinds(net) == ["FreeInputs", "Selection", "Conv", "Activation", "Conv", "Dense"]


def test_a_flat_input_reshaped_for_a_conv_costs_nothing() -> None:
    nodes = [n("Reshape", "x s", "a"), n("Conv", "a w", "y")]
    net = agree(model(nodes, {"x": (1, 18)}, weights={"s": np.array([1, 2, 3, 3]), "w": f(1, 2, 2, 2)}))
    assert kinds(net) == ["FreeInputs", "Conv"]
    assert net.steps[0].shape == (2, 3, 3)


def test_one_neuron_per_value_though_it_is_copied() -> None:
    nodes = [helper.make_node("Resize", ["x", "", "s"], ["a"]), n("Relu", "a", "y")]
    net = agree(model(nodes, {"x": (1, 1, 2, 2)}, weights={"s": np.array([1, 1, 2, 2], np.float32)}))
    assert [s.shape for s in net.steps] == [(1, 2, 2), (1, 2, 2), (16,)]


@pytest.mark.parametrize("pads", [[0, 0, 0, 0], [1, 0, 0, 1]])
def test_normalisation_before_a_conv_is_merged_unless_padding_would_see_it(pads: list[int]) -> None:
    weights = {"m": f(2, 1, 1), "s": f(2, 1, 1), "w": f(4, 1, 2, 2)}
    nodes = [n("Mul", "x s", "a"), n("Sub", "a m", "b"), n("Conv", "b w", "y", pads=pads, group=2)]
    net = agree(model(nodes, {"x": (1, 2, 3, 3)}, weights=weights))
    assert kinds(net) == (["FreeInputs", "ScaleShift", "Conv"] if any(pads) else ["FreeInputs", "Conv"])


def test_copies_before_a_matrix_product_are_summed() -> None:
    nodes = [n("Tile", "x r", "a"), n("MatMul", "a w", "y")]
    net = agree(model(nodes, {"x": (1, 3)}, weights={"r": np.array([1, 2]), "w": f(6, 2)}))
    assert kinds(net) == ["FreeInputs", "Dense"]


def test_sum_of_two_tensors_turned_alike_needs_no_take() -> None:
    nodes = [
        n("Relu", "x", "a"),
        n("Tanh", "x", "b"),
        n("Transpose", "a", "c", perm=[1, 2, 0]),
        n("Transpose", "b", "d", perm=[1, 2, 0]),
        n("Add", "c d", "e"),
        n("Transpose", "e", "y", perm=[2, 0, 1]),
    ]
    net = agree(model(nodes, {"x": (2, 3, 4)}))
    assert kinds(net) == ["FreeInputs", "Activation", "Activation", "WeightedSum"]


def test_only_what_is_read_is_computed() -> None:
    weights = {"w": f(4, 6), "s": np.array([1]), "e": np.array([3]), "a": np.array([1])}
    nodes = [n("MatMul", "x w", "p"), n("Slice", "p s e a", "y"), n("NonZero", "x", "unused")]
    net = agree(model(nodes, {"x": (1, 4)}, weights=weights))
    assert kinds(net) == ["FreeInputs", "Dense"]
    assert net.outputs == 2


def test_a_shared_layer_is_not_merged_twice() -> None:
    weights = {"w": f(4, 4), "b": f(4)}
    nodes = [n("MatMul", "x w", "p"), n("Add", "p b", "q"), n("Relu", "q", "r"), n("Add", "p r", "y")]
    net = agree(model(nodes, {"x": (1, 4)}, weights=weights))
    assert kinds(net).count("Dense") == 1


def test_shapes_computed_in_the_graph_are_folded() -> None:
    weights = {"z": np.array([0]), "k": np.array([-1]), "i": np.array(0)}
    nodes = [
        n("Shape", "x", "s"),
        n("Gather", "s i", "g"),
        n("Unsqueeze", "g z", "u"),
        n("Concat", "u k", "c", axis=0),
        n("Reshape", "x c", "r"),
        helper.make_node("ConstantOfShape", ["s"], ["o"], value=helper.make_tensor("v", 1, [1], [2.0])),
        n("Reshape", "o c", "p"),
        n("Mul", "r p", "y"),
    ]
    assert kinds(agree(model(nodes, {"x": (1, 2, 3)}, weights=weights))) == ["FreeInputs", "ScaleShift"]


@pytest.mark.parametrize(
    ("proto", "reason"),
    [
        (one("Floor", (1, 3)), "operator Floor cannot be lowered"),
        (one("Cast", (1, 3), to=TensorProto.INT64), "operator Cast cannot be lowered: a cast to int64"),
        (one("Cast", (1, 3), to=TensorProto.FLOAT16), "a cast to float16"),
        (one("Softmax", (1, 3)), "operator Softmax cannot be lowered"),
        (one("Asin", (1, 3)), "operator Asin cannot be lowered"),
        (one("LogSoftmax", (2, 3)), "in the middle of a network only a Softmax"),
        (one("Softmax", (2, 300)), "of at most 256 values"),
        (one("Pow", (1, 3), np.float32(2.5)), "exponents 0.5, 1, 2, 3, 4"),
        (one("Div", (1, 3), np.zeros(3, np.float32)), "constant 0"),
        (one("Reshape", (1, 3), np.array([1, 4])), r"expected 4 values for shape \(1, 4\)"),
        (one("Clip", (1, 3), np.float32(2), np.float32(1)), "minimum 2.0 is above its maximum 1.0"),
        (model([n("Gather", "c x", "y")], {"x": (1, 2)}, weights={"c": f(2)}), "indices depends"),
    ],
)
def test_what_cannot_be_lowered_is_named(proto: onnx.ModelProto, reason: str) -> None:
    with pytest.raises(ModelError, match=f"node 'y'.*{reason}|{reason}"):
        lower_onnx(proto)


def test_the_file_is_named_too(tmp_path: Path) -> None:
    onnx.save(one("Floor", (1, 3)), str(tmp_path / "n.onnx"))
    with pytest.raises(ModelError, match=r"n\.onnx: node 'y': operator Floor"):
        lower_onnx(tmp_path / "n.onnx")


def test_a_last_softmax_is_dropped_only_when_the_caller_says_so() -> None:
    proto = model([n("MatMul", "x w", "a"), n("Softmax", "a", "y")], {"x": (1, 3)}, weights={"w": f(3, 4)})
    with pytest.raises(ModelError, match="Softmax"):
        lower_onnx(proto)
    net = lower_onnx(proto, drop_softmax=True)
    points = f(20, 3)
    order = np.argsort(by_runtime(proto, points), axis=1)
    np.testing.assert_array_equal(np.argsort(evaluate(net, points), axis=1), order)
    inside = model([n("Softmax", "x", "a"), n("Relu", "a", "y")], {"x": (1, 3)})
    groups = model([n("Softmax", "x", "y")], {"x": (2, 3)})
    # Not the last layer: computed. Not one over the whole output: not what the caller thinks of.
    with pytest.raises(ModelError, match="several groups"):
        lower_onnx(groups, drop_softmax=True)
    for net in (agree(inside, drop_softmax=True), agree(groups)):
        assert any(isinstance(s, Activation) and s.curve == "reciprocal" for s in net.steps)


def test_a_free_or_written_batch_is_one() -> None:
    nodes = [n("Reshape", "x s", "a"), n("MatMul", "a w", "y")]
    weights = {"s": np.array([7, 4]), "w": f(4, 2)}
    net = lower_onnx(model(nodes, {"x": (7, 2, 2)}, weights=weights), np.zeros(4), np.ones(4))
    assert (net.inputs, net.outputs, net.template.shape) == (4, 2, (1, 2, 2))
    free = lower_onnx(model(nodes[1:], {"a": ("n", 4)}, weights=weights))
    assert (free.inputs, free.outputs) == (4, 2)
    unknown = model([n("Relu", "x", "y")], {"x": (1, "k")})
    assert lower_onnx(unknown, np.zeros(6), np.ones(6)).inputs == 6
    with pytest.raises(ModelError, match=r"fixed shape beyond the batch, got \(1, '\?'\)"):
        lower_onnx(unknown)


def test_bounds_of_the_wrong_size_are_refused() -> None:
    with pytest.raises(ModelError, match="expected bounds of 5 inputs"):
        lower_onnx(perceptron(), np.zeros(4), np.ones(4))
    with pytest.raises(ModelError, match="one size, got 4 and 5"):
        lower_onnx(perceptron(), np.zeros(4), np.ones(5))


def test_integer_inputs_are_refused() -> None:
    value = helper.make_tensor_value_info("x", TensorProto.INT64, [1, 2])
    graph = helper.make_graph([n("Identity", "x", "y")], "g", [value], [onnx.ValueInfoProto(name="y")])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    with pytest.raises(ModelError, match="floating-point values, got int64"):
        lower_onnx(proto)


def test_functions_of_the_model_are_inlined() -> None:
    double = helper.make_function("own", "Double", ["a"], ["b"], [n("Add", "a a", "b")],
                                  [helper.make_opsetid("", 17)])  # fmt: skip
    node = helper.make_node("Double", ["x"], ["y"], domain="own")
    proto = model([node], {"x": (1, 3)})
    proto.functions.append(double)
    proto.opset_import.append(helper.make_opsetid("own", 1))
    points = f(2, 3)
    compare(lower_onnx(proto), points, 2.0 * points.astype(np.float64))


def test_torch_gives_gradients_in_any_type() -> None:
    net = lower_onnx(perceptron())
    points = torch.tensor(f(3, 5), dtype=torch.float64, requires_grad=True)
    TorchNet(net, points.dtype)(points)[:, 0].sum().backward()
    step = 1e-6 * torch.eye(5, dtype=torch.float64)
    there = TorchNet(net, torch.float64)
    for k in range(5):
        slope = (there(points + step[k]) - there(points - step[k]))[:, 0] / 2e-6
        torch.testing.assert_close(points.grad[:, k], slope.detach(), atol=1e-6, rtol=1e-6)
    assert TorchNet(net, torch.float32)(points.detach().float()).dtype == torch.float32


def test_sign_has_a_gradient_to_follow() -> None:
    net = lower_onnx(one("Sign", (1, 3)))
    points = torch.tensor([[0.5, -0.5, 3.0]], requires_grad=True)
    out = TorchNet(net, points.dtype)(points)
    out.sum().backward()
    assert out.tolist() == [[1.0, -1.0, 1.0]]
    assert points.grad.tolist() == [[1.0, 1.0, 0.0]]


NETS = [
    "test/test_sat.onnx", "test/test_small.onnx", "acasxu/ACASXU_run2a_3_3_batch_2000.onnx",
    "mnistfc/mnist-net_256x4.onnx", "oval21/**/cifar_deep_kw.onnx", "cifar10_resnet/**/resnet_4b.onnx",
    "eran/**/ffnnSIGMOID__Point_6x200.onnx", "eran/**/mnist_relu_9_200.onnx",
]  # fmt: skip


@pytest.mark.shared
@pytest.mark.parametrize("name", NETS)
def test_networks_of_the_competition(name: str, shared_data: Path) -> None:
    path = next(iter((shared_data / "vnncomp").glob(name)))
    net = lower_onnx(path)
    assert {"Selection", "ScaleShift"}.isdisjoint(kinds(net))
    assert isinstance(net.steps[0], FreeInputs)
    points = np.random.default_rng(0).random((3, net.inputs)).astype(np.float32)
    compare(net, points, by_runtime(onnx.load(str(path)), points), tolerance=1e-4)


def test_numbers_that_a_file_leaves_out_are_float32_as_well() -> None:
    (slope,) = [s.slope for s in lower_onnx(one("LeakyRelu", (1, 3))).steps if isinstance(s, Activation)]
    assert slope == float(np.float32(0.01)) != 0.01


def test_a_celu_with_an_alpha_below_zero_is_refused() -> None:
    with pytest.raises(ModelError, match=r"expected an alpha above 0, got -0\.5"):
        lower_onnx(one("Celu", (1, 3), alpha=-0.5))
