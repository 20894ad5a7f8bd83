"""Miniatures of other VNN-COMP years' networks: every node supported, bounds that contain, right verdicts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import helper

from helpers.bounds import points_of
from helpers.lower import by_runtime, model
from helpers.soundness import ALPHA, CROWN
from holdfast.core.model import Network
from holdfast.core.property import Budget, InputBox, LinearConstraints, Property
from holdfast.graph.lower import lower_onnx
from holdfast.graph.support import support
from holdfast.verify.linear import root
from holdfast.verify.linear.pieces import LinearSteps
from holdfast.verify.run import verify

RNG = np.random.default_rng(11)


def n(operator: str, inputs: str, outputs: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(operator, inputs.split(), outputs.split(), **attributes)


def f(*shape: int, size: float = 0.4) -> np.ndarray:
    return RNG.normal(0, size, shape).astype(np.float32)


def i(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def generator() -> onnx.ModelProto:
    """A generator and what judges it (cgan): ConvTranspose, BatchNormalization, Upsample, Tanh, Sigmoid."""
    weights = {"w": f(3, 4), "s": i(1, 2, 1, 2), "k": f(2, 3, 3, 3), "g": f(3), "b": f(3), "m": f(3)}
    weights |= {"v": np.abs(f(3)) + 0.5, "up": np.array([1, 1, 2, 2], np.float32), "c": f(2, 3, 3, 3)}
    nodes = [
        n("MatMul", "x w", "a"), n("Reshape", "a s", "r"),
        n("ConvTranspose", "r k", "d", strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 1]),
        n("BatchNormalization", "d g b m v", "e"), n("Relu", "e", "h"), n("Resize", "h  up", "u"),
        n("Conv", "u c", "t", strides=[2, 2]), n("Tanh", "t", "o"), n("GlobalAveragePool", "o", "p"),
        n("Flatten", "p", "q"), n("Sigmoid", "q", "y"),
    ]  # fmt: skip
    nodes[5].input[:] = ["h", "", "up"]
    return model(nodes, {"x": (1, 3)}, weights=weights)


def attention() -> onnx.ModelProto:
    """One block of a vision transformer (vit): MatMul of two tensors, Softmax, a layer norm by hand."""
    weights = {"e": f(4, 4), "p": f(1, 3, 4), "q": f(4, 4), "k": f(4, 4), "v": f(4, 4), "o": f(4, 2)}
    weights |= {"half": np.float32(0.5), "two": np.float32(2), "eps": np.float32(0.1), "ax": i(1)}
    nodes = [
        n("MatMul", "x e", "a"), n("Add", "a p", "t"), n("MatMul", "t q", "qq"), n("MatMul", "t k", "kk"),
        n("MatMul", "t v", "vv"), n("Transpose", "kk", "kt", perm=[0, 2, 1]), n("MatMul", "qq kt", "s"),
        n("Mul", "s half", "ss"), n("Softmax", "ss", "w", axis=-1), n("MatMul", "w vv", "z"),
        n("Add", "z t", "u"), n("ReduceMean", "u", "m", axes=[-1]), n("Sub", "u m", "d"),
        n("Pow", "d two", "d2"), n("ReduceMean", "d2", "var", axes=[-1]), n("Add", "var eps", "ve"),
        n("Sqrt", "ve", "sd"), n("Div", "d sd", "ln"), n("ReduceMean", "ln", "pool", axes=[1], keepdims=0),
        n("MatMul", "pool o", "y"),
    ]  # fmt: skip
    return model(nodes, {"x": (1, 3, 4)}, weights=weights, opset=13)


def power_flow() -> onnx.ModelProto:
    """Power flow (ml4acopf): Sin, Cos, squares, products, Sigmoid, Clip."""
    weights = {"w": f(4, 6), "a": i(0, 1, 2), "b": i(3, 4, 5), "o": f(3, 2), "lo": np.float32(-1)}
    weights |= {"hi": np.float32(1), "two": np.float32(2)}
    nodes = [
        n("MatMul", "x w", "h"), n("Gather", "h a", "v", axis=1), n("Gather", "h b", "t", axis=1),
        n("Sin", "t", "s"), n("Cos", "t", "c"), n("Pow", "v two", "v2"), n("Mul", "v2 c", "p"),
        n("Mul", "v s", "q"), n("Sub", "p q", "r"), n("Clip", "r lo hi", "k"), n("MatMul", "k o", "y"),
    ]  # fmt: skip
    return model(nodes, {"x": (1, 4)}, weights=weights)


def controller() -> onnx.ModelProto:
    """A controller and a Lyapunov function (lsnc, quadrotor): Abs, Min, Max, ReduceSum, Where, Expand."""
    weights = {"w": f(3, 4), "v": f(4, 4), "s": i(1, 4), "m": np.array([[True, False, True, True]])}
    weights |= {"z": f(1, 4), "one": f(1, 1), "ax": i(1), "o": f(4, 2)}
    nodes = [
        n("MatMul", "x w", "a"), n("LeakyRelu", "a", "b", alpha=0.1), n("Neg", "b", "c"), n("Abs", "c", "d"),
        n("MatMul", "d v", "e"), n("Min", "e c", "g"), n("Max", "g z", "h"), n("Expand", "one s", "ex"),
        n("Where", "m h z", "k"), n("Mul", "k k", "l"), n("Add", "l ex", "q"), n("Identity", "q", "r"),
        n("Dropout", "r", "t"), n("ReduceSum", "t ax", "u"), n("Add", "t u", "vv"), n("MatMul", "vv o", "y"),
    ]  # fmt: skip
    return model(nodes, {"x": (1, 3)}, weights=weights)


def smooth() -> onnx.ModelProto:
    """Smooth activations one after the other: Elu, HardSigmoid, Softplus, Gelu by Erf, Exp, 1/x, Sqrt."""
    weights = {"w": f(4, 4), "v": f(4, 4), "u": f(4, 4), "o": f(4, 2), "r": np.float32(2**0.5)}
    weights |= {"one": np.float32(1), "half": np.float32(0.5)}
    nodes = [
        n("MatMul", "x w", "a"), n("Elu", "a", "b"), n("MatMul", "b v", "c"), n("Div", "c r", "d"),
        n("Erf", "d", "e"), n("Add", "e one", "g"), n("Mul", "c g", "h"), n("Mul", "h half", "k"),
        n("MatMul", "k u", "l"), n("HardSigmoid", "l", "m"), n("Softplus", "m", "p"), n("Exp", "p", "q"),
        n("Sqrt", "q", "s"), n("Reciprocal", "s", "t"), n("MatMul", "t o", "y"),
    ]  # fmt: skip
    return model(nodes, {"x": (1, 4)}, weights=weights)


def pixels() -> onnx.ModelProto:
    """Moved pixels and signs (super-resolution, bnn): DepthToSpace, Unsqueeze, Constant, ReLU6, Sign."""
    weights = {"w": f(4, 1, 3, 3), "c": f(2, 1, 3, 3), "ax": i(0), "lo": np.float32(0), "hi": np.float32(6)}
    weights |= {"o": f(32, 2), "shape": i(2, 1, 1)}
    nodes = [
        n("Unsqueeze", "x ax", "b"), n("Conv", "b w", "a", pads=[1, 1, 1, 1]), n("Clip", "a lo hi", "d"),
        n("DepthToSpace", "d", "e", blocksize=2), n("Conv", "e c", "g", strides=[2, 2], pads=[1, 1, 1, 1]),
        n("ConstantOfShape", "shape", "k", value=helper.make_tensor("v", 1, [1], [0.1])),
        n("Add", "g k", "h"), n("Sign", "h", "s"), n("Flatten", "s", "t"), n("MatMul", "t o", "y"),
    ]  # fmt: skip
    return model(nodes, {"x": (1, 4, 4)}, weights=weights)


MINIATURES: dict[str, Callable[[], onnx.ModelProto]] = {
    "generator": generator,
    "attention": attention,
    "power flow": power_flow,
    "controller": controller,
    "smooth": smooth,
    "pixels": pixels,
}


@pytest.mark.parametrize("name", MINIATURES)
def test_every_node_is_supported_and_bounds_contain_what_the_runtime_says(name: str) -> None:
    torch.set_num_threads(1)
    proto = MINIATURES[name]()
    found = support(proto)
    assert found.supported, found.lines()
    net = lower_onnx(proto)
    rng = np.random.default_rng(1)
    for radius in (1e-3, 0.05, 0.5):
        centre = rng.normal(0, 0.7, net.inputs)
        lower, upper = centre - radius, centre + radius
        points = points_of(rng, lower, upper, 40)
        outputs = by_runtime(proto, points)
        for effort in (CROWN, ALPHA):
            sweep = root.bounds(LinearSteps(net, torch.float32), lower, upper, effort)
            low, high = (v[len(net.steps) - 1].double().numpy() for v in (sweep.lower, sweep.upper))
            doubt = 1e-5 * (1 + np.abs(outputs).max())  # the runtime rounds too
            assert (low - doubt <= outputs).all()
            assert (outputs <= high + doubt).all()
            assert name == "pixels" or radius > 0.01 or (high - low).max() < 0.5  # worth something


@pytest.mark.parametrize("name", MINIATURES)
def test_verdicts_of_whole_files(name: str, tmp_path: Path) -> None:
    """What is far from all outputs holds; what a sampled point does is never said to hold."""
    torch.set_num_threads(1)
    proto = MINIATURES[name]()
    shape = tuple(d.dim_value for d in proto.graph.input[0].type.tensor_type.shape.dim)
    onnx.save(proto, str(tmp_path / "net.onnx"))
    rng = np.random.default_rng(2)
    centre = rng.normal(0, 0.5, shape).astype(np.float32)
    box = InputBox(centre - np.float32(0.02), centre + np.float32(0.02))
    points = points_of(rng, *(end.reshape(-1).astype(np.float64) for end in (box.lower, box.upper)), 50)
    least = float(by_runtime(proto, points)[:, 0].min())
    row = np.array([[1.0, 0.0]])
    for bound, expected in ((least - 0.5 - 100 * (name == "pixels"), "holds"), (least + 1e-3, "violated")):
        asked = Property(
            Network("net", tmp_path / "net.onnx"), box, (LinearConstraints(row, np.array([bound])),)
        )
        verdict = verify(asked, Budget(seconds=20, jobs=1))
        assert verdict.status == expected, verdict.note


@pytest.mark.parametrize("operator", ["ArgMax", "TopK", "LSTM", "Asin"])
def test_what_no_proof_can_follow_is_named(operator: str) -> None:
    given = {"TopK": ("x k", {"k": i(1)}), "LSTM": ("x w r", {"w": f(1, 8, 3), "r": f(1, 8, 2)})}
    inputs, weights = given.get(operator, ("x", {}))
    more = {"hidden_size": 2} if operator == "LSTM" else {}
    outputs = "y z" if operator == "TopK" else "y"
    node = n(operator, inputs, outputs, **more)
    found = support(model([node], {"x": (1, 1, 3)}, weights=weights))
    assert not found.supported
    assert found.nodes[0].operator == operator
    assert found.nodes[0].how == "it is not linear, piecewise linear or one of the known curves"
