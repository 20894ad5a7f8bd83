"""Engines of other libraries: OpenVINO, ncnn (converted by its own pnnx) and OpenCV's cv2.dnn, on the CPU."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from holdfast.core.errors import ImageError, MissingExtra, ModelError
from holdfast.core.model import Model
from holdfast.core.pipeline import Run
from holdfast.core.registry import stage
from holdfast.core.types import Tensor
from holdfast.graph.session import condense
from holdfast.stages.infer import batch_of, batched, one_of, open_onnx

Shape: TypeAlias = tuple[int | None, ...]  # None: depends on the image, e.g. detections after NMS
Shapes: TypeAlias = Mapping[str, Shape]


class Probe(NamedTuple):
    """The shapes of a model's outputs, in order, and how many images it takes at once (0: no batch axis)."""

    shapes: Shapes
    batch: int
    selects: bool  # sizes within the graph depend on the image, as with NonMaxSuppression


# Operators whose output size depends on the values of the image.
DATA_DEPENDENT = frozenset({"NonMaxSuppression", "NonZero", "Unique", "Compress", "Loop", "If"})


def blank(model: Model) -> Tensor:
    """An input tensor (1, …) of zeros."""
    spec = model.card.input
    return np.zeros((1, *spec.shape), spec.dtype)


def probe(source: bytes | str, model: Model) -> Probe:
    """Shapes of ONNX Runtime's outputs for a blank image.

    If the graph selects by value, other images may have more detections: an axis is None unless the file
    fixes it and the blank image has that size. (Exporters write the sizes of their example image.)
    """
    if model.card.input.policy == "short-side":
        what = 'this runtime takes one size, but with policy "short-side" it differs from image to image'
        raise ModelError(f"{model.path}: {what}; use onnxruntime")
    try:
        shapes: dict[str, Shape] = {n: v.shape for n, v in open_onnx(source, model, 1)(blank(model)).items()}
    except ImageError as problem:
        raise ModelError(f"{model.path}: {problem}") from problem
    proto = _parsed(source)
    graph = proto.graph
    selects = any(node.op_type in DATA_DEPENDENT for part in (graph, *proto.functions) for node in part.node)
    for output in graph.output if selects else ():
        fixed, shape = [d.dim_value for d in output.type.tensor_type.shape.dim], shapes[output.name]
        declared = fixed if len(fixed) == len(shape) else [0] * len(shape)
        sizes = zip(shape, declared, strict=True)
        shapes[output.name] = tuple(size if stated and size == stated else None for size, stated in sizes)
    return Probe(shapes, batch_of(graph), selects)


def graph_of(source: bytes | str) -> Any:
    """The parsed graph, without external weights."""
    return _parsed(source).graph


def _parsed(source: bytes | str) -> Any:
    import onnx

    if isinstance(source, bytes):
        return onnx.load_from_string(source)
    return onnx.load(source, load_external_data=False)


def cannot_load(runtime: str, model: Model, problem: BaseException | str) -> ModelError:
    """The error for a model that a runtime cannot load or convert, in one line."""
    reason = problem if isinstance(problem, str) else condense(problem, 300)
    return ModelError(f"{model.path}: {runtime} cannot load it: {reason}")


def in_shape(runtime: str, name: str, value: Tensor, shape: Shape) -> Tensor:
    """The output in the expected shape; raise ImageError if its size does not match."""
    sizes = zip(value.shape, shape, strict=False)
    if value.ndim == len(shape) and all(expected in (None, got) for got, expected in sizes):
        return value
    fixed, free = int(np.prod([d for d in shape if d is not None])), shape.count(None)
    fits = value.size == fixed if free == 0 else free == 1 and fixed > 0 and value.size % fixed == 0
    if not fits:
        expected = str(shape).replace("None", "n")
        raise ImageError(f"{runtime} gives output {name!r} in shape {value.shape}, expected {expected}")
    return value.reshape([-1 if d is None else d for d in shape])


def guarded(
    runtime: str, run: Run, about: Probe, model: Model, plain: Callable[[Exception], str] | None = None
) -> Run:
    """A function that runs one tensor (1, …), one at a time, and gives the outputs in their shapes."""
    lock = threading.Lock()

    def locked(tensor: Tensor) -> Mapping[str, Tensor]:
        try:
            with lock:
                return run(tensor)
        except Exception as problem:
            reason = plain(problem) if plain else condense(problem, 300)
            raise ImageError(f"{runtime} cannot run the model on it: {reason}") from problem

    alone = one_of(locked, about.batch, model)
    return lambda tensor: {n: in_shape(runtime, n, v, about.shapes[n]) for n, v in alone(tensor).items()}


SECONDS = 300  # a conversion or a first run takes a few


@stage(
    "runtime",
    needs="openvino",
    packages=("openvino",),
    systems="OpenVINO (Intel CPUs)",
    targets=("openvino",),
)
def openvino(source: bytes | str, model: Model, threads: int) -> Run:
    """OpenVINO on the CPU in float32: it would take bfloat16 by itself where the processor has it."""
    library = openvino_library()
    settings = {"INFERENCE_PRECISION_HINT": "f32", "NUM_STREAMS": 1, "INFERENCE_NUM_THREADS": threads}
    about = probe(source, model)
    try:
        core = library.Core()
        compiled = core.compile_model(core.read_model(source), "CPU", settings)
        request = compiled.create_infer_request()
    except Exception as problem:
        raise cannot_load("OpenVINO", model, openvino_error(problem)) from problem
    places = {name: place for place, port in enumerate(compiled.outputs) for name in port.get_names()}
    if missing := [name for name in about.shapes if name not in places]:
        raise cannot_load("OpenVINO", model, f"output {missing[0]!r} is missing, it has {sorted(places)}")

    def run(tensor: Tensor) -> dict[str, Tensor]:
        outputs = request.infer({0: np.ascontiguousarray(tensor)})
        # Copy: the next image is written into the same memory.
        return {name: np.array(outputs[places[name]]) for name in about.shapes}

    return guarded("OpenVINO", run, about, model, openvino_error)


def openvino_error(problem: Exception, limit: int = 300) -> str:
    """The error in one line, without its leading locations in OpenVINO's source."""
    message = condense(problem, 10 * limit)
    text = re.sub(r"(?:Exception from|Check '.*?' failed at) \S+:\d+:\s*", "", message) or message
    return text if len(text) <= limit else text[: limit - 3] + "..."


def openvino_library() -> Any:
    """The openvino module, imported without its telemetry, which is optional.

    On import its converter would send usage data and keep an identifier in the user's home.
    """
    name = "openvino_telemetry"
    absent = name not in sys.modules
    if absent:
        sys.modules[name] = None  # type: ignore[assignment] # Python's own way to say: cannot be imported
    try:
        import openvino

        return openvino
    finally:
        if absent:
            del sys.modules[name]


@stage(
    "runtime",
    needs="ncnn",
    packages=("ncnn", "pnnx"),
    systems="ncnn (phones, single-board computers)",
    targets=("ncnn",),
)
def ncnn(source: bytes | str, model: Model, threads: int) -> Run:
    """The engine ncnn on the CPU in float32, converted from ONNX by pnnx."""
    shapes, batch, _ = probe(source, model)
    with tempfile.TemporaryDirectory(prefix="holdfast-") as folder:
        converted = _convert(source, model, Path(folder))
        files = converted.with_suffix(".ncnn.param"), converted.with_suffix(".ncnn.bin")
        net = load_net(*files, model, threads)
    try:
        _extract(net, blank(model), shapes)  # many faults show only when it first runs
    except ImageError as problem:
        hint = f"; the file has a fixed batch of {batch}; export it with a batch of 1" if batch > 1 else ""
        raise cannot_load("ncnn", model, f"{problem}{hint}") from problem
    return lambda tensor: _extract(net, tensor, shapes)


def _convert(source: bytes | str, model: Model, folder: Path) -> Path:
    """Convert the network by pnnx in this folder; return the path without suffixes."""
    import onnx

    program = _program(model)
    graph: Any = onnx.load_from_string(source) if isinstance(source, bytes) else onnx.load(source)
    weights = {w.name for w in graph.graph.initializer}
    inputs = [i for i in graph.graph.input if i.name not in weights]  # pnnx treats listed weights as inputs
    del graph.graph.input[:]
    graph.graph.input.extend(inputs)
    onnx.save(graph, str(folder / "net.onnx"))
    # The file's fixed batch, for the conversion only: ncnn's networks have no batch and take one image.
    tensor = batched(blank(model), batch_of(graph.graph))
    kind = {"float32": "f32", "float16": "f16", "uint8": "u8"}[str(tensor.dtype)]
    shape = ",".join(str(d) for d in tensor.shape)
    command = [program, "net.onnx", f"inputshape=[{shape}]{kind}", "fp16=0"]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise cannot_load("ncnn", model, f"pnnx failed: {problem}") from problem
    converted = folder / "net.ncnn"
    if done.returncode or not converted.with_suffix(".ncnn.param").exists():
        output = (done.stderr + done.stdout).decode(errors="replace")
        lines = [line.strip() for line in output.splitlines() if line.strip()]
        words = ("error", "fail", "unsupported", "not supported")
        wrong = [line for line in lines if any(word in line.lower() for word in words)]
        reason = (wrong or lines or ["no message"])[-1][:200]
        raise cannot_load("ncnn", model, f"pnnx ended with code {done.returncode}: {reason}")
    return converted


def _program(model: Model) -> str:
    """The path of the pnnx binary; its Python module would import torch."""
    spec = find_spec("pnnx")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        program = Path(folder) / ("pnnx.exe" if sys.platform == "win32" else "pnnx")
        if program.is_file():
            return str(program)
    raise MissingExtra("runtime 'ncnn'", "pnnx", "ncnn")


def load_net(param: Path, weights: Path, model: Model, threads: int) -> Any:
    """The network of these two files in ncnn, in float32 throughout."""
    import ncnn as library

    net = library.Net()
    net.opt.num_threads = threads if threads > 0 else library.get_cpu_count()
    # Use float32 throughout: by default ncnn stores and multiplies in 16 bits where the processor can.
    for switch in ("use_fp16_packed", "use_fp16_storage", "use_fp16_arithmetic", "use_bf16_storage"):
        setattr(net.opt, switch, False)
    layers = {line.split()[0] for line in param.read_text().splitlines()[2:]}
    foreign = ("pnnx.", "aten::", "F.", "nn.", "torch.", "Tensor.")
    if unknown := sorted(layer for layer in layers if layer.startswith(foreign)):
        raise cannot_load("ncnn", model, f"it has no layer for {', '.join(unknown)}")
    if net.load_param(str(param)) or net.load_model(str(weights)):
        raise cannot_load("ncnn", model, "the converted network does not load")
    return net


def _extract(net: Any, tensor: Tensor, shapes: Shapes) -> dict[str, Tensor]:
    """The outputs for one image: pnnx names them out0, out1, … in the order of the ONNX file."""
    import ncnn as library

    outputs = {}
    with net.create_extractor() as extractor:
        extractor.input("in0", library.Mat(np.ascontiguousarray(tensor[0])).clone())
        for place, (name, shape) in enumerate(shapes.items()):
            code, value = extractor.extract(f"out{place}")
            if code:
                raise ImageError(f"ncnn cannot run the model on it: output {name!r} gives code {code}")
            outputs[name] = in_shape("ncnn", name, np.array(value), shape)
    return outputs


# Run a network once in a separate process, as a crash would end holdfast, too.
TRIAL = """
import sys, cv2, numpy
net = cv2.dnn.readNetFromONNX(sys.argv[1], *map(int, sys.argv[4:]))
net.setInput(numpy.load(sys.argv[2]))
net.forward(sys.argv[3].split(chr(10)))
"""


@stage("runtime", "opencv-dnn", needs="cv2", systems="OpenCV's dnn module")
def opencv_dnn(source: bytes | str, model: Model, threads: int) -> Run:
    """OpenCV's dnn module on the CPU, the engine it chooses itself."""
    import cv2

    if place := _misread(cv2, source):
        engine = f"the engine of OpenCV {cv2.__version__} reads beyond the image; choose opencv-dnn-classic"
        reason = f"node {place!r} is a 1×1 convolution with padding, for which {engine}"
        raise cannot_load("OpenCV", model, reason)
    return _open_net(cv2, source, model, threads)


@stage(
    "runtime",
    "opencv-dnn-classic",
    default=False,
    needs="cv2",
    systems="OpenCV's dnn module, the engine of 4.x",
)
def opencv_dnn_classic(source: bytes | str, model: Model, threads: int) -> Run:
    """OpenCV's dnn module on the CPU, the engine it had until 4.x."""
    import cv2

    engine = getattr(cv2.dnn, "ENGINE_CLASSIC", None)
    return _open_net(cv2, source, model, threads, *([] if engine is None else [engine]))


def _open_net(cv2: Any, source: bytes | str, model: Model, threads: int, *engine: int) -> Run:
    about = probe(source, model)
    names, first = list(about.shapes), batched(blank(model), about.batch)
    if about.selects and (end := _crash_of(source, first, names, *engine)):
        reason = f"ends the process ({end}) on a blank image without detections"
        raise cannot_load("OpenCV", model, f"OpenCV {cv2.__version__} {reason}")
    try:
        net = _read(cv2, source, *engine)
        _forward(cv2, net, first, names, threads)  # many faults show only when it first runs
    except Exception as problem:
        raise cannot_load("OpenCV", model, problem) from problem

    def run(tensor: Tensor) -> dict[str, Tensor]:
        return dict(zip(names, _forward(cv2, net, tensor, names, threads), strict=True))

    return guarded("OpenCV", run, about, model)


def _crash_of(source: bytes | str, tensor: Tensor, names: list[str], *engine: int) -> str:
    """Signal or exit code with which OpenCV crashes on this tensor; empty if it does not crash."""
    with tempfile.TemporaryDirectory(prefix="holdfast-") as folder:
        model, image = Path(folder) / "net.onnx", Path(folder) / "image.npy"
        if isinstance(source, bytes):
            model.write_bytes(source)
        np.save(image, tensor)
        arguments = [str(model) if isinstance(source, bytes) else source, str(image), "\n".join(names)]
        command = [sys.executable, "-c", TRIAL, *arguments, *map(str, engine)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        try:
            done = subprocess.run(command, env=environment, capture_output=True, timeout=SECONDS, check=False)
        except subprocess.TimeoutExpired:
            return f"no result after {SECONDS} seconds"
    if done.returncode in (0, 1):  # 1: an exception, which the run in this process reports in full
        return ""
    return signal.Signals(-done.returncode).name if done.returncode < 0 else f"code {done.returncode}"


def _misread(cv2: Any, source: bytes | str) -> str:
    """The first 1×1 convolution with padding if this OpenCV computes those wrongly (as 5.0.0), else empty."""
    graph = graph_of(source)
    kernels = {w.name: set(w.dims[2:]) for w in graph.initializer}
    for node in graph.node:
        settings = {a.name: list(a.ints) for a in node.attribute}
        if node.op_type == "Conv" and any(settings.get("pads", ())) and kernels.get(node.input[1]) == {1}:
            return "" if _pads_rightly(cv2) else node.name or node.output[0]
    return ""


def _pads_rightly(cv2: Any) -> bool:
    """Whether a 1×1 identity convolution with a border of one gives the image padded with zeros."""
    from onnx import TensorProto, helper

    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8, 5, 5])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 8, 7, 7])
    weight = helper.make_tensor("w", TensorProto.FLOAT, [8, 8, 1, 1], np.eye(8).ravel().tolist())
    node = helper.make_node("Conv", ["x", "w"], ["y"], kernel_shape=[1, 1], pads=[1, 1, 1, 1])
    graph = helper.make_graph([node], "g", [x], [y], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    image = np.arange(1, 201, dtype=np.float32).reshape(1, 8, 5, 5)
    output = _forward(cv2, _read(cv2, model.SerializeToString()), image, ["y"], 0)[0]
    return bool(np.array_equal(output, np.pad(image, ((0, 0), (0, 0), (1, 1), (1, 1)))))


def _read(cv2: Any, source: bytes | str, *engine: int) -> Any:
    model = source if isinstance(source, str) else np.frombuffer(source, np.uint8)
    return cv2.dnn.readNetFromONNX(model, *engine)


def _forward(cv2: Any, net: Any, tensor: Tensor, names: list[str], threads: int) -> list[Tensor]:
    """The outputs of that name, copied: the network writes the next image into the same memory."""
    before = cv2.getNumThreads()
    cv2.setNumThreads(threads if threads > 0 else before)
    try:
        net.setInput(np.ascontiguousarray(tensor))
        return [np.array(value) for value in net.forward(names)]
    finally:
        cv2.setNumThreads(before)
