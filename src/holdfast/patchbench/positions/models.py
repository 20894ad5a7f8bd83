"""Maps of a single-object model: its original file, its card, a picture and a patch of pixels."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from holdfast.core.errors import InputError, ModelError
from holdfast.core.model import Model
from holdfast.core.pipeline import Run, checked
from holdfast.core.registry import lookup
from holdfast.core.types import Bools, Detections, Floats, Image, Ints, Tensor
from holdfast.graph.heads.landmark import Options, landmark
from holdfast.graph.outputs import options_of
from holdfast.graph.wire import read_graph
from holdfast.metrics.single import single_values
from holdfast.patchbench.network.layout import Target
from holdfast.patchbench.positions.local import Crops, open_crops
from holdfast.patchbench.positions.settle import settle, ties
from holdfast.patchbench.positions.sweep import Swept, sweep
from holdfast.patchbench.positions.trunk import Trunk, open_trunk, pasted
from holdfast.patchbench.positions.types import Bar, PositionMap
from holdfast.stages.infer import onnxruntime
from holdfast.stages.normalise import card as normalise


@dataclass(frozen=True, eq=False)
class Detector:
    """A single-object model opened: its file as it is (`exact`), and for many pictures (`trunk`)."""

    model: Model
    exact: Run
    head: Callable[[Mapping[str, Tensor], object], Detections]
    trunk: Trunk
    crops: dict[tuple[int, int], Crops | None] = field(default_factory=dict)  # by the patch's size

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns of the network's input."""
        width, height = self.model.card.input.size
        return height, width

    def tensor(self, pixels: Image) -> Tensor:
        """The pixels (h, w, 3) as they go into the network, without the batch."""
        return normalise(pixels, self.model.card.input)

    def says(self, tensor: Tensor) -> Target:
        """What the user's file says of one tensor (1, …)."""
        found = self.head(checked(self.exact(tensor)), self.model.card)
        if not len(found):
            raise ModelError(f"{self.model.path}: expected one detection in every picture, got none")
        best = int(np.argmax(found.scores))
        x1, y1, x2, y2 = (found.boxes[best] / np.array([*self.model.card.input.size] * 2)).tolist()
        return Target(int(found.classes[best]), (x1, y1, x2, y2))


def open_detector(model: Model) -> Detector:
    """The model opened for maps; ModelError if it is no single-object detector."""
    card = model.card
    if card.task != "single":
        raise ModelError(
            f"{model.path}: expected a single-object detector (task single), got task {card.task}; "
            "signs-single is one"
        )
    graph = read_graph(model.read())
    width, height = card.input.size
    last = card.input.layout == "nhwc"
    grey = normalise(np.full((height, width, 3), 128, np.uint8), card.input)[None]
    if len(graph.inputs) != 1:
        raise ModelError(f"{model.path}: expected one image input, got {len(graph.inputs)}")
    if graph.inputs[0].dims[:1] > (1,):
        raise ModelError(
            f"{model.path}: takes {graph.inputs[0].dims[0]} images at once; export it with a batch of 1"
        )
    trunk = open_trunk(
        graph, graph.inputs[0].name, grey, [output.name for output in graph.outputs], last=last
    )
    return Detector(model, onnxruntime(model, 1), lookup("head", card.head.name), trunk)


def map_positions(
    detector: Detector, image: Image, patch: Image, target: Target | None = None, bar: Bar | None = None,
    jobs: int = 1, mask: Bools | None = None,
) -> PositionMap:  # fmt: skip
    """The map of a patch (k, k, 3) over a picture (h, w, 3) of the network's own size, both uint8.

    Where a mask (k, k) is False the patch is seen through. The target is what the model says of the clean
    picture, unless another is given.
    """
    began, bar = time.perf_counter(), bar or Bar()
    height, width = detector.size
    _check(image, patch, (height, width))
    clean, content = detector.tensor(image)[None], detector.tensor(patch)
    if mask is not None and not mask.all():
        hidden = ~mask[:, :, np.newaxis] if detector.trunk.last else ~mask
        content = np.ma.array(content, mask=np.broadcast_to(hidden, content.shape))
    target = target or detector.says(clean)
    before = _value(detector.says(clean), target)
    size = patch.shape[0], patch.shape[1]
    if size not in detector.crops:
        detector.crops[size] = open_crops(detector.trunk, size, {})
    swept = sweep(detector.trunk, detector.crops[size], clean, content, {}, jobs)
    outputs, doubtful = read(detector, swept, target)

    def replay(i: int) -> float:
        picture = pasted(detector.trunk, clean, content, swept.spots[i : i + 1])
        return _value(detector.says(picture), target)

    whole: Floats = np.full(swept.changed.shape, before)
    replayed, difference, how = 0, 0.0, swept.how
    if len(outputs):
        settled = settle(outputs, doubtful, bar, replay)
        whole[swept.changed] = settled.outputs
        replayed, difference = settled.replayed, settled.difference
        how = swept.how if settled.believed else "one by one"
    rows, columns = np.arange(float(whole.shape[0])), np.arange(float(whole.shape[1]))
    unchanged = int((~swept.changed).sum())
    seconds = time.perf_counter() - began
    return PositionMap(whole, rows, columns, bar, before, unchanged, replayed, difference, how, seconds)


def position_map(
    model: Model, image: Image, target: Target | None, patch: Image, bar: Bar | None = None, jobs: int = 1
) -> Floats:
    """The outputs iou × equal (rows, columns) for every position of the patch's top left corner."""
    return map_positions(open_detector(model), image, patch, target, bar, jobs).outputs


def _check(image: Image, patch: Image, size: tuple[int, int]) -> None:
    if image.shape != (*size, 3) or image.dtype != np.uint8:
        raise InputError(f"expected a picture of {(*size, 3)} uint8, got {image.shape} {image.dtype}")
    fits = patch.ndim == 3 and patch.shape[2] == 3 and patch.dtype == np.uint8 and patch.size
    if not fits or patch.shape[0] > size[0] or patch.shape[1] > size[1]:
        raise InputError(
            f"expected a patch (k, k, 3) uint8, at most {size[0]}×{size[1]}, got {patch.shape} {patch.dtype}"
        )


def _value(said: Target, target: Target) -> float:
    return float(single_values([said.box], [said.label], [target.box], [target.label])[0])


def read(detector: Detector, swept: Swept, target: Target) -> tuple[Floats, Bools]:
    """IoU × equal of every swept position (n,), and where the class is nearly a tie."""
    count = len(swept.spots)
    if not count:
        return np.zeros(0), np.zeros(0, np.bool_)
    boxes, classes, doubtful = _landmarks(detector, swept) or _one_by_one(detector, swept)
    good = np.asarray(np.isfinite(boxes).all(axis=1))
    boxes = np.where(good[:, None], boxes, 0.0)
    outputs = single_values(boxes, classes, np.repeat([target.box], count, 0), np.repeat(target.label, count))
    return outputs, doubtful | ~good


def _landmarks(detector: Detector, swept: Swept) -> tuple[Floats, Ints, Bools] | None:
    """Boxes in 0 … 1, classes and ties, read from the landmark head's two outputs at once."""
    card = detector.model.card
    if detector.head is not landmark or len(swept.values) != 2:
        return None
    chosen = options_of(Options, card)
    flat = {
        name: np.asarray(value, np.float64).reshape(len(swept.spots), -1)
        for name, value in zip(detector.trunk.outputs, swept.values, strict=True)
    }
    order: Sequence[str] = chosen.outputs or _by_width(flat, len(card.classes))
    box, scores = (flat.get(name) for name in order)
    if box is None or scores is None or box.shape[1] != 4 or scores.shape[1] != len(card.classes):
        return None
    unit = 1.0 if chosen.normalised else np.array([*card.input.size] * 2, np.float64)
    return box / unit, np.argmax(scores, axis=1), ties(scores)


def _by_width(flat: Mapping[str, Floats], classes: int) -> Sequence[str]:
    first, second = flat
    swap = flat[first].shape[1] == classes != 4 or first == "scores" or second == "box"
    return (second, first) if swap else (first, second)


def _one_by_one(detector: Detector, swept: Swept) -> tuple[Floats, Ints, Bools]:
    """The same by the card's head, picture by picture; a head that says no scores leaves all in doubt."""
    unit = np.array([*detector.model.card.input.size] * 2, np.float64)
    boxes, classes = np.full((len(swept.spots), 4), np.nan), np.full(len(swept.spots), -1)
    for i in range(len(swept.spots)):
        raw = {n: v[i : i + 1] for n, v in zip(detector.trunk.outputs, swept.values, strict=True)}
        found = detector.head(raw, detector.model.card)
        if len(found):
            best = int(np.argmax(found.scores))
            boxes[i], classes[i] = found.boxes[best] / unit, found.classes[best]
    return boxes, classes, np.ones(len(swept.spots), np.bool_)
