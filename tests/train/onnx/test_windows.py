"""Windows of any kernel, stride, padding, dilation and ceil mode are those of ONNX Runtime."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from helpers.classifiers import model_of, node  # noqa: E402
from holdfast.core.errors import ModelError  # noqa: E402
from holdfast.train.onnx import open_trainable  # noqa: E402
from holdfast.train.onnx.export import scores_of  # noqa: E402

RNG = np.random.default_rng(3)
IMAGES = RNG.normal(size=(2, 3, 9, 8)).astype(np.float32)


@st.composite
def windows(draw, operator):
    """The attributes of a node that slides a window over 7 × 6 values."""
    two = st.tuples
    kernel = draw(two(st.integers(1, 4), st.integers(1, 4)))
    found = {"kernel_shape": kernel, "strides": draw(two(st.integers(1, 3), st.integers(1, 3)))}
    if operator != "AveragePool":
        found["dilations"] = draw(two(st.integers(1, 2), st.integers(1, 2)))
    auto = draw(st.sampled_from(["NOTSET", "NOTSET", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"]))
    if auto != "NOTSET":
        found["auto_pad"] = auto
        if operator == "MaxPool":  # ONNX Runtime pads a dilated pool by its bare kernel; that is refused
            found["dilations"] = (1, 1)
    else:  # a pool's padding is less than its kernel
        found["pads"] = draw(two(*(st.integers(0, k - 1) for k in (*kernel, *kernel))))
        if operator != "Conv":
            found["ceil_mode"] = draw(st.integers(0, 1))
    if operator == "AveragePool":
        found["count_include_pad"] = draw(st.integers(0, 1))
    return {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}


def agree(nodes, weights):
    model = model_of([node("Conv", "x w", "h"), *nodes], {"w": np.ones((4, 3, 3, 3), np.float32)} | weights,
                     ("n", 3, 9, 8))  # fmt: skip
    try:
        expected = scores_of(model, IMAGES, "y", 0)
    except ModelError:  # a window that does not fit
        expected = np.zeros(0, np.float32)
    if not expected.size:  # refused by ONNX Runtime, or nothing comes out of it
        with pytest.raises(ModelError):
            open_trainable(model)
        return
    got = open_trainable(model)(torch.from_numpy(IMAGES)).detach().numpy().reshape(2, -1)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


@settings(max_examples=40, deadline=None)
@example({"kernel_shape": [1, 4], "strides": [1, 1], "dilations": [1, 2], "pads": [0] * 4, "ceil_mode": 0})
@given(windows("MaxPool"))
def test_max_pools(attributes):
    agree([node("MaxPool", "h", "y", **attributes)], {})


def test_a_pool_that_onnxruntime_pads_otherwise_is_refused():
    same = {"kernel_shape": [2, 1], "dilations": [2, 1], "auto_pad": "SAME_UPPER"}
    with pytest.raises(ModelError, match="so it cannot be trained"):
        agree([node("MaxPool", "h", "y", **same)], {})


@settings(max_examples=40, deadline=None)
@given(windows("AveragePool"))
def test_average_pools(attributes):
    agree([node("AveragePool", "h", "y", **attributes)], {})


@settings(max_examples=40, deadline=None)
@given(windows("Conv"), st.sampled_from([1, 2, 4]))
def test_convolutions(attributes, groups):
    weights = {"k": RNG.normal(size=(4, 4 // groups, *attributes["kernel_shape"])).astype(np.float32)}
    agree([node("Conv", "h k", "y", group=groups, **attributes)], weights)


@settings(max_examples=40, deadline=None)
@given(windows("Conv"), st.tuples(st.integers(0, 1), st.integers(0, 1)))
def test_transposed_convolutions(attributes, more):
    weights = {"k": RNG.normal(size=(4, 2, *attributes["kernel_shape"])).astype(np.float32)}
    extra = [min(m, s - 1) for m, s in zip(more, attributes["strides"], strict=True)]
    attributes.pop("auto_pad", None)
    agree([node("ConvTranspose", "h k", "y", output_padding=extra, **attributes)], weights)
