"""What is inside an ONNX file, and one clear line for a file that cannot be used."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from holdfast.core.errors import ModelError
from holdfast.core.fingerprint import of_bytes, of_file
from holdfast.core.model import read_onnx
from holdfast.graph.formats import check_format
from holdfast.graph.quantised import Quantisation, in_float, quantisation_of, settings_of
from holdfast.graph.session import condense, open_session, runtime

Dim = int | str
STANDARD = ("", "ai.onnx")  # the two names of the domain of ONNX's own operators
# Domains onnxruntime itself has kernels for; everything else must be brought by the model as functions.
KNOWN_DOMAINS = (*STANDARD, "ai.onnx.ml", "ai.onnx.preview.training", "com.microsoft", "com.ms.internal.nhwc")
# Accepted by the oldest supported onnxruntime; newer files are tested with the installed version.
OPSET_ALWAYS, IR_ALWAYS = 20, 9
_FLOATS = (1, 10, 11, 16)  # ONNX's numbers for float32, float16, float64 and bfloat16
_SHAPES = (7, 8, 9)  # int64, texts and truth values: sizes, axes, names and masks
_NOT_ONNX = (
    (b"<", "it is an HTML or XML page; download the file itself"),
    (b"version https://git-lfs", "it is a Git LFS pointer: fetch the file with `git lfs pull`"),
    (b"PK\x03\x04", "it is a zip or PyTorch file: export the network to ONNX first"),
    (b"\x89HDF", "it is an HDF5 (Keras) file: export the network to ONNX first"),
    (b"\x80\x02", "it is a Python pickle (old PyTorch) file: export the network to ONNX first"),
    (b"\x1f\x8b", "it is a gzip file; rename it to .onnx.gz or unpack it"),
)


@dataclass(frozen=True)
class TensorInfo:
    """An input or output: its name, numpy type and shape; a free dimension is its name, or "?"."""

    name: str
    dtype: str
    shape: tuple[Dim, ...]

    @property
    def static(self) -> bool:
        """Whether every dimension but the first (the batch) is a number."""
        return all(isinstance(d, int) for d in self.shape[1:])

    def __str__(self) -> str:
        return f"{self.name} {self.dtype} ({', '.join(str(d) for d in self.shape)})"


@dataclass(frozen=True)
class ModelInfo:
    """Contents and metadata of an ONNX file."""

    path: Path
    bytes: int
    sha256: str
    ir_version: int
    opset: int
    domains: tuple[str, ...]
    producer: str
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    nodes: Mapping[str, int]  # number of nodes by operator, most frequent first
    parameters: int
    multiply_adds: int | None  # None when a shape is not known
    metadata: Mapping[str, str]
    quantised: Quantisation | None = None  # None: no layer has integer weights


def inspect(path: Path) -> ModelInfo:
    """What is inside an ONNX file, or a ModelError that says in one line why it cannot be used."""
    return info_of(path, load_proto(path))


def info_of(path: Path, proto: Any) -> ModelInfo:
    """What is inside a parsed ONNX file."""
    graph = proto.graph
    content, files = (
        of_bytes(read_onnx(path)),
        [of_file(path.parent / f) for f in sorted(external_files(proto))],
    )
    # scales, zero points and shapes are no parameters
    settings = settings_of(proto)
    stored = [w for w in graph.initializer if w.data_type not in _SHAPES]
    weights = [w for w in (*stored, *_constant_weights(graph)) if w.name not in settings]
    return ModelInfo(
        path=path,
        bytes=path.stat().st_size,
        sha256=of_bytes("\n".join([content, *files]).encode()) if files else content,
        ir_version=proto.ir_version,
        opset=opset_of(proto),
        domains=tuple(sorted({o.domain for o in proto.opset_import if o.domain not in STANDARD})),
        producer=f"{proto.producer_name} {proto.producer_version}".strip() or "unknown",
        inputs=inputs_of(proto),
        outputs=outputs_of(proto),
        nodes=dict(Counter(n.op_type for n in graph.node).most_common()),
        parameters=sum(prod(weight.dims) for weight in weights),
        multiply_adds=multiply_adds(proto),
        metadata={p.key: p.value for p in proto.metadata_props},
        quantised=quantisation_of(proto),
    )


def _constant_weights(graph: Any) -> Iterator[Any]:
    """The weights that some exporters keep in Constant nodes, with the names of their tensors."""
    import onnx

    converted = {node.input[0] for node in graph.node if node.op_type == "DequantizeLinear"}
    for node in graph.node:
        for tensor in (a.t for a in node.attribute) if node.op_type == "Constant" else ():
            if tensor.dims and (tensor.data_type in _FLOATS or node.output[0] in converted):
                named = onnx.TensorProto(name=node.output[0], dims=tensor.dims)
                yield named


def rows(info: ModelInfo) -> list[tuple[str, str]]:
    """The facts as rows of two texts, for a table."""
    adds = info.multiply_adds
    unknown = (
        "free shapes" if "com.microsoft" not in info.domains else "shapes behind com.microsoft operators"
    )
    work = f"unknown ({unknown})" if adds is None else f"{adds / 1e6:,.1f} million"
    return [
        ("file", str(info.path)),
        ("size", f"{info.bytes:,} bytes"),
        ("sha256", info.sha256),
        ("opset", f"{info.opset} (IR {info.ir_version}, by {info.producer})"),
        *[("domain", domain) for domain in info.domains],
        *[("input", str(t)) for t in info.inputs],
        *[("output", str(t)) for t in info.outputs],
        ("parameters", f"{info.parameters:,}"),
        *([("quantised", str(info.quantised))] if info.quantised else []),
        ("multiply-adds", work),
        ("nodes", f"{sum(info.nodes.values())}: " + ", ".join(f"{op} {n}" for op, n in info.nodes.items())),
    ]


def inputs_of(proto: Any) -> tuple[TensorInfo, ...]:
    """The inputs of a parsed ONNX file without its weights, which old files list as inputs too."""
    weights = {w.name for w in proto.graph.initializer}
    return tuple(_tensor(v) for v in proto.graph.input if v.name not in weights)


def outputs_of(proto: Any) -> tuple[TensorInfo, ...]:
    """The outputs of a parsed ONNX file."""
    return tuple(_tensor(v) for v in proto.graph.output)


def opset_of(proto: Any) -> int:
    """The opset of the standard operators: of several the last, as in ONNX Runtime; 0 if there is none."""
    return next((int(o.version) for o in reversed(proto.opset_import) if o.domain in STANDARD), 0)


def load_proto(path: Path) -> Any:
    """The parsed ONNX file after all checks, or a ModelError of one line."""
    proto = read_proto(path)
    _check_domains(path, proto)
    _check_version(path, proto)
    for file, weight in external_files(proto).items():
        _check_inside(path, file, weight)
    return proto


def _check_inside(path: Path, file: str, weight: str) -> None:
    """Raise ModelError unless a file of weights exists and is in the folder of the model.

    Both may be links, as in caches that keep all content in another folder.
    """
    where = path.parent / file
    folders = (path.parent.resolve(), path.resolve().parent)
    climbs = Path(file).is_absolute() or ".." in Path(file).parts
    if climbs or not any(where.resolve().is_relative_to(folder) for folder in folders):
        outside = f"the weights of {weight!r} are outside the folder of the model"
        raise ModelError(f"{path}: {outside}; put them next to the model and save it again")
    if not where.is_file():
        missing = f"the weights of {weight!r} are in {file!r}, which is missing"
        raise ModelError(f"{path}: {missing}; put it next to the model")


def read_proto(path: Path) -> Any:
    """The parsed ONNX file, or a ModelError of one line if it is not one; onnxruntime may still refuse it."""
    import onnx

    data = read_onnx(path)
    if not data:
        raise ModelError(f"{path}: the file is empty; expected an ONNX model")
    if path.suffix not in (".onnx", ".gz"):
        check_format(path)
    for start, what in _NOT_ONNX:
        if data.lstrip()[: len(start)] == start:
            raise ModelError(f"{path}: not an ONNX model: {what}")
    try:
        proto = onnx.load_model_from_string(data)
    except Exception:  # noqa: BLE001 - protobuf's DecodeError, in whichever of its implementations
        what = f"not an ONNX model, or truncated ({len(data):,} bytes)"
        raise ModelError(f"{path}: {what}; export or download it again") from None
    graph = proto.graph
    if not graph.node or not graph.output or not proto.opset_import:
        raise ModelError(f"{path}: not an ONNX model: expected a graph with nodes and outputs, got none")
    names = [n for x in graph.node for n in (x.op_type, x.domain, x.name, *x.input, *x.output)]
    names += [named.name for named in (*graph.input, *graph.output, *graph.initializer)]
    if not all(isinstance(name, str) for name in names):  # protobuf gives other bytes as bytes
        raise ModelError(f"{path}: damaged: a name in it is not UTF-8 text; export or download it again")
    if not opset_of(proto) and any(node.domain in STANDARD for node in graph.node):
        raise ModelError(f"{path}: expected the opset of its standard operators, got none; export it again")
    return proto


def _check_domains(path: Path, proto: Any) -> None:
    from onnx import defs

    brought = {(f.domain, f.name) for f in proto.functions}
    advice = "export the model with standard operators"
    for node in proto.graph.node:
        where = f"{path}: node {node.name or node.output[0]!r}"
        if (node.domain, node.op_type) in brought:
            continue
        if node.domain not in KNOWN_DOMAINS:
            custom = f"a custom operator, {node.op_type!r} of domain {node.domain!r}"
            raise ModelError(f"{where} is {custom}, unknown to onnxruntime; {advice}")
        if node.domain in STANDARD and not defs.has(node.op_type):
            raise ModelError(f"{where}: ONNX has no operator {node.op_type!r}; {advice}")


def _check_version(path: Path, proto: Any) -> None:
    """Raise ModelError if the installed onnxruntime rejects this opset or IR in a one-node network."""
    opset, ir = opset_of(proto), int(proto.ir_version)
    if opset <= OPSET_ALWAYS and ir <= IR_ALWAYS:
        return
    from onnx import TensorProto, helper

    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "probe", value[:1], value[1:])
    probe = helper.make_model(graph, opset_imports=[helper.make_opsetid("", max(opset, 1))], ir_version=ir)
    try:
        open_session(probe.SerializeToString())
    except Exception as problem:  # noqa: BLE001 - onnxruntime has no common error class
        newer = f"opset {opset} (IR {ir}) is newer than onnxruntime {runtime().__version__} can run"
        advice = "export with an older opset, e.g. 17, or upgrade onnxruntime"
        raise ModelError(f"{path}: {newer}; {advice} ({condense(problem)})") from None


def external_files(proto: Any) -> dict[str, str]:
    """The files that contain weights of a model, each with the name of one such weight."""
    return {e.value: w.name for w in tensors_of(proto) for e in w.external_data if e.key == "location"}


def tensors_of(message: Any) -> Iterator[Any]:
    """Every tensor in a protobuf message, at any depth."""
    stack = [message]
    while stack:
        current = stack.pop()
        if current.DESCRIPTOR.name == "TensorProto":
            yield current
            continue
        for field, value in current.ListFields():
            if field.message_type is not None:
                stack.extend([value] if hasattr(value, "DESCRIPTOR") else value)


def _tensor(value: Any) -> TensorInfo:
    from onnx import helper

    kind = value.type.tensor_type
    try:
        dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type).name
    except (KeyError, ValueError, TypeError):
        dtype = "unknown"
    shape = tuple(d.dim_value if d.HasField("dim_value") else (d.dim_param or "?") for d in kind.shape.dim)
    return TensorInfo(value.name, dtype, shape)


def image_input(info: ModelInfo) -> TensorInfo:
    """The input that takes an image: four axes, or three of which one is the colour channels."""
    images = [t for t in info.inputs if _takes_image(t.shape)]
    if len(images) == 1:
        return images[0]
    got = ", ".join(map(str, info.inputs)) or "none"
    expected = "one input that takes an image, of four axes or of three without a batch"
    raise ModelError(f"{info.path}: expected {expected}, got {got}")


def _takes_image(shape: tuple[Dim, ...]) -> bool:
    return len(shape) == 4 or (len(shape) == 3 and 3 in (shape[0], shape[2]))


def other_inputs(info: ModelInfo) -> list[TensorInfo]:
    """The inputs besides the image."""
    image = image_input(info)
    return [t for t in info.inputs if t.name != image.name]


_Shape = tuple[int, ...]


def multiply_adds(proto: Any) -> int | None:
    """Multiply-adds for one image, or None if the shape of a tensor they depend on is not known."""
    proto = in_float(proto)
    shapes = known_shapes(proto)
    nodes = [node for node in proto.graph.node if node.op_type in _COUNTS]
    try:
        needed = [[shapes[name] for name in (*node.input[:2], node.output[0])] for node in nodes]
    except KeyError:
        return None
    return sum(_COUNTS[node.op_type](node, *each) for node, each in zip(nodes, needed, strict=True))


def known_shapes(proto: Any) -> Mapping[str, _Shape]:
    """The shapes of all tensors that ONNX can infer, by name; a free batch counts as 1."""
    import onnx

    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    for value in [*copy.graph.input, *copy.graph.output]:
        dims = value.type.tensor_type.shape.dim
        if len(dims) > 1 and not dims[0].HasField("dim_value"):
            dims[0].dim_value = 1
    try:
        copy = onnx.shape_inference.infer_shapes(copy, data_prop=True)
    except Exception:  # noqa: BLE001 - inference is a convenience: a graph it cannot follow has unknown shapes
        return {}
    shapes: dict[str, _Shape] = {w.name: tuple(w.dims) for w in copy.graph.initializer}
    for value in [*copy.graph.input, *copy.graph.value_info, *copy.graph.output]:
        dims = value.type.tensor_type.shape.dim
        if value.type.tensor_type.HasField("shape") and all(d.HasField("dim_value") for d in dims):
            shapes[value.name] = tuple(d.dim_value for d in dims)
    return shapes


_COUNTS: dict[str, Callable[[Any, _Shape, _Shape, _Shape], int]] = {
    "Conv": lambda node, x, weight, out: prod(out) * prod(weight[1:]),  # weight (out, in/groups, kernel...)
    # every input value is multiplied by the weights of its channel
    "ConvTranspose": lambda node, x, weight, out: prod(x) * prod(weight[1:]),
    "Gemm": lambda node, a, b, out: prod(a) * out[-1],  # a is (m, k) or (k, m)
    "MatMul": lambda node, a, b, out: prod(out) * a[-1] if a else 0,
}
