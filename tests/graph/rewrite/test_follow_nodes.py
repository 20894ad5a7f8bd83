"""Less common nodes behind a pool: other layouts, other domains, graphs inside of nodes, NMS."""

import numpy as np
import pytest
from onnx import helper

from helpers.graphs import context, halved, image, model, node, run, weight
from holdfast.graph.rewrite.ceil import ceil
from holdfast.graph.rewrite.types import CannotRewrite

# An input of 20 cells: rounding down 10, up 11.
POOL = halved("p", "x")


def shape_of(nodes, weights=None, **options):
    return run(ceil(model(nodes, ["y"], weights, **options), context()).model, image())[0].shape


def test_channels_last():
    nodes = [
        POOL, node("Conv", ["p", "w"], ["c"], strides=[2, 2], pads=[1] * 4),
        node("Transpose", ["c"], ["t"], perm=[0, 2, 3, 1]),
        node("Transpose", ["p"], ["q"], perm=[0, 2, 3, 1]),
        node("Resize", ["t", "", "s"], ["u"], mode="nearest"), node("Add", ["u", "q"], ["y"]),
    ]  # fmt: skip
    factors = np.array([1, 2, 2, 1], np.float32)
    assert shape_of(nodes, {"w": weight(3, 3, 3, 3), "s": factors}) == (1, 11, 11, 3)


def test_an_operator_of_the_runtime_alone():
    nodes = [
        POOL,
        helper.make_node("Gelu", ["p"], ["g"], domain="com.microsoft"),
        node("Reshape", ["g", "t"], ["y"]),
    ]
    assert shape_of(nodes, {"t": np.array([1, 3, 100])}) == (1, 3, 121)


def test_suppression_in_the_graph():
    """What NMS gives depends on the image; the boxes before it follow."""
    nodes = [
        POOL, node("Reshape", ["p", "t"], ["f"]), node("Transpose", ["f"], ["b"], perm=[0, 2, 1]),
        node("Slice", ["f", "zero", "one", "one"], ["scores"]),
        node("Concat", ["b", "sides"], ["boxes"], axis=2),
        node("NonMaxSuppression", ["boxes", "scores", "most"], ["picked"]),
        node("Gather", ["picked", "two"], ["rows"], axis=1), node("Squeeze", ["boxes", "zero"], ["table"]),
        node("Gather", ["table", "rows"], ["y"], axis=0),
    ]  # fmt: skip
    weights = {
        "t": np.array([1, 3, 100]), "sides": np.ones((1, 100, 1), np.float32), "most": np.array([5]),
        "zero": np.array([0]), "one": np.array([1]), "two": np.array(2),
    }  # fmt: skip
    assert shape_of(nodes, weights) == (5, 4)


@pytest.mark.parametrize("source", ["p", "x"])
def test_a_graph_inside_a_node(source):
    """Refused if it takes what changed, left alone if not."""

    def branch(operator, name):
        out = helper.make_empty_tensor_value_info(name)
        return helper.make_graph([helper.make_node(operator, [source], [name])], name, [], [out])

    choice = node(
        "If", ["c"], ["z"], name="if", then_branch=branch("Relu", "a"), else_branch=branch("Tanh", "b")
    )
    made = model([POOL, choice, node("Relu", ["p"], ["y"])], ["y", "z"], {"c": np.array(True)})
    if source == "x":
        assert [o.shape[2] for o in run(ceil(made, context()).model, image())] == [11, 20]
        return
    with pytest.raises(CannotRewrite, match="If 'if' has a graph inside that takes what changed"):
        ceil(made, context())


def test_unpooling_is_refused():
    pool = halved("p", "x")
    pool.output.append("i")
    made = model(
        [pool, node("MaxUnpool", ["p", "i"], ["y"], name="un", kernel_shape=[2, 2], strides=[2, 2])], ["y"]
    )
    with pytest.raises(CannotRewrite, match="MaxUnpool 'un' puts values back by indices"):
        ceil(made, context())


def test_two_sides_of_different_parity():
    nodes = [POOL, node("Reshape", ["p", "a"], ["f"]), node("Reshape", ["f", "b"], ["y"])]
    weights = {"a": np.array([1, 3, 10 * 11]), "b": np.array([1, 3, 10, 11])}
    made = model(nodes, ["y"], weights, height=20, width=21)
    found = ceil(made, context(20, 21))
    assert run(found.model, image(20, 21))[0].shape == (1, 3, 11, 11)
    assert found.how == "1 MaxPool changed, 2 Reshape adapted"


def test_one_dimension_and_three():
    for rank in (1, 3):
        options = {"kernel_shape": [3] * rank, "strides": [2] * rank, "pads": [1] * (2 * rank)}
        cube = node("Reshape", ["x", "s"], ["v"])
        nodes = [cube, node("MaxPool", ["v"], ["p"], **options), node("Reshape", ["p", "t"], ["y"])]
        sides = [1200] if rank == 1 else [10, 10, 12]
        old = [600] if rank == 1 else [5, 5, 6]
        weights = {"s": np.array([1, 1, *sides]), "t": np.array([1, int(np.prod(old))])}
        assert shape_of(nodes, weights) == ((1, 601) if rank == 1 else (1, 6 * 6 * 7))
