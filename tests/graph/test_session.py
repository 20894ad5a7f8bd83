"""Sessions of ONNX Runtime: the same from bytes and from a file, quiet, and with the options asked for."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from holdfast.graph.session import condense, open_session


def adding(nodes=None):
    """A model that adds its input to a constant 1, or these nodes."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy")
    one = numpy_helper.from_array(np.ones(2, np.float32), "one")
    nodes = nodes or [
        helper.make_node("Identity", ["x"], ["m"]),
        helper.make_node("Add", ["m", "one"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "g", [x], [y], [one])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_bytes_and_a_file_give_the_same(tmp_path):
    onnx.save(adding(), tmp_path / "net.onnx")
    for source in (adding().SerializeToString(), tmp_path / "net.onnx", str(tmp_path / "net.onnx")):
        found = open_session(source).run(None, {"x": np.array([1, 2], np.float32)})[0]
        np.testing.assert_array_equal(found, [2, 3])


def test_a_file_finds_the_weights_beside_it(tmp_path):
    path = tmp_path / "net.onnx"
    onnx.save(adding(), path, save_as_external_data=True, location="net.data", size_threshold=0)
    np.testing.assert_array_equal(open_session(path).run(None, {"x": np.zeros(2, np.float32)})[0], [1, 1])


@pytest.mark.parametrize(("optimise", "kept"), [("none", ["Identity", "Add"]), ("basic", ["Add"])])
def test_the_optimised_graph_is_written(tmp_path, optimise, kept):
    open_session(adding().SerializeToString(), optimise=optimise, save=tmp_path / "out.onnx")
    assert [node.op_type for node in onnx.load(tmp_path / "out.onnx").graph.node] == kept


def test_threads_are_those_asked_for():
    options = open_session(adding().SerializeToString(), threads=2, inter_threads=1).get_session_options()
    assert (options.intra_op_num_threads, options.inter_op_num_threads) == (2, 1)
    assert options.log_severity_level == 4


def test_a_model_that_cannot_be_opened_is_told_in_one_line_and_nowhere_else(capfd):
    wrong = adding([helper.make_node("Add", ["x", "missing"], ["y"])])
    with pytest.raises(Exception, match="missing") as caught:
        open_session(wrong.SerializeToString())
    assert "\n" not in condense(caught.value)
    assert capfd.readouterr() == ("", "")


def test_errors_are_cut_to_one_line_without_codes_and_paths():
    where = "/a/b/model.cc:205 onnxruntime::Model::Model(x)"
    long = f"[ONNXRuntimeError] : 1 : FAIL : Load failed:{where} Unknown\nversion " + "x" * 300
    got = condense(RuntimeError(long))
    assert got.startswith("Load failed:")
    assert "\n" not in got
    assert len(got) <= 160
    assert ".cc" not in got
