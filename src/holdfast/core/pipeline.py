"""The frozen sequence of named stages that every result uses, the class that runs it, and resize policies.

    bytes ─decode─► pixels ─colour─► ─fit, resize─► ─normalise─► tensor ─infer─► raw ─post─► Prediction

A stage is a name (files, command line) or a plain function (Python). A Noise is `Pipeline -> Pipeline`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Protocol, TypeAlias

import numpy as np

from holdfast.core import fingerprint
from holdfast.core.errors import ImageError, InputError, UnknownName
from holdfast.core.limits import limit, too_large
from holdfast.core.model import Card, Input, Model
from holdfast.core.registry import lookup
from holdfast.core.types import Floats, Image, Prediction, Size, Tensor

LETTERBOXES = ("letterbox", "letterbox-truncate", "short-side")  # policies that keep the ratio and pad


@dataclass(frozen=True)
class Frame:
    """The map from the encoded image to the network input: x_net = x · scale_x + offset_x, likewise y."""

    original: Size
    network: Size
    resized: Size
    scale_x: float
    scale_y: float
    offset_x: int
    offset_y: int

    def to_original(self, boxes: Floats) -> Floats:
        """Boxes (n, 4) xyxy of the network input, in pixels of the encoded image, clipped to it."""
        shift = np.array([self.offset_x, self.offset_y] * 2, np.float64)
        scale = np.array([self.scale_x, self.scale_y] * 2, np.float64)
        limit = np.array([self.original.width, self.original.height] * 2, np.float64)
        return np.clip((boxes - shift) / scale, 0.0, limit)

    def to_network(self, boxes: Floats) -> Floats:
        """Boxes (n, 4) xyxy of the encoded image, in pixels of the network input."""
        shift = np.array([self.offset_x, self.offset_y] * 2, np.float64)
        return boxes * np.array([self.scale_x, self.scale_y] * 2, np.float64) + shift


def frame_of(original: Size, spec: Input) -> Frame:
    """The frame of an image of that size in the network's input."""
    w, h = original
    net = spec.size
    if w < 1 or h < 1:
        raise ImageError(f"expected an image of at least 1×1 pixels, got {w}×{h}")
    new, x, y = net, 0, 0  # policy "stretch"
    if spec.policy in LETTERBOXES:
        if spec.policy == "short-side":
            new = _by_short_side(original, spec)
            net = Size(*(-(-side // spec.multiple) * spec.multiple for side in new))
        else:
            ratio = min(net.width / w, net.height / h)
            whole = round if spec.policy == "letterbox" else int
            new = Size(max(1, whole(w * ratio)), max(1, whole(h * ratio)))
        if spec.place != "corner":
            x, y = (net.width - new.width) // 2, (net.height - new.height) // 2
    elif spec.policy != "stretch":
        short = spec.short_side or min(net)
        # The long side is truncated, not rounded, as in torchvision's Resize: 640×427 to 256 gives 383×256;
        # "square" stretches to short × short first, as the SysNoise authors' code does.
        crop = spec.policy == "crop"
        width, height = (short * side // min(w, h) if crop else short for side in (w, h))
        new = Size(max(net.width, width), max(net.height, height))
        x, y = -round((new.width - net.width) / 2), -round((new.height - net.height) / 2)
    if new.width * new.height > limit("image-megapixels") * 1_000_000:
        got = f"an image of {w}×{h} pixels, resized to {new.width}×{new.height}"
        raise ImageError(too_large("image-megapixels", got))
    scales = {"scale_x": new.width / w, "scale_y": new.height / h}
    return Frame(original, network=net, resized=new, **scales, offset_x=x, offset_y=y)


def _by_short_side(original: Size, spec: Input) -> Size:
    """The resized image: its short side as stated, unless the long side would be too long.

    Sides are rounded as in mmdetection (mmcv's rescale_size); detectron2 does the same.
    """
    short, long = min(original), max(original)
    ratio = (spec.short_side or min(spec.size)) / short
    ratio = min(ratio, (spec.long_side or math.inf) / long)
    width, height = (max(1, int(side * ratio + 0.5)) for side in original)
    return Size(width, height)


def place(image: Image, spec: Input, resize: Resize) -> tuple[Image, Frame]:
    """The image (h, w, 3) resized by the given function and placed in the network's input, and its frame."""
    frame = frame_of(Size(image.shape[1], image.shape[0]), spec)
    small = resize(image, frame.resized)
    (width, height), net, x, y = frame.resized, frame.network, frame.offset_x, frame.offset_y
    if small.shape != (height, width, 3):
        raise ImageError(f"resize: expected {height}×{width}×3, got {small.shape}")
    if spec.policy == "stretch":
        return small, frame
    if spec.policy in ("crop", "square"):
        return small[-y : net.height - y, -x : net.width - x], frame
    canvas = np.full((net.height, net.width, 3), spec.pad, np.uint8)
    canvas[y : y + height, x : x + width] = small
    return canvas, frame


Decode: TypeAlias = Callable[[bytes], Image]
Recolour: TypeAlias = Callable[[Image], Image]
Fit: TypeAlias = Callable[[Input], Input]  # the policy that fits the image into the network's input
Resize: TypeAlias = Callable[[Image, Size], Image]
Normalise: TypeAlias = Callable[[Image, Input], Tensor]
Run: TypeAlias = Callable[[Tensor], Mapping[str, Tensor]]
Infer: TypeAlias = Callable[[Model, int], Run]  # (model, threads) -> a function that runs one tensor
Post: TypeAlias = Callable[[Mapping[str, Tensor], Frame, Card], Prediction]


class Defence(Protocol):
    """A wrapper around the whole pipeline, which predicts from decoded pixels in several runs."""

    def __call__(self, machine: LoadedPipeline, pixels: Image) -> Prediction:
        """The prediction for decoded pixels; `machine` is the pipeline without the defence."""
        ...


@dataclass(frozen=True)
class Pipeline:
    """Seven named stages; each is a registered name or a function of the stage's signature.

    A defence, if there is one, wraps all stages after the decoder.
    """

    decode: str | Decode = "pillow"
    colour: str | Recolour = "rgb"
    fit: str | Fit = "card"
    resize: str | Resize = "pillow-bilinear"
    normalise: str | Normalise = "card"
    infer: str | Infer = "onnxruntime"
    post: str | Post = "card"
    defence: Defence | None = None

    def replace(self, **stages: str | Callable[..., Any]) -> Pipeline:
        """The same pipeline with the named stages replaced."""
        stage_names = list(STAGES)
        for name, choice in stages.items():
            if name not in stage_names:
                raise UnknownName("stage", name, stage_names)
            if not isinstance(choice, str) and not callable(choice):
                raise InputError(f"stage {name}: expected a name or a function, got {type(choice).__name__}")
        changed: dict[str, Any] = dict(stages)
        return dataclasses.replace(self, **changed)

    def describe(self) -> dict[str, str]:
        """Each stage by name; a function by module, name and hash of its source."""
        chosen = {kind: getattr(self, kind) for kind in STAGES}
        if self.defence is not None:
            chosen["defence"] = self.defence
        return {k: v if isinstance(v, str) else fingerprint.of_function(v) for k, v in chosen.items()}


STAGES = tuple(field.name for field in fields(Pipeline) if field.name != "defence")

Noise: TypeAlias = Callable[[Pipeline], Pipeline]


def pipeline_of(card: Card) -> Pipeline:
    """The pipeline the model was trained with, as its card states it."""
    return Pipeline(decode=card.decode, resize=card.resize)


@dataclass(frozen=True)
class PreparedImage:
    """An image ready for the network: tensor (1, c, h, w) or (1, h, w, c), and its frame.

    `pixels` are the decoded pixels, kept for a pipeline with a defence only.
    """

    tensor: Tensor
    frame: Frame
    pixels: Image | None = None


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
        return self.prepare_pixels(self.decode(data))

    def prepare_pixels(self, decoded: Image) -> PreparedImage:
        """The tensor and the frame of decoded pixels."""
        stages, frame = self._before_network(decoded)
        pixels = None if self.pipeline.defence is None else decoded
        return PreparedImage(stages["normalise"], frame, pixels)

    def _before_network(self, decoded: Image) -> tuple[dict[str, Any], Frame]:
        coloured = self.colour(decoded)
        spec = self.fit(self.model.card.input)
        small, frame = place(coloured, spec, self.resize)
        tensor = self.normalise(small, spec)[np.newaxis]
        return {"decode": decoded, "colour": coloured, "resize": small, "normalise": tensor}, frame

    def predict(self, prepared: PreparedImage) -> Prediction:
        """The prediction for a prepared image, in pixels of the encoded image."""
        if self.pipeline.defence is not None:
            if prepared.pixels is None:
                raise InputError("a defended pipeline predicts what it prepared itself, got another tensor")
            return self.pipeline.defence(self.undefended, prepared.pixels)
        return self.post(checked(self.run(prepared.tensor)), prepared.frame, self.model.card)

    @property
    def undefended(self) -> LoadedPipeline:
        """The same opened pipeline without its defence."""
        return dataclasses.replace(self, pipeline=dataclasses.replace(self.pipeline, defence=None))

    def trace(self, data: bytes) -> dict[str, Any]:
        """The output of every stage by name, to find where two pipelines diverge; without a defence."""
        stages, frame = self._before_network(self.decode(data))
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
    for kind in STAGES:
        lookup(kind, getattr(pipeline, kind))


def load_pipeline(pipeline: Pipeline, model: Model, threads: int = 0) -> LoadedPipeline:
    """The pipeline with every name resolved and the model loaded; threads 0 means all cores."""
    chosen = {kind: lookup(kind, getattr(pipeline, kind)) for kind in STAGES}
    infer: Infer = chosen.pop("infer")
    return LoadedPipeline(model, pipeline, run=infer(model, threads), **chosen)
