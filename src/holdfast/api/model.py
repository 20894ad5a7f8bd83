"""A model for use from Python: it predicts, and it can be deployed with other stages."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from holdfast.api.predictions import Prediction, named
from holdfast.core import model as core
from holdfast.core.dataset import Dataset
from holdfast.core.errors import InputError, UnknownName
from holdfast.core.pipeline import LoadedPipeline, Pipeline, PreparedImage, load_pipeline, pipeline_of
from holdfast.core.types import Image, Tensor
from holdfast.data.entries import read_image_file
from holdfast.graph.load import load_model
from holdfast.noise.suite import CALIBRATION_ITEMS, spread
from holdfast.stages.defence import MaskDefence
from holdfast.stages.deployed import Calibration, DeployedInference
from holdfast.stages.double_masking import DoubleMasking
from holdfast.stages.families import applied, families, options_of

if TYPE_CHECKING:
    from PIL.Image import Image as PillowImage

    from holdfast.certify.classify_result import ClassCertification
    from holdfast.certify.result import Certification
else:
    PillowImage = Any

ImageLike: TypeAlias = "str | PathLike[str] | bytes | NDArray[np.uint8] | PillowImage"


DEFEND = "defend=masks:"  # the label of a defence in a deployment


class PipelineCache(dict[str, LoadedPipeline]):
    """The pipeline that a model has opened. Pickled empty: each process opens its own."""

    def __reduce__(self) -> tuple[type[PipelineCache], tuple[()]]:
        return PipelineCache, ()


@dataclass(frozen=True, repr=False)
class Model(core.Model):
    """An ONNX file with its card, its pipeline and, if deployed, the stages that were replaced.

    `guessed` lists what no card states and the reason for each guess.
    """

    stages: Pipeline | None = None  # None: the training pipeline
    deployment: tuple[str, ...] = ()  # what differs from it: resize=opencv-nearest
    _cache: PipelineCache = field(default_factory=PipelineCache, init=False, repr=False, compare=False)

    @property
    def pipeline(self) -> Pipeline:
        """The stages that the model runs with."""
        return self.stages or pipeline_of(self.card)

    @overload
    def predict(self, image: list[ImageLike], *, score: float = 0.25) -> list[Prediction]: ...

    @overload
    def predict(self, image: ImageLike, *, score: float = 0.25) -> Prediction: ...

    def predict(
        self, image: ImageLike | list[ImageLike], *, score: float = 0.25
    ) -> Prediction | list[Prediction]:
        """The prediction for an image: a path, encoded bytes, an array (h, w, 3) uint8 RGB or a PIL image.

        A list of images gives a list of predictions. Detections below `score` are dropped. An array or a PIL
        image skips the decode stage of the pipeline.
        """
        if isinstance(image, list):
            return [self.predict(one, score=score) for one in image]
        machine, prepared = self._prepared(image)
        return named(machine.predict(prepared), self, score)

    def tensor(self, image: ImageLike) -> Tensor:
        """The input tensor of the network for an image: compare it with a dump of the target."""
        return self._prepared(image)[1].tensor

    def _prepared(self, image: ImageLike) -> tuple[LoadedPipeline, PreparedImage]:
        machine, given = self._machine(), as_image(image)
        if isinstance(given, bytes):
            return machine, machine.prepare(given)
        machine = replace(machine, decode=lambda _: given)
        return machine, machine.prepare(b"")

    def deployed(
        self, *, calibration: Dataset | Iterable[Any] | str | None = None, **choices: str | Callable[..., Any]
    ) -> Model:
        """The model with stages of a deployed system, by noise family: resize="opencv-area".

        A function replaces the stage of its family. Integer precisions need calibration images: pass a
        dataset as `calibration`, or leave it to the functions that get data, which take images of it that are
        not tested on.
        """
        names = [family.name for family in families()]
        for name in choices:
            if name not in names:
                raise UnknownName("noise family", name, names)
        labels = [f"{family}={choice}" for family, choice in choices.items() if isinstance(choice, str)]
        chosen = options_of(",".join(labels))
        for one in chosen:
            if self.card.task not in one.tasks:
                raise InputError(f"{one.label}: does not apply to models of task {self.card.task!r}")
        functions = {family: choice for family, choice in choices.items() if not isinstance(choice, str)}
        stages = applied(self.pipeline, chosen).replace(**functions)
        if calibration is not None:
            from holdfast.api.data import dataset

            entries = dataset(calibration, task=self.card.task).entries
            entries = spread(entries, min(CALIBRATION_ITEMS, len(entries)))
            if not isinstance(stages.infer, DeployedInference):
                raise InputError("calibration: only integer precisions are calibrated; add precision='int8'")
            images = Calibration(entries, pipeline_of(self.card))
            stages = stages.replace(infer=replace(stages.infer, calibration=images))
        own = [f"{family}={choice.__name__}" for family, choice in functions.items()]
        others = [text for text in self.deployment if text.split("=")[0] not in choices]
        return replace(self, stages=stages, deployment=(*others, *(one.label for one in chosen), *own))

    def defended(
        self,
        defence: Certification | ClassCertification | MaskDefence | str | None = None,
        **settings: float | str,
    ) -> Model:
        """The model wrapped by masks, so that one patch does not change everything (see `holdfast.certify`).

        `defence` is the result of `holdfast.certify`, with its calibrated threshold. Else the settings are
        keywords: lines=30, squares=8, patch="1%", alpha=0.6, beta=0.0, score=0.25, prune=0.6;
        of a classifier squares=6 and patch="2%".
        """
        defences: dict[str, Any] = {"detect": MaskDefence, "classify": DoubleMasking}
        if self.card.task not in defences:
            got = f"got a model of task {self.card.task!r}"
            raise InputError(f"defended(): expected a detector or a classifier, {got}")
        text = defence if isinstance(defence, str) else ""
        if defence is not None and not isinstance(defence, str):
            text = str(defence if isinstance(defence, MaskDefence) else defence.about["defence"])
        elif settings:
            text = ",".join(f"{name}={value}" for name, value in settings.items())
        chosen = defences[self.card.task].parse(text.removeprefix("masks:"))
        others = [label for label in self.deployment if not label.startswith(DEFEND)]
        stages = replace(self.pipeline, defence=chosen)
        return replace(self, stages=stages, deployment=(*others, f"{DEFEND}{chosen}"))

    def _machine(self) -> LoadedPipeline:
        if "" not in self._cache:
            infer = self.pipeline.infer
            if isinstance(infer, DeployedInference) and infer.calibrated and infer.calibration is None:
                raise InputError(
                    f"{', '.join(self.deployment)}: integer precisions need calibration images; "
                    "pass them as model.deployed(…, calibration=dataset)"
                )
            self._cache[""] = load_pipeline(self.pipeline, self)
        return self._cache[""]

    def to_dict(self) -> dict[str, Any]:
        """Name, path, hash, card, guesses and pipeline as plain values."""
        from dataclasses import asdict

        return {
            "name": self.name,
            "path": str(self.path),
            "sha256": self.sha256,
            "card": asdict(self.card),
            "guessed": list(self.guessed),
            "pipeline": self.pipeline.describe(),
            "deployment": list(self.deployment),
        }

    def __repr__(self) -> str:
        size, card = self.card.input.size, self.card
        about = f"{card.task}, {size.width}×{size.height}, {len(card.classes)} classes"
        guessed = f", {len(self.guessed)} guessed" if self.guessed else ""
        deployed = f"; {', '.join(self.deployment)}" if self.deployment else ""
        return f"<Model {self.name}: {about}{guessed}{deployed}>"


def load(path: str | Path, card: str | Path | core.Card | None = None) -> Model:
    """A model: the path of an ONNX file, or the name of a shipped one such as "signs-yolo".

    `card` is the path of a model card, or a card. By default the card next to the model is read; without one,
    everything is guessed from the graph, and `model.guessed` says what and why.
    """
    if isinstance(card, core.Card):
        from holdfast.graph.inspect import inspect
        from holdfast.graph.load import check_card, find_model

        file = find_model(path)
        info = inspect(file)
        check_card(card, info)
        return Model(file.name.removesuffix(".gz").removesuffix(".onnx"), file, card, info.sha256)
    return as_model(load_model(path, Path(card) if card is not None else None))


def as_model(model: str | Path | core.Model, card: str | Path | core.Card | None = None) -> Model:
    """The model of an object, a path or a name."""
    if isinstance(model, str | Path):
        return load(model, card)
    if not isinstance(model, core.Model):
        raise InputError(f"model: expected a model, a path or a name, got {type(model).__name__}")
    if card is not None:
        raise InputError("card: the model is loaded already; pass the card to holdfast.load()")
    if isinstance(model, Model):
        return model
    return Model(model.name, model.path, model.card, sha256=model.sha256, guessed=model.guessed)


def as_image(image: ImageLike) -> bytes | Image:
    """Encoded bytes, or decoded pixels (h, w, 3) uint8 RGB; InputError for anything else."""
    if isinstance(image, str | PathLike):
        return read_image_file(str(image))
    if isinstance(image, bytes | bytearray | memoryview):
        return bytes(image)
    if hasattr(image, "convert"):  # of PIL, which need not be imported for this
        image = image.convert("RGB")
    pixels = np.asarray(image)
    if pixels.ndim != 3 or pixels.shape[2] != 3 or pixels.dtype != np.uint8 or not pixels.size:
        raise InputError(
            "image: expected a path, encoded bytes, a PIL image or an array (h, w, 3) uint8 in RGB order, "
            f"got {type(image).__name__} of shape {pixels.shape} and type {pixels.dtype.name}"
        )
    return pixels
