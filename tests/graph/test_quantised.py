"""Models that are quantised already: counted, read like the float model, never quantised twice."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static

from holdfast.core.pipeline import Pipeline
from holdfast.core.registry import names, part
from holdfast.data.open import open_dataset
from holdfast.graph.inspect import inspect, rows
from holdfast.graph.load import guess, load_model
from holdfast.graph.quantised import in_float, quantisation_of
from holdfast.graph.rewrite.types import RewriteContext
from holdfast.stages.deployed import Calibration, rewritten

PRECISIONS = [n for n in names("rewrite") if part("rewrite", n).facts["family"] == "precision"]


@pytest.fixture(scope="module")
def plain():
    return load_model("signs-plain")


@pytest.fixture(scope="module")
def calibration():
    return Calibration(tuple(open_dataset("signs:5:3", task="detect").entries), Pipeline())


class Images(CalibrationDataReader):
    """The calibration images as ONNX Runtime's quantiser asks for them."""

    def __init__(self, model, calibration):
        name = onnx.load(model.path).graph.input[0].name
        self.feeds = ({name: tensor} for tensor in calibration.tensors(model))

    def get_next(self):
        return next(self.feeds, None)


@pytest.fixture(scope="module", params=["qdq", "onnxruntime-qdq", "onnxruntime-qoperator"])
def quantised(request, plain, calibration, tmp_path_factory):
    """The shipped detector in 8 bits: by holdfast's own rewrite, and in both forms of ONNX Runtime."""
    path = tmp_path_factory.mktemp(request.param) / "net.onnx"
    if request.param == "qdq":
        onnx.save(rewritten(plain, ("int8-minmax",), calibration).model, path)
    else:
        form = QuantFormat.QDQ if request.param.endswith("-qdq") else QuantFormat.QOperator
        quantize_static(str(plain.path), str(path), Images(plain, calibration), form, per_channel=True)
    return path


def test_the_quantised_layers_are_counted(quantised):
    found = quantisation_of(onnx.load(quantised))
    assert (found.layers, found.of) == (22, 22)
    count = sum(node.op_type == "QuantizeLinear" for node in onnx.load(quantised).graph.node)
    assert found.reason == f"the model is already quantised ({count} QuantizeLinear nodes; 22 of 22 layers)"
    assert dict(rows(inspect(quantised)))["quantised"].startswith(
        f"22 of 22 layers ({count} QuantizeLinear, "
    )


def test_parameters_and_work_are_those_of_the_float_model(quantised, plain):
    before, after = inspect(plain.path), inspect(quantised)
    assert before.quantised is None
    assert "quantised" not in dict(rows(before))
    assert after.multiply_adds == before.multiply_adds
    assert after.parameters == before.parameters


def test_the_guess_is_that_of_the_float_model(quantised, plain):
    assert guess(quantised) == guess(plain.path)


@pytest.mark.parametrize("name", PRECISIONS)
def test_no_precision_quantises_a_second_time(name, quantised):
    model = onnx.load(quantised)
    made = part("rewrite", name).function(model, RewriteContext())
    assert (made.model, made.changed) == (model, ())
    assert made.how == quantisation_of(model).reason


def conv(*nodes, weights, output="y"):
    """A graph with these nodes between `x` and the output."""
    value = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in ("x", output)]
    stored = [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()]
    graph = helper.make_graph(list(nodes), "g", value[:1], value[1:], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


WEIGHT = np.ones((2, 3, 1, 1), np.int8)
DEQUANTISE = helper.make_node("DequantizeLinear", ["w8", "s"], ["w"])
CONV = helper.make_node("Conv", ["x", "w"], ["y"])


def test_weights_alone_in_integers_are_a_quantised_layer():
    found = quantisation_of(conv(DEQUANTISE, CONV, weights={"w8": WEIGHT, "s": np.float32(0.5)}))
    assert found.reason == "the model is already quantised (1 DequantizeLinear node; 1 of 1 layers)"


def test_float_weights_that_the_graph_quantises_are_a_quantised_layer():
    quantise = helper.make_node("QuantizeLinear", ["wf", "s"], ["w8"])
    constants = {"wf": WEIGHT.astype(np.float32), "s": np.float32(0.5)}
    assert quantisation_of(conv(quantise, DEQUANTISE, CONV, weights=constants)).layers == 1


def test_a_quantised_input_alone_is_no_quantised_model():
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s"], ["x8"]),
        helper.make_node("DequantizeLinear", ["x8", "s"], ["x1"]),
        helper.make_node("Conv", ["x1", "w"], ["y"]),
    ]
    assert quantisation_of(conv(*nodes, weights={"w": WEIGHT.astype(np.float32), "s": np.float32(1)})) is None


def test_weights_in_constant_nodes_count_once_as_parameters(tmp_path):
    constant = helper.make_node("Constant", [], ["w8"], value=numpy_helper.from_array(WEIGHT))
    path = tmp_path / "net.onnx"
    onnx.save(conv(constant, DEQUANTISE, CONV, weights={"s": np.float32([0.5, 0.5])}), path)
    info = inspect(path)
    assert (info.parameters, info.quantised.layers) == (6, 1)


def test_short_quantised_constants_have_their_values_in_float():
    nodes = [
        helper.make_node("DequantizeLinear", ["m8", "s", "z"], ["m"]),
        helper.make_node("Mul", ["x", "m"], ["y"]),
    ]
    constants = {"m8": np.int8([3, 4]), "s": np.float32(0.5), "z": np.int8(1)}
    plain = in_float(conv(*nodes, weights=constants))
    assert [node.op_type for node in plain.graph.node] == ["Mul"]
    stored = {w.name: numpy_helper.to_array(w) for w in plain.graph.initializer}
    np.testing.assert_array_equal(stored["m"], np.float32([1.0, 1.5]))


def test_a_float_graph_is_read_as_it_is(plain):
    proto = onnx.load(plain.path)
    assert in_float(proto) is proto
