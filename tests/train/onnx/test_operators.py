"""Every operator gives what ONNX Runtime gives, for a batch, and lets the gradient through."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from helpers.classifiers import model_of, node  # noqa: E402
from holdfast.train.onnx import open_trainable  # noqa: E402
from holdfast.train.onnx.export import scores_of  # noqa: E402
from holdfast.train.onnx.open import TABLE  # noqa: E402

RNG = np.random.default_rng(0)


def floats(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def ints(*values):
    return np.array(values, np.int64)


def one(operator, weights=None, inputs="", opset=17, **attributes):
    """The nodes `h -> y` of one operator with these constants behind its first input."""
    return [node(operator, f"h {inputs}", "y", **attributes)], weights or {}, opset


# id -> (nodes from h to y, their constants, opset); h is (n, 4, 6, 6), the output of a convolution
CASES = {
    "conv-same-upper": one("Conv", {"k": floats(3, 4, 3, 2)}, "k", auto_pad="SAME_UPPER", strides=[2, 2]),
    "conv-same-lower": one("Conv", {"k": floats(3, 4, 3, 2)}, "k", auto_pad="SAME_LOWER", strides=[2, 1]),
    "conv-uneven": one("Conv", {"k": floats(3, 4, 3, 3), "kb": floats(3)}, "k kb", pads=[0, 1, 2, 3]),
    "conv-dilated": one("Conv", {"k": floats(3, 4, 2, 2)}, "k", dilations=[2, 3], pads=[1, 1, 1, 1]),
    "conv-depthwise": one("Conv", {"k": floats(4, 1, 3, 3), "kb": floats(4)}, "k kb", group=4),
    "conv-grouped": one("Conv", {"k": floats(6, 2, 3, 3)}, "k", group=2, pads=[1, 1, 1, 1]),
    "transposed": one("ConvTranspose", {"k": floats(4, 2, 3, 3), "kb": floats(2)}, "k kb", strides=[2, 2]),
    "transposed-padded": one(
        "ConvTranspose",
        {"k": floats(4, 1, 3, 4)},
        "k",
        strides=[2, 3],
        pads=[1, 0, 0, 2],
        group=2,
        output_padding=[1, 1],
    ),
    "transposed-dilated": one("ConvTranspose", {"k": floats(4, 2, 2, 2)}, "k", dilations=[2, 1]),
    "transposed-shape": one(
        "ConvTranspose", {"k": floats(4, 2, 3, 3)}, "k", strides=[2, 2], output_shape=[12, 11]
    ),
    "max-pool": one("MaxPool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
    "max-pool-ceil": one("MaxPool", kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
    "max-pool-ceil-padded": one(
        "MaxPool", kernel_shape=[2, 3], strides=[3, 2], pads=[1, 1, 0, 1], ceil_mode=1
    ),
    "max-pool-uneven": one("MaxPool", kernel_shape=[3, 3], strides=[2, 2], pads=[0, 0, 2, 1]),
    "max-pool-dilated": one("MaxPool", kernel_shape=[2, 2], dilations=[2, 2]),
    "max-pool-same": one("MaxPool", kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_UPPER"),
    "average-pool": one("AveragePool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
    "average-pool-counted": one("AveragePool", kernel_shape=[3, 3], pads=[0, 1, 1, 1], count_include_pad=1),
    "average-pool-ceil": one("AveragePool", kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
    "average-pool-plain": one("AveragePool", kernel_shape=[2, 2], strides=[2, 2]),
    "global-average": one("GlobalAveragePool"),
    "global-max": one("GlobalMaxPool"),
    "batch-norm": one(
        "BatchNormalization",
        {"s": floats(4), "b": floats(4), "m": floats(4), "v": np.abs(floats(4)) + 0.1},
        "s b m v",
        epsilon=1e-3,
    ),
    "instance-norm": one("InstanceNormalization", {"s": floats(4), "b": floats(4)}, "s b"),
    "layer-norm": one("LayerNormalization", {"s": floats(6), "b": floats(6)}, "s b"),
    "layer-norm-axis": one("LayerNormalization", {"s": floats(4, 6, 6)}, "s", axis=1, epsilon=1e-2),
    "layer-norm-broadcast": one("LayerNormalization", {"s": floats(4, 6, 6), "b": floats(6)}, "s b", axis=1),
    "group-norm": one("GroupNormalization", {"s": floats(4), "b": floats(4)}, "s b", 21, num_groups=2),
    "lrn": one("LRN", size=3, alpha=0.5, beta=0.6, bias=2.0),
    "length": one("LpNormalization", axis=1, p=2),
    "gemm": (
        [node("Flatten", "h", "f"), node("Gemm", "f k c", "y", alpha=0.5, beta=2.0)],
        {"k": floats(144, 5), "c": floats(5)},
        17,
    ),
    "gemm-turned": (
        [node("Flatten", "h", "f"), node("Gemm", "f k c", "y", transB=1)],
        {"k": floats(5, 144), "c": floats(5)},
        17,
    ),
    "matmul": one("MatMul", {"k": floats(6, 5)}, "k"),
    "matmul-self": ([node("Transpose", "h", "t", perm=[0, 1, 3, 2]), node("MatMul", "h t", "y")], {}, 17),
    "einsum": one("Einsum", {"k": floats(6, 5)}, "k", equation="bchw,wd->bchd"),
    "clip": one("Clip", {"lo": np.float32(-0.5), "hi": np.float32(0.7)}, "lo hi"),
    "clip-low": one("Clip", {"lo": np.float32(-0.5)}, "lo"),
    "clip-old": one("Clip", opset=6, min=-0.5, max=0.3),
    "leaky": one("LeakyRelu", alpha=0.2),
    "prelu": one("PRelu", {"a": floats(4, 1, 1)}, "a"),
    "thresholded": one("ThresholdedRelu", alpha=0.4),
    "elu": one("Elu", alpha=0.7),
    "selu": one("Selu"),
    "celu": one("Celu", alpha=0.6),
    "gelu": one("Gelu", opset=20),
    "gelu-tanh": one("Gelu", opset=20, approximate="tanh"),
    "hard-sigmoid": one("HardSigmoid", alpha=0.3),
    "hard-swish": one("HardSwish"),
    "softplus": one("Softplus"),
    "softmax": ([node("Softmax", "h", "s", axis=1), node("Relu", "s", "y")], {}, 17),
    "softmax-old": ([node("Softmax", "h", "s", axis=1), node("Relu", "s", "y")], {}, 11),
    "log-softmax": ([node("LogSoftmax", "h", "s"), node("Neg", "s", "y")], {}, 17),
    "silu": ([node("Sigmoid", "h", "s"), node("Mul", "h s", "y")], {}, 17),
    "add": one("Add", {"k": floats(4, 1, 1)}, "k"),
    "sub": ([node("Sub", "k h", "y")], {"k": floats(6)}, 17),
    "mul": one("Mul", {"k": floats(1, 4, 1, 1)}, "k"),
    "div": one("Div", {"k": np.float32([2.0, 3, 4, 5, 6, 7])}, "k"),
    "pow": ([node("Abs", "h", "a"), node("Pow", "a two", "y")], {"two": np.float32(2)}, 17),
    "mod": one("Mod", {"k": np.float32(0.5)}, "k", fmod=1),
    "max": one("Max", {"k": floats(6), "l": floats(6, 6)}, "k l"),
    "min": one("Min", {"k": floats(6)}, "k"),
    "mean": one("Mean", {"k": floats(6), "l": floats(6, 6)}, "k l"),
    "sum": one("Sum", {"k": floats(6), "l": floats(6, 6)}, "k l"),
    "where": (
        [node("Greater", "h zero", "c"), node("Where", "c h k", "y")],
        {"zero": np.float32(0), "k": floats(6)},
        17,
    ),
    "reduce-mean": one("ReduceMean", axes=[2, 3], keepdims=0),
    "reduce-mean-18": one("ReduceMean", {"a": ints(-1, -2)}, "a", 18),
    "reduce-sum": one("ReduceSum", {"a": ints(1)}, "a"),
    "reduce-max": one("ReduceMax", axes=[1]),
    "reduce-min": one("ReduceMin", axes=[-1], keepdims=0),
    "reduce-prod": one("ReduceProd", axes=[1, 2]),
    "reduce-l1": one("ReduceL1", axes=[1]),
    "reduce-l2": one("ReduceL2", axes=[1, 2]),
    "reduce-squares": one("ReduceSumSquare", axes=[3]),
    "reduce-log-sum": ([node("Exp", "h", "e"), node("ReduceLogSum", "e", "y", axes=[1])], {}, 17),
    "reduce-log-sum-exp": one("ReduceLogSumExp", axes=[1]),
    "reduce-nothing": one("ReduceSum", {"a": np.zeros(0, np.int64)}, "a", noop_with_empty_axes=1),
    "reshape": one("Reshape", {"s": ints(0, -1, 12)}, "s"),
    "reshape-computed": (
        [
            node("Shape", "h", "sh"),
            node("Gather", "sh zero", "n"),
            node("Unsqueeze", "n ax", "n1"),
            node("Concat", "n1 rest", "s", axis=0),
            node("Reshape", "h s", "y"),
        ],
        {"zero": np.int64(0), "ax": ints(0), "rest": ints(-1)},
        17,
    ),
    "flatten": one("Flatten", axis=-3),
    "transpose": one("Transpose", perm=[0, 2, 3, 1]),
    "squeeze": ([node("GlobalMaxPool", "h", "g"), node("Squeeze", "g a", "y")], {"a": ints(2, 3)}, 17),
    "unsqueeze": one("Unsqueeze", {"a": ints(1, -1)}, "a"),
    "expand": ([node("GlobalMaxPool", "h", "g"), node("Expand", "g s", "y")], {"s": ints(1, 4, 2, 3)}, 17),
    "tile": one("Tile", {"r": ints(1, 2, 1, 3)}, "r"),
    "concat": ([node("Relu", "h", "r"), node("Concat", "h r", "y", axis=1)], {}, 17),
    "identity": ([node("Identity", "h", "i"), node("Dropout", "i", "y")], {}, 17),
    "pad": one("Pad", {"p": ints(0, 0, 1, 2, 0, 0, 0, 3), "v": np.float32(0.5)}, "p v"),
    "pad-cut": one("Pad", {"p": ints(0, 0, -1, 2, 0, 0, 0, -2)}, "p"),
    "pad-axes": one("Pad", {"p": ints(1, 2), "a": ints(-1)}, "p - a", 18),
    "pad-reflect": one("Pad", {"p": ints(0, 0, 1, 2, 0, 0, 0, 3)}, "p", mode="reflect"),
    "pad-edge": one("Pad", {"p": ints(0, 1, 1, 2, 0, 0, 0, 3)}, "p", mode="edge"),
    "cast": ([node("Cast", "h", "d", to=11), node("Cast", "d", "y", to=1)], {}, 17),
    "depth-to-space": one("DepthToSpace", blocksize=2),
    "depth-to-space-crd": one("DepthToSpace", blocksize=2, mode="CRD"),
    "space-to-depth": one("SpaceToDepth", blocksize=3),
    "slice": one(
        "Slice", {"s": ints(1, -5), "e": ints(3, 1000), "a": ints(1, 3), "t": ints(1, 2)}, "s e a t"
    ),
    "slice-backward": one("Slice", {"s": ints(-1), "e": ints(-1000), "a": ints(2), "t": ints(-2)}, "s e a t"),
    "slice-old": one("Slice", opset=9, starts=[1], ends=[4], axes=[2]),
    "split": ([node("Split", "h", "p q", axis=1), node("Mul", "p q", "y")], {}, 17),
    "split-sizes": (
        [node("Split", "h s", "p q", axis=1), node("Concat", "q p", "y", axis=1)],
        {"s": ints(1, 3)},
        17,
    ),
    "gather": one("Gather", {"i": np.array([[0, -1], [2, 2]])}, "i", axis=1),
    "gather-one": one("Gather", {"i": np.int64(-2)}, "i", axis=2),
    "gather-elements": (
        [node("Shape", "h", "sh"), node("Expand", "i sh", "j"), node("GatherElements", "h j", "y", axis=3)],
        {"i": ints(0, -1, 2, 2, 1, 3)},
        17,
    ),
    "trilu": one("Trilu", {"k": np.int64(1)}, "k", upper=0),
    "size": (
        [
            node("Size", "h", "s"),
            node("Shape", "h", "t", end=1),
            node("Div", "s t", "q"),
            node("Cast", "q", "f", to=1),
            node("Mul", "h f", "y"),
        ],
        {},
        17,
    ),
    "constant-of-shape": (
        [node("Shape", "h", "s"), node("ConstantOfShape", "s", "o"), node("Add", "h o", "y")],
        {},
        17,
    ),
    "range": (
        [
            node("Shape", "h", "s", start=3),
            node("Squeeze", "s", "width"),
            node("Range", "zero width step", "r"),
            node("Cast", "r", "f", to=1),
            node("Mul", "h f", "y"),
        ],
        {"zero": np.int64(0), "step": np.int64(1)},
        17,
    ),
    "resize-nearest": one("Resize", {"sc": np.float32([1, 1, 2, 1.5])}, "- sc", mode="nearest"),
    "resize-floor": one(
        "Resize",
        {"sc": np.float32([1, 1, 1.5, 0.6])},
        "- sc",
        mode="nearest",
        nearest_mode="floor",
        coordinate_transformation_mode="asymmetric",
    ),
    "resize-linear": one("Resize", {"sc": np.float32([1, 1, 2, 0.5])}, "- sc", mode="linear"),
    "resize-corners": one(
        "Resize",
        {"sc": np.float32([1, 1, 2, 2])},
        "- sc",
        mode="linear",
        coordinate_transformation_mode="align_corners",
    ),
    "resize-cubic": one("Resize", {"sc": np.float32([1, 1, 2, 2])}, "- sc", mode="cubic"),
    "resize-computed": (
        [
            node("Shape", "h", "s", end=2),
            node("Concat", "s hw", "sz", axis=0),
            node("Resize", "h - - sz", "y", mode="linear"),
        ],
        {"hw": ints(11, 13)},
        17,
    ),
    "upsample": one("Upsample", {"sc": np.float32([1, 1, 2, 2])}, "sc", opset=9, mode="nearest"),
    "and-or-not": (
        [
            node("Less", "h k", "a"),
            node("GreaterOrEqual", "h k", "b"),
            node("LessOrEqual", "h k", "c"),
            node("And", "a c", "d"),
            node("Or", "d b", "e"),
            node("Not", "e", "f"),
            node("Equal", "f a", "g"),
            node("Where", "g h k", "y"),
        ],
        {"k": floats(6)},
        17,
    ),
    **{
        name.lower(): one(name)
        for name in ("Relu", "Sigmoid", "Tanh", "Erf", "Exp", "Neg", "Abs", "Softsign", "Sin", "Cos")
    },
    **{
        name.lower(): (
            [node("Abs", "h", "a"), node("Add", "a k", "p"), node(name, "p", "y")],
            {"k": np.float32(0.5)},
            17,
        )
        for name in ("Log", "Sqrt", "Reciprocal")
    },
    **{
        name.lower(): ([node(name, "h", "f"), node("Add", "h f", "y")], {}, 17)
        for name in ("Sign", "Floor", "Ceil", "Round")
    },
    "mish": one("Mish", opset=18),
}


FIXED = {  # a batch of one stands in these
    "reshape-one": one("Reshape", {"s": ints(1, -1)}, "s"),
    "reshape-all": one("Reshape", {"s": ints(1, 2, 72)}, "s"),
    "reshape-windows": (
        [node("Reshape", "h s", "r"), node("Reshape", "r t", "y")],
        {"s": ints(4, 6, -1), "t": ints(1, 144)},
        17,
    ),
    "resize-sizes": one("Resize", {"sz": ints(1, 4, 9, 4)}, "- - sz", mode="nearest"),
    "token": (
        [node("Reshape", "h s", "r"), node("Expand", "t one", "u"), node("Concat", "u r", "y", axis=1)],
        {"s": ints(1, 4, 36), "t": floats(1, 1, 36), "one": ints(1, 1, 36)},
        17,
    ),
}


def opened(nodes, weights, opset, batch="n"):
    first = {"w": floats(4, 3, 3, 3), "wb": floats(4)}
    model = model_of([node("Conv", "x w wb", "h"), *nodes], first | weights, (batch, 3, 8, 8), opset)
    return open_trainable(model), model


def assert_close(got, expected):
    """Equal up to the rounding of float32 sums, whose order depends on the number of threads."""
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=2e-5 + 2e-7 * np.abs(expected).max())


@pytest.mark.parametrize("name", CASES)
def test_operator_is_that_of_onnxruntime(name):
    net, model = opened(*CASES[name])
    images = np.random.default_rng(7).normal(size=(3, 3, 8, 8)).astype(np.float32)
    got = net(torch.from_numpy(images))
    expected = scores_of(model, images, "y", 0)
    assert_close(got.detach().reshape(3, -1).numpy(), expected)
    got.square().sum().backward()
    assert all(w.grad is not None and w.grad.isfinite().all() for w in net.weights.values())
    assert net.weights["w"].grad.abs().sum() > 0


@pytest.mark.parametrize("name", FIXED)
def test_a_batch_of_one_written_into_the_file_does_not_bind(name):
    net, model = opened(*FIXED[name], batch=1)
    images = np.random.default_rng(7).normal(size=(3, 3, 8, 8)).astype(np.float32)
    expected = scores_of(model, images, "y", 1)
    got = net(torch.from_numpy(images)).detach().reshape(3, -1).numpy()
    assert_close(got, expected)


def test_every_operator_is_among_the_cases():
    used = {n.op_type for nodes, _, _ in CASES.values() for n in nodes}
    untested = {"RMSNormalization", "Swish"}  # newer than the oldest ONNX Runtime that is allowed
    assert set(TABLE.operators) - used <= untested


def test_shape_of_one_image_is_enough_for_windows_on_axes_other_than_two():
    weights = {"w": floats(4, 3, 3)}
    nodes = [node("Conv", "x w", "h", pads=[1, 0]), node("MaxPool", "h", "y", kernel_shape=[2], strides=[2])]
    model = model_of(nodes, weights, ("n", 3, 9))
    images = np.random.default_rng(7).normal(size=(2, 3, 9)).astype(np.float32)
    got = open_trainable(model)(torch.from_numpy(images)).detach().numpy()
    np.testing.assert_allclose(got, scores_of(model, images, "y", 0), atol=1e-5)
