"""Files as torch modules: names, roles, statistics, copies; and files again, with nothing else changed."""

import copy

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

torch = pytest.importorskip("torch")

from helpers.classifiers import model_of, node, normalised_classifier  # noqa: E402
from holdfast.core.errors import InputError, ModelError  # noqa: E402
from holdfast.train.onnx import export_trained, open_trainable  # noqa: E402
from holdfast.train.onnx.export import check_alike, scores_of  # noqa: E402

RNG = np.random.default_rng(1)


def floats(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def images(net, count=3):
    return torch.from_numpy(floats(count, *net.plan.shape))


@pytest.fixture
def net(tmp_path):
    return open_trainable(normalised_classifier(tmp_path))


def test_parameters_and_buffers_have_the_names_of_the_file(net):
    assert set(dict(net.named_parameters())) == {
        "conv1.weight",
        "conv2.weight",
        "fc.weight",
        "fc.bias",
        "bn1.scale",
        "bn1.bias",
        "bn2.scale",
        "bn2.bias",
    }
    assert set(dict(net.named_buffers())) == {"bn1.mean", "bn1.var", "bn2.mean", "bn2.var"}
    assert [(n.operator, n.scale, n.mean) for n in net.normalisations] == [
        ("BatchNormalization", "bn1.scale", "bn1.mean"),
        ("BatchNormalization", "bn2.scale", "bn2.mean"),
    ]


def test_the_last_softmax_is_left_out_and_stays_in_the_file(tmp_path):
    with_it = open_trainable(normalised_classifier(tmp_path, "a"))
    without = open_trainable(normalised_classifier(tmp_path, "b", softmax=False))
    x = images(with_it)
    assert torch.equal(with_it(x), without(x))
    assert with_it.plan.dropped == "Softmax"
    assert [n.op_type for n in export_trained(with_it).graph.node][-1] == "Softmax"


@pytest.mark.parametrize("behind", ["Flatten", "Identity", "Squeeze", ""])
def test_a_softmax_may_have_moves_behind_it(behind):
    nodes = [node("Conv", "x w", "h"), node("Softmax", "h", "s" if behind else "y", axis=1)]
    if behind:
        nodes.append(node(behind, "s axes" if behind == "Squeeze" else "s", "y"))
    weights = {"w": floats(5, 3, 8, 8)} | ({"axes": np.array([2, 3])} if behind == "Squeeze" else {})
    found = open_trainable(model_of(nodes, weights))
    assert found.plan.dropped == "Softmax"
    assert not torch.allclose(found(images(found)).sum(1), torch.ones(3))


def test_a_softmax_in_the_middle_stays():
    nodes = [node("Conv", "x w", "h"), node("Softmax", "h", "s", axis=1), node("Relu", "s", "y")]
    found = open_trainable(model_of(nodes, {"w": floats(5, 3, 8, 8)}))
    assert found.plan.dropped == ""
    assert torch.allclose(found(images(found)).sum(1), torch.ones(3))


def test_a_weight_of_several_nodes_is_one_parameter_with_one_gradient():
    nodes = [node("Conv", "x w", "a", pads=[1, 1, 1, 1]), node("Conv", "a w", "y", pads=[1, 1, 1, 1])]
    found = open_trainable(model_of(nodes, {"w": floats(3, 3, 3, 3)}))
    assert list(found.weights) == ["w"]
    with torch.no_grad():
        found.weights["w"].mul_(0.5)
    new = export_trained(found)
    x = images(found)
    np.testing.assert_allclose(
        found(x).detach().numpy(), scores_of(new, x.numpy(), "y", 0), rtol=1e-4, atol=1e-5
    )


def test_what_is_a_weight_is_told_by_its_use():
    nodes = [
        node("Sub", "x mean", "m"),  # prepares the input: no weight
        node("Identity", "w", "w1"),
        node("Conv", "m w1", "a"),
        node("Mul", "a gain", "b"),
        node("Clip", "b low high", "c"),
        node("Mul", "c half", "d"),
        node("Flatten", "d", "e"),
        node("Transpose", "k", "kt", perm=[1, 0]),
        node("MatMul", "e kt", "f"),
        node("Reshape", "f shape", "y"),
    ]
    weights = {
        "mean": floats(3, 1, 1),
        "w": floats(4, 3, 8, 8),
        "gain": floats(4, 1, 1),
        "low": np.float32(-3),
        "high": np.float32(3),
        "half": np.float32(0.5),
        "k": floats(5, 4),
        "shape": np.array([-1, 5]),
    }
    found = open_trainable(model_of(nodes, weights))
    assert set(found.weights) == {"w", "gain", "k"}
    assert set(found.plan.untrained) == {"mean", "low", "high", "half"}


def test_a_token_set_beside_what_was_computed_is_a_weight():
    nodes = [
        node("Conv", "x w", "a"),
        node("Reshape", "a s", "b"),
        node("Concat", "b token", "c", axis=1),
        node("Add", "c places", "y"),
    ]
    weights = {
        "w": floats(4, 3, 8, 8),
        "s": np.array([1, 4, 1]),
        "token": floats(1, 1, 1),
        "places": floats(1, 5, 1),
    }
    found = open_trainable(model_of(nodes, weights, (1, 3, 8, 8)))
    assert set(found.weights) == {"w", "token", "places"}


def test_statistics_of_the_file_are_frozen_moving_ones_are_moved(net):
    x = images(net, 16) * 3 + 1
    for mode, moved in (("file", False), ("moving", True), ("batch", False)):
        fresh = copy.deepcopy(net).statistics(mode).train()
        fresh(x)
        assert torch.equal(fresh._buffers["bn1.mean"], net._buffers["bn1.mean"]) != moved, mode
    moving = copy.deepcopy(net).statistics("moving").eval()
    assert torch.equal(moving(x), net(x))
    assert not torch.allclose(copy.deepcopy(net).statistics("batch")(x), net(x))


def test_moving_statistics_are_those_torch_computes(net):
    moved = copy.deepcopy(net).statistics("moving").train()
    x = images(net, 16)
    moved(x)
    layer = torch.nn.BatchNorm2d(6)
    layer.train()(torch.nn.functional.conv2d(x, net.weights["conv1.weight"], padding=1))
    assert torch.allclose(moved._buffers["bn1.mean"], layer.running_mean, atol=1e-6)
    assert torch.allclose(moved._buffers["bn1.var"], layer.running_var, atol=1e-6)


def test_statistics_two_nodes_share_cannot_move():
    weights = {
        "w": floats(3, 3, 1, 1),
        "s": floats(3),
        "b": floats(3),
        "m": floats(3),
        "v": np.ones(3, np.float32),
    }
    nodes = [
        node("BatchNormalization", "x s b m v", "a"),
        node("Conv", "a w", "c"),
        node("BatchNormalization", "c s b m v", "y"),
    ]
    found = open_trainable(model_of(nodes, weights))
    with pytest.raises(InputError, match="share the running statistics 'm'"):
        found.statistics("moving")


def test_a_copy_and_a_saved_state_are_the_same_network(net, tmp_path):
    other = open_trainable(normalised_classifier(tmp_path, "other", seed=5))
    x = images(net)
    assert not torch.equal(other(x), net(x))
    missing = other.load_state_dict(net.state_dict())
    assert missing.missing_keys == missing.unexpected_keys == []
    assert torch.equal(other(x), net(x))
    with pytest.raises(RuntimeError, match="Unexpected key"):
        other.load_state_dict({**net.state_dict(), "conv9.weight": torch.zeros(1)})


def test_only_trained_weights_change_in_the_file(tmp_path):
    path = normalised_classifier(tmp_path)
    old = onnx.load(str(path))
    net = open_trainable(path)
    assert export_trained(net).SerializeToString() == old.SerializeToString()
    with torch.no_grad():
        net.weights["fc.bias"].add_(1.0)
    new = export_trained(net)
    assert new.metadata_props == old.metadata_props
    assert new.opset_import == old.opset_import
    assert [n.SerializeToString() for n in new.graph.node] == [n.SerializeToString() for n in old.graph.node]
    changed = [a.name for a, b in zip(new.graph.initializer, old.graph.initializer, strict=True) if a != b]
    assert changed == ["fc.bias"]
    np.testing.assert_array_equal(numpy_helper.to_array(new.graph.initializer[-1]), [1, 1])


def test_weights_may_be_constants_of_nodes():
    held = numpy_helper.from_array(floats(4, 3, 3, 3))
    limit = numpy_helper.from_array(np.float32(0.5))
    nodes = [
        helper.make_node("Constant", [], ["w"], value=held),
        helper.make_node("Constant", [], ["low"], value=limit),
        node("Conv", "x w", "h"),
        node("Clip", "h low", "y"),
    ]
    net = open_trainable(model_of(nodes, {}))
    assert list(net.weights) == ["w"]
    with torch.no_grad():
        net.weights["w"].mul_(2)
    new = export_trained(net)
    np.testing.assert_array_equal(
        numpy_helper.to_array(new.graph.node[0].attribute[0].t), 2 * numpy_helper.to_array(held)
    )
    assert new.graph.node[1] == net.plan.proto.graph.node[1]
    assert not new.graph.initializer


def test_a_number_that_is_not_finite_is_not_written(net):
    with torch.no_grad():
        net.weights["fc.bias"][0] = torch.nan
    with pytest.raises(ModelError, match=r"weight 'fc\.bias': has values that are NaN"):
        export_trained(net)


def test_a_difference_to_onnxruntime_is_found(net):
    with torch.no_grad():
        net.weights["fc.weight"].mul_(-1)
    with pytest.raises(ModelError, match="torch and ONNX Runtime differ"):
        check_alike(net, net.plan.proto)


def test_functions_of_the_file_are_inlined_and_stay_in_it():
    act = helper.make_function(
        "mine",
        "Double",
        ["a"],
        ["b"],
        [helper.make_node("Add", ["a", "a"], ["b"])],
        [helper.make_opsetid("", 17)],
    )
    nodes = [node("Conv", "x w", "h"), helper.make_node("Double", ["h"], ["y"], domain="mine")]
    model = model_of(nodes, {"w": floats(4, 3, 3, 3)})
    model.functions.append(act)
    model.opset_import.append(helper.make_opsetid("mine", 1))
    net = open_trainable(model)
    assert export_trained(net).functions


def test_memory_formats_are_for_weights_of_four_axes():
    nodes = [node("Conv", "x w", "a"), node("Unsqueeze", "a axis", "b"), node("Mul", "b k", "y")]
    model = model_of(nodes, {"w": floats(4, 3, 3, 3), "axis": np.array([1]), "k": floats(1, 1, 4, 6, 6)})
    net = open_trainable(model).to(memory_format=torch.channels_last)
    assert net.weights["w"].is_contiguous(memory_format=torch.channels_last)
    assert copy.deepcopy(net).weights["k"].is_contiguous()
    check_alike(net, export_trained(net))


def test_pixels_as_whole_numbers_may_come_in():
    nodes = [node("Cast", "x", "f", to=1), node("Conv", "f w", "y")]
    model = model_of(nodes, {"w": floats(4, 3, 3, 3)})
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.UINT8
    net = open_trainable(model)
    assert net(torch.zeros(1, 3, 8, 8, dtype=torch.uint8)).shape == (1, 144)


QDQ = [
    node("QuantizeLinear", "x scale zero", "q"),
    node("DequantizeLinear", "q scale zero", "d"),
    node("Conv", "d w", "y"),
]


@pytest.mark.parametrize(
    ("nodes", "weights", "said"),
    [
        (
            [node("Conv", "x w", "h"), node("NonZero", "h", "y")],
            {"w": floats(4, 3, 3, 3)},
            "node 'NonZero of y': operator NonZero cannot be trained: there is no differentiable operator",
        ),
        ([node("Relu", "x", "y")], {}, "no weights to train"),
        (
            QDQ,
            {"scale": np.float32(0.1), "zero": np.uint8(0), "w": floats(4, 3, 3, 3)},
            "node 'QuantizeLinear of q': operator QuantizeLinear cannot be trained: the model is quantised",
        ),
        (
            [node("Conv", "x w", "h"), node("Add", "h k", "y")],
            {"w": floats(4, 3, 3, 3), "k": floats(5)},
            "Add",
        ),
        (
            [node("Conv", "w v", "y")],
            {"w": floats(1, 4, 3, 3), "v": floats(4, 4, 3, 3)},
            "depend on the image",
        ),
    ],
)
def test_what_cannot_be_trained_is_told_in_one_line(nodes, weights, said):
    with pytest.raises(ModelError) as problem:
        open_trainable(model_of(nodes, weights))
    assert said in str(problem.value)
    assert "\n" not in str(problem.value)


def heads(batch, weights=None):
    """Tokens first and the batch second, as attention is often written; the batch stands in the middle."""
    nodes = [
        node("Conv", "x w", "a"),
        node("Reshape", "a s", "b"),
        node("Transpose", "b", "c", perm=[2, 0, 1]),
        node("Reshape", "c t", "d"),
        node("Transpose", "d", "e", perm=[1, 0, 2]),
        node("Sigmoid", "e", "f"),
        node("Reshape", "f u", "y"),
    ]
    shapes = {"s": np.array([1, 4, 36]), "t": np.array([36, 2, 2]), "u": np.array([1, 144])}
    return model_of(nodes, {"w": floats(4, 3, 3, 3)} | shapes | (weights or {}), (batch, 3, 8, 8))


@pytest.mark.parametrize("batch", [1, "n"])
def test_a_batch_that_stands_elsewhere_is_run_image_by_image(batch):
    model = heads(batch)
    net = open_trainable(model)
    assert net.plan.one_by_one
    x = images(net, 3)
    np.testing.assert_allclose(net(x).detach().numpy(), scores_of(model, x.numpy(), "y", 1), atol=1e-5)


def test_image_by_image_there_are_no_statistics_of_a_batch():
    model = heads(1, {"s1": floats(4), "b1": floats(4), "m1": floats(4), "v1": np.ones(4, np.float32)})
    model.graph.node[0].output[0] = "a0"
    model.graph.node.insert(1, node("BatchNormalization", "a0 s1 b1 m1 v1", "a"))
    net = open_trainable(model)
    with pytest.raises(InputError, match="the file is made for a batch of 1"):
        net.statistics("moving")


def test_a_file_that_says_any_batch_but_was_made_for_one():
    nodes = [node("Conv", "x w", "a"), node("Reshape", "a s", "y")]
    model = model_of(nodes, {"w": floats(4, 3, 3, 3), "s": np.array([1, 144])})
    net = open_trainable(model)
    assert (net.plan.fixed, net.plan.one_by_one) == (1, False)
    assert net(images(net, 3)).shape == (3, 144)


def test_half_precision_is_refused(tmp_path):
    model = model_of([node("Conv", "x w", "y")], {"w": floats(4, 3, 3, 3).astype(np.float16)})
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.FLOAT16
    onnx.save(model, str(tmp_path / "half.onnx"))
    with pytest.raises(ModelError, match=r"half\.onnx: .*no weights to train"):
        open_trainable(tmp_path / "half.onnx")


def test_an_open_size_needs_a_shape():
    model = model_of(
        [node("Conv", "x w", "h"), node("GlobalMaxPool", "h", "y")],
        {"w": floats(4, 3, 3, 3)},
        ("n", 3, "h", "w"),
    )
    with pytest.raises(ModelError, match="expected a fixed size"):
        open_trainable(model)
    assert open_trainable(model, shape=(3, 9, 7)).plan.shape == (3, 9, 7)


@pytest.mark.shared
@pytest.mark.parametrize("name", ["efflite0", "squeezenet10"])
def test_real_classifiers_can_be_trained(name, shared_data):
    net = open_trainable(shared_data / "models" / f"{name}.onnx")
    x = images(net, 1)
    net(x).square().mean().backward()
    assert all(w.grad is not None for w in net.weights.values())
    with torch.no_grad():
        for w in net.weights.values():
            w.sub_(1e-4 * w.grad)
    assert export_trained(net).ByteSize() == net.plan.proto.ByteSize()
