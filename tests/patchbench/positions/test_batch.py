"""A graph for one picture, made to take many."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from helpers.models import save_graph
from holdfast.patchbench.positions.batch import NotBatched, batched
from holdfast.verify.replay import session_of

RNG = np.random.default_rng(0)


def info(name, shape):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def both(path, pictures):
    """What pictures give one by one in the file, and together in the graph made for many."""
    data = path.read_bytes()
    alone, many = session_of(data), session_of(batched(data))
    single = [alone.run(None, {"x": p[None]}) for p in pictures]
    together = many.run(None, {"x": pictures})
    return [np.stack([np.ravel(s[i]) for s in single]) for i in range(len(together))], [
        np.reshape(t, (len(pictures), -1)) for t in together
    ]


def shuffle_net(folder):
    """A channel shuffle by constants, an upsampling by sizes, and an end that drops the batch of one."""
    weights = {
        "w": RNG.normal(size=(8, 3, 3, 3)).astype(np.float32),
        "v": RNG.normal(size=(4, 4, 1, 1)).astype(np.float32),
        "to3": np.array([4, 2, 64], np.int64),
        "to5": np.array([2, 1, 4, 8, 8], np.int64),
        "sizes": np.array([1, 4, 16, 16], np.int64),
        "flat": np.array([-1], np.int64),
        "four": np.array([0.1, 0.2, 0.3, 0.4], np.float32),
        "zero": np.array(0, np.int64),
        "one": np.array(1, np.int64),
        "begin": np.array([1], np.int64),
        "end": np.array([3], np.int64),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Reshape", ["c", "to3"], ["r"]),
        helper.make_node("Transpose", ["r"], ["t"], perm=[1, 0, 2]),
        helper.make_node("Reshape", ["t", "to5"], ["f"]),
        helper.make_node("Gather", ["f", "zero"], ["g0"], axis=0),
        helper.make_node("Gather", ["f", "one"], ["g1"], axis=0),
        helper.make_node("Conv", ["g1", "v"], ["h"]),
        helper.make_node("Add", ["g0", "h"], ["a"]),
        helper.make_node("Resize", ["a", "", "", "sizes"], ["u"], mode="nearest"),
        helper.make_node("GlobalAveragePool", ["u"], ["p"]),
        helper.make_node("Squeeze", ["p"], ["s"]),  # (4,): the batch of one is gone
        helper.make_node("Mul", ["s", "four"], ["m"]),
        helper.make_node("Slice", ["m", "begin", "end"], ["part"]),
        helper.make_node("Gather", ["m", "zero"], ["scalar"], axis=0),
        helper.make_node("Relu", ["part"], ["y"]),
        helper.make_node("ArgMax", ["m"], ["best"], axis=0, keepdims=1),
        helper.make_node("Cast", ["best"], ["z"], to=1),
        helper.make_node("Reshape", ["a", "flat"], ["q"]),
    ]
    outputs = [info("y", [2]), info("z", [1]), info("q", [256]), info("scalar", [])]
    return save_graph(folder / "shuffle.onnx", nodes, [info("x", [1, 3, 8, 8])], outputs, weights)


def test_constants_of_the_batch_follow(tmp_path):
    pictures = RNG.normal(size=(5, 3, 8, 8)).astype(np.float32)
    single, together = both(shuffle_net(tmp_path), pictures)
    for one, many in zip(single, together, strict=True):
        assert one.shape == many.shape
        np.testing.assert_allclose(many, one, rtol=1e-5, atol=1e-6)
    assert len(np.unique(single[1])) > 1  # the classes differ, so mixing up would be seen


@pytest.mark.parametrize(
    ("nodes", "shape", "why"),
    [
        ([helper.make_node("CumSum", ["x", "axis"], ["y"])], [1, 3, 8, 8], "CumSum"),
        ([helper.make_node("Softmax", ["x"], ["y"], axis=0)], [1, 3, 8, 8], "along the batch"),
        ([helper.make_node("Concat", ["x", "c"], ["y"], axis=1)], [1, 4, 8, 8], "constant"),
    ],
)
def test_what_cannot_take_many_is_named(tmp_path, nodes, shape, why):
    weights = {"axis": np.array(0, np.int64), "c": np.zeros((1, 1, 8, 8), np.float32)}
    path = save_graph(tmp_path / "n.onnx", nodes, [info("x", [1, 3, 8, 8])], [info("y", shape)], weights)
    with pytest.raises(NotBatched, match=why):
        batched(path.read_bytes())


@pytest.mark.parametrize("opset", [11, 17])
def test_a_softmax_keeps_the_axes_of_its_opset(tmp_path, opset):
    nodes = [helper.make_node("Softmax", ["x"], ["y"])]
    path = save_graph(
        tmp_path / "n.onnx", nodes, [info("x", [1, 3, 2, 2])], [info("y", [1, 3, 2, 2])], {}, opset=opset
    )
    single, together = both(path, RNG.normal(size=(4, 3, 2, 2)).astype(np.float32))
    np.testing.assert_allclose(together[0], single[0], rtol=1e-5)


def test_the_file_itself_is_not_touched(tmp_path):
    path = shuffle_net(tmp_path)
    before = path.read_bytes()
    batched(before)
    assert path.read_bytes() == before
    onnx.checker.check_model(onnx.load_from_string(before))
