"""A darknet network with its weights as an ONNX model whose outputs are the raw YOLO maps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx
from onnx import TensorProto, helper

from holdfast.core.types import Size
from holdfast.graph.darknet.emit import emit
from holdfast.graph.darknet.layers import Yolo
from holdfast.graph.darknet.nodes import Nodes
from holdfast.graph.darknet.shapes import IMAGE, Step
from holdfast.graph.darknet.weights import Arrays

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
