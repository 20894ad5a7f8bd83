"""Open a model to run one tensor at a time."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from holdfast.core.errors import CardError, ImageError, ModelError
from holdfast.core.model import Model
from holdfast.core.pipeline import Run
from holdfast.core.registry import stage
from holdfast.core.types import Tensor
from holdfast.graph.feeds import feed
from holdfast.graph.session import condense, open_session

CPU = "CPUExecutionProvider"


@stage("infer")
def onnxruntime(model: Model, threads: int = 0) -> Run:
    """ONNX Runtime on the CPU, all graph optimisations on; threads 0 means all cores."""
    return open_onnx(source_of(model), model, threads)


def source_of(model: Model) -> bytes | str:
    """The path of the model, so that weights in files next to it are found; for a .gz, its unpacked bytes."""
    return model.read() if model.path.suffix == ".gz" else str(model.path)


@stage("runtime", "onnxruntime", systems="ONNX Runtime (CPU)")
def open_onnx(source: bytes | str, model: Model, threads: int = 0, providers: Sequence[str] = (CPU,)) -> Run:
    """ONNX Runtime on the CPU, all graph optimisations on.

    Other execution providers may be given by their full names.
    The returned function runs one tensor (1, …) through the ONNX bytes or file: output name -> array.
    """
    session = open_graph(source, str(model.path), threads, providers)
    inputs = [i for i in session.get_inputs() if i.name not in model.card.feeds]
    others = [i for i in session.get_inputs() if i.name in model.card.feeds]
    if len(inputs) != 1:
        listed = ", ".join(i.name for i in inputs) or "none"
        advice = ". Write in the card what the others get: [feeds]" if len(inputs) > 1 else ""
        raise ModelError(f"{model.path}: expected one image input, got {len(inputs)} ({listed}){advice}")
    shape, spec = inputs[0].shape, model.card.input
    w, h = spec.size
    expected = [1, *spec.shape]
    if len(shape) not in (3, 4):
        raise ModelError(f"{model.path}: expected an image input of 3 or 4 dimensions, got shape {shape}")
    for side, stated in zip(shape[-3:], expected[1:], strict=True):
        if isinstance(side, int) and side > 0 and side != stated:
            says = f"the card has {spec.layout} {w}×{h}, input shape {expected}"
            advice = "Correct size or layout in the card"
            raise CardError(f"{model.path}: {says}; the model's input is {shape}. {advice}")
    names = [o.name for o in session.get_outputs()]

    def run(tensor: Tensor) -> dict[str, Tensor]:
        more = {
            i.name: feed(model.card.feeds[i.name], i.shape, _dtype(i), tensor, spec.layout) for i in others
        }
        try:
            values = session.run(names, {inputs[0].name: tensor, **more})
        except Exception as problem:
            what = condense(problem, 300)
            raise ImageError(f"ONNX Runtime cannot run the model on it: {what}") from problem
        return dict(zip(names, map(np.asarray, values), strict=True))

    alone = one_of(run, fixed_batch(inputs[0].shape), model)
    alone.pure = True  # type: ignore[attr-defined]
    return alone


def _dtype(port: Any) -> str:
    """The numpy type of an input of a session."""
    kinds = {"float": "float32", "double": "float64"}
    kind: str = port.type.removeprefix("tensor(").removesuffix(")")
    return kinds.get(kind, kind)


def open_graph(source: bytes | str, what: str, threads: int, providers: Sequence[str] = (CPU,)) -> Any:
    """An ONNX Runtime session for a graph's bytes or file; raise ModelError on failure.

    ONNX Runtime silently skips a provider that does not start, as without its driver: that is an error here.
    """
    try:
        session = open_session(source, threads=threads, inter_threads=1, providers=providers)
    except Exception as problem:
        raise ModelError(f"{what}: ONNX Runtime cannot load it: {condense(problem, 300)}") from problem
    if absent := [name for name in providers if name not in session.get_providers()]:
        advice = "install its driver and libraries, or leave it out"
        raise ModelError(f"{what}: ONNX Runtime could not start {absent[0]}; {advice}")
    return session


def one_of(run: Run, batch: int, model: Model) -> Run:
    """A function that runs one tensor (1, …) where `run` takes `batch` at once: copies in, the first out.

    A batch of 0 is a model without a batch axis: it takes the image alone and its outputs are of one image.
    """
    if batch == 1:
        return run
    if batch == 0:
        return lambda tensor: run(tensor[0])

    def alone(tensor: Tensor) -> Mapping[str, Tensor]:
        outputs = run(batched(tensor, batch))
        for name, value in outputs.items():
            if value.ndim == 0 or value.shape[0] != batch:
                wrong = f"output {name!r} of shape {value.shape} does not have one entry per image"
                hint = f"has a fixed batch of {batch}, but {wrong}; export it with a batch of 1"
                raise ModelError(f"{model.path}: {hint}")
        return {name: value[:1] for name, value in outputs.items()}

    return alone


def batched(tensor: Tensor, batch: int) -> Tensor:
    """The tensor (1, …) as a model takes it: repeated for a fixed batch, without its first axis for 0."""
    return np.asarray(tensor[0]) if batch == 0 else tensor.repeat(batch, axis=0) if batch > 1 else tensor


def batch_of(graph: Any) -> int:
    """Batch size of a parsed ONNX graph, 0 without a batch axis; weights among its inputs are ignored."""
    weights = {w.name for w in graph.initializer}
    images = [i for i in graph.input if i.name not in weights and len(i.type.tensor_type.shape.dim) > 2]
    return fixed_batch([d.dim_value for d in images[0].type.tensor_type.shape.dim]) if images else 1


def fixed_batch(shape: Sequence[Any]) -> int:
    """Batch size of a model: 0 without a batch axis, 1 unless its file fixes another."""
    if len(shape) == 3:
        return 0
    first = shape[0] if len(shape) else 1
    return first if isinstance(first, int) and first > 1 else 1
