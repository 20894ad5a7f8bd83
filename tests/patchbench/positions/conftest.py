"""Tiny single-object detectors for free patches at every position."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from helpers import models as making
from holdfast.graph.load import load_model
from holdfast.patchbench.positions.models import open_detector

CARD = """\
task = "single"
classes = ["mandatory", "prohibitory", "warning"]

[input]
size = [{side}, {side}]
{more}
[head]
name = "landmark"
outputs = ["box", "scores"]
"""
UNIT = "scale = 0.00392156862745098\n"


def convolutional(folder, seed=0, strength=1.0, side=8, more=UNIT, nhwc=False, name="conv"):
    """A random detector of one convolution and one matrix product; `strength` scales what a pixel does."""
    rng = np.random.default_rng(seed)
    half = side // 2
    weights = {
        "wc": 0.3 * rng.normal(size=(4, 3, 3, 3)),
        "bc": 0.1 * rng.normal(size=4),
        "wb": 0.02 * strength * rng.normal(size=(4 * half * half, 4)),
        "bb": [0.2, 0.2, 0.8, 0.9],
        "ws": 0.2 * strength * rng.normal(size=(4 * half * half, 3)),
        "bs": [0.5, 0.0, -0.5],
    }
    nodes = [helper.make_node("Transpose", ["x"], ["t"], perm=[0, 3, 1, 2])] if nhwc else []
    nodes += [
        helper.make_node(
            "Conv", ["t" if nhwc else "x", "wc", "bc"], ["c"], strides=[2, 2], pads=[1, 1, 1, 1]
        ),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Flatten", ["r"], ["flat"]),
        helper.make_node("Gemm", ["flat", "wb", "bb"], ["box"]),
        helper.make_node("Gemm", ["flat", "ws", "bs"], ["scores"]),
    ]
    shape = [1, side, side, 3] if nhwc else [1, 3, side, side]
    return _save(folder / f"{name}.onnx", nodes, shape, weights, side, more)


def _save(path, nodes, shape, weights, side, more=UNIT):
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    outputs = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, k]) for n, k in (("box", 4), ("scores", 3))
    ]
    weights = {key: np.asarray(value, np.float32) for key, value in weights.items()}
    making.save_graph(path, nodes, [x], outputs, weights)
    path.with_suffix(".toml").write_text(CARD.format(side=side, more=more))
    return path


@pytest.fixture
def detector(tmp_path):
    """A function that opens a random convolutional detector: see `convolutional`."""
    return lambda **how: open_detector(load_model(convolutional(tmp_path, **how)))


@pytest.fixture
def cancelling(tmp_path):
    """A detector of 4×4 images that adds 0.8 of each red value to a side of the box, and subtracts it again.

    Its answer is constant, but interval bounds do not see that.
    """
    red = np.zeros((2, 3, 1, 1))
    red[:, 0] = 1.0
    box = np.zeros((32, 4))
    box[:16, 2], box[16:, 2] = 0.8, -0.8
    weights = {"wc": red, "wb": box, "bb": [0.2, 0.2, 0.8, 0.9], "ws": np.zeros((32, 3)), "bs": [1, 0, -1]}
    nodes = [
        helper.make_node("Conv", ["x", "wc"], ["c"]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Flatten", ["r"], ["flat"]),
        helper.make_node("Gemm", ["flat", "wb", "bb"], ["box"]),
        helper.make_node("Gemm", ["flat", "ws", "bs"], ["scores"]),
    ]
    return open_detector(load_model(_save(tmp_path / "cancel.onnx", nodes, [1, 3, 4, 4], weights, 4)))
