"""Which instances a benchmark is made of: from the test part, found by the model, drawn by the seed."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from holdfast.core.dataset import Dataset, Entry
from holdfast.core.errors import DataError, ImageError
from holdfast.core.frame import place
from holdfast.core.model import Model
from holdfast.core.pipeline import Prepared, open_machine, pipeline_of
from holdfast.core.types import Boxes, Detections, Image
from holdfast.evaluate.classes import Alignment
from holdfast.metrics.boxes import single_values
from holdfast.patchbench.network.layout import THRESHOLD, Target

SHARE = 10  # one instance of so many is of the test part
_TRAINED = 1  # the seed of the scenes on which the shipped models were trained
Step = Callable[[int, int], None]


@dataclass(frozen=True, eq=False)
class Picture:
    """An instance as the network sees it: image (h, w, 3), its truth, what the model finds, their IoU."""

    name: str
    source: str
    image: Image
    truth: Target
    found: Target
    iou: float
    extent: tuple[float, float, float, float]  # the original image inside the picture, xyxy in parts of it


@dataclass(frozen=True)
class Drawn:
    """The pictures drawn, and how many were there to draw from."""

    pictures: tuple[Picture, ...]
    instances: int
    test: int
    looked_at: int
    fitting: int  # of those looked at
    failed: tuple[str, ...]  # files that could not be read
    how: str


def test_part(entries: Sequence[Entry], seed: int, whole: bool) -> list[Entry]:
    """The instances of the test part in the order in which they are drawn.

    Both depend on the seed and on the names alone: instances are put in the order of a hash of both, and the
    first tenth (rounded up) is the test part of a 9:1 division. `whole`: all of them are.
    """
    order = sorted(entries, key=lambda entry: (_rank(entry.name, seed), entry.name))
    return order if whole else order[: -(-len(order) // SHARE)]


def _rank(name: str, seed: int) -> bytes:
    return hashlib.sha256(f"patchbench/{seed}/{name}".encode(errors="surrogateescape")).digest()


def draw(
    model: Model,
    data: Dataset,
    alignment: Alignment,
    count: int,
    seed: int,
    *,
    whole: bool = False,
    step: Step = lambda done, reused: None,
) -> Drawn:
    """The first `count` instances of the test part with IoU > 0.5 and the right class; DataError if fewer."""
    embedded = data.format == "signs"
    part = test_part(data.entries, seed, whole or embedded)
    found: list[Picture] = []
    failed: list[str] = []
    looked = 0
    for picture in _seen(model, part, alignment, failed):
        looked += 1
        if picture is None or picture.iou <= THRESHOLD or picture.truth.label != picture.found.label:
            continue
        found.append(picture)
        step(1, 0)
        if len(found) == count:
            break
    if len(found) < count:
        fewer = f"ask for fewer (--images {len(found)}) or " if found else ""
        more = "" if whole or embedded else "; --held-out takes all of them as test"
        raise DataError(
            f"{data.name}: expected {count} instances with IoU > {THRESHOLD} and the right class, got "
            f"{len(found)} of the {len(part):,} in the test part (of {len(data):,} in all); "
            f"{fewer}give more data{more}"
        )
    how = f"the first tenth of {len(data):,} instances by a hash of seed and name (9:1)"
    if whole or embedded:
        # The shipped models were trained on scenes of one seed alone: nothing has to be set apart.
        trained = {getattr(entry, "seed", None) for entry in part} == {_TRAINED}
        seen = (
            "of the seed the shipped models were trained on" if trained else "no shipped model was trained on"
        )
        why = f"drawn scenes {seen}" if embedded else "said to be held out"
        how = f"all {len(data):,} instances of {data.name} ({why})"
    names = _unique([picture.name for picture in found])
    pictures = tuple(
        Picture(name, p.source, p.image, p.truth, p.found, p.iou, p.extent)
        for name, p in zip(names, found, strict=True)
    )
    ordered = tuple(sorted(pictures, key=lambda picture: picture.name))
    return Drawn(ordered, len(data), len(part), looked, len(found), tuple(failed), how)


def _seen(
    model: Model, part: Sequence[Entry], alignment: Alignment, failed: list[str]
) -> Iterator[Picture | None]:
    """Each instance as the network sees it; None if it cannot be used."""
    machine = open_machine(pipeline_of(model.card), model, threads=1)
    unit = np.array([*model.card.input.size] * 2, np.float64)
    of_model = {int(at): i for i, at in enumerate(alignment.of_model) if at >= 0}
    for entry in part:
        try:
            sample = entry.load()
            pixels = machine.colour(machine.decode(sample.data))
            image, frame = place(pixels, model.card.input, machine.resize)
            tensor = machine.normalise(image, model.card.input)[np.newaxis]
            found = machine.predict(Prepared(tensor, frame))
        except ImageError as problem:
            failed.append(str(problem))
            yield None
            continue
        truth = sample.truth
        if not isinstance(truth, Boxes) or len(truth) != 1 or not isinstance(found, Detections):
            yield None
            continue
        label = of_model.get(int(alignment.of_data[truth.classes[0]]), -1)
        if len(found) != 1 or label < 0:
            yield None
            continue
        iou = float(single_values(found.boxes, found.classes, truth.xyxy, [label])[0])
        width, height = frame.original
        extent = _corners(frame.to_network(np.array([[0.0, 0.0, width, height]]))[0] / unit)
        boxes = [frame.to_network(one.reshape(1, 4))[0] / unit for one in (truth.xyxy, found.boxes)]
        wanted, seen = (
            Target(c, _corners(b)) for c, b in zip((label, int(found.classes[0])), boxes, strict=True)
        )
        yield Picture(_plain(entry.name), entry.name, np.ascontiguousarray(image), wanted, seen, iou, extent)


def _corners(box: np.ndarray) -> tuple[float, float, float, float]:
    x1, y1, x2, y2 = map(float, box)
    return x1, y1, x2, y2


def _plain(name: str) -> str:
    """A name that may be part of a file's: letters, digits, dot, hyphen and underscore."""
    stem = name.rpartition(".")[0] or name
    return re.sub(r"[^A-Za-z0-9.\-]+", "_", stem).strip("._") or "image"


def _unique(names: list[str]) -> list[str]:
    """The names, those met before with a number behind them."""
    made: list[str] = []
    for name in names:
        new, number = name, 2
        while new in made:
            new, number = f"{name}-{number}", number + 1
        made.append(new)
    return made
