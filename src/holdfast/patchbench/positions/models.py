"""Maps of a single-object model: its original file, its card, a picture and a patch of pixels."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from holdfast.core.errors import CardError, InputError, ModelError
from holdfast.core.model import Model
from holdfast.core.pipeline import Run, checked
from holdfast.core.registry import lookup
from holdfast.core.types import Bools, Detections, Floats, Image, Tensor
from holdfast.patchbench.graph import DetectorPorts, detector_of, image_input
from holdfast.patchbench.layout import Target, output_of
from holdfast.patchbench.positions.batches import Batches, noise, open_batches
from holdfast.patchbench.positions.sweep import PositionMap, SafetyRule, sweep, ties
from holdfast.stages.infer import onnxruntime
from holdfast.stages.normalise import card as normalise


@dataclass(frozen=True, eq=False)
class Detector:
    """A single-object model; `exact` runs its unmodified file."""

    model: Model
    exact: Run

    def tensor(self, pixels: Image) -> Tensor:
        """The network input of pixels (h, w, 3), without the batch."""
        return normalise(pixels, self.model.card.input)

    def predict(self, tensor: Tensor) -> Target:
        """The prediction of the user's file for one tensor (1, …)."""
        head = lookup("head", self.model.card.head.name)
        detections: Detections = head(checked(self.exact(tensor)), self.model.card)
        if not len(detections):
            raise ModelError(f"{self.model.path}: expected one detection in every picture, got none")
        best, sides = int(np.argmax(detections.scores)), np.array([*self.model.card.input.size] * 2)
        return Target.of(detections.classes[best], detections.boxes[best] / sides)

    def output(self, tensor: Tensor, target: Target) -> float:
        """IoU · equal(class) of the prediction of the user's file for one tensor (1, …)."""
        predicted = self.predict(tensor)
        return float(output_of([predicted.box], [predicted.label], target)[0])


@dataclass(frozen=True, eq=False)
class BatchDetector(Detector):
    """A detector that also runs batches of pictures; `ports` is None if only its head reads the outputs."""

    batches: Batches
    ports: DetectorPorts | None


def open_detector(model: Model) -> BatchDetector:
    """Open a model for maps; raise ModelError if it is no single-object detector."""
    import onnx

    card = model.card
    if card.task != "single":
        raise ModelError(
            f"{model.path}: expected a single-object detector (task single), got task {card.task}; "
            "signs-single is one"
        )
    proto = onnx.load_from_string(model.read())
    name = image_input(model, proto)
    width, height = card.input.size
    images = (255 * noise(height, width, 3)).astype(np.uint8)
    trial = np.stack([normalise(image, card.input) for image in images])
    batches = open_batches(proto, name, [port.name for port in proto.graph.output], trial)
    try:
        ports = detector_of(model, proto)
    except (CardError, ModelError):
        ports = None
    return BatchDetector(model, onnxruntime(model, 1), batches, ports)


def map_positions(
    detector: BatchDetector, image: Image, patch: Image, target: Target | None = None,
    bar: SafetyRule | None = None, jobs: int = 1, mask: Bools | None = None,
) -> PositionMap:  # fmt: skip
    """Map a patch (k, k, 3) over a picture (h, w, 3) of the network's own size, both uint8.

    Where the mask (k, k) is False the picture is visible. Default target: the prediction without the patch.
    """
    size = detector.model.card.input.size[::-1]
    if image.shape != (*size, 3) or image.dtype != np.uint8:
        raise InputError(f"expected a picture of {(*size, 3)} uint8, got {image.shape} {image.dtype}")
    fits = patch.ndim == 3 and patch.shape[2] == 3 and patch.dtype == np.uint8 and patch.size
    if not fits or patch.shape[0] > size[0] or patch.shape[1] > size[1]:
        raise InputError(
            f"expected a patch (k, k, 3) uint8, at most {size[0]}×{size[1]}, got {patch.shape} {patch.dtype}"
        )
    last = detector.model.card.input.layout == "nhwc"
    clean, content = detector.tensor(image)[np.newaxis], detector.tensor(patch)
    if mask is not None and not mask.all():
        hidden = ~mask[:, :, np.newaxis] if last else ~mask
        content = np.ma.array(content, mask=np.broadcast_to(hidden, content.shape))
    target, bar = target or detector.predict(clean), bar or SafetyRule()
    reading, replay = partial(read, detector, target=target), partial(detector.output, target=target)
    return sweep(detector.batches, clean, content, reading, replay, bar=bar, last=last, jobs=jobs)


def read(detector: BatchDetector, values: Sequence[Tensor], target: Target) -> tuple[Floats, Bools]:
    """IoU × equal (n,) of the network's outputs, (n, m) each, and where the class is nearly tied.

    If only the head can read the outputs, all are doubtful.
    """
    if detector.ports is None:
        return np.full(len(values[0]), np.nan), np.ones(len(values[0]), np.bool_)
    arrays = [np.asarray(value, np.float64) for value in values]
    raw = dict(zip(detector.batches.outputs, arrays, strict=True))
    boxes, scores = raw[detector.ports.box] * detector.ports.scale, raw[detector.ports.scores]
    finite = np.asarray(np.isfinite(boxes).all(axis=1))
    outputs = output_of(np.where(finite[:, None], boxes, 0.0), np.argmax(scores, axis=1), target)
    return outputs, ties(scores) | ~finite
