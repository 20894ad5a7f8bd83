"""A part of a graph on many pictures: the same values as picture by picture, or no batches at all."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from helpers.models import save_graph
from holdfast.patchbench.positions.batches import noise, open_batches

RNG = np.random.default_rng(0)


def info(name, shape):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def opened(path):
    model = onnx.load(path)
    names = [port.name for port in model.graph.output]
    return open_batches(model, "x", names, noise(3, 8, 8))


def alone(batches, pictures):
    rows = [batches.alone({"x": picture[None]}) for picture in pictures]
    return [np.stack([value.ravel() for value in values]) for values in zip(*rows, strict=True)]


def shuffle_net(folder):
    """A channel shuffle by constants, an upsampling, and an end that drops the batch of one."""
    weights = {
        "w": RNG.normal(size=(8, 3, 3, 3)).astype(np.float32),
        "v": RNG.normal(size=(4, 4, 1, 1)).astype(np.float32),
        "to3": np.array([4, 2, 64], np.int64),
        "to5": np.array([2, 1, 4, 8, 8], np.int64),
        "scales": np.array([1, 1, 2, 2], np.float32),
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
        helper.make_node("Resize", ["a", "", "scales"], ["u"], mode="nearest"),
        helper.make_node("Conv", ["u", "v"], ["k"]),
        helper.make_node("GlobalAveragePool", ["k"], ["p"]),
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
    batches = opened(shuffle_net(tmp_path))
    assert not batches.why
    assert set(batches.cut) == {"a", "k"}  # what the nodes after the last filter read
    pictures = RNG.normal(size=(5, 3, 8, 8)).astype(np.float32)
    single, together = alone(batches, pictures), batches.run(pictures, {})
    for one, many in zip(single, together, strict=True):
        assert one.shape == many.shape
        np.testing.assert_allclose(many, one, rtol=1e-5, atol=1e-6)
    assert len(np.unique(single[1])) > 1  # the classes differ, so mixing up would be seen


def small_net(folder, *nodes, batch=1, shape=(1, 2, 6, 6)):
    """A filter `c` (1, 4, 6, 6) of the picture, then these nodes to the output y."""
    weights = {
        "w": RNG.normal(size=(4, 3, 3, 3)).astype(np.float32),
        "v": RNG.normal(size=(2, 4, 1, 1)).astype(np.float32),
        "none": np.zeros((2, 4, 1, 1), np.float32),
        "zero": np.array(0, np.int64),
        "axes": np.array([0], np.int64),
    }
    made = [helper.make_node("Conv", ["x", "w"], ["c"])]
    made += [helper.make_node(name, inputs, outputs, **told) for name, inputs, outputs, told in nodes]
    return save_graph(
        folder / "n.onnx", made, [info("x", [batch, 3, 8, 8])], [info("y", [batch, *shape[1:]])], weights
    )


FILTER = ("Conv", ["s", "v"], ["y"], {})


@pytest.mark.parametrize(
    ("nodes", "why"),
    [
        ([("CumSum", ["c", "zero"], ["s"], {}), FILTER], "a batch gives other values of 'y'"),
        (
            [
                ("Gather", ["c", "zero"], ["g"], {"axis": 0}),
                ("Unsqueeze", ["g", "axes"], ["s"], {}),
                FILTER,
            ],
            "a batch gives other values of 'y'",
        ),
        ([("Softmax", ["c"], ["s"], {"axis": 0}), FILTER], "do not depend on the picture"),
        ([("Conv", ["c", "none"], ["y"], {})], "do not depend on the picture"),
    ],
)
def test_pictures_that_a_batch_would_mix_up_run_alone(tmp_path, nodes, why):
    batches = opened(small_net(tmp_path, *nodes))
    assert why in batches.why
    pictures = RNG.normal(size=(5, 3, 8, 8)).astype(np.float32)
    np.testing.assert_array_equal(batches.run(pictures, {})[0], alone(batches, pictures)[0])


def test_a_free_batch_that_mixes_pictures_up_is_not_believed(tmp_path):
    batches = opened(small_net(tmp_path, ("Softmax", ["c"], ["s"], {"axis": 0}), FILTER, batch="n"))
    assert "a batch gives other values of 'y'" in batches.why


def test_a_graph_without_filters_runs_pictures_alone(tmp_path):
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    path = save_graph(tmp_path / "n.onnx", nodes, [info("x", [1, 3, 8, 8])], [info("y", [1, 3, 8, 8])], {})
    assert "no filter" in opened(path).why


def test_a_file_with_a_free_batch_is_run_whole(tmp_path):
    batches = opened(small_net(tmp_path, ("Relu", ["c"], ["y"], {}), batch="n", shape=(1, 4, 6, 6)))
    assert not batches.why
    assert list(batches.cut) == ["y"]
    assert batches.tail is None


def test_a_part_that_is_told_more_begins_at_its_source(tmp_path):
    nodes = [
        helper.make_node("Mul", ["x", "two"], ["p"]),
        helper.make_node("Conv", ["p", "w"], ["c"]),
        helper.make_node("ReduceMax", ["c"], ["m"], keepdims=0),
        helper.make_node(
            "ReduceMean", ["p"], ["a"], keepdims=0
        ),  # the source itself is read after the filter
        helper.make_node("Add", ["m", "a"], ["b"]),
        helper.make_node("Mul", ["b", "t"], ["y"]),
    ]
    weights = {"w": RNG.normal(size=(4, 3, 3, 3)).astype(np.float32), "two": np.array(2, np.float32)}
    path = save_graph(
        tmp_path / "n.onnx", nodes, [info("x", [1, 3, 8, 8]), info("t", [1])], [info("y", [1])], weights
    )
    told = {"t": np.array([3], np.float32)}
    batches = open_batches(onnx.load(path), "p", ["y"], noise(3, 8, 8), told)
    assert not batches.why
    pictures = RNG.normal(size=(5, 3, 8, 8)).astype(np.float32)
    (found,) = batches.run(pictures, told)
    wanted = [batches.alone({"p": picture[None], **told})[0] for picture in pictures]
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
