"""What the outputs of a model must look like, whichever runtime computes them."""

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

Shape: TypeAlias = tuple[int | None, ...]  # None: as many as the image has, e.g. detections after NMS
Shapes: TypeAlias = Mapping[str, Shape]


class Probe(NamedTuple):
    """The shapes of a model's outputs, in order, and how many images it takes at once (0: no batch axis)."""

    shapes: Shapes
    batch: int
    selects: bool  # sizes within the graph depend on the image: it has NonMaxSuppression or the like


# Operators whose output has as many entries as the values of the image make it have.
DATA_DEPENDENT = frozenset({"NonMaxSuppression", "NonZero", "Unique", "Compress", "Loop", "If"})


def blank(model: Model) -> Tensor:
    """An input tensor (1, …) of zeros."""
    wanted = model.card.input
    width, height = wanted.size
    shape = (1, 3, height, width) if wanted.layout == "nchw" else (1, height, width, 3)
    return np.zeros(shape, wanted.dtype)


def probe(source: bytes | str, model: Model) -> Probe:
    """What ONNX Runtime gives for a blank image.

    An axis that the file leaves open is None if the graph selects by value: a blank image has no detections,
    the next one may have many.
    """
    try:
        found: dict[str, Shape] = {n: v.shape for n, v in open_onnx(source, model, 1)(blank(model)).items()}
    except ImageError as problem:
        raise ModelError(f"{model.path}: {problem}") from problem
    graph = graph_of(source)
    selects = any(node.op_type in DATA_DEPENDENT for node in graph.node)
    for output in graph.output if selects else ():
        fixed, shape = [d.dim_value for d in output.type.tensor_type.shape.dim], found[output.name]
        known = fixed if len(fixed) == len(shape) else [0] * len(shape)
        found[output.name] = tuple(size if k else None for size, k in zip(shape, known, strict=True))
    return Probe(found, batch_of(graph), selects)


def graph_of(source: bytes | str) -> Any:
    """The parsed graph, without weights kept in files of their own."""
    import onnx

    if isinstance(source, bytes):
        return onnx.load_from_string(source).graph
    return onnx.load(source, load_external_data=False).graph


def cannot_load(runtime: str, model: Model, problem: BaseException | str) -> ModelError:
    """The error for a model that a runtime cannot load or convert, in one line."""
    said = problem if isinstance(problem, str) else condense(problem, 300)
    return ModelError(f"{model.path}: {runtime} cannot load it: {said}")


def in_shape(runtime: str, name: str, value: Tensor, shape: Shape) -> Tensor:
    """The output in the shape it should have; ImageError if its numbers do not fill that shape."""
    if value.ndim == len(shape) and all(
        want in (None, got) for got, want in zip(value.shape, shape, strict=True)
    ):
        return value
    known, free = int(np.prod([d for d in shape if d is not None])), shape.count(None)
    fits = value.size == known if free == 0 else free == 1 and known > 0 and value.size % known == 0
    if not fits:
        wanted = str(shape).replace("None", "n")
        raise ImageError(f"{runtime} gives output {name!r} in shape {value.shape}, expected {wanted}")
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
            said = plain(problem) if plain else condense(problem, 300)
            raise ImageError(f"{runtime} cannot run the model on it: {said}") from problem

    alone = one_of(locked, about.batch, model)
    return lambda tensor: {n: in_shape(runtime, n, v, about.shapes[n]) for n, v in alone(tensor).items()}
