"""What the integer precisions of a diagnosis are calibrated on, and how: said wherever they are used."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.core.dataset import Dataset, Entry
from holdfast.core.model import Model
from holdfast.core.pipeline import Pipeline
from holdfast.noise.vision.choose import reserve
from holdfast.stages.deployed import Built, Calibration, Deployed


@dataclass(frozen=True)
class Calibrated:
    """How many images integer precisions were calibrated on, in words which, and by what method."""

    images: int
    on: str
    how: str = ""


def for_picture(
    model: Model, picture: Entry, spare: Dataset | None, train: Pipeline, images: int
) -> tuple[Calibration, str]:
    """Images of `spare` other than the picture, or the picture itself if there is none; and the words."""
    why = "give others by --calibration DATA"
    if spare is not None:
        tested = Dataset(picture.name, "picture", model.card.task, model.card.classes, (picture,))
        reserved = reserve(tested, spare, images)
        if reserved.items:
            return Calibration(reserved.items, train, reserved.lack), reserved.words
        why = f"{spare.name} holds no other"
    return Calibration((picture,), train), f"1 image, the picture itself ({why})"


def calibration_of(model: Model, words: str, *systems: Pipeline) -> Calibrated | None:
    """What was calibrated on and how, of systems that are ready to run; None if none has to be."""
    infers = [s.infer for s in systems if isinstance(s.infer, Deployed) and s.infer.calibrated]
    if not infers:
        return None
    images = max(len(infer.calibration.entries) for infer in infers if infer.calibration)
    how = dict.fromkeys(_method(infer.built(model)) for infer in infers)
    return Calibrated(images, words, "; ".join(how))


def _method(built: Built) -> str:
    unchanged = "" if built.changed else "nothing in the graph it could change"
    return "; ".join(built.how) or unchanged
