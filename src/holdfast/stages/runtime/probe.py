"""What the outputs of a model must look like, whichever runtime computes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from holdfast.core.errors import ImageError, ModelError
from holdfast.core.model import Model
from holdfast.core.pipeline import Run
from holdfast.core.types import Tensor
from holdfast.graph.session import condense
from holdfast.stages.infer import batch_of, open_onnx

Shape: TypeAlias = tuple[int | None, ...]  # None: as many as the image has, e.g. detections after NMS
Shapes: TypeAlias = Mapping[str, Shape]
# Operators whose output has as many entries as the values of the image make it have.
DATA_DEPENDENT = frozenset({"NonMaxSuppression", "NonZero", "Unique", "Compress", "Loop", "If"})


def blank(model: Model) -> Tensor:
    """An input tensor (1, …) of zeros."""
    wanted = model.card.input
    width, height = wanted.size
    shape = (1, 3, height, width) if wanted.layout == "nchw" else (1, height, width, 3)
    return np.zeros(shape, wanted.dtype)


def output_shapes(source: bytes | str, model: Model) -> Shapes:
    """The name and shape of every output, in order, as ONNX Runtime gives them for one image.

    An axis that the file leaves open is None if the graph selects by value: a blank image has no detections,
    the next one may have many.
    """
    try:
        found = {name: value.shape for name, value in open_onnx(source, model, 1)(blank(model)).items()}
    except ImageError as problem:
        raise ModelError(f"{model.path}: {problem}") from problem
    graph = _graph(source)
    if not _selects(graph):
        return found
    fixed = {o.name: [d.dim_value for d in o.type.tensor_type.shape.dim] for o in graph.output}
    return {
        name: tuple(size if known else None for size, known in zip(shape, fixed[name], strict=True))
        if len(shape) == len(fixed[name])
        else (None,) * len(shape)
        for name, shape in found.items()
    }


def selects_by_value(source: bytes | str) -> bool:
    """Whether sizes within the graph depend on the image: it has NonMaxSuppression or the like."""
    return _selects(_graph(source))


def _selects(graph: Any) -> bool:
    return any(node.op_type in DATA_DEPENDENT for node in graph.node)


def batch_in(source: bytes | str) -> int:
    """How many images the file takes at once: 1 unless it fixes another number, 0 without a batch axis."""
    return batch_of(_graph(source))


def _graph(source: bytes | str) -> Any:
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


def shaped(runtime: str, run: Run, shapes: Shapes) -> Run:
    """The same run, its outputs in the shapes they should have."""

    def whole(tensor: Tensor) -> dict[str, Tensor]:
        return {name: in_shape(runtime, name, value, shapes[name]) for name, value in run(tensor).items()}

    return whole
