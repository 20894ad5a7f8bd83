"""The network of FID: Inception v3 as TensorFlow published it in 2015, built from its canonical weights.

The graph is the one whose pool3 features FID is defined on (not torchvision's: average pools do not count
their border, and the last block pools by maximum). It is built as ONNX from the user's weights, so that
neither PyTorch nor a download is needed. Only the file with the right hash is called FID.

The checkpoint is read without PyTorch and without executing any of its code, in the format of that file: the
sequence of pickles that PyTorch wrote before 1.6. The pickles may name tensors, their storages and an ordered
dictionary; any other name is an error.
"""

import io
import pickle  # only through _Reader, which resolves an allowlist of names
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from holdfast.core.errors import InputError, ModelError
from holdfast.core.fingerprint import of, of_bytes
from holdfast.core.registry import stage
from holdfast.core.types import Image, Tensor
from holdfast.stages.features import FeatureNet, run_graph
from holdfast.stages.infer import open_graph

_MAGIC = 0x1950A86A20F9469CFC6C  # what the file begins with
_TYPES = {"FloatStorage": "<f4", "DoubleStorage": "<f8", "HalfStorage": "<f2", "LongStorage": "<i8"}


class _Lazy(NamedTuple):
    """A tensor before its storage has been read: where it begins, its shape and its steps in elements."""

    storage: str
    start: int
    shape: tuple[int, ...]
    steps: tuple[int, ...]

    def read(self, flat: Tensor) -> Tensor:
        """The tensor as a separate array; raise ValueError if it exceeds its storage."""
        last = self.start + sum((n - 1) * step for n, step in zip(self.shape, self.steps, strict=True))
        if min(self.start, *self.steps, 0) < 0 or (0 not in self.shape and last >= len(flat)):
            raise ValueError("a tensor reaches out of its storage")
        steps = tuple(step * flat.itemsize for step in self.steps)
        return np.lib.stride_tricks.as_strided(flat[self.start :], self.shape, steps).copy()


def _tensor(storage: str, start: int, shape: Any, steps: Any, *_: Any) -> _Lazy:
    return _Lazy(storage, int(start), tuple(map(int, shape)), tuple(map(int, steps)))


_ALLOWED: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): OrderedDict,
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
    ("torch._utils", "_rebuild_parameter"): lambda data, *_: data,
    **{("torch", name): np.dtype(dtype) for name, dtype in _TYPES.items()},
}


class _Reader(pickle.Unpickler):
    """An unpickler restricted to tensors, storages and ordered dictionaries."""

    def __init__(self, stream: io.BytesIO) -> None:
        super().__init__(stream)
        self.dtypes: dict[str, np.dtype[Any]] = {}

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it names {module}.{name}")
        return _ALLOWED[module, name]

    def persistent_load(self, pid: Any) -> str:
        kind, dtype, key, *_ = pid
        if kind != "storage" or not isinstance(dtype, np.dtype):
            raise pickle.UnpicklingError(f"it names a {kind} that is no storage")
        self.dtypes[str(key)] = dtype
        return str(key)


def read_checkpoint(data: bytes, what: str) -> dict[str, Tensor]:
    """Name -> array of a state dictionary saved by PyTorch; raise ModelError if it is not one."""
    try:
        stream = io.BytesIO(data)
        if _Reader(stream).load() != _MAGIC:
            raise ValueError("it does not begin as one")
        for _ in ("protocol", "system"):
            _Reader(stream).load()
        reader = _Reader(stream)
        state = reader.load()
        if not isinstance(state, Mapping):
            raise TypeError(f"it holds a {type(state).__name__}, not a dictionary")
        if odd := [name for name, value in state.items() if not isinstance(value, _Lazy)]:
            raise TypeError(f"{odd[0]!r} is no tensor")
        storages: dict[str, Tensor] = {}
        for key in map(str, _Reader(stream).load()):
            size = int.from_bytes(stream.read(8), "little") * reader.dtypes[key].itemsize
            storages[key] = np.frombuffer(stream.read(size), reader.dtypes[key])
        return {str(name): value.read(storages[value.storage]) for name, value in state.items()}
    except Exception as problem:  # pickle raises many kinds of errors for a broken file
        raise ModelError(f"{what}: not a state dictionary saved by PyTorch: {problem}") from problem


DIMENSIONS = 2048
SIDE = 299
_SPREAD = 1e-3  # added to the variances of the batch norms

# A step is a convolution by its name in the block, or a pool. "/2" is stride 2 without a border; everything
# else keeps the size. A tuple of names is a fork: both branches start at the same place and are joined.
_AVERAGE, _MAXIMUM, _HALVE = "average", "maximum", "maximum/2"
_Branch = tuple[str | tuple[str, ...], ...]


_Branches = tuple[_Branch, ...]
_A: _Branches = (
    ("branch1x1",),
    ("branch5x5_1", "branch5x5_2"),
    ("branch3x3dbl_1", "branch3x3dbl_2", "branch3x3dbl_3"),
    (_AVERAGE, "branch_pool"),
)
_B: _Branches = (("branch3x3/2",), ("branch3x3dbl_1", "branch3x3dbl_2", "branch3x3dbl_3/2"), (_HALVE,))
_C: _Branches = (
    ("branch1x1",),
    tuple(f"branch7x7_{n}" for n in (1, 2, 3)),
    tuple(f"branch7x7dbl_{n}" for n in (1, 2, 3, 4, 5)),
    (_AVERAGE, "branch_pool"),
)
_D: _Branches = (
    ("branch3x3_1", "branch3x3_2/2"),
    ("branch7x7x3_1", "branch7x7x3_2", "branch7x7x3_3", "branch7x7x3_4/2"),
    (_HALVE,),
)
_E: _Branches = (
    ("branch1x1",),
    ("branch3x3_1", ("branch3x3_2a", "branch3x3_2b")),
    ("branch3x3dbl_1", "branch3x3dbl_2", ("branch3x3dbl_3a", "branch3x3dbl_3b")),
)
_STEM = (
    *("Conv2d_1a_3x3/2", "Conv2d_2a_3x3/valid", "Conv2d_2b_3x3", _HALVE),
    *("Conv2d_3b_1x1", "Conv2d_4a_3x3/valid", _HALVE),
)
_BLOCKS = (
    *((f"Mixed_5{letter}", _A) for letter in "bcd"),
    ("Mixed_6a", _B),
    *((f"Mixed_6{letter}", _C) for letter in "bcde"),
    ("Mixed_7a", _D),
    ("Mixed_7b", (*_E, (_AVERAGE, "branch_pool"))),
    ("Mixed_7c", (*_E, (_MAXIMUM, "branch_pool"))),
)


@dataclass
class _Graph:
    """Nodes and weights added so far; every method returns the name of its output."""

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
        if name not in self.arrays:
            raise ModelError(f"{self.what}: expected the weights of FID's Inception, {name!r} is missing")
        return self.arrays[name].astype(np.float64)

    def conv(self, source: str, step: str, prefix: str) -> str:
        """Convolution, batch norm (folded into its weights) and ReLU."""
        name, _, how = step.partition("/")
        layer = f"{prefix}{name}"
        kernel = self.array(f"{layer}.conv.weight")
        scale = self.array(f"{layer}.bn.weight") / np.sqrt(self.array(f"{layer}.bn.running_var") + _SPREAD)
        bias = self.array(f"{layer}.bn.bias") - scale * self.array(f"{layer}.bn.running_mean")
        tall, wide = (0, 0) if how else (kernel.shape[2] // 2, kernel.shape[3] // 2)
        strides = [2, 2] if how == "2" else [1, 1]
        weights = [self.weight(v.astype(np.float32)) for v in (kernel * scale[:, None, None, None], bias)]
        convolution = self.node("Conv", [source, *weights], strides=strides, pads=[tall, wide, tall, wide])
        return self.node("Relu", [convolution])

    def step(self, source: str, step: str | tuple[str, ...], prefix: str = "") -> str:
        """One step of a branch."""
        if isinstance(step, tuple):
            return self.node("Concat", [self.conv(source, one, prefix) for one in step], axis=1)
        if step == _HALVE:
            return self.node("MaxPool", [source], kernel_shape=[3, 3], strides=[2, 2])
        if step in (_AVERAGE, _MAXIMUM):
            op = "AveragePool" if step == _AVERAGE else "MaxPool"  # an average ignores its border
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
    pixels = graph.node("Transpose", [graph.node("Cast", ["image"], to=TensorProto.FLOAT)], perm=[0, 3, 1, 2])
    # TensorFlow 1 resizes with place = target · old / new: pixels are points at corners, no antialiasing.
    how = {"mode": "linear", "coordinate_transformation_mode": "asymmetric"}
    sizes, middle = np.array([1, 3, SIDE, SIDE], np.int64), np.array(128, np.float32)
    small = graph.node("Resize", [pixels, "", "", graph.weight(sizes)], **how)
    value = graph.node("Sub", [small, graph.weight(middle)])
    value = graph.node("Div", [value, graph.weight(middle)])  # (1, 3, 299, 299) in −1..1
    value = graph.branch(value, _STEM, "")
    for block, branches in _BLOCKS:
        outputs = [graph.branch(value, branch, f"{block}.") for branch in branches]
        value = graph.node("Concat", outputs, axis=1)
    last = graph.node("Flatten", [graph.node("GlobalAveragePool", [value])])
    image = helper.make_tensor_value_info("image", TensorProto.UINT8, [1, "h", "w", 3])
    out = helper.make_tensor_value_info(last, TensorProto.FLOAT, [1, DIMENSIONS])
    proto = helper.make_graph(graph.nodes, "inception", [image], [out], graph.weights)
    opset = helper.make_opsetid("", 17)
    return bytes(helper.make_model(proto, opset_imports=[opset], ir_version=8).SerializeToString())


WEIGHTS = "6726825d0af5f729cebd5821db510b11b1cfad8faad88a03f1befd49fb9129b2"
_NAMES = "pt_inception-2015-12-05-6726825d.pth (also weights-inception-2015-12-05-6726825d.pth)"
_VERSION = 1  # of the graph


@stage("features")
def inception(text: str = "", threads: int = 1) -> FeatureNet:
    """FID: pool3 of Inception v3 (d = 2048) from the canonical weights' file, which its hash must prove."""
    if not text:
        raise InputError(f"features 'inception': expected inception:FILE with {_NAMES}, got no file")
    path = Path(text)
    try:
        data = path.read_bytes()
    except OSError as problem:
        raise ModelError(f"{path}: cannot be read: {problem.strerror}; expected {_NAMES}") from problem
    got = of_bytes(data)
    if got != WEIGHTS:  # before parsing any of it
        hashes = f"sha256 expected {WEIGHTS}, got {got}"
        raise ModelError(f"{path}: not the canonical FID weights {_NAMES}: {hashes}")
    return net_of(data, str(path), "FID", got, threads)


def net_of(data: bytes, what: str, name: str, sha256: str, threads: int) -> FeatureNet:
    """The feature net of a checkpoint's bytes, whatever their hash."""
    session = open_graph(build(read_checkpoint(data, what), what), what, threads)

    def row(image: Image) -> Tensor:
        return run_graph(session, np.ascontiguousarray(image[None]))

    identity = {"weights": sha256, "resize": "299, bilinear of TensorFlow 1", "version": _VERSION}
    return FeatureNet(name, of(identity), DIMENSIONS, row)
