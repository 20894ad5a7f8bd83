"""Specifications made properties: shapes, boxes, rounding to float32, and the checks against the file."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from helpers.models import save_graph
from holdfast.core.errors import InputError
from holdfast.core.model import Network
from holdfast.verify.problem import domain_of, first_float, last_float
from holdfast.verify.vnnlib import parse_vnnlib, property_of


def network(folder, inputs, outputs, dims=None):
    """A file that flattens its input and multiplies it by a matrix."""
    dims = dims or [1, inputs]
    nodes = [helper.make_node("Flatten", ["x"], ["f"]), helper.make_node("MatMul", ["f", "w"], ["y"])]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n" if len(dims) > 1 else 1, outputs])
    weights = {"w": np.ones((inputs, outputs), np.float32)}
    return Network("net", save_graph(folder / "net.onnx", nodes, [x], [y], weights))


def spec(inputs, outputs, *asserts):
    names = [f"X_{i}" for i in range(inputs)] + [f"Y_{i}" for i in range(outputs)]
    return parse_vnnlib(
        "".join(f"(declare-const {n} Real)" for n in names) + "".join(f"(assert {a})" for a in asserts)
    )


def box(*bounds):
    return [
        part for i, (low, high) in enumerate(bounds) for part in (f"(>= X_{i} {low})", f"(<= X_{i} {high})")
    ]


@pytest.mark.parametrize(
    ("dims", "shape"),
    [
        ([1, 4], (1, 4)),
        (["n", 4], (1, 4)),
        ([1, 1, 2, 2], (1, 1, 2, 2)),
        ([4], (4,)),
        (["n"], (4,)),
        ([None, "k", 2], (1, 2, 2)),
    ],
)
def test_the_box_has_the_shape_of_the_network(tmp_path, dims, shape):
    asked = property_of(spec(4, 2, *box(*[(0, 1)] * 4), "(<= Y_0 Y_1)"), network(tmp_path, 4, 2, dims))
    assert asked.threat.lower.shape == shape
    assert asked.unsafe[0].within is None
    assert asked.unsafe[0].matrix.tolist() == [[1, -1]]


def test_another_networks_specification_is_refused(tmp_path):
    for inputs, outputs in ((3, 2), (4, 3)):
        asked = spec(inputs, outputs, *box(*[(0, 1)] * inputs))
        with pytest.raises(
            InputError, match=f"expected {inputs} inputs and {outputs} outputs .* got 4 and 2"
        ):
            property_of(asked, network(tmp_path, 4, 2))


def test_each_case_keeps_its_own_box_inside_the_one_around_all(tmp_path):
    text = "(or (and (>= X_0 0) (<= X_0 1) (<= Y_0 0)) (and (>= X_0 3) (<= X_0 4) (<= Y_1 0)))"
    asked = property_of(spec(1, 2, text), network(tmp_path, 1, 2))
    assert (asked.threat.lower.item(), asked.threat.upper.item()) == (0, 4)
    assert [(rows.within.lower.item(), rows.within.upper.item()) for rows in asked.unsafe] == [(0, 1), (3, 4)]
    inside = [asked.violated_by(np.array([-1.0, 1.0]), np.array([[x]], np.float32)) for x in (0.5, 2, 3.5)]
    assert inside == [True, False, False]


def test_a_decimal_that_is_no_float32_is_moved_to_the_nearest_and_told(tmp_path):
    asked = property_of(spec(2, 1, *box((0.1, 0.1), (0.1, 0.2)), "(<= Y_0 0)"), network(tmp_path, 2, 1))
    assert asked.threat.lower.ravel().tolist() == [float(np.float32(0.1)), 0.1]
    assert asked.note == "1 fixed inputs are not float32 values; the nearest ones were used"
    domain = domain_of(asked)
    assert domain.free.tolist() == [1]
    assert domain.template[0] == np.float32(0.1)
    assert not asked.threat.excludes(domain.whole(np.array([[0.15]], np.float32))[0])


def test_strict_rows_leave_their_bound_out(tmp_path):
    asked = property_of(spec(1, 2, *box((0, 1)), "(< Y_0 0.5)", "(< Y_0 Y_1)"), network(tmp_path, 1, 2))
    point = np.zeros((1, 1), np.float32)
    below = np.nextafter(np.float32(0.5), np.float32(0))
    assert not asked.violated_by(np.array([0.5, 1.0]), point)
    assert asked.violated_by(np.array([below, 1.0], np.float32), point)
    assert not asked.violated_by(np.array([0.25, 0.25]), point)


def test_the_float32_between_bounds_are_found():
    values = np.array([0.1, 0.5, -0.1, 1e-50, 0.0])
    first, last = first_float(values).astype(np.float64), last_float(values).astype(np.float64)
    assert (first >= values).all()
    assert (last <= values).all()
    assert (np.nextafter(first_float(values), np.float32(-np.inf)) < values).all()
    assert first[1] == last[1] == 0.5


def test_an_input_with_one_float32_between_its_bounds_is_fixed(tmp_path):
    asked = property_of(spec(2, 1, *box((0.49999999999, 0.50000000001), (0, 1))), network(tmp_path, 2, 1))
    domain = domain_of(asked)
    assert domain.free.tolist() == [1]
    assert domain.template[0] == 0.5
