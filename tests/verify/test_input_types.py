"""Networks whose input is not float32: points are numbers of the file's own type, inside the set."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from helpers.models import save_graph
from holdfast.core.errors import ModelError
from holdfast.core.model import Network
from holdfast.core.property import Budget, InputBox, LinearConstraints, Property
from holdfast.verify import run as decide
from holdfast.verify.problem import domain_of, first_float, last_float
from holdfast.verify.vnnlib import property_of, read_vnnlib

KINDS = {np.float16: TensorProto.FLOAT16, np.float32: TensorProto.FLOAT, np.float64: TensorProto.DOUBLE}


def distance(folder, dtype, centre=0.1, factor=1e10, inputs=1):
    """A file that gives factor * |x - centre| in this type."""
    nodes = [helper.make_node("Sub", ["x", "c"], ["a"]), helper.make_node("Abs", ["a"], ["b"])]
    nodes.append(helper.make_node("Mul", ["b", "f"], ["y"]))
    x, y = (helper.make_tensor_value_info(name, KINDS[dtype], [1, inputs]) for name in "xy")
    weights = {"c": np.full(inputs, centre, dtype), "f": np.array([factor], dtype)}
    return Network("net", save_graph(folder / "net.onnx", nodes, [x], [y], weights))


def asked(model, low, high, bound, inputs=1):
    """Whether the first output can be at most `bound`."""
    box = InputBox(np.full((1, inputs), low), np.full((1, inputs), high))
    return Property(model, box, (LinearConstraints(np.eye(inputs)[:1], np.array([bound])),))


def spec(folder, low, high, bound):
    path = folder / "prop.vnnlib"
    lines = ["(declare-const X_0 Real)", "(declare-const Y_0 Real)"]
    lines += [f"(assert (>= X_0 {low}))", f"(assert (<= X_0 {high}))", f"(assert (<= Y_0 {bound}))"]
    path.write_text("\n".join(lines))
    return path


@pytest.mark.parametrize(("low", "high"), [("0.1", "0.1"), ("0.0999999999", "0.1000000001")])
def test_a_float64_network_is_asked_about_float64_points(tmp_path, low, high):
    model = distance(tmp_path, np.float64)
    question = property_of(read_vnnlib(spec(tmp_path, low, high, 1.0)), model)
    assert question.note == ""
    verdict = decide.verify(question, Budget(20))
    assert verdict.status == "violated"
    assert verdict.witness.dtype == np.float64
    assert float(low) <= verdict.witness.item() <= float(high)
    assert verdict.replay.output.item() <= 1.0


@pytest.mark.parametrize("inputs", [1, 2])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_every_witness_is_of_the_input_type_and_inside_the_box(tmp_path, dtype, inputs):
    pytest.importorskip("torch")
    model = distance(tmp_path, dtype, factor=10.0, inputs=inputs)
    near = float(dtype(0.1))
    low, high = near - 1e-3, near + 1.7e-3
    verdict = decide.verify(asked(model, low, high, 0.005, inputs), Budget(10))
    assert verdict.status == "violated"
    assert verdict.witness.dtype == dtype
    assert ((low <= verdict.witness.astype(float)) & (verdict.witness.astype(float) <= high)).all()
    assert decide.verify(asked(model, near + 0.1, near + 0.2, 0.1, inputs), Budget(10)).status == "holds"


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_an_input_with_one_number_of_its_type_is_fixed_at_it(tmp_path, dtype):
    model = distance(tmp_path, dtype, factor=10.0)
    gap = float(np.spacing(dtype(0.5)))
    domain = domain_of(asked(model, 0.5 - gap / 8, 0.5 + gap / 8, 0.0))
    assert (domain.free.size, domain.template.dtype, domain.template.item()) == (0, dtype, 0.5)
    assert domain_of(asked(model, 0.5 - gap, 0.5 + gap, 0.0)).free.size == 1


def test_rounding_to_the_input_type_does_not_leave_the_box(tmp_path):
    domain = domain_of(asked(distance(tmp_path, np.float16, factor=10.0), 0.1, 0.2, 0.0))
    points = np.array([[0.1], [0.2], [0.15], [0.3]])
    whole = domain.whole(points).ravel()
    assert whole.dtype == np.float16
    assert (whole[:3].astype(float) >= 0.1).all()
    assert (whole[:3].astype(float) <= 0.2).all()
    assert whole[3] == np.float16(0.3)  # what was outside stays outside


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_first_and_last_numbers_of_a_type_are_next_to_the_bounds(dtype):
    values = np.random.default_rng(0).normal(size=200)
    first, last = first_float(values, dtype), last_float(values, dtype)
    assert first.dtype == last.dtype == dtype
    assert (last.astype(float) <= values).all()
    assert (values <= first.astype(float)).all()
    assert ((first == last) | (np.nextafter(last, dtype(np.inf)) == first)).all()


def test_an_integer_input_is_refused_with_a_clear_line(tmp_path):
    nodes = [helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT)]
    x = helper.make_tensor_value_info("x", TensorProto.INT64, [1, 1])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1])
    model = Network("net", save_graph(tmp_path / "net.onnx", nodes, [x], [y], {}))
    with pytest.raises(ModelError, match=r"got x \(int64\)"):
        property_of(read_vnnlib(spec(tmp_path, 0, 3, 1)), model)
    assert decide.verify(asked(model, 0.0, 3.0, 1.0)).status == "error"
