"""Output shapes of one node from its input shapes, or output values if all inputs are known."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, defs, helper, numpy_helper, shape_inference

from holdfast.graph.inspect import opset_of
from holdfast.graph.nodes import RANDOM, attributes_of, node_alone, subgraphs
from holdfast.graph.session import open_session


@dataclass(frozen=True)
class PoolWindow:
    """How a pool looks along one axis; `before` and `after` are cells of padding."""

    kernel: int
    stride: int = 1
    before: int = 0
    after: int = 0
    dilation: int = 1

    @property
    def reach(self) -> int:
        """Cells from the first to the last that one window sees."""
        return self.dilation * (self.kernel - 1) + 1


def pooled(cells: int, window: PoolWindow, ceil: bool) -> int:
    """The number of windows over `cells` cells: eq. 8 of the SysNoise paper, with its last window checked.

    O = ⌊(W − K + P_before + P_after) / S⌋ + 1, or ⌈…⌉ in ceil mode; in ceil mode the last window is dropped
    if it would begin in the padding after the input: (O − 1)·S ≥ W + P_before.
    """
    free = cells + window.before + window.after - window.reach
    if free < 0:
        return 0
    if not ceil:
        return free // window.stride + 1
    count = -(-free // window.stride) + 1
    return count - 1 if (count - 1) * window.stride >= cells + window.before else count


def windows_of(node: Any) -> list[PoolWindow] | None:
    """How a pool node looks along each of its spatial axes; None if it pads to ⌈W/S⌉ whatever its mode."""
    attributes = attributes_of(node)
    if attributes.get("auto_pad") in (b"SAME_UPPER", b"SAME_LOWER"):
        return None
    kernel = attributes["kernel_shape"]
    rank = len(kernel)
    strides, dilations = (attributes.get(name) or [1] * rank for name in ("strides", "dilations"))
    pads = attributes.get("pads") if attributes.get("auto_pad") != b"VALID" else None
    pads = pads or [0] * (2 * rank)
    return [PoolWindow(kernel[i], strides[i], pads[i], pads[i + rank], dilations[i]) for i in range(rank)]


def ceils(node: Any) -> bool:
    """Whether a pool node rounds up, as ONNX Runtime does with ceil_mode = 1 for padding VALID too."""
    return bool(attributes_of(node).get("ceil_mode") == 1)


Array: TypeAlias = NDArray[Any]
Shape: TypeAlias = tuple[int, ...]

POOLS = ("MaxPool", "AveragePool", "LpPool")
SMALL = 64  # numbers: targets, sizes, pads; what shape inference may want to see


@dataclass(frozen=True)
class TensorFacts:
    """Element type, shape and value of a tensor; the last two are None if unknown."""

    kind: int
    shape: Shape | None
    value: Array | None = None


def outputs_of(node: Any, inputs: Mapping[str, TensorFacts], model: Any) -> list[TensorFacts]:
    """Facts about each output of a node; raise ValueError if its inputs are inconsistent."""
    attributes, array = attributes_of(node), None
    if node.op_type == "Constant" and "value" in attributes:
        array = numpy_helper.to_array(attributes["value"])
    elif node.op_type == "Shape" and (shape := inputs[node.input[0]].shape) is not None:
        array = np.array(shape[attributes.get("start") : attributes.get("end")], np.int64)
    if array is not None:
        return [TensorFacts(kind_of(array), array.shape, array)]
    if node.op_type in POOLS:
        return _pool(node, inputs[node.input[0]])
    sources = [inputs[name] for name in node.input if name]
    if sources and all(k.value is not None for k in sources) and node.op_type not in RANDOM:
        values = run_alone(node, {n: inputs[n].value for n in node.input if n}, model)
        if values is not None:
            return [TensorFacts(kind_of(v), v.shape, v) for v in values]
    return _inferred(node, inputs, model)


def kind_of(value: Array) -> int:
    """The ONNX element type of an array."""
    return int(helper.np_dtype_to_tensor_dtype(value.dtype))


def _pool(node: Any, source: TensorFacts) -> list[TensorFacts]:
    shape = None
    if source.shape is not None:
        windows, cells = windows_of(node), source.shape[2:]
        if windows is None:
            strides = attributes_of(node).get("strides") or [1] * len(cells)
            sizes = [-(-c // s) for c, s in zip(cells, strides, strict=True)]
        else:
            sizes = [pooled(c, w, ceils(node)) for c, w in zip(cells, windows, strict=True)]
        if min(sizes) < 1:
            raise ValueError(f"its window is larger than its input of {'×'.join(map(str, cells))} cells")
        shape = (*source.shape[:2], *sizes)
    kinds = (source.kind, TensorProto.INT64)
    return [TensorFacts(kind, shape) for _, kind in zip(node.output, kinds, strict=False)]


def _inferred(node: Any, inputs: Mapping[str, TensorFacts], model: Any) -> list[TensorFacts]:
    """By ONNX's own shape inference; where the operator has none there, by running it on zeros."""
    unknown = [TensorFacts(0, None) for _ in node.output]
    if subgraphs(node):
        return unknown  # If, Loop, Scan: what they give depends on more than their inputs
    types = {n: helper.make_tensor_type_proto(k.kind, k.shape) for n, k in inputs.items() if n and k.kind}
    small = {
        n: numpy_helper.from_array(k.value, n)
        for n, k in inputs.items()
        if n and k.value is not None and k.value.size <= SMALL
    }
    inferred: Mapping[str, Any] = {}
    if len(types) == len({n for n in node.input if n}):
        try:
            schema = defs.get_schema(node.op_type, opset_of(model) or 1, node.domain)
            versions = {"opset_imports": list(model.opset_import), "ir_version": model.ir_version}
            inferred = shape_inference.infer_node_outputs(schema, node, types, small, **versions)
        except defs.SchemaError:
            pass
        except shape_inference.InferenceError as problem:
            raise ValueError(str(problem).rsplit("] ", 1)[-1]) from None
    shapes = [_facts_of(inferred.get(name)) for name in node.output]
    if all(k.shape is not None for k, name in zip(shapes, node.output, strict=True) if name):
        return shapes
    if node.op_type in ("NonMaxSuppression", "NonZero", "Unique", "Compress"):
        return shapes  # the shape depends on the data
    feed: dict[str, Array] = {}
    for name, each in inputs.items():
        if each.value is not None:
            feed[name] = each.value
        elif each.shape is not None and each.kind:
            feed[name] = np.zeros(each.shape, helper.tensor_dtype_to_np_dtype(each.kind))
        else:
            return shapes
    return [TensorFacts(kind_of(v), v.shape) for v in run_alone(node, feed, model) or ()] or shapes


def _facts_of(inferred: Any) -> TensorFacts:
    if inferred is None or not inferred.HasField("tensor_type"):
        return TensorFacts(0, None)
    kind = inferred.tensor_type
    dims = list(kind.shape.dim) if kind.HasField("shape") else None
    static = dims is not None and all(d.HasField("dim_value") for d in dims)
    return TensorFacts(kind.elem_type, tuple(d.dim_value for d in dims or ()) if static else None)


def run_alone(node: Any, feed: Mapping[str, Any], model: Any) -> Sequence[Array] | None:
    """The outputs of one node run in ONNX Runtime on these inputs, not optimised; None if it fails."""
    facts = {"opset_imports": model.opset_import, "ir_version": model.ir_version}
    alone = node_alone(node, feed, functions=model.functions, **facts)
    try:
        session = open_session(alone.SerializeToString(), threads=1, optimise="none")
        outputs: Sequence[Array] = session.run(None, dict(feed))
    except Exception:  # noqa: BLE001 - onnxruntime has no common error class
        return None
    return outputs
