"""Models by name or path: the shipped ones, or the user's file with its card or with a guess."""

import dataclasses
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.core.errors import CardError, InputError, ModelError, UnknownName
from holdfast.core.model import Card, Model, existing_file
from holdfast.core.registry import lookup
from holdfast.graph.card import card_path, read_card
from holdfast.graph.guess import guess
from holdfast.graph.inspect import ModelInfo, image_input, inspect, rows

QUIET = -30.0  # as a logit it is no object; as a probability it is below every threshold


def check_card(card: Card, info: ModelInfo) -> None:
    """Raise a CardError naming the model if its input or outputs contradict the card."""
    tensor = image_input(info)
    width, height = card.input.size
    expected = (3, height, width) if card.input.layout == "nchw" else (height, width, 3)
    if any(isinstance(g, int) and g != w for g, w in zip(tensor.shape[-3:], expected, strict=True)):
        raise CardError(
            f"{info.path}: the card describes an input (1, {', '.join(map(str, expected))}) "
            f"({card.input.layout}, {width}×{height}), the model takes {tensor}; correct `size` or `layout`"
        )
    if tensor.dtype != card.input.dtype:
        described = f"the card describes an input of type {card.input.dtype}"
        raise CardError(f"{info.path}: {described}, the model takes {tensor}; correct `dtype`")
    if not all(t.static for t in info.outputs):
        return  # free shapes: the head checks what really comes out
    # The head checks its own requirements: decode outputs of these shapes that contain no detection.
    known = [(t, np.dtype(t.dtype)) for t in info.outputs if t.shape and t.dtype != "unknown"]
    quiet = {t.name: 0 if dtype.kind in "iub" else QUIET for t, dtype in known}
    raw = {t.name: np.full([1, *map(int, t.shape[1:])], quiet[t.name], dtype) for t, dtype in known}
    try:
        lookup("head", card.head.name)(raw, dataclasses.replace(card, score=1.0))
    except CardError as problem:
        raise CardError(f"{info.path}: {problem}") from None


def shipped() -> list[str]:
    """The names of the models that come with the package, sorted."""
    folder = _shipped_folder()
    return sorted(p.stem for p in folder.glob("*.onnx")) if folder.is_dir() else []


def _shipped_folder() -> Path:
    return Path(str(resources.files("holdfast"))) / "models"


def load_model(name_or_path: str | Path, card: Path | None = None) -> Model:
    """A shipped model by name, or an ONNX file with its card: `card`, the one next to it, or a guess."""
    path = find_model(name_or_path)
    info = inspect(path)
    card_file = card or card_path(path)
    used, guessed = (read_card(card_file), ()) if card_file else guess(path)
    check_card(used, info)
    return Model(path.name.removesuffix(".gz").removesuffix(".onnx"), path, used, info.sha256, guessed)


def find_model(name_or_path: str | Path) -> Path:
    """The file of a shipped model or of the user's (or its .gz), or an error that names the nearest one."""
    path = Path(name_or_path)
    if file := existing_file(path):
        return file
    if name_or_path in shipped():
        return _shipped_folder() / f"{name_or_path}.onnx"
    like_a_path = isinstance(name_or_path, Path) or path.suffix in (".onnx", ".gz") or len(path.parts) > 1
    if not like_a_path and not path.is_dir():
        raise UnknownName("model", str(name_or_path), shipped())
    what = "is a folder" if path.is_dir() else "no such model file"
    raise ModelError(f"{path}: {what}; give the path of an .onnx file or one of {', '.join(shipped())}")


@dataclass(frozen=True)
class ModelDescription:
    """The file's content and its card; without a card that fits, `problem` says why."""

    info: ModelInfo
    card: Card | None
    guessed: tuple[str, ...]
    problem: str

    def text(self) -> str:
        """The facts as plain lines of two columns."""
        lines = rows(self.info)
        if self.card is not None:
            image, names = self.card.input, self.card.classes
            listed = ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")
            reads = f"{image.size.width}×{image.size.height} {image.colour} {image.layout}, {image.policy}"
            lines += [("task", f"{self.card.task}, {len(names)} classes: {listed}"), ("reads", reads)]
            lines.append(("head", self.card.head.name))
        lines += [("guessed", line) for line in self.guessed]
        lines += [("problem", self.problem)] if self.problem else []
        return "\n".join(f"{name:14} {value}" for name, value in lines)

    def to_dict(self) -> dict[str, Any]:
        """The facts as plain values, for JSON."""
        fields = dataclasses.asdict(self)
        fields["info"]["path"] = str(self.info.path)
        return fields


def describe(name_or_path: str | Path, card: Path | None = None) -> ModelDescription:
    """The description of a model; an ONNX file is described even if no card fits it."""
    info = inspect(find_model(name_or_path))
    try:
        model = load_model(name_or_path, card)
    except InputError as problem:
        return ModelDescription(info, None, (), str(problem))
    return ModelDescription(info, model.card, model.guessed, "")
