"""The common mistakes of a deployment's preprocessing, as changes of a preparation."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from holdfast.core.model import Input
from holdfast.core.pipeline import LETTERBOXES, Pipeline, frame_of
from holdfast.core.types import Size
from holdfast.diagnose.geometry import Placement
from holdfast.diagnose.moves import installed
from holdfast.diagnose.preparation import GREY, Preparation
from holdfast.diagnose.values import normalisations

Apply = Callable[[Preparation, Size, Input], Preparation]


@dataclass(frozen=True)
class Change:
    """A mistake by name, its kind, and what it changes in a preparation for an image of a size."""

    name: str
    kind: str
    apply: Apply


def preparation_changes(spec: Input, pipeline: Pipeline) -> Iterator[Change]:
    """The mistakes that differ from what the model wants."""
    yield Change("channels swapped", "channels", lambda prep, *_: replace(prep, channels=prep.channels[::-1]))
    yield Change("grey", "channels", lambda prep, *_: replace(prep, channels=(GREY,) * 3))
    for plane in range(3):
        yield Change(f"channel {plane} dropped", "channels", _dropped(plane))
    for name in normalisations():
        yield Change(name, "range", _normalised(name))
    yield Change("limited range", "range", _limited)
    yield Change("expanded range", "colour", lambda prep, *_: replace(prep, expanded=True))
    for name in set(installed("colour")) - {str(pipeline.colour)}:
        yield Change(f"colour {name}", "colour", _recoloured(name))
    policies: dict[str, dict[str, Any]] = {
        "stretch": {"policy": "stretch"},
        "letterbox, corner": {"policy": "letterbox", "place": "corner"},
        "letterbox, centre": {"policy": "letterbox", "place": "centre"},
        "crop": {"policy": "crop", "short_side": None},
    }
    for name, values in policies.items():
        if any(getattr(spec, key) != value for key, value in values.items()):
            yield Change(name, "geometry", _placed(values))
    yield Change("truncated", "geometry", _truncated)
    for pad in {0, 114, 128, 255} - {spec.pad} if spec.policy in LETTERBOXES else ():
        yield Change(f"pad {pad}", "pad", _padded(pad))
    yield Change("mirrored", "flip", lambda prep, *_: replace(prep, orientation=2))
    yield Change("upside down", "flip", lambda prep, *_: replace(prep, orientation=4))
    for power in (2.2, 1 / 2.2):
        yield Change(f"gamma {power:.2g}", "gamma", _curved(power, last=False))
        yield Change(f"gamma {power:.2g} after resizing", "gamma", _curved(power, last=True))
    for name in ("opencv-nearest", "opencv-area", "opencv-bicubic", "opencv-bilinear", "pillow-bilinear"):
        if name != str(pipeline.resize) and name in installed("resize"):
            yield Change(f"resize {name}", "resize", _resized(name))
    yield Change("resized twice", "twice", _halved)


def _normalised(name: str) -> Apply:
    gains, offsets = normalisations()[name]

    def apply(prep: Preparation, _: Size, spec: Input) -> Preparation:
        order = [int(np.argmax(source)) for source in prep.channels]
        gain = tuple(float(gains[k]) for k in order)
        return replace(prep, gain=gain, offset=tuple(float(offsets[k]) for k in order))

    return apply


def _placed(values: dict[str, Any]) -> Apply:
    def apply(prep: Preparation, image: Size, spec: Input) -> Preparation:
        changed: Input = replace(spec, **values)
        return replace(prep, placement=_placement(image, changed))

    return apply


def _placement(image: Size, spec: Input) -> Placement:
    frame = frame_of(image, spec)
    return Placement(frame.offset_x, frame.offset_y, frame.resized.width, frame.resized.height)


def _truncated(prep: Preparation, image: Size, spec: Input) -> Preparation:
    ratio = min(spec.size.width / image.width, spec.size.height / image.height)
    at = replace(
        prep.placement, width=float(int(image.width * ratio)), height=float(int(image.height * ratio))
    )
    return replace(prep, placement=at) if spec.policy in LETTERBOXES else prep


def _padded(pad: int) -> Apply:
    return lambda prep, *_: replace(prep, pad=(float(pad),) * len(prep.pad))


def _dropped(plane: int) -> Apply:
    def apply(prep: Preparation, *_: Any) -> Preparation:
        channels, pad = list(prep.channels), list(prep.pad)
        channels[plane], pad[plane] = (0.0, 0.0, 0.0), 0.0
        return replace(prep, channels=tuple(channels), pad=tuple(pad))

    return apply


def _limited(prep: Preparation, *_: Any) -> Preparation:
    """Levels compressed to 16 to 235."""
    offset = tuple(offset + 16 * gain for offset, gain in zip(prep.offset, prep.gain, strict=True))
    return replace(prep, gain=tuple(gain * 219 / 255 for gain in prep.gain), offset=offset)


def _recoloured(name: str) -> Apply:
    return lambda prep, *_: replace(prep, colour=name)


def _curved(power: float, *, last: bool) -> Apply:
    return lambda prep, *_: replace(prep, gamma=power, gamma_last=last)


def _resized(name: str) -> Apply:
    return lambda prep, *_: replace(prep, resize=name)


def _halved(prep: Preparation, image: Size, spec: Input) -> Preparation:
    half = Size(max(8, round(image.width / 2)), max(8, round(image.height / 2)))
    return replace(prep, through=half, placement=_placement(half, spec))
