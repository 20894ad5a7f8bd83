"""A network of the benchmark against numpy: patch, detector and IoU, each computed apart from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import InputError, ModelError
from holdfast.core.model import Card, Head, Input, read_onnx
from holdfast.core.patch import Patch, Spot, apply
from holdfast.core.registry import lookup, part
from holdfast.core.types import Detections, Image, Size
from holdfast.graph.inspect import read_proto
from holdfast.graph.nodes import part_of
from holdfast.graph.session import condense
from holdfast.patchbench.network.folder import Instance
from holdfast.patchbench.network.output import output_of
from holdfast.patchbench.network.probe import Effect, Probe, clean_picture, effect_of, open_probe
from holdfast.verify.replay import session_of

Values = NDArray[np.float32]
FEW = (0, 0.25, 0.5, 0.75, 1)  # of a range: where the picture without a patch is looked for


@dataclass(frozen=True, eq=False)
class Opened:
    """A network taken apart: as a whole, up to the picture it reads, and from there on."""

    model: Any  # onnx.ModelProto
    whole: Any
    probe: Probe
    tail: Any
    effect: Effect

    def output(self, point: Values) -> float:
        """The output for a flat input."""
        return _first(self.whole, {self.probe.input: point})

    def after(self, picture: Values, point: Values) -> float:
        """The output if the network proper reads this picture; the target is the point's."""
        given = {self.probe.tensor: picture, self.probe.input: point}
        names = {value.name for value in self.tail.get_inputs()}
        fed = {name: value for name, value in given.items() if name in names}
        return _first(self.tail, fed)


def _first(session: Any, given: Mapping[str, Values]) -> float:
    """The first output of a session."""
    try:
        return float(np.asarray(session.run(None, dict(given))[0]).ravel()[0])
    except Exception as problem:  # noqa: BLE001 - onnxruntime's errors have no common class
        raise ModelError(f"onnxruntime cannot run it: {condense(problem)}") from None


def opened(network: Path, instance: Instance) -> Opened:
    """The network with what its position inputs do, seen over the range of an instance."""
    model = read_proto(network)
    point = instance.point.astype(np.float32)
    probe = open_probe(model, len(point))
    height, width = instance.image.shape[:2]
    first, second = _some(instance.columns, width), _some(instance.rows, height)
    effect = effect_of(probe, point, first, second)
    example = probe.picture(point)
    outputs = [port.name for port in model.graph.output]
    tail = part_of(model, {probe.tensor: example, probe.input: point}, outputs)
    whole, after = session_of(read_onnx(network)), session_of(tail.SerializeToString())
    return Opened(model, whole, probe, after, effect)


def _some(ends: tuple[float, float], extent: int) -> list[int]:
    """Whole positions to look at: near both ends of the range, and between."""
    low, high = int(ends[0]), int(ends[1])
    if low == high:  # a place that is fixed: moved anyway, to see what it does
        low, high = 0, extent - 1
    wanted = [*range(low, low + 5), *(low + round((high - low) * f) for f in FEW), *range(high - 4, high + 1)]
    return sorted({at for at in wanted if low <= at <= high})


def clean_output(network: Opened, instance: Instance, image: Image) -> float:
    """The output for the picture without a patch."""
    at = 3 * image.shape[0] * image.shape[1]
    base = instance.point.astype(np.float32)
    if instance.free:
        base[:at] = (
            np.ascontiguousarray(image.transpose(2, 0, 1)).astype(np.float32) / np.float32(255)
        ).ravel()
    height, width = image.shape[:2]
    columns, rows = _some(instance.columns, width), _some(instance.rows, height)
    return network.after(clean_picture(network.probe, base, columns, rows), base)


def as_described(network: Opened, instance: Instance, at: tuple[int, int]) -> tuple[float, float]:
    """The output at a position, and the one with the benchmark's own text: a black square laid there."""
    height, width = instance.image.shape[:2]
    point = instance.point.astype(np.float32)
    pixels = 3 * height * width
    point[pixels : pixels + 2] = at
    picture = point[:pixels].reshape(1, 3, height, width).copy()
    side = network.effect.patch
    picture[:, :, at[1] : at[1] + side.height, at[0] : at[0] + side.width] = 0.0
    shape = network.probe.picture(point).shape
    if shape != picture.shape:
        picture = picture.transpose(0, 2, 3, 1)
    return network.output(point), network.after(picture.reshape(shape), point)


@dataclass(frozen=True, eq=False)
class Apart:
    """The detector inside our network run by itself, fed by numpy and read by its card's head."""

    card: Card
    run: Any
    input: str
    outputs: tuple[str, ...]

    def output(self, instance: Instance, image: Image) -> float:
        """IoU · equal(class) of what the detector finds on an image, computed in numpy."""
        wanted = self.card.input
        tensor = lookup("normalise", "card")(image, wanted)[np.newaxis]
        raw = dict(zip(self.outputs, self.run.run(list(self.outputs), {self.input: tensor}), strict=True))
        found = part("head", self.card.head.name).function(raw, self.card)
        if not isinstance(found, Detections):
            return float("nan")
        boxes = found.boxes / np.array([*wanted.size] * 2, np.float64)
        return float(output_of(boxes, found.classes, instance.target)[0])


def apart(model: Any, manifest: Mapping[str, Any]) -> Apart:
    """The detector of a network of ours, cut out of it."""
    inside = manifest["model"]
    card = card_of(inside["card"])
    names = tuple(inside["outputs"])
    w, h = card.input.size
    shape = (1, 3, h, w) if card.input.layout == "nchw" else (1, h, w, 3)
    example = np.zeros(shape, card.input.dtype)
    detector = part_of(model, {inside["input"]: example}, names)
    return Apart(card, session_of(detector.SerializeToString()), inside["input"], names)


def card_of(plain: Mapping[str, Any]) -> Card:
    """The card that a manifest holds."""
    try:
        given = dict(plain["input"])
        given |= {"size": Size(*given["size"]), "mean": tuple(given["mean"]), "std": tuple(given["std"])}
        head = Head(plain["head"]["name"], dict(plain["head"]["options"]))
        rest = {key: value for key, value in plain.items() if key not in ("input", "head", "classes")}
        return Card(input=Input(**given), head=head, classes=tuple(plain["classes"]), **rest)
    except (KeyError, TypeError, ValueError) as problem:
        raise InputError(
            f"manifest.json: expected the model's card, got one with a fault: {problem}"
        ) from None


def laid(image: Image, patch: Patch, at: tuple[int, int]) -> Image:
    """The image with the patch's left upper corner at (column, row)."""
    return apply(image, Patch(patch.pixels, patch.mask, Spot(*at)))
