"""A darknet network with its weights as an ONNX model whose outputs are the raw YOLO maps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import onnx
from numpy.typing import ArrayLike
from onnx import TensorProto, helper, numpy_helper

from holdfast.core.errors import ModelError
from holdfast.core.types import Size
from holdfast.graph.darknet.cfg import IMAGE, Step
from holdfast.graph.darknet.layers import (
    Activate,
    AvgPool,
    BatchNorm,
    Convolutional,
    MaxPool,
    Route,
    Scale,
    Shortcut,
    Upsample,
    Yolo,
)
from holdfast.graph.darknet.weights import Arrays, folded, normalisation


@dataclass
class Nodes:
    """The nodes so far; mutable, because it grows by one layer after the other."""

    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, onnx.TensorProto] = field(default_factory=dict)

    def add(self, op: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        """The name of the output of a new node, which is also the node's name."""
        self.nodes.append(helper.make_node(op, list(inputs), [output], name=output, **attributes))
        return output

    def constant(self, name: str, value: ArrayLike, dtype: Any = np.float32) -> str:
        """The name of a constant; one name may be given again with the same value."""
        tensor = numpy_helper.from_array(np.asarray(value, dtype), name)
        old = self.constants.setdefault(name, tensor)
        if old is not tensor and old != tensor:
            raise ModelError(f"constant {name!r}: expected the value it already has, got another one")
        return name

    def number(self, value: float) -> str:
        """The name of a scalar constant, shared by all that need the same number."""
        return self.constant(f"number_{value:g}", value)


def _single(op: str, **attributes: float) -> Callable[[Nodes, str, str], str]:
    return lambda nodes, x, out: nodes.add(op, [x], out, **attributes)


def _clip(nodes: Nodes, x: str, low: float, high: float, out: str) -> str:
    return nodes.add("Clip", [x, nodes.number(low), nodes.number(high)], out)


def _times(nodes: Nodes, x: str, factor: float, out: str) -> str:
    return nodes.add("Mul", [x, nodes.number(factor)], out)


def _mish(nodes: Nodes, x: str, out: str) -> str:
    soft = nodes.add("Softplus", [x], f"{out}_softplus")  # ONNX has Mish itself only from opset 18 on
    return nodes.add("Mul", [x, nodes.add("Tanh", [soft], f"{out}_tanh")], out)


def _loggy(nodes: Nodes, x: str, out: str) -> str:
    """2 · logistic(x) − 1 = tanh(x / 2)."""
    return nodes.add("Tanh", [_times(nodes, x, 0.5, f"{out}_half")], out)


def _ramp(nodes: Nodes, x: str, out: str) -> str:
    """Relu(x) + x / 10."""
    return nodes.add(
        "Add", [nodes.add("Relu", [x], f"{out}_relu"), _times(nodes, x, 0.1, f"{out}_tenth")], out
    )


def _lhtan(nodes: Nodes, x: str, out: str) -> str:
    """X within 0..1 and a slope of 1/1000 outside = 0.999 · clip(x, 0, 1) + x / 1000."""
    inner = _times(nodes, _clip(nodes, x, 0.0, 1.0, f"{out}_clip"), 0.999, f"{out}_inner")
    return nodes.add("Add", [inner, _times(nodes, x, 0.001, f"{out}_outer")], out)


def _plse(nodes: Nodes, x: str, out: str) -> str:
    """X / 8 + 1/2 within −4..4 and a slope of 1/100 outside = 0.115 · clip(x, −4, 4) + x / 100 + 1/2."""
    inner = _times(nodes, _clip(nodes, x, -4.0, 4.0, f"{out}_clip"), 0.115, f"{out}_inner")
    sloped = nodes.add("Add", [inner, _times(nodes, x, 0.01, f"{out}_outer")], f"{out}_sloped")
    return nodes.add("Add", [sloped, nodes.number(0.5)], out)


ACTIVATE: Mapping[str, Callable[[Nodes, str, str], str]] = {
    "elu": _single("Elu", alpha=1.0),
    "hardtan": lambda nodes, x, out: _clip(nodes, x, -1.0, 1.0, out),
    "leaky": _single("LeakyRelu", alpha=0.1),
    "lhtan": _lhtan,
    "linear": _single("Identity"),
    "loggy": _loggy,
    "logistic": _single("Sigmoid"),
    "mish": _mish,
    "plse": _plse,
    "ramp": _ramp,
    "relie": _single("LeakyRelu", alpha=0.01),
    "relu": _single("Relu"),
    "relu6": lambda nodes, x, out: _clip(nodes, x, 0.0, 6.0, out),
    "revleaky": _single("LeakyRelu", alpha=0.1),
    "selu": _single("Selu", alpha=1.6732, gamma=1.0507),
    "swish": lambda nodes, x, out: nodes.add("Mul", [x, nodes.add("Sigmoid", [x], f"{out}_sigmoid")], out),
    "tanh": _single("Tanh"),
}


Inputs: TypeAlias = Sequence[str]


def emit(nodes: Nodes, step: Step, inputs: Inputs, out: str, arrays: Arrays) -> str:
    """The name of the map a layer gives: `out`, or an input's own name where the layer does nothing."""
    write = EMITTERS.get(type(step.layer))
    return inputs[0] if write is None else write(nodes, step, step.layer, inputs, out, arrays)


def _activated(nodes: Nodes, activation: str, out: str, write: Callable[[str], str]) -> str:
    """The map `write` makes, activated; "linear" costs no node."""
    if activation == "linear":
        return write(out)
    return ACTIVATE[activation](nodes, write(f"{out}_linear"), out)


def _convolutional(
    nodes: Nodes, step: Step, layer: Convolutional, inputs: Inputs, out: str, arrays: Arrays
) -> str:
    weights, bias = folded(arrays)
    names = [nodes.constant(f"{out}_weights", weights), nodes.constant(f"{out}_bias", bias)]

    def write(to: str) -> str:
        return nodes.add(
            "Conv",
            [inputs[0], *names],
            to,
            kernel_shape=[layer.size, layer.size],
            strides=[layer.stride_y, layer.stride_x],
            pads=[layer.padding * layer.dilation] * 4,
            dilations=[layer.dilation, layer.dilation],
            group=layer.groups,
        )

    return _activated(nodes, layer.activation, out, write)


def _batchnorm(nodes: Nodes, step: Step, layer: BatchNorm, inputs: Inputs, out: str, arrays: Arrays) -> str:
    factor, shift = (values[None, :, None, None] for values in normalisation(arrays))
    scaled = nodes.add("Mul", [inputs[0], nodes.constant(f"{out}_factor", factor)], f"{out}_scaled")
    return nodes.add("Add", [scaled, nodes.constant(f"{out}_shift", shift)], out)


def _maxpool(nodes: Nodes, step: Step, layer: MaxPool, inputs: Inputs, out: str, arrays: Arrays) -> str:
    given, before = step.inputs[0], layer.padding // 2
    # Darknet pads the right and bottom by as much as its last window needs, be that more or less than
    # the other half of `padding`; where it needs less than nothing the last pixels are simply not read.
    below = max(0, (step.shape.height - 1) * layer.stride_y + layer.size - given.height - before)
    right = max(0, (step.shape.width - 1) * layer.stride_x + layer.size - given.width - before)
    return nodes.add(
        "MaxPool",
        [inputs[0]],
        out,
        kernel_shape=[layer.size, layer.size],
        strides=[layer.stride_y, layer.stride_x],
        pads=[before, before, below, right],
    )


def _upsample(nodes: Nodes, step: Step, layer: Upsample, inputs: Inputs, out: str, arrays: Arrays) -> str:
    plain = layer.scale == 1.0
    scales = nodes.constant(f"upsample_{layer.stride}", [1, 1, layer.stride, layer.stride])
    larger = nodes.add(
        "Resize",
        [inputs[0], "", scales],
        out if plain else f"{out}_larger",
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )
    return larger if plain else nodes.add("Mul", [larger, nodes.number(layer.scale)], out)


def _channels(nodes: Nodes, x: str, start: int, stop: int, out: str) -> str:
    axis = 1
    bounds = [nodes.constant(f"integer_{v}", [v], np.int64) for v in (start, stop, axis)]
    return nodes.add("Slice", [x, *bounds], out)


def _route(nodes: Nodes, step: Step, layer: Route, inputs: Inputs, out: str, arrays: Arrays) -> str:
    parts = list(inputs)
    if layer.groups > 1:
        single = len(inputs) == 1
        for place, (name, shape) in enumerate(zip(inputs, step.inputs, strict=True)):
            share = shape.channels // layer.groups
            start = share * layer.group_id
            parts[place] = _channels(
                nodes, name, start, start + share, out if single else f"{out}_part{place}"
            )
    return parts[0] if len(parts) == 1 else nodes.add("Concat", parts, out, axis=1)


def _shortcut(nodes: Nodes, step: Step, layer: Shortcut, inputs: Inputs, out: str, arrays: Arrays) -> str:
    channels = step.shape.channels

    def fitted(place: int) -> str:
        given = step.inputs[place].channels
        if given > channels:
            return _channels(nodes, inputs[place], 0, channels, f"{out}_fit{place}")
        if given < channels:
            pads = nodes.constant(
                f"channels_{channels - given}", [0, 0, 0, 0, 0, channels - given, 0, 0], np.int64
            )
            return nodes.add("Pad", [inputs[place], pads], f"{out}_fit{place}")
        return inputs[place]

    def write(to: str) -> str:
        total, last = inputs[0], len(inputs) - 1
        for place in range(1, len(inputs)):
            total = nodes.add("Add", [total, fitted(place)], to if place == last else f"{out}_sum{place}")
        return total

    return _activated(nodes, layer.activation, out, write)


def _scale(nodes: Nodes, step: Step, layer: Scale, inputs: Inputs, out: str, arrays: Arrays) -> str:
    return _activated(nodes, layer.activation, out, lambda to: nodes.add("Mul", [inputs[1], inputs[0]], to))


EMITTERS: Mapping[type, Callable[[Nodes, Step, Any, Inputs, str, Arrays], str]] = {
    Activate: lambda nodes, step, layer, inputs, out, arrays: ACTIVATE[layer.activation](
        nodes, inputs[0], out
    ),
    AvgPool: lambda nodes, step, layer, inputs, out, arrays: nodes.add("GlobalAveragePool", inputs[:1], out),
    BatchNorm: _batchnorm,
    Convolutional: _convolutional,
    MaxPool: _maxpool,
    Route: _route,
    Scale: _scale,
    Shortcut: _shortcut,
    Upsample: _upsample,
}


OPSET, IR = 13, 7  # old enough for every runtime of the last years; nothing here needs more
INPUT = "images"


def build(steps: Sequence[Step], arrays: Mapping[int, Arrays], size: Size, name: str) -> onnx.ModelProto:
    """The ONNX model: `images` (N, 3, H, W) in 0..1 in, `yolo0`, `yolo1`, ... (N, A·(5+k), h, w) out.

    The maps come before any sigmoid. The output of darknet's layer 12 is the tensor `layer12`, so that a
    graph can be read beside its .cfg; a layer that does nothing leaves none.
    """
    nodes = Nodes()
    tensors = {IMAGE: INPUT}
    heads = [step for step in steps if isinstance(step.layer, Yolo)]
    raw = {step.sources[0]: f"yolo{place}" for place, step in enumerate(heads)}
    for step in steps:
        index = step.placed.index
        inputs = [tensors[source] for source in step.sources]
        tensors[index] = emit(nodes, step, inputs, raw.get(index, f"layer{index}"), arrays.get(index, {}))
    outputs = []
    for place, step in enumerate(heads):
        given, wanted = tensors[step.sources[0]], f"yolo{place}"
        if given != wanted:  # the layer before does nothing, or feeds two heads
            nodes.add("Identity", [given], wanted)
        outputs.append(helper.make_tensor_value_info(wanted, TensorProto.FLOAT, ["batch", *step.shape]))
    image = helper.make_tensor_value_info(INPUT, TensorProto.FLOAT, ["batch", 3, size.height, size.width])
    graph = helper.make_graph(nodes.nodes, name, [image], outputs, list(nodes.constants.values()))
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR,
        producer_name="holdfast",
        doc_string="exported from darknet",
    )
    onnx.checker.check_model(model, full_check=True)
    return model
