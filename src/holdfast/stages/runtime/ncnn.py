"""ncnn, Tencent's engine for phones, with the model converted by its own pnnx."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.core.errors import ImageError, ModelError
from holdfast.core.model import Model
from holdfast.core.pipeline import Run
from holdfast.core.registry import stage
from holdfast.core.types import Tensor
from holdfast.stages.infer import batch_of, batched
from holdfast.stages.runtime.probe import Shapes, blank, cannot_load, in_shape, probe

SECONDS = 300  # a conversion takes a few


@stage(
    "runtime",
    needs="ncnn",
    extra="runtimes",
    packages=("ncnn", "pnnx"),
    systems="ncnn (phones, single-board computers)",
)
def ncnn(source: bytes | str, model: Model, threads: int) -> Run:
    """The engine ncnn on the CPU in float32, converted from ONNX by pnnx."""
    shapes, batch, _ = probe(source, model)
    with tempfile.TemporaryDirectory(prefix="holdfast-") as folder:
        net = _loaded(_converted(source, model, Path(folder)), model, threads)
    try:
        _extracted(net, blank(model), shapes)  # many faults show only when it first runs
    except ImageError as problem:
        hint = f"; the file fixes a batch of {batch}: export it with a batch of 1" if batch > 1 else ""
        raise cannot_load("ncnn", model, f"{problem}{hint}") from problem
    return lambda tensor: _extracted(net, tensor, shapes)


def _converted(source: bytes | str, model: Model, folder: Path) -> Path:
    """The path, without its ending, of the network pnnx made in this folder."""
    import onnx

    program = _program(model)
    graph: Any = onnx.load_from_string(source) if isinstance(source, bytes) else onnx.load(source)
    weights = {w.name for w in graph.graph.initializer}
    inputs = [i for i in graph.graph.input if i.name not in weights]  # pnnx takes weights for inputs
    del graph.graph.input[:]
    graph.graph.input.extend(inputs)
    onnx.save(graph, str(folder / "net.onnx"))
    # The batch the file fixes: in its own networks ncnn has none, so these take one image all the same.
    tensor = batched(blank(model), batch_of(graph.graph))
    kind = {"float32": "f32", "float16": "f16", "uint8": "u8"}[str(tensor.dtype)]
    shape = ",".join(str(d) for d in tensor.shape)
    command = [program, "net.onnx", f"inputshape=[{shape}]{kind}", "fp16=0"]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise cannot_load("ncnn", model, f"pnnx failed: {problem}") from problem
    made = folder / "net.ncnn"
    if done.returncode or not made.with_suffix(".ncnn.param").exists():
        raise cannot_load("ncnn", model, f"pnnx ended with code {done.returncode}: {_reason(done)}")
    return made


def _program(model: Model) -> str:
    """The converter's own binary: its Python module would import torch."""
    found = find_spec("pnnx")
    for folder in (found.submodule_search_locations or ()) if found else ():
        program = Path(folder) / ("pnnx.exe" if sys.platform == "win32" else "pnnx")
        if program.is_file():
            return str(program)
    raise ModelError(f"{model.path}: ncnn needs the converter pnnx: pip install 'holdfast[runtimes]'")


def _reason(done: subprocess.CompletedProcess[bytes]) -> str:
    """The line in which pnnx says what is wrong, or its last one."""
    said = (done.stderr + done.stdout).decode(errors="replace")
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    words = ("error", "fail", "unsupported", "not supported")
    wrong = [line for line in lines if any(word in line.lower() for word in words)]
    return (wrong or lines or ["it said nothing"])[-1][:200]


def _loaded(made: Path, model: Model, threads: int) -> Any:
    import ncnn as library

    net = library.Net()
    net.opt.num_threads = threads if threads > 0 else library.get_cpu_count()
    # In float32 throughout: by itself ncnn stores and multiplies in 16 bits where the processor can.
    for switch in ("use_fp16_packed", "use_fp16_storage", "use_fp16_arithmetic", "use_bf16_storage"):
        setattr(net.opt, switch, False)
    param, weights = made.with_suffix(".ncnn.param"), made.with_suffix(".ncnn.bin")
    layers = {line.split()[0] for line in param.read_text().splitlines()[2:]}
    foreign = ("pnnx.", "aten::", "F.", "nn.", "torch.", "Tensor.")
    if unknown := sorted(layer for layer in layers if layer.startswith(foreign)):
        raise cannot_load("ncnn", model, f"it has no layer for {', '.join(unknown)}")
    if net.load_param(str(param)) or net.load_model(str(weights)):
        raise cannot_load("ncnn", model, "the converted network does not load")
    return net


def _extracted(net: Any, tensor: Tensor, shapes: Shapes) -> dict[str, Tensor]:
    """The outputs for one image: pnnx names them out0, out1, … in the order of the ONNX file."""
    import ncnn as library

    found = {}
    with net.create_extractor() as extractor:
        extractor.input("in0", library.Mat(np.ascontiguousarray(tensor[0])).clone())
        for place, (name, shape) in enumerate(shapes.items()):
            code, value = extractor.extract(f"out{place}")
            if code:
                raise ImageError(f"ncnn cannot run the model on it: output {name!r} gives code {code}")
            found[name] = in_shape("ncnn", name, np.array(value), shape)
    return found
