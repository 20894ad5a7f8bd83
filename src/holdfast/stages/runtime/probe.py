"""What a model's outputs are to be: the measure for what another runtime gives back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from holdfast.core.errors import ImageError, ModelError
from holdfast.core.model import Model
from holdfast.core.pipeline import Run
from holdfast.core.types import Tensor
from holdfast.graph.inspect import condense
from holdfast.stages.infer import batch_of, open_onnx

Shapes: TypeAlias = Mapping[str, tuple[int, ...]]


def blank(model: Model) -> Tensor:
    """An input tensor (1, …) of zeros."""
    wanted = model.card.input
    width, height = wanted.size
    shape = (1, 3, height, width) if wanted.layout == "nchw" else (1, height, width, 3)
    return np.zeros(shape, wanted.dtype)


def output_shapes(source: bytes | str, model: Model) -> Shapes:
    """The name and shape of every output, in order, as ONNX Runtime gives them for one image."""
    try:
        return {name: value.shape for name, value in open_onnx(source, model, 1)(blank(model)).items()}
    except ImageError as problem:
        raise ModelError(f"{model.path}: {problem}") from problem


def batch_in(source: bytes | str) -> int:
    """How many images the file wants at once: 1 unless it fixes another number."""
    import onnx

    # Without weights kept beside it: only the shape of the input is asked for.
    whole: Any = (
        onnx.load_from_string(source)
        if isinstance(source, bytes)
        else onnx.load(source, load_external_data=False)
    )
    return batch_of(whole.graph)


def cannot_load(runtime: str, model: Model, problem: BaseException | str) -> ModelError:
    """The error for a model that a runtime cannot load or convert, in one line."""
    said = problem if isinstance(problem, str) else condense(problem, 300)
    return ModelError(f"{model.path}: {runtime} cannot load it: {said}")


def in_shape(runtime: str, name: str, value: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The output in the shape it should have; ImageError if it has more or fewer numbers."""
    if value.shape == shape:
        return value
    if value.size != int(np.prod(shape)):
        raise ImageError(f"{runtime} gives output {name!r} in shape {value.shape}, expected {shape}")
    return value.reshape(shape)


def shaped(runtime: str, run: Run, shapes: Shapes) -> Run:
    """The same run, its outputs in the shapes they should have."""

    def whole(tensor: Tensor) -> dict[str, Tensor]:
        return {name: in_shape(runtime, name, value, shapes[name]) for name, value in run(tensor).items()}

    return whole
