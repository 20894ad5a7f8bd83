"""What a model's outputs are to be: the measure for what another runtime gives back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np

from holdfast.core.errors import ImageError, ModelError
from holdfast.core.model import Model
from holdfast.core.types import Tensor
from holdfast.graph.inspect import condense
from holdfast.stages.infer import open_onnx

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
