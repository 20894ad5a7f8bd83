"""Parts of a graph: cut out of a file of any kind, each runs alone and gives what the whole would."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from holdfast.core.errors import ModelError
from holdfast.graph.lower.values import node_of
from holdfast.graph.nodes import needed, part_of

FLOAT = TensorProto.FLOAT
NUMBERS = (
    "float16",
    "float32",
    "float64",
    "bool",
    *(f"{s}int{b}" for s in ("", "u") for b in (8, 16, 32, 64)),
)


def model_of(nodes, weights=(), inputs=("x",), outputs=("y",), ir=8, **more):
    ports = [[helper.make_tensor_value_info(n, FLOAT, [2]) for n in names] for names in (inputs, outputs)]
    graph = helper.make_graph(nodes, "g", *ports, list(weights))
    more.setdefault("opset_imports", [helper.make_opsetid("", 17)])
    return helper.make_model(graph, ir_version=ir, **more)


def weight(name, values):
    return numpy_helper.from_array(np.array(values, np.float32), name)


def small(**more):
    """y = floor(w · x) + c"""
    nodes = [
        helper.make_node("Mul", ["x", "w"], ["a"]),
        helper.make_node("Floor", ["a"], ["b"]),
        helper.make_node("Add", ["b", "c"], ["y"]),
    ]
    return model_of(nodes, [weight("w", [2, 3]), weight("c", [10, 20])], **more)


def run(part, feed):
    onnx.checker.check_model(onnx.shape_inference.infer_shapes(part))
    session = onnxruntime.InferenceSession(part.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {name: np.array(value, np.float32) for name, value in feed.items()})[0]


@pytest.mark.parametrize("listed", [False, True])
def test_a_part_runs_alone_from_files_of_any_age(listed):
    model = small(ir=3, inputs=("x", "w", "c")) if listed else small()
    one = np.ones(2, np.float32)
    assert run(part_of(model, {"b": one}, ["y"]), {"b": [1, 2]}).tolist() == [11, 22]
    assert run(part_of(model, {"x": one}, ["b"]), {"x": [1.5, 1.5]}).tolist() == [3, 4]
    assert run(part_of(model, {}, ["y"], {"x": 1.5 * one}), {}).tolist() == [13, 24]
    assert [w.name for w in part_of(model, {"b": one}, ["y"]).graph.initializer] == ["c"]


@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize("dtype", NUMBERS)
def test_constants_of_every_type_are_kept(dtype, raw):
    values = np.array([0, 1, 2]).astype(dtype)
    tensor = numpy_helper.from_array(values, "w")
    if not raw:
        tensor = helper.make_tensor("w", tensor.data_type, values.shape, values.ravel().tolist())
    nodes = [helper.make_node("Identity", ["w"], ["a"]), helper.make_node("Cast", ["a"], ["y"], to=FLOAT)]
    model = model_of(nodes, [tensor])
    for part in (part_of(model, {}, ["a"]), part_of(model, {}, ["a"], {"w": values})):
        found = run(part, {})
        assert (found.dtype, found.tolist()) == (values.dtype, values.tolist())


def test_what_only_a_branch_reads_is_part_of_it():
    sides = {}
    for side in ("then", "else"):
        inner = helper.make_node("Add", ["a", "c"], [side])
        output = helper.make_tensor_value_info(side, FLOAT, [2])
        sides[f"{side}_branch"] = helper.make_graph([inner], side, [], [output])
    nodes = [
        helper.make_node("Neg", ["x"], ["a"]),
        helper.make_node("Abs", ["x"], ["unused"]),
        helper.make_node("If", ["yes"], ["y"], **sides),
    ]
    model = model_of(nodes, [weight("c", [10, 20]), numpy_helper.from_array(np.array(True), "yes")])
    assert [node.op_type for node in needed(model.graph)] == ["Neg", "If"]
    part = part_of(model, {"x": np.ones(2, np.float32)}, ["y"])
    assert run(part, {"x": [1, 2]}).tolist() == [9, 18]


def test_functions_of_the_file_are_part_of_it():
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    body = [helper.make_node("Neg", ["a"], ["b"])]
    function = helper.make_function("own", "Minus", ["a"], ["b"], body, opsets[:1])
    nodes = [
        helper.make_node("Minus", ["x"], ["a"], domain="own"),
        helper.make_node("Abs", ["a"], ["y"]),
    ]
    model = model_of(nodes, functions=[function], opset_imports=opsets)
    part = part_of(model, {"x": np.ones(2, np.float32)}, ["a"])
    assert run(part, {"x": [1, 2]}).tolist() == [-1, -2]


def test_attributes_of_every_kind_are_read():
    values = {"f": 0.5, "i": -(2**63), "s": "text", "fs": [0.5, 1.0], "is": [1, -1], "ss": ["a", "b"]}
    node = helper.make_node("Thing", ["x"], ["y"], t=weight("t", [1, 2]), g=small().graph, **values)
    found = node_of(node, (None,), 17, set()).attributes
    assert {name: found[name] for name in values} == {**values, "ss": [b"a", b"b"]}
    assert found["t"].tolist() == [1, 2]
    assert found["g"].name == "g"


def test_a_constant_in_another_file_is_not_looked_for():
    node = helper.make_node("Constant", [], ["y"], value=weight("t", [1, 2]))
    node.attribute[0].t.data_location = TensorProto.EXTERNAL
    with pytest.raises(ModelError, match="expected 'value' in the model's own file"):
        node_of(node, (), 17, set())
