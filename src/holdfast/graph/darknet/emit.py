"""One darknet layer as ONNX nodes: a function a layer, all of the same form."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

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
)
from holdfast.graph.darknet.nodes import Nodes, activate
from holdfast.graph.darknet.shapes import Step
from holdfast.graph.darknet.weights import Arrays, folded, normalisation

Inputs: TypeAlias = Sequence[str]


def emit(nodes: Nodes, step: Step, inputs: Inputs, out: str, arrays: Arrays) -> str:
    """The name of the map a layer gives: `out`, or an input's own name where the layer does nothing."""
    write = EMITTERS.get(type(step.layer))
    return inputs[0] if write is None else write(nodes, step, step.layer, inputs, out, arrays)


def _activated(nodes: Nodes, activation: str, out: str, write: Callable[[str], str]) -> str:
    """The map `write` makes, activated; "linear" costs no node."""
    if activation == "linear":
        return write(out)
    return activate(nodes, activation, write(f"{out}_linear"), out)


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


def _avgpool(nodes: Nodes, step: Step, layer: AvgPool, inputs: Inputs, out: str, arrays: Arrays) -> str:
    return nodes.add("GlobalAveragePool", [inputs[0]], out)


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
    bounds = [
        nodes.constant(f"integer_{value}", [value], np.int64) for value in (start, stop, 1)
    ]  # the axis is 1
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


def _activate(nodes: Nodes, step: Step, layer: Activate, inputs: Inputs, out: str, arrays: Arrays) -> str:
    return activate(nodes, layer.activation, inputs[0], out)


EMITTERS: Mapping[type, Callable[[Nodes, Step, Any, Inputs, str, Arrays], str]] = {
    Activate: _activate,
    AvgPool: _avgpool,
    BatchNorm: _batchnorm,
    Convolutional: _convolutional,
    MaxPool: _maxpool,
    Route: _route,
    Scale: _scale,
    Shortcut: _shortcut,
    Upsample: _upsample,
}
