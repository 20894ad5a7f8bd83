"""Every operator that is lowered, against ONNX Runtime; half of the inputs fixed as well."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from helpers.lower import agree, model, one

RNG = np.random.default_rng(7)


def f(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def i(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


MOVES = {
    "reshape": one("Reshape", (1, 2, 6), i(1, 3, -1)),
    "reshape keeps": one("Reshape", (1, 2, 6), i(0, 0, 2, 3)),
    "reshape old": one("Reshape", (1, 2, 6), opset=1, shape=[1, 12]),
    "flatten": one("Flatten", (1, 2, 3, 2)),
    "flatten 0": one("Flatten", (2, 3), axis=0),
    "transpose": one("Transpose", (1, 2, 3, 4), perm=[0, 2, 3, 1]),
    "transpose all": one("Transpose", (2, 3, 4)),
    "squeeze": one("Squeeze", (1, 3, 1, 2), i(2)),
    "squeeze all": one("Squeeze", (1, 3, 1, 2)),
    "squeeze old": one("Squeeze", (1, 3, 1, 2), opset=11, axes=[0]),
    "unsqueeze": one("Unsqueeze", (3, 2), i(0, -1)),
    "unsqueeze old": one("Unsqueeze", (3, 2), opset=11, axes=[1]),
    "identity": one("Identity", (1, 3)),
    "dropout": one("Dropout", (1, 3)),
    "cast": one("Cast", (1, 3), to=TensorProto.DOUBLE),
    "slice": one("Slice", (1, 4, 6), i(1, 0), i(3, 1000), i(1, 2), i(1, 2)),
    "slice back": one("Slice", (1, 4, 6), i(-1), i(-1000), i(2), i(-2)),
    "slice to last": one("Slice", (1, 4, 6), i(-4), i(-1), i(2)),
    "slice old": one("Slice", (1, 4, 6), opset=9, starts=[1], ends=[4], axes=[1]),
    "gather": one("Gather", (1, 4, 3), i(2, 0, -1, 2), axis=1),
    "gather one": one("Gather", (1, 4, 3), np.int64(1), axis=1),
    "gather elements": one("GatherElements", (2, 3), np.array([[1, 0, 1]], np.int64), axis=0),
    "gather nd": one("GatherND", (2, 3), np.array([[1, 2], [0, 0]], np.int64)),
    "scatter nd": one("ScatterND", (2, 3), np.array([[1, 2], [0, 0]], np.int64), f(2)),
    "scatter elements": one("ScatterElements", (2, 3), np.array([[2, 0]], np.int64), f(1, 2), axis=1),
    "expand": one("Expand", (1, 3, 1), i(2, 1, 4)),
    "tile": one("Tile", (2, 3), i(2, 2)),
    "trilu": one("Trilu", (1, 3, 3), np.int64(1)),
    "depth to space": one("DepthToSpace", (1, 8, 2, 3), blocksize=2),
    "depth to space crd": one("DepthToSpace", (1, 8, 2, 3), blocksize=2, mode="CRD"),
    "space to depth": one("SpaceToDepth", (1, 2, 4, 2), blocksize=2),
    "pad": one("Pad", (1, 1, 2, 3), i(0, 0, 1, 2, 0, 0, 0, 1), np.float32(1.5)),
    "pad less": one("Pad", (1, 1, 4, 3), i(0, 0, -1, 2, 0, 0, 1, 0)),
    "pad edge": one("Pad", (1, 1, 2, 3), i(0, 0, 1, 2, 0, 0, 0, 1), mode="edge"),
    "pad reflect": one("Pad", (1, 1, 3, 3), i(0, 0, 1, 2, 0, 0, 0, 1), mode="reflect"),
    "pad old": one("Pad", (1, 1, 2, 3), opset=10, pads=[0, 0, 1, 2, 0, 0, 0, 1], value=2.0),
    "resize nearest": one("Resize", (1, 2, 3, 4), None, np.array([1, 1, 2, 1.5], np.float32)),
    "resize sizes": one("Resize", (1, 2, 3, 4), None, None, i(1, 2, 5, 2), nearest_mode="floor"),
    "upsample": one("Upsample", (1, 2, 3, 2), np.array([1, 1, 2, 2], np.float32), opset=9),
}

LINEAR = {
    "add": one("Add", (1, 3, 2), f(3, 1)),
    "add broadcast": one("Add", (1, 3), f(4, 1)),
    "sub": one("Sub", (1, 3), f(1)),
    "mul": one("Mul", (1, 3, 2), f(1, 3, 2)),
    "mul by zero": one("Mul", (1, 3), np.array([0, 1, 0], np.float32)),
    "div": one("Div", (1, 3), np.array([0.5, 4, -3], np.float32)),
    "neg": one("Neg", (1, 3)),
    "sum": one("Sum", (1, 3), f(1, 3), f(3)),
    "mean": one("Mean", (1, 3), f(1, 3)),
    "batch norm": one(
        "BatchNormalization", (1, 3, 2, 2), f(3), f(3), f(3), np.abs(f(3)) + 0.1, epsilon=0.01
    ),
    "gemm": one("Gemm", (1, 4), f(4, 3), f(3)),
    "gemm turned": one("Gemm", (4, 1), f(3, 4), f(1, 3), transA=1, transB=1, alpha=0.5, beta=2.0),
    "gemm rows": one("Gemm", (2, 4), f(4, 3)),
    "matmul": one("MatMul", (1, 4), f(4, 3)),
    "matmul vector": one("MatMul", (4,), f(4, 3)),
    "matmul to scalar": one("MatMul", (1, 4), f(4)),
    "matmul rows": one("MatMul", (1, 3, 4), f(4, 2)),
    "matmul batches": one("MatMul", (2, 3, 4), f(2, 4, 5)),
    "matmul spread": one("MatMul", (1, 3, 4), f(2, 4, 5)),
    "reduce sum": one("ReduceSum", (1, 3, 4), i(1)),
    "reduce sum all": one("ReduceSum", (1, 3, 4), keepdims=0),
    "reduce mean": one("ReduceMean", (1, 3, 4), opset=13, axes=[-1], keepdims=0),
    "reduce mean image": one("ReduceMean", (1, 3, 4, 2), opset=13, axes=[2, 3]),
    "reduce mean new": one("ReduceMean", (1, 3, 4), i(0, 2), opset=18),
    "reduce nothing": one("ReduceSum", (1, 3), np.zeros(0, np.int64), noop_with_empty_axes=1),
    "global average": one("GlobalAveragePool", (1, 3, 4, 2)),
    "resize linear": one(
        "Resize", (1, 2, 3, 4), None, np.array([1, 1, 2, 2], np.float32), mode="linear",
        coordinate_transformation_mode="pytorch_half_pixel",
    ),
    "resize linear sizes": one("Resize", (1, 2, 3, 4), None, None, i(1, 2, 5, 7), mode="linear"),
    "resize corners": one(
        "Resize", (1, 2, 3, 4), None, None, i(1, 2, 6, 4), mode="linear",
        coordinate_transformation_mode="align_corners",
    ),
    "resize cubic": one("Resize", (1, 2, 5, 4), None, np.array([1, 1, 2, 2], np.float32), mode="cubic"),
}  # fmt: skip

CURVES = {
    "relu": one("Relu", (1, 5)),
    "leaky": one("LeakyRelu", (1, 5), alpha=0.2),
    "leaky over one": one("LeakyRelu", (1, 5), alpha=1.5),
    "leaky below zero": one("LeakyRelu", (1, 5), alpha=-0.5),
    "prelu": one("PRelu", (1, 3, 2), f(3, 1)),
    "prelu one": one("PRelu", (1, 3, 2), np.full(1, 0.25, np.float32)),
    "sigmoid": one("Sigmoid", (1, 5)),
    "tanh": one("Tanh", (1, 5)),
    "sign": one("Sign", (1, 5)),
    "hard sigmoid": one("HardSigmoid", (1, 5), alpha=0.4, beta=0.3),
    "hard swish": one("HardSwish", (1, 5)),
    "clip": one("Clip", (1, 5), np.float32(-0.5), np.float32(1)),
    "clip above": one("Clip", (1, 5), None, np.float32(0.25)),
    "clip old": one("Clip", (1, 5), opset=6, min=0.0, max=1.5),
    "clip nothing": one("Clip", (1, 5)),
    "abs": one("Abs", (1, 5)),
    "max": one("Max", (1, 5), f(5), np.float32(0.2)),
    "max zero": one("Max", (1, 5), np.zeros((2, 5), np.float32)),
    "min": one("Min", (1, 5), f(5)),
    "pow": one("Pow", (1, 5), np.float32(2)),
    "pow 3": one("Pow", (1, 5), np.float32(3)),
    "pow 4": one("Pow", (1, 5), np.float32(4)),
    "erf": one("Erf", (1, 5)),
    "exp": one("Exp", (1, 5)),
    "sin": one("Sin", (1, 5)),
    "cos": one("Cos", (1, 5)),
    "softplus": one("Softplus", (1, 5)),
    "elu": one("Elu", (1, 5), alpha=0.5),
    "elu over one": one("Elu", (1, 5), alpha=1.5),
    "selu": one("Selu", (1, 5)),
    "celu": one("Celu", (1, 5), alpha=2.0),
    "gelu": one("Gelu", (1, 5), opset=20),
    "gelu tanh": one("Gelu", (1, 5), opset=20, approximate="tanh"),
    "softmax in groups": one("Softmax", (1, 3, 4), axis=1),
    "softmax of rows": one("Softmax", (2, 5)),
    "softmax old": one("Softmax", (2, 3, 2), opset=11, axis=1),
    "layer norm": one("LayerNormalization", (1, 3, 4), f(4), f(4), axis=-1, epsilon=1e-3),
    "layer norm plain": one("LayerNormalization", (2, 3, 4), f(3, 4), axis=1),
    "reduce max": one("ReduceMax", (1, 3, 5), opset=13, axes=[2]),
    "reduce max all": one("ReduceMax", (1, 3, 3), opset=13, keepdims=0),
    "reduce min": one("ReduceMin", (1, 3, 5), opset=13, axes=[1]),
    "reduce squares": one("ReduceSumSquare", (1, 3, 4), opset=13, axes=[1]),
    "global max": one("GlobalMaxPool", (1, 2, 3, 3)),
}

POSITIVE = {
    "log": one("Log", (1, 5)),
    "sqrt": one("Sqrt", (1, 5)),
    "reciprocal": one("Reciprocal", (1, 5)),
    "root by pow": one("Pow", (1, 5), np.float32(0.5)),
    "one over by pow": one("Pow", (1, 5), np.float32(-1)),
    "one over a root": one("Pow", (1, 5), np.float32(-0.5)),
    "one over a square": one("Pow", (1, 5), np.float32(-2)),
}


@pytest.mark.parametrize("case", [*MOVES, *LINEAR, *CURVES])
def test_one_operator_as_the_runtime_computes_it(case: str) -> None:
    agree({**MOVES, **LINEAR, **CURVES}[case])


@pytest.mark.parametrize("case", POSITIVE)
def test_curves_of_positive_values(case: str) -> None:
    agree(POSITIVE[case], low=0.25, high=4.0)


def test_a_constant_or_a_value_over_a_value() -> None:
    nodes = [n("Split", "x", "a b", axis=1), n("Div", "a b", "y")]
    agree(model(nodes, {"x": (1, 8)}, opset=11), low=0.25, high=4.0)
    agree(model([n("Div", "c x", "y")], {"x": (1, 3)}, weights={"c": f(2, 1)}), low=0.25, high=4.0)


def test_a_value_times_itself_is_one_curve() -> None:
    net = agree(model([n("Mul", "x x", "y")], {"x": (1, 4)}))
    assert [type(s).__name__ for s in net.steps] == ["FreeInputs", "Activation"]


@pytest.mark.parametrize("case", MOVES)
def test_moving_values_costs_at_most_one_take(case: str) -> None:
    assert [type(s).__name__ for s in agree(MOVES[case]).steps[1:]] in ([], ["Selection"])


def n(operator: str, inputs: str, outputs: str, **attributes: object) -> object:
    return helper.make_node(operator, inputs.split(), outputs.split(), **attributes)


def test_two_tensors_added_multiplied_compared() -> None:
    for operator in ("Add", "Sub", "Mul", "Max", "Min"):
        nodes = [n("Split", "x", "a b", axis=1), n(operator, "a b", "y")]
        agree(model(nodes, {"x": (1, 8)}, opset=11))
        nodes = [n("Split", "x", "a b", axis=1), n("Transpose", "b", "c"), n(operator, "a c", "y")]
        agree(model(nodes, {"x": (2, 4)}, opset=11))


def test_tensors_of_different_shape_are_spread() -> None:
    nodes = [n("ReduceMean", "x", "m", axes=[2], keepdims=1), n("Mul", "x m", "p"), n("Sub", "p m", "y")]
    agree(model(nodes, {"x": (1, 3, 4)}, opset=13))


def test_matrix_product_of_two_tensors() -> None:
    nodes = [n("Transpose", "x", "t", perm=[0, 2, 1]), n("MatMul", "x t", "y")]
    agree(model(nodes, {"x": (2, 3, 4)}))


def test_constant_matrix_on_the_left() -> None:
    agree(model([n("MatMul", "w x", "y")], {"x": (4, 3)}, weights={"w": f(2, 4)}))
    agree(model([n("MatMul", "w x", "y")], {"x": (4,)}, weights={"w": f(2, 4)}))
    agree(model([n("Gemm", "w x x", "y")], {"x": (4, 1)}, weights={"w": f(4, 4)}))


def test_concat_and_where_mix_constants_with_values() -> None:
    weights = {"c": f(1, 2), "k": np.array([[True, False, True, True, False]])}
    nodes = [n("Concat", "x c", "j", axis=1), n("Where", "k j h", "w"), n("Relu", "w", "y")]
    agree(model(nodes, {"x": (1, 3)}, weights={**weights, "h": f(1, 5)}))


def test_several_outputs_are_joined_in_order() -> None:
    nodes = [n("Relu", "x", "a"), n("Transpose", "x", "b"), n("Neg", "a", "c")]
    net = agree(model(nodes, {"x": (2, 3)}, outputs=("c", "b", "a")))
    assert net.outputs == 18


def test_several_inputs_are_joined_in_order() -> None:
    agree(model([n("MatMul", "u v", "y")], {"u": (2, 3), "v": (3, 2)}))


def test_product_with_padding_keeps_constants_constant() -> None:
    weights = {"p": i(0, 1, 0, 1), "v": np.float32(3), "w": f(5, 2)}
    nodes = [n("Pad", "x p v", "a"), n("Sigmoid", "a", "b"), n("MatMul", "b w", "y")]
    agree(model(nodes, {"x": (1, 3)}, weights=weights))
