"""Networks that draw random numbers are refused by every engine."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from helpers.models import save_graph
from holdfast.core.errors import ModelError
from holdfast.core.model import Network
from holdfast.core.property import InputBox, LinearConstraints, Property
from holdfast.graph.inspect import read_proto
from holdfast.graph.lower import lower_onnx
from holdfast.graph.nodes import check_deterministic
from holdfast.verify import run as decide

FLOAT = TensorProto.FLOAT
HALVES = np.full((1, 2), 0.5, np.float32)
RATIO = {"ratio": np.array(0.5, np.float32)}


def saved(folder, nodes, weights=None, opset=17):
    x = helper.make_tensor_value_info("x", FLOAT, [1, 2])
    y = helper.make_tensor_value_info("y", FLOAT, [1, 2])
    return save_graph(folder / "net.onnx", nodes, [x], [y], weights or {}, opset=opset)


def dropout(inputs=("x",), **attributes):
    return helper.make_node("Dropout", list(inputs), ["y"], **attributes)


def constant(name, value):
    made = helper.make_tensor("v", TensorProto.BOOL, [], [value])
    return helper.make_node("Constant", [], [name], value=made)


def noisy(operator, **attributes):
    return [helper.make_node(operator, [], ["n"], shape=[1, 2], **attributes), add("n")]


def add(name):
    return helper.make_node("Add", ["x", name], ["y"])


def trains(value):
    return {**RATIO, "mode": np.array(value)}


REFUSED = {
    "dropout in training mode": ([dropout(["x", "ratio", "mode"])], trains(True), 17),
    "training mode of a Constant": ([constant("mode", True), dropout(["x", "", "mode"])], {}, 17),
    "training mode that is computed": (
        [
            helper.make_node("Greater", ["x", "limit"], ["g"]),
            helper.make_node("Cast", ["g"], ["c"], to=FLOAT),
            helper.make_node("ReduceMax", ["c"], ["m"], keepdims=0),
            helper.make_node("Cast", ["m"], ["mode"], to=TensorProto.BOOL),
            dropout(["x", "ratio", "mode"]),
        ],
        {**RATIO, "limit": np.zeros(1, np.float32)},
        17,
    ),
    "dropout without is_test": ([dropout()], {}, 6),
    "RandomNormal": (noisy("RandomNormal"), {}, 17),
    "RandomUniform": (noisy("RandomUniform", seed=1.0), {}, 17),
    "RandomNormalLike": ([helper.make_node("RandomNormalLike", ["x"], ["n"]), add("n")], {}, 17),
    "RandomUniformLike": ([helper.make_node("RandomUniformLike", ["x"], ["n"]), add("n")], {}, 17),
    "Bernoulli": (
        [helper.make_node("Bernoulli", ["p"], ["n"]), add("n")],
        {"p": HALVES},
        17,
    ),
    "Multinomial": (
        [
            helper.make_node("Multinomial", ["p"], ["i"], sample_size=2),
            helper.make_node("Cast", ["i"], ["n"], to=FLOAT),
            add("n"),
        ],
        {"p": HALVES},
        17,
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_random_network_is_refused(tmp_path, case):
    nodes, weights, opset = REFUSED[case]
    path = saved(tmp_path, nodes, weights, opset)
    with pytest.raises(ModelError, match="one input has many outputs"):
        check_deterministic(read_proto(path), "net")
    with pytest.raises(ModelError, match="cannot be lowered"):
        lower_onnx(path)
    box = InputBox(np.zeros((1, 2)), np.ones((1, 2)))
    question = Property(Network("net", path), box, (LinearConstraints(-np.eye(2)[:1], np.array([-1.5])),))
    verdict = decide.verify(question)
    assert verdict.status == "error"
    assert "export the model for inference" in verdict.note


PLAIN = {
    "dropout": ([dropout()], {}, 17),
    "dropout with a ratio": ([dropout(["x", "ratio"])], RATIO, 17),
    "dropout that is told not to train": ([dropout(["x", "ratio", "mode"])], trains(False), 17),
    "a Constant that says so": ([constant("mode", False), dropout(["x", "", "mode"])], {}, 17),
    "dropout of opset 7": ([dropout(ratio=0.9)], {}, 7),
    "dropout of opset 6": ([dropout(is_test=1)], {}, 6),
    "a random node nobody reads": ([*noisy("RandomNormal")[:1], dropout()], {}, 17),
}


@pytest.mark.parametrize("case", PLAIN)
def test_dropout_at_inference_is_the_identity(tmp_path, case):
    nodes, weights, opset = PLAIN[case]
    path = saved(tmp_path, nodes, weights, opset)
    check_deterministic(read_proto(path), "net")
    assert len(lower_onnx(path).steps) == 1


def branches(operator, inputs=(), **attributes):
    """An If whose branches run one node each."""
    both = {}
    for side in ("then", "else"):
        made = helper.make_node(operator, list(inputs), [side], **attributes)
        output = helper.make_tensor_value_info(side, FLOAT, [1, 2])
        both[f"{side}_branch"] = helper.make_graph([made], side, [], [output])
    return helper.make_node("If", ["yes"], ["n"], **both)


def test_random_nodes_inside_a_branch_are_found(tmp_path):
    nodes = [branches("RandomNormal", shape=[1, 2]), add("n")]
    path = saved(tmp_path, nodes, {"yes": np.array(True)})
    with pytest.raises(ModelError, match="If may run RandomNormal in a subgraph"):
        check_deterministic(read_proto(path), "net")
    with pytest.raises(ModelError, match="cannot be lowered"):
        lower_onnx(path)


def test_a_random_tensor_that_only_a_branch_reads_is_found(tmp_path):
    nodes = [*noisy("RandomNormal")[:1], branches("Neg", ["n"]), add("m")]
    nodes[1].output[0] = "m"
    path = saved(tmp_path, nodes, {"yes": np.array(True)})
    with pytest.raises(ModelError, match="RandomNormal draws random numbers"):
        check_deterministic(read_proto(path), "net")


def test_a_branch_without_random_nodes_is_accepted_whatever_its_names(tmp_path):
    nodes = [branches("Neg", ["x"], name="Dropout_1"), add("n")]
    check_deterministic(read_proto(saved(tmp_path, nodes, {"yes": np.array(True)})), "net")


@pytest.mark.parametrize("caller", ["node", "branch"])
def test_random_nodes_inside_a_function_are_found(tmp_path, caller):
    called = helper.make_node("Noise", ["x"], ["n"], domain="own")
    nodes = [called if caller == "node" else branches("Noise", ["x"], domain="own"), add("n")]
    path = saved(tmp_path, nodes, {"yes": np.array(True)})
    proto = onnx.load(path)
    inner = helper.make_node("Inner", ["a"], ["b"], domain="own")
    draws = helper.make_node("RandomNormalLike", ["a"], ["b"])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    for name, node in (("Noise", inner), ("Inner", draws)):
        proto.functions.append(helper.make_function("own", name, ["a"], ["b"], [node], opsets))
    proto.opset_import.append(opsets[1])
    onnx.save(proto, path)
    with pytest.raises(ModelError, match="may run RandomNormalLike in a subgraph"):
        check_deterministic(read_proto(path), "net")
