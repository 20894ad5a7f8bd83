"""Inputs other than the image, such as `orig_target_sizes`: which they are, and what they get.

A graph that is given the sides of the network's own input returns boxes in pixels of that input, like any
other detector, so that letterbox and crop are undone in one place only.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from holdfast.core.model import Card, Feed, Layout
from holdfast.core.types import Tensor

# Inputs of known exporters: RT-DETR and D-FINE, PaddleDetection, the YOLOv3 of the ONNX model zoo, Optimum.
KNOWN: Mapping[str, Feed] = {
    "orig_target_sizes": "width-height",
    "im_shape": "height-width",
    "scale_factor": "ones",
    "image_shape": "height-width",
    "pixel_mask": "ones",
}


def feed(kind: Feed, shape: Sequence[Any], dtype: str, tensor: Tensor, layout: Layout) -> Tensor:
    """The value of a second input of this shape; free dimensions are 1 or the sides of the image."""
    height, width = tensor.shape[-2:] if layout == "nchw" else tensor.shape[-3:-1]
    free = {len(shape) - 2: height, len(shape) - 1: width} if len(shape) > 2 else {}
    if len(shape) and not isinstance(shape[-1], int) and len(shape) <= 2:
        free = {len(shape) - 1: 2}
    fixed = [d if isinstance(d, int) and d > 0 else free.get(i, 1) for i, d in enumerate(shape)]
    if kind == "ones":
        return np.ones(fixed, dtype)
    sides = (width, height) if kind == "width-height" else (height, width)
    return np.broadcast_to(np.array(sides, dtype), fixed).copy()


def fix_feeds(model: Any, card: Card) -> None:
    """Replace the inputs that the card feeds by constants, in place."""
    from onnx import helper, numpy_helper

    blank = np.zeros((1, *card.input.shape), np.float32)
    for entry in [i for i in model.graph.input if i.name in card.feeds]:
        kind = entry.type.tensor_type
        shape = [d.dim_value or None for d in kind.shape.dim]
        dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type).name
        value = feed(card.feeds[entry.name], shape, dtype, blank, card.input.layout)
        model.graph.initializer.append(numpy_helper.from_array(value, entry.name))
        model.graph.input.remove(entry)
