"""A converted file of the model (.tflite, OpenVINO's .xml, ncnn's .param, .onnx), run by its own runtime."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from holdfast.core.errors import ImageError, InputError, MissingExtra, ModelError
from holdfast.core.extras import is_installed
from holdfast.core.fingerprint import generator, of, of_file
from holdfast.core.model import Model
from holdfast.core.pipeline import Pipeline, Run
from holdfast.core.sources import installed
from holdfast.core.types import Tensor
from holdfast.graph.session import condense
from holdfast.stages.deployed import DeployedInference
from holdfast.stages.families import NoiseOption
from holdfast.stages.infer import fixed_batch, one_of, open_onnx, source_of
from holdfast.stages.normalise import card as normalise
from holdfast.stages.runtime.libraries import (
    Probe,
    Shape,
    Shapes,
    cannot_load,
    guarded,
    load_net,
    openvino_error,
    openvino_library,
    probe,
)

LITERT = ("ai_edge_litert", "tflite_runtime", "tensorflow")  # modules with an interpreter, best first


class OpenFile(NamedTuple):
    """A converted file that is ready to run, and how many images it takes at once (0: no batch axis)."""

    run: Run
    batch: int


class FileFormat(NamedTuple):
    """A format of converted files: its runtime, and how a file is opened."""

    runtime: str
    open: Callable[[Model, int, Collection[str]], OpenFile]
    modules: tuple[str, ...] = ()  # any of these can run it; the first is proposed
    packages: tuple[str, ...] = ()  # distributions whose versions can affect the numbers
    extra: str = ""
    weights: str = ""  # ending of the file next to it that has the weights


@dataclass(frozen=True)
class DeployedFile:
    """An `infer` stage: a converted file of the model in place of the model's own file."""

    path: Path
    sha256: str

    def __call__(self, model: Model, threads: int = 0) -> Run:
        """The file opened by its runtime; its outputs get the names and shapes of the ONNX file's."""
        form = FORMATS[self.path.suffix.lower()]
        shapes = probe(source_of(model), model).shapes
        opened = form.open(dataclasses.replace(model, path=self.path), threads, shapes)
        alone, sample = one_of(opened.run, opened.batch, model), _sample(model)
        right = open_onnx(source_of(model), model, 1)(sample)
        try:
            readings = match_outputs(alone(sample), right, shapes)
        except ImageError as problem:
            raise ModelError(f"{self.path}: converted from {model.path.name}? {problem}") from None
        except Exception as problem:
            reason = condense(problem, 300)
            raise ModelError(f"{self.path}: {form.runtime} cannot run it: {reason}") from problem

        def run(tensor: Tensor) -> dict[str, Tensor]:
            values = alone(tensor)
            return {name: reading.of(values) for name, reading in readings.items()}

        return guarded(form.runtime, run, Probe(shapes, 1, selects=False), model)

    def fingerprint(self) -> dict[str, Any]:
        """The values that identify cells: content and runtime, not where the file is."""
        form = FORMATS[self.path.suffix.lower()]
        return {"file": self.sha256, "runtime": form.runtime, "versions": installed(form.packages)}


def deployed_file(path: Path) -> DeployedFile:
    """The converted file as a stage; raise an error if it is missing or cannot be run here."""
    form, what = FORMATS.get(path.suffix.lower()), f"--deploy-model {path}"
    if form is None:
        raise InputError(f"{what}: expected a file of {', '.join(FORMATS)}, got {path.suffix or 'no ending'}")
    files = [path, *([path.with_suffix(form.weights)] if form.weights else [])]
    for file in files:
        if not file.is_file():
            raise InputError(f"{what}: expected a model of {form.runtime}, but there is no file {file}")
    if form.modules and not any(map(is_installed, form.modules)):
        raise MissingExtra(what, form.modules[0].replace("_", "-"), form.extra)
    return DeployedFile(path.resolve(), of([of_file(file) for file in files]))


class Reading(NamedTuple):
    """How an output of the ONNX file is found among those of the converted file."""

    name: str
    channels_last: bool = False

    def of(self, values: Mapping[str, Tensor]) -> Tensor:
        """The output with the channels where the ONNX file has them."""
        value = values[self.name]
        return np.moveaxis(value, -1, 1) if self.channels_last else value


def match_outputs(
    values: Mapping[str, Tensor], right: Mapping[str, Tensor], shapes: Shapes
) -> dict[str, Reading]:
    """The reading of each output: by its name, otherwise by its shape; of several, the nearest values decide.

    `right` are the outputs of the ONNX file for the same tensor.
    """
    chosen: dict[str, Reading] = {}
    for name in sorted(shapes, key=lambda name: name not in values):
        taken = {reading.name for reading in chosen.values()}
        free = {n: v for n, v in values.items() if n not in taken}
        every = [r for n in free for r in (Reading(n), Reading(n, channels_last=True))]
        fitting = [r for r in every if _fits(free[r.name], r, shapes[name])]
        fitting = [r for r in fitting if r.name == name] or fitting
        if not fitting:
            got = ", ".join(f"{n} {v.shape}" for n, v in values.items())
            shape = str(shapes[name]).replace("None", "n")
            raise ImageError(f"expected an output {name!r} of shape {shape}, got {got}")
        chosen[name] = min(fitting, key=lambda r: _distance(r.of(free), right[name]))
    return chosen


def _fits(value: Tensor, reading: Reading, shape: Shape) -> bool:
    """Whether an output has the shape, axes of 1 at the front aside: some runtimes have no batch axis."""
    if reading.channels_last and value.ndim < 3:
        return False
    got, expected = _core(reading.of({reading.name: value}).shape), _core(shape)
    return len(got) == len(expected) and all(e in (None, g) for g, e in zip(got, expected, strict=True))


def _core(shape: Shape) -> Shape:
    front = next((place for place, size in enumerate(shape) if size != 1), len(shape))
    return shape[front:]


def _distance(value: Tensor, right: Tensor) -> float:
    """The mean difference of two outputs; infinite if their sizes differ, as with detections after NMS."""
    if value.size != right.size:
        return float("inf")
    return float(np.abs(value.astype(np.float64).ravel() - right.astype(np.float64).ravel()).mean())


def _sample(model: Model) -> Tensor:
    """The input tensor (1, …) of an image of random pixels, always the same."""
    spec = model.card.input
    pixels = generator(0, "deployed file").integers(0, 256, (spec.size.height, spec.size.width, 3))
    return normalise(pixels.astype(np.uint8), spec)[np.newaxis]


def _arrange(shape: Shape, model: Model, what: str) -> Callable[[Tensor], Tensor]:
    """A function that moves the channels of an input tensor to where a converted file has them."""
    spec = model.card.input
    (width, height), first = spec.size, spec.layout == "nchw"
    layouts = {True: (3, height, width), False: (height, width, 3)}
    fits = {
        place: len(shape) in (3, 4) and all(g in (None, s) for g, s in zip(shape[-3:], sizes, strict=True))
        for place, sizes in layouts.items()
    }
    if fits[first]:
        return lambda tensor: tensor
    if fits[not first]:
        return (lambda t: np.moveaxis(t, -3, -1)) if first else (lambda t: np.moveaxis(t, -1, -3))
    got = str(shape).replace("None", "?")
    raise cannot_load(what, model, f"its input is {got}, that of the card {spec.layout} {width}×{height}")


def _openvino(model: Model, threads: int, names: Collection[str]) -> OpenFile:
    library = openvino_library()
    settings = {"INFERENCE_PRECISION_HINT": "f32", "NUM_STREAMS": 1, "INFERENCE_NUM_THREADS": threads}
    try:
        core = library.Core()
        compiled = core.compile_model(core.read_model(str(model.path)), "CPU", settings)
        request = compiled.create_infer_request()
    except Exception as problem:
        raise cannot_load("OpenVINO", model, openvino_error(problem)) from problem
    if len(compiled.inputs) != 1:
        raise ModelError(f"{model.path}: expected one image input, got {len(compiled.inputs)}")
    port = compiled.inputs[0]
    shape = tuple(d.get_length() if d.is_static else None for d in port.partial_shape)
    arrange, dtype = _arrange(shape, model, "OpenVINO"), port.get_element_type().to_dtype()
    ports = [(*sorted(port.get_names()), f"output {place}") for place, port in enumerate(compiled.outputs)]
    keys = [next((name for name in known if name in names), known[0]) for known in ports]

    def run(tensor: Tensor) -> dict[str, Tensor]:
        outputs = request.infer({0: np.ascontiguousarray(arrange(tensor).astype(dtype, copy=False))})
        # Copy: the next image is written into the same memory.
        return {key: np.array(outputs[place]) for place, key in enumerate(keys)}

    return OpenFile(run, fixed_batch(shape))


def _ncnn(model: Model, threads: int, names: Collection[str]) -> OpenFile:
    import ncnn as library

    net = load_net(model.path, model.path.with_suffix(".bin"), model, threads)
    inputs, outputs = net.input_names(), net.output_names()
    if len(inputs) != 1:
        raise ModelError(f"{model.path}: expected one image input, got {len(inputs)}")
    # pnnx calls the outputs out0, out1, … in the order of the ONNX file.
    order = list(names)
    by_order = len(outputs) == len(order) and sorted(outputs) == sorted(f"out{n}" for n in range(len(order)))
    last = model.card.input.layout == "nhwc"

    def run(tensor: Tensor) -> dict[str, Tensor]:
        image = np.ascontiguousarray(np.moveaxis(tensor, -1, -3) if last else tensor, np.float32)
        values = {}
        with net.create_extractor() as extractor:
            extractor.input(inputs[0], library.Mat(image).clone())
            for name in outputs:
                code, value = extractor.extract(name)
                if code:
                    raise ImageError(f"ncnn cannot run the model on it: output {name!r} gives code {code}")
                values[order[int(name[3:])] if by_order else name] = np.array(value)
        return values

    return OpenFile(run, 0)


def _tflite(model: Model, threads: int, names: Collection[str]) -> OpenFile:
    module = next(name for name in LITERT if is_installed(name))
    library = importlib.import_module("tensorflow.lite" if module == LITERT[2] else f"{module}.interpreter")
    try:
        interpreter = library.Interpreter(model_path=str(model.path), num_threads=threads or None)
        interpreter.allocate_tensors()
    except Exception as problem:
        raise cannot_load("LiteRT", model, problem) from problem
    inputs, outputs = interpreter.get_input_details(), interpreter.get_output_details()
    if len(inputs) != 1:
        raise ModelError(f"{model.path}: expected one image input, got {len(inputs)}")
    shape = tuple(map(int, inputs[0]["shape"]))
    arrange = _arrange(shape, model, "LiteRT")

    def run(tensor: Tensor) -> dict[str, Tensor]:
        interpreter.set_tensor(inputs[0]["index"], _quantised(arrange(tensor), inputs[0]))
        interpreter.invoke()
        return {o["name"]: _dequantised(interpreter.get_tensor(o["index"]), o) for o in outputs}

    return OpenFile(run, fixed_batch(shape))


def _quantised(tensor: Tensor, detail: Mapping[str, Any]) -> Tensor:
    """The tensor as an input takes it: integers of its scale and zero point, or converted."""
    (scale, zero), dtype = detail["quantization"], np.dtype(detail["dtype"])
    if dtype.kind == "f" or not scale:
        return np.ascontiguousarray(tensor, dtype)
    limits = np.iinfo(dtype)
    integers: Tensor = np.clip(np.round(tensor / scale) + zero, limits.min, limits.max)
    return integers.astype(dtype)


def _dequantised(value: Tensor, detail: Mapping[str, Any]) -> Tensor:
    scale, zero = detail["quantization"]
    if value.dtype.kind == "f" or not scale:
        return value
    centred: Tensor = value.astype(np.float32) - np.float32(zero)
    return centred * np.float32(scale)


def _onnx(model: Model, threads: int, names: Collection[str]) -> OpenFile:
    return OpenFile(open_onnx(source_of(model), model, threads), 1)  # its own batch is handled there


FORMATS: Mapping[str, FileFormat] = {
    ".tflite": FileFormat("LiteRT", _tflite, LITERT, ("ai-edge-litert", "tflite-runtime", "tensorflow")),
    ".xml": FileFormat("OpenVINO", _openvino, ("openvino",), ("openvino",), extra="noise", weights=".bin"),
    ".param": FileFormat("ncnn", _ncnn, ("ncnn",), ("ncnn",), extra="ncnn", weights=".bin"),
    ".onnx": FileFormat("ONNX Runtime", _onnx, (), ("onnxruntime",)),
}


@dataclass(frozen=True)
class RunFile:
    """A noise: the converted file in place of the model's own."""

    file: DeployedFile

    def __call__(self, pipeline: Pipeline) -> Pipeline:
        """The pipeline with the file as its `infer` stage; raise InputError if another was chosen."""
        if pipeline.infer not in ("onnxruntime", DeployedInference()):
            advice = "leave out --provider and other precisions, runtimes and rewrites of the graph"
            raise InputError(f"--deploy-model {self.file.path.name}: the file is converted already; {advice}")
        return pipeline.replace(infer=self.file)


def file_option(path: Path) -> NoiseOption:
    """The converted file as an option of the family `runtime`."""
    file = deployed_file(path)
    runtime = FORMATS[path.suffix.lower()].runtime
    return NoiseOption("runtime", path.name, RunFile(file), f"The converted file, run by {runtime}.", runtime)
