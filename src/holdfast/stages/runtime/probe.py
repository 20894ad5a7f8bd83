"""Expected outputs of a model, independent of the runtime."""

import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from holdfast.core.errors import ImageError, ModelError
from holdfast.core.model import Model
from holdfast.core.pipeline import Run
from holdfast.core.types import Tensor
from holdfast.graph.session import condense
from holdfast.stages.infer import batch_of, one_of, open_onnx

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
    width, height = spec.size
    shape = (1, 3, height, width) if spec.layout == "nchw" else (1, height, width, 3)
    return np.zeros(shape, spec.dtype)


def probe(source: bytes | str, model: Model) -> Probe:
    """Shapes of ONNX Runtime's outputs for a blank image.

    A free axis of the file is None if the graph selects by value: a blank image has no detections, but other
    images may have many.
    """
    try:
        shapes: dict[str, Shape] = {n: v.shape for n, v in open_onnx(source, model, 1)(blank(model)).items()}
    except ImageError as problem:
        raise ModelError(f"{model.path}: {problem}") from problem
    graph = graph_of(source)
    selects = any(node.op_type in DATA_DEPENDENT for node in graph.node)
    for output in graph.output if selects else ():
        fixed, shape = [d.dim_value for d in output.type.tensor_type.shape.dim], shapes[output.name]
        declared = fixed if len(fixed) == len(shape) else [0] * len(shape)
        shapes[output.name] = tuple(size if k else None for size, k in zip(shape, declared, strict=True))
    return Probe(shapes, batch_of(graph), selects)


def graph_of(source: bytes | str) -> Any:
    """The parsed graph, without external weights."""
    import onnx

    if isinstance(source, bytes):
        return onnx.load_from_string(source).graph
    return onnx.load(source, load_external_data=False).graph


def cannot_load(runtime: str, model: Model, problem: BaseException | str) -> ModelError:
    """The error for a model that a runtime cannot load or convert, in one line."""
    reason = problem if isinstance(problem, str) else condense(problem, 300)
    return ModelError(f"{model.path}: {runtime} cannot load it: {reason}")


def in_shape(runtime: str, name: str, value: Tensor, shape: Shape) -> Tensor:
    """The output in the expected shape; raise ImageError if its size does not match."""
    if value.ndim == len(shape) and all(
        want in (None, got) for got, want in zip(value.shape, shape, strict=True)
    ):
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
