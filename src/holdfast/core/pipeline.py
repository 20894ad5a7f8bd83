"""The frozen sequence of named stages that every result uses, and the class that runs it.

    bytes ─decode─► pixels ─colour─► ─fit, resize─► ─normalise─► tensor ─infer─► raw ─post─► Prediction

A stage is a name (files, command line) or a plain function (Python). A Noise is `Pipeline -> Pipeline`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

import numpy as np

from holdfast.core import fingerprint
from holdfast.core.errors import ImageError, InputError, UnknownName
from holdfast.core.frame import Frame, place
from holdfast.core.model import Card, Input, Model
from holdfast.core.registry import lookup
from holdfast.core.types import Image, Prediction, Size, Tensor

Decode: TypeAlias = Callable[[bytes], Image]
Recolour: TypeAlias = Callable[[Image], Image]
Fit: TypeAlias = Callable[[Input], Input]  # the policy that fits the image into the network's input
Resize: TypeAlias = Callable[[Image, Size], Image]
Normalise: TypeAlias = Callable[[Image, Input], Tensor]
Run: TypeAlias = Callable[[Tensor], Mapping[str, Tensor]]
Infer: TypeAlias = Callable[[Model, int], Run]  # (model, threads) -> a function that runs one tensor
Post: TypeAlias = Callable[[Mapping[str, Tensor], Frame, Card], Prediction]


@dataclass(frozen=True)
class Pipeline:
    """Seven named stages; each is a registered name or a function of the stage's signature."""

    decode: str | Decode = "pillow"
    colour: str | Recolour = "rgb"
    fit: str | Fit = "card"
    resize: str | Resize = "pillow-bilinear"
    normalise: str | Normalise = "card"
    infer: str | Infer = "onnxruntime"
    post: str | Post = "card"

    def replace(self, **stages: str | Callable[..., Any]) -> Pipeline:
        """The same pipeline with the named stages replaced."""
        stage_names = [f.name for f in fields(self)]
        for name, choice in stages.items():
            if name not in stage_names:
                raise UnknownName("stage", name, stage_names)
            if not isinstance(choice, str) and not callable(choice):
                raise InputError(f"stage {name}: expected a name or a function, got {type(choice).__name__}")
        return dataclasses.replace(self, **stages)

    def describe(self) -> dict[str, str]:
        """Each stage by name; a function by module, name and hash of its source."""
        chosen = {f.name: getattr(self, f.name) for f in fields(self)}
        return {k: v if isinstance(v, str) else fingerprint.of_function(v) for k, v in chosen.items()}


Noise: TypeAlias = Callable[[Pipeline], Pipeline]


def pipeline_of(card: Card) -> Pipeline:
    """The pipeline the model was trained with, as its card states it."""
    return Pipeline(decode=card.decode, resize=card.resize)


@dataclass(frozen=True)
class PreparedImage:
    """An image ready for the network: tensor (1, c, h, w) or (1, h, w, c), and its frame."""

    tensor: Tensor
    frame: Frame


@dataclass(frozen=True)
class LoadedPipeline:
    """A pipeline opened on a model: `prepare` may run in one thread while `predict` runs in another."""

    model: Model
    pipeline: Pipeline
    decode: Decode
    colour: Recolour
    fit: Fit
    resize: Resize
    normalise: Normalise
    run: Run
    post: Post

    def prepare(self, data: bytes) -> PreparedImage:
        """The tensor and the frame of one encoded image."""
        stages, frame = self._before_network(data)
        return PreparedImage(stages["normalise"], frame)

    def _before_network(self, data: bytes) -> tuple[dict[str, Any], Frame]:
        decoded = self.decode(data)
        coloured = self.colour(decoded)
        spec = self.fit(self.model.card.input)
        small, frame = place(coloured, spec, self.resize)
        tensor = self.normalise(small, spec)[np.newaxis]
        return {"decode": decoded, "colour": coloured, "resize": small, "normalise": tensor}, frame

    def predict(self, prepared: PreparedImage) -> Prediction:
        """The prediction for a prepared image, in pixels of the encoded image."""
        return self.post(checked(self.run(prepared.tensor)), prepared.frame, self.model.card)

    def trace(self, data: bytes) -> dict[str, Any]:
        """The output of every stage by name, to find where two pipelines diverge."""
        stages, frame = self._before_network(data)
        raw = self.run(stages["normalise"])
        return {**stages, "infer": raw, "post": self.post(raw, frame, self.model.card)}


def checked(raw: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """The same outputs; raise ImageError if a value is NaN or infinite."""
    for name, value in raw.items():
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            bad = int((~np.isfinite(value)).sum())
            raise ImageError(f"output {name!r} has {bad} values that are NaN or infinite")
    return raw


def open_preparation(pipeline: Pipeline, model: Model) -> Callable[[bytes], PreparedImage]:
    """The stages before the network as one function, without loading the model."""

    def unused(tensor: Tensor) -> Mapping[str, Tensor]:
        raise InputError("this pipeline was opened for preprocessing only")

    return load_pipeline(pipeline.replace(infer=lambda _model, _threads: unused), model).prepare


def check_names(pipeline: Pipeline) -> None:
    """Raise UnknownName with the nearest name unless every named stage exists."""
    for field in fields(pipeline):
        lookup(field.name, getattr(pipeline, field.name))


def load_pipeline(pipeline: Pipeline, model: Model, threads: int = 0) -> LoadedPipeline:
    """The pipeline with every name resolved and the model loaded; threads 0 means all cores."""
    chosen = {f.name: lookup(f.name, getattr(pipeline, f.name)) for f in fields(pipeline)}
    infer: Infer = chosen.pop("infer")
    return LoadedPipeline(model, pipeline, run=infer(model, threads), **chosen)
