"""Small graphs for tests of rewrites, a card for them, and their outputs in ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from holdfast.core.model import Card, Head, Input
from holdfast.core.types import Size
from holdfast.graph.rewrite.types import RewriteContext
from holdfast.graph.session import runtime

node = helper.make_node


def context(height=20, width=None, task="detect"):
    """What a rewrite is told of a model of this input size."""
    card = Card(task, Input(Size(width or height, height)), Head("yolov3", {}), ("a",))
    return RewriteContext(card)


def model(nodes, outputs, weights=None, height=20, width=None, opset=17, batch=1, channels=3):
    """A model with one image input `x` and outputs whose shapes are inferred where they can be."""
    stored = [numpy_helper.from_array(np.asarray(v), k) for k, v in (weights or {}).items()]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, channels, height, width or height])
    ends = [helper.make_empty_tensor_value_info(name) for name in outputs]
    graph = helper.make_graph(list(nodes), "g", [x], ends, stored)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    if any(n.domain for n in nodes):
        made.opset_import.append(helper.make_opsetid("com.microsoft", 1))
        return made
    return onnx.shape_inference.infer_shapes(made)


def run(made, image):
    """The outputs in ONNX Runtime."""
    ort = runtime()
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": image})


def image(height=20, width=None, batch=1, channels=3, seed=0):
    """A random input."""
    shape = (batch, channels, height, width or height)
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def weight(*shape, seed=1):
    """Random weights."""
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def halved(name, source, kind="MaxPool", **options):
    """A pool that halves: 20 cells to 10, or to 11 if it rounds up (3×3, padding 1)."""
    given = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1], **options}
    return node(kind, [source], [name], name=name, **given)


def slow_pool(values, kind, windows, counts, include=False):
    """A pool of (h, w) values cell by cell: the rule of PyTorch in a loop."""
    out = np.zeros(counts)
    for place in np.ndindex(*counts):
        seen, count = [], 0
        for inner in np.ndindex(*(w.kernel for w in windows)):
            at = [
                p * w.stride - w.before + i * w.dilation
                for p, i, w in zip(place, inner, windows, strict=True)
            ]
            sides = list(zip(at, values.shape, windows, strict=True))
            if all(0 <= a < n for a, n, _ in sides):
                seen.append(values[tuple(at)])
            count += all(-w.before <= a < n + w.after for a, n, w in sides)
        if kind == "MaxPool":
            out[place] = max(seen, default=-np.inf)
        else:
            out[place] = sum(seen) / (count if include else max(len(seen), 1))
    return out
