"""Maps of every patch position for a benchmark folder, or for a model on a dataset."""

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from holdfast.core.dataset import Dataset
from holdfast.core.errors import ImageError
from holdfast.core.model import Model
from holdfast.core.model import Network as File
from holdfast.core.patch import Patch
from holdfast.core.pipeline import pipeline_of, place
from holdfast.core.registry import lookup
from holdfast.core.types import Image
from holdfast.engine.executor import Progress, silent
from holdfast.graph.inspect import read_proto
from holdfast.patchbench.folder import Benchmark, instances
from holdfast.patchbench.folder import Instance as Listed
from holdfast.patchbench.layout import Target
from holdfast.patchbench.positions.files import Network, described_map, effect, file_map, open_instance
from holdfast.patchbench.positions.models import map_positions, open_detector
from holdfast.patchbench.positions.sweep import PositionMap, SafetyRule
from holdfast.verify.vnnlib.read import read_vnnlib
from holdfast.verify.vnnlib.spec import property_of

Kind: TypeAlias = Literal["position", "file", "described"]

WORDS: dict[Kind, str] = {
    "position": "patch at every position",
    "file": "position input of the file",
    "described": "square patch as described",
}


@dataclass(frozen=True, eq=False)
class MapView:
    """One map of an image: its kind, the effect of a position in words, and whether its axes are pixels."""

    kind: Kind
    map: PositionMap
    patch: tuple[int, int]
    over: bool = True  # whether its axes are rows and columns of the picture
    words: str = ""


@dataclass(frozen=True, eq=False)
class ImageMaps:
    """An image (h, w, 3), its target and its maps, or the reason why it has none."""

    name: str
    picture: Image
    target: Target | None
    label: str
    maps: tuple[MapView, ...]
    trouble: str = ""


@dataclass(frozen=True, eq=False)
class PositionResult:
    """All maps of one evaluation."""

    subject: str
    source: str
    content: str
    pictures: tuple[ImageMaps, ...]
    seconds: float
    notes: tuple[str, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)

    def of(self, kind: Kind) -> list[PositionMap]:
        """The maps of one kind."""
        return [view.map for image in self.pictures for view in image.maps if view.kind == kind]

    @property
    def kinds(self) -> list[Kind]:
        """The kinds of maps there are."""
        return [kind for kind in WORDS if self.of(kind)]


def evaluate_model(
    model: Model,
    data: Dataset,
    patch: Patch,
    *,
    bar: SafetyRule | None = None,
    jobs: int = 1,
    content: str = "black",
    step: Progress = silent,
) -> PositionResult:
    """Map a patch on every preprocessed image; targets are the predictions without the patch."""
    began, detector = time.perf_counter(), open_detector(model)
    size = patch.mask.shape[0], patch.mask.shape[1]
    pipeline, card = pipeline_of(model.card), model.card
    decode, resize = lookup("decode", pipeline.decode), lookup("resize", pipeline.resize)
    pictures = []
    for entry in data.entries:
        try:
            pixels = np.ascontiguousarray(place(decode(entry.load().data), card.input, resize)[0])
            target = detector.predict(detector.tensor(pixels)[None])
            position_map = map_positions(detector, pixels, patch.pixels, target, bar, jobs, patch.mask)
            view = MapView("position", position_map, size)
            pictures.append(ImageMaps(entry.name, pixels, target, _label(card.classes, target), (view,)))
        except ImageError as problem:  # unreadable, or the network returns NaN
            blank = np.zeros((1, 1, 3), np.uint8)
            pictures.append(ImageMaps(entry.name, blank, None, "", (), str(problem)))
        step(1, 0)
    facts = {"model": model.name, "sha256": model.sha256, "patch": list(size)}
    notes = (f"one by one: {detector.batches.why}",) if detector.batches.why else ()
    seconds = time.perf_counter() - began
    return PositionResult(model.name, data.name, content, tuple(pictures), seconds, notes, facts)


def _label(classes: Sequence[str], target: Target) -> str:
    return classes[target.label] if 0 <= target.label < len(classes) else f"class {target.label}"


def evaluate_bench(
    bench: Benchmark, *, images: int | None = None, jobs: int = 1, step: Progress = silent
) -> PositionResult:
    """Map every instance of a benchmark folder, ours or published.

    If the position input of its file places a square on the picture as described, there is one map. Otherwise
    there are two: the actual effect of the file, and the described patch.
    """
    began = time.perf_counter()
    networks: dict[Path, Network] = {}
    classes = bench.manifest["model"]["card"]["classes"] if bench.manifest else ()
    dark = not bench.manifest or bench.manifest["content"] == "black"
    pictures = []
    for instance in islice(instances(bench), images):
        pictures.append(_instance(instance, networks, classes, dark, jobs))
        step(1, 0)
    subject, source = bench.folder.resolve().name, ", ".join(sorted({path.name for path in networks}))
    facts = {"folder": bench.folder.name, "instances": len(pictures)}
    seconds = time.perf_counter() - began
    return PositionResult(subject, source, "the file's own", tuple(pictures), seconds, facts=facts)


def _instance(
    listed: Listed, networks: dict[Path, Network], classes: Sequence[str], dark: bool, jobs: int
) -> ImageMaps:
    """Map one instance; `dark`: the described patch is a black square."""
    patch = listed.patch.height, listed.patch.width
    name, label = f"{listed.name} ({patch[1]}×{patch[0]})", _label(classes, listed.target)
    image_maps = partial(ImageMaps, name, listed.image, listed.target, label)
    if listed.free:
        return image_maps((), "the patch's content is free: holdfast verify decides that")
    question = property_of(read_vnnlib(listed.spec), File(listed.network.name, listed.network))
    if listed.network not in networks:
        networks[listed.network] = Network(read_proto(listed.network))
    instance = open_instance(question, networks[listed.network], SafetyRule(listed.threshold, listed.strict))
    measured = effect(instance)
    position_map, square = file_map(instance, measured, jobs)
    first = MapView("position" if square else "file", position_map, patch, square, measured.words)
    if square:
        return image_maps((first,))
    # The described patch: as measured on the file, or black if the benchmark uses a black square.
    clean, content = measured.clean, measured.content
    if content is None or content.shape[1:] != patch:
        content = np.zeros((clean.shape[1], *patch), clean.dtype) if dark and clean is not None else None
    if clean is None or content is None:
        message = "what is described cannot be run: the file shows no picture without a patch, or no patch"
        return image_maps((first,), message)
    described = described_map(instance, clean, content, jobs)
    return image_maps((first, MapView("described", described, patch, words="a square patch")))


def rows_of(result: PositionResult) -> Iterator[tuple[ImageMaps, MapView]]:
    """Every map with its picture."""
    for image in result.pictures:
        for view in image.maps:
            yield image, view


def as_dict(result: PositionResult) -> dict[str, Any]:
    """The result as plain values, with every output of every map."""
    return {
        "subject": result.subject,
        "source": result.source,
        "content": result.content,
        "seconds": round(result.seconds, 3),
        "notes": list(result.notes),
        **result.facts,
        "maps": [_plain(image, view) for image, view in rows_of(result)],
        "without": {image.name: image.trouble for image in result.pictures if image.trouble},
    }


def _plain(image: ImageMaps, view: MapView) -> dict[str, Any]:
    position_map, target = view.map, image.target
    names = ("row", "column") if view.over else ("first", "second")
    return {
        "name": image.name,
        "what": WORDS[view.kind],
        "position_does": view.words,
        "patch": list(view.patch),
        "rule": str(position_map.bar),
        "target": {"class": target.label, "box": list(target.box)} if target else None,
        "status": position_map.status,
        "sat": position_map.status == "violated",
        "clean": _number(position_map.clean),
        "minimum": _number(position_map.minimum),
        "minimum_at": dict(zip(names, position_map.worst, strict=True)),
        "positions": position_map.outputs.size,
        "unsafe": int(position_map.unsafe.sum()),
        "robust_area_percent": 100 * position_map.robust,
        "unchanged": position_map.unchanged,
        "replayed": position_map.replayed,
        "largest_difference": position_map.difference,
        "how": position_map.how,
        "axes": {names[0]: position_map.rows.tolist(), names[1]: position_map.columns.tolist()},
        "outputs": [[_number(value) for value in line] for line in position_map.outputs.tolist()],
    }


def _number(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 7)
