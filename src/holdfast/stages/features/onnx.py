"""Feature nets of ONNX graphs: the trunk of the package's sign classifier, or any file of the user."""

from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.core.errors import InputError, ModelError
from holdfast.core.fingerprint import of, of_bytes
from holdfast.core.model import read_onnx
from holdfast.core.registry import stage
from holdfast.core.types import Image, Size, Tensor
from holdfast.graph.inspect import inspect
from holdfast.stages.features import FeatureNet, run_graph
from holdfast.stages.infer import open_graph
from holdfast.stages.resize.libraries import pillow_bilinear

# The last map of each resolution: strides 4, 8 and 16 with 40, 80 and 160 channels.
_CUTS = tuple(f"/body/body.{block}/act/Relu_output_0" for block in (0, 2, 4))
_CHANNELS = 40 + 80 + 160
_LEAST = 16  # pixels a side: below that the last map is a single place and has no spread
_SIGNS_VERSION = 1  # of the processing of the maps in this file


@stage("features")
def signs(text: str = "", threads: int = 1) -> FeatureNet:
    """FD-signs: mean and standard deviation of each channel at three depths of signs-class (d = 560)."""
    if text:
        raise InputError(f"features 'signs': expected nothing after the name, got {text!r}")
    file = Path(str(resources.files("holdfast").joinpath("models", "signs-class.onnx")))
    data = file.read_bytes()
    session = open_graph(_cut(data, file.name), file.name, threads)

    def row(image: Image) -> Tensor:
        if min(image.shape[:2]) < _LEAST:
            got = f"{image.shape[1]}×{image.shape[0]}"
            raise InputError(f"FD-signs: expected a side of {_LEAST} pixels or more, got {got}")
        tensor = np.ascontiguousarray(image.transpose(2, 0, 1)[None], np.float32) / np.float32(255)
        return run_graph(session, tensor)

    identity = {"model": of_bytes(data), "cuts": _CUTS, "size": "that of the image"}
    return FeatureNet("FD-signs", of(identity | {"version": _SIGNS_VERSION}), 2 * _CHANNELS, row)


def _cut(data: bytes, name: str) -> bytes:
    """The graph up to the cuts, its input of free size, its one output the statistics of their channels."""
    import onnx
    from onnx import TensorProto, helper

    proto = onnx.load_model_from_string(data)
    graph = proto.graph
    if missing := sorted(set(_CUTS) - {output for node in graph.node for output in node.output}):
        raise ModelError(f"{name}: expected the maps {', '.join(missing)}, which the network does not have")
    last = max(place for place, node in enumerate(graph.node) if set(node.output) & set(_CUTS))
    nodes = list(graph.node[: last + 1])
    for cut in _CUTS:  # mean and standard deviation of each channel over the places of the map
        mean, away, square, spread = (f"{cut}:{what}" for what in ("mean", "away", "square", "variance"))
        nodes += [
            helper.make_node("ReduceMean", [cut], [mean], axes=[2, 3], keepdims=1),
            helper.make_node("Sub", [cut, mean], [away]),
            helper.make_node("Mul", [away, away], [square]),
            helper.make_node("ReduceMean", [square], [spread], axes=[2, 3], keepdims=1),
            helper.make_node("Sqrt", [spread], [f"{cut}:spread"]),
        ]
    parts = [f"{cut}:{what}" for what in ("mean", "spread") for cut in _CUTS]
    nodes.append(helper.make_node("Concat", parts, ["features"], axis=1))
    used = {source for node in nodes for source in node.input}
    image = helper.make_tensor_value_info(graph.input[0].name, TensorProto.FLOAT, [1, 3, "h", "w"])
    out = helper.make_tensor_value_info("features", TensorProto.FLOAT, [1, 2 * _CHANNELS, 1, 1])
    weights = [weight for weight in graph.initializer if weight.name in used]
    features = helper.make_graph(nodes, "features", [image], [out], weights)
    model = helper.make_model(features, opset_imports=proto.opset_import, ir_version=proto.ir_version)
    return bytes(model.SerializeToString())


_VERSION = 1  # of the processing before and after the network in this file
_TYPES = {"tensor(float)": np.float32, "tensor(uint8)": np.uint8}


@stage("features")
def onnx(text: str = "", threads: int = 1) -> FeatureNet:
    """FD-<file>-<hash>: the first output of an ONNX file for RGB in 0..1 (uint8: 0..255).

    A map is averaged over its places. A fixed input size is reached by Pillow's bilinear resize, without
    keeping the aspect ratio. Further preprocessing (mean, deviation) belongs in the graph.
    """
    if not text:
        raise InputError("features 'onnx': expected onnx:FILE with the path of an ONNX file, got no file")
    path = Path(text)
    info = inspect(path)
    # by path, so that weights stored in files next to the model are found; a .gz must be unpacked first
    session = open_graph(read_onnx(path) if path.suffix == ".gz" else str(path), str(path), threads)
    fixed, tensor_of = _input(path, session)

    def row(image: Image) -> Tensor:
        features = run_graph(session, tensor_of(image))
        return features.mean(axis=(2, 3)) if features.ndim == 4 else features

    size = fixed or Size(64, 64)
    length = np.size(row(np.zeros((size.height, size.width, 3), np.uint8)))
    name = f"FD-{path.name.removesuffix('.gz').removesuffix('.onnx')}-{info.sha256[:8]}"
    return FeatureNet(name, of({"model": info.sha256, "version": _VERSION}), int(length), row)


def _input(path: Path, session: Any) -> tuple[Size | None, Callable[[Image], Tensor]]:
    """The size of the network's input (None: that of the image), and a function that builds the input."""
    inputs = session.get_inputs()
    if len(inputs) != 1 or len(inputs[0].shape) != 4:
        shapes = ", ".join(f"{i.name} {i.shape}" for i in inputs) or "none"
        raise ModelError(f"{path}: expected one image input of 4 dimensions, got {shapes}")
    batch, *rest = inputs[0].shape
    if 3 not in (rest[0], rest[2]) or (isinstance(batch, int) and batch != 1):
        expected = "an input (1, 3, h, w) or (1, h, w, 3), batch free or 1"
        raise ModelError(f"{path}: expected {expected}, got {inputs[0].shape}")
    if inputs[0].type not in _TYPES:
        raise ModelError(f"{path}: expected an input of type float or uint8, got {inputs[0].type}")
    first = rest[0] == 3
    sides = rest[1:] if first else rest[:2]
    fixed = Size(sides[1], sides[0]) if all(isinstance(side, int) for side in sides) else None
    dtype = _TYPES[inputs[0].type]

    def tensor_of(image: Image) -> Tensor:
        if fixed and image.shape[:2] != (fixed.height, fixed.width):
            image = pillow_bilinear(image, fixed)
        pixels = image.transpose(2, 0, 1)[None] if first else image[None]
        tensor = np.ascontiguousarray(pixels, dtype)
        return tensor / np.float32(255) if dtype is np.float32 else tensor

    return fixed, tensor_of
