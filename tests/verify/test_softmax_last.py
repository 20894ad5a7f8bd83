"""A softmax as last layer is taken off only where it is one softmax over all outputs, and not folded away."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from helpers.models import save_graph
from holdfast.core.model import Network
from holdfast.core.property import Box, Budget, Property, Rows
from holdfast.graph.ir import evaluate
from holdfast.verify.pose import problem_of
from holdfast.verify.run import verify


def network(folder, groups, weight, bias):
    """A file: softmax of each of so many groups of x @ weight + bias."""
    weights = {
        "w": np.asarray(weight, np.float32),
        "b": np.asarray(bias, np.float32),
        "shape": np.array([1, groups, -1]),
    }
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["h"]),
        helper.make_node("Reshape", ["h", "shape"], ["r"]),
        helper.make_node("Softmax", ["r"], ["y"], axis=-1),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, len(weights["w"])])
    size = len(weights["b"]) // groups
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, groups, size])
    return Network("net", save_graph(folder / "net.onnx", nodes, [x], [y], weights))


def asked(model, lower, upper, row, bound):
    box = Box(np.array([lower]), np.array([upper]))
    return Property(model, box, (Rows(np.array([row], np.float64), np.array([bound])),))


def test_a_softmax_over_groups_of_outputs_is_not_taken_off(tmp_path):
    pytest.importorskip("torch")
    weight = [[1, 0, 0, 5, 0, 0]]
    model = network(tmp_path, 2, weight, [0] * 6)
    # p_0 = e^x / (e^x + 2) is 0.576 to 0.787 here, while p_3 of the other group is larger all over
    violated = verify(asked(model, [1.0], [2.0], [-1, 0, 0, 0, 0, 0], -0.5), Budget(10))
    assert violated.status == "violated"
    assert verify(asked(model, [1.0], [2.0], [-1, 0, 0, 0, 0, 0], -0.8), Budget(10)).status == "holds"


def test_a_softmax_of_constants_is_judged_as_what_it_is(tmp_path):
    pytest.importorskip("torch")
    # p = (0.3, 0.35, 0.35) whatever x is: both where x is fixed and where no output depends on it
    bias = np.log([0.3, 0.35, 0.35])
    model = network(tmp_path, 1, [[0, 0, 0]], bias)
    for upper in (1.0, 2.0):
        assert verify(asked(model, [1.0], [upper], [1, 0, 0], 0.31), Budget(10)).status != "holds"
        assert verify(asked(model, [1.0], [upper], [1, 0, 0], 0.2), Budget(10)).status == "holds"


def test_rows_before_a_softmax_are_asked_of_what_is_before_it_also_where_that_is_constant(tmp_path):
    bias = np.log([0.3, 0.35, 0.35])
    problem = problem_of(asked(network(tmp_path, 1, [[1, 2, 3]], bias), [0.0], [0.0], [1, 0, 0], 0.31))
    z = evaluate(problem.net, np.zeros((1, 0)))[0]
    assert np.allclose(z, bias)
    assert any((case.rows @ z <= case.bound).all() for case in problem.cases)
