"""The graph of FID's Inception v3 as ONNX, from the arrays of its checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from holdfast.core.errors import ModelError
from holdfast.core.types import Tensor

DIMENSIONS = 2048
SIDE = 299
_SPREAD = 1e-3  # added to the variances of the batch norms

# A step is a convolution by its name in the block, or a pool. "/2" is stride 2 without a border; everything
# else keeps the size. A tuple of names is a fork: both go on from the same place and are joined.
_AVERAGE, _MAXIMUM, _HALVE = "average", "maximum", "maximum/2"
_Branch = tuple[str | tuple[str, ...], ...]


def _a() -> tuple[_Branch, ...]:
    double = ("branch3x3dbl_1", "branch3x3dbl_2", "branch3x3dbl_3")
    return ("branch1x1",), ("branch5x5_1", "branch5x5_2"), double, (_AVERAGE, "branch_pool")


def _b() -> tuple[_Branch, ...]:
    return ("branch3x3/2",), ("branch3x3dbl_1", "branch3x3dbl_2", "branch3x3dbl_3/2"), (_HALVE,)


def _c() -> tuple[_Branch, ...]:
    single = tuple(f"branch7x7_{n}" for n in (1, 2, 3))
    double = tuple(f"branch7x7dbl_{n}" for n in (1, 2, 3, 4, 5))
    return ("branch1x1",), single, double, (_AVERAGE, "branch_pool")


def _d() -> tuple[_Branch, ...]:
    long = ("branch7x7x3_1", "branch7x7x3_2", "branch7x7x3_3", "branch7x7x3_4/2")
    return ("branch3x3_1", "branch3x3_2/2"), long, (_HALVE,)


def _e(pool: str) -> tuple[_Branch, ...]:
    single: _Branch = ("branch3x3_1", ("branch3x3_2a", "branch3x3_2b"))
    double: _Branch = ("branch3x3dbl_1", "branch3x3dbl_2", ("branch3x3dbl_3a", "branch3x3dbl_3b"))
    return ("branch1x1",), single, double, (pool, "branch_pool")


_STEM = ("Conv2d_1a_3x3/2", "Conv2d_2a_3x3/valid", "Conv2d_2b_3x3", _HALVE)
_STEM_TWO = ("Conv2d_3b_1x1", "Conv2d_4a_3x3/valid", _HALVE)
_BLOCKS = (
    ("Mixed_5b", _a()), ("Mixed_5c", _a()), ("Mixed_5d", _a()), ("Mixed_6a", _b()),
    ("Mixed_6b", _c()), ("Mixed_6c", _c()), ("Mixed_6d", _c()), ("Mixed_6e", _c()),
    ("Mixed_7a", _d()), ("Mixed_7b", _e(_AVERAGE)), ("Mixed_7c", _e(_MAXIMUM)),
)  # fmt: skip


@dataclass
class _Graph:
    """Nodes and weights as they are added; every method gives the name of what it made."""

    arrays: Mapping[str, Tensor]
    what: str
    nodes: list[Any] = field(default_factory=list)
    weights: list[Any] = field(default_factory=list)

    def node(self, op: str, sources: Sequence[str], **attributes: Any) -> str:
        from onnx import helper

        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(sources), [name], **attributes))
        return name

    def weight(self, value: Tensor) -> str:
        from onnx import numpy_helper

        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(value, name))
        return name

    def array(self, name: str) -> Tensor:
        try:
            return self.arrays[name].astype(np.float64)
        except KeyError:
            raise ModelError(
                f"{self.what}: expected the weights of FID's Inception, {name!r} is missing"
            ) from None

    def conv(self, source: str, step: str, prefix: str) -> str:
        """Convolution, batch norm (folded into its weights) and ReLU."""
        name, _, how = step.partition("/")
        whole = f"{prefix}{name}"
        kernel = self.array(f"{whole}.conv.weight")
        scale = self.array(f"{whole}.bn.weight") / np.sqrt(self.array(f"{whole}.bn.running_var") + _SPREAD)
        bias = self.array(f"{whole}.bn.bias") - scale * self.array(f"{whole}.bn.running_mean")
        tall, wide = (0, 0) if how else (kernel.shape[2] // 2, kernel.shape[3] // 2)
        strides = [2, 2] if how == "2" else [1, 1]
        weights = [self.weight(v.astype(np.float32)) for v in (kernel * scale[:, None, None, None], bias)]
        made = self.node("Conv", [source, *weights], strides=strides, pads=[tall, wide, tall, wide])
        return self.node("Relu", [made])

    def step(self, source: str, step: str | tuple[str, ...], prefix: str = "") -> str:
        """One step of a branch."""
        if isinstance(step, tuple):
            return self.node("Concat", [self.conv(source, one, prefix) for one in step], axis=1)
        if step == _HALVE:
            return self.node("MaxPool", [source], kernel_shape=[3, 3], strides=[2, 2])
        if step in (_AVERAGE, _MAXIMUM):
            op = "AveragePool" if step == _AVERAGE else "MaxPool"  # an average leaves its border out
            return self.node(op, [source], kernel_shape=[3, 3], strides=[1, 1], pads=[1, 1, 1, 1])
        return self.conv(source, step, prefix)

    def branch(self, source: str, branch: _Branch, prefix: str) -> str:
        """The steps of a branch one after the other."""
        for step in branch:
            source = self.step(source, step, prefix)
        return source


def build(arrays: Mapping[str, Tensor], what: str) -> bytes:
    """The ONNX bytes: `image` (1, h, w, 3) uint8 -> pool3 features (1, 2048) float32."""
    from onnx import TensorProto, helper

    graph = _Graph(arrays, what)
    value = graph.branch(_enter(graph, "image"), (*_STEM, *_STEM_TWO), "")
    for block, branches in _BLOCKS:
        made = [graph.branch(value, branch, f"{block}.") for branch in branches]
        value = graph.node("Concat", made, axis=1)
    last = graph.node("Flatten", [graph.node("GlobalAveragePool", [value])])
    image = helper.make_tensor_value_info("image", TensorProto.UINT8, [1, "h", "w", 3])
    out = helper.make_tensor_value_info(last, TensorProto.FLOAT, [1, DIMENSIONS])
    whole = helper.make_model(
        helper.make_graph(graph.nodes, "inception", [image], [out], graph.weights),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    done: bytes = whole.SerializeToString()
    return done


def _enter(graph: _Graph, image: str) -> str:
    """The image as (1, 3, 299, 299) in −1..1.

    TensorFlow 1 resizes with place = target · old / new: pixels are points at their corners, no antialiasing.
    """
    from onnx import TensorProto

    pixels = graph.node("Transpose", [graph.node("Cast", [image], to=TensorProto.FLOAT)], perm=[0, 3, 1, 2])
    sizes = graph.weight(np.array([1, 3, SIDE, SIDE], np.int64))
    how = {"mode": "linear", "coordinate_transformation_mode": "asymmetric"}
    small = graph.node("Resize", [pixels, "", "", sizes], **how)
    centred = graph.node("Sub", [small, graph.weight(np.array(128, np.float32))])
    return graph.node("Div", [centred, graph.weight(np.array(128, np.float32))])
