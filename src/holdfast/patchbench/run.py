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
from holdfast.core.frame import place
from holdfast.core.model import Model
from holdfast.core.model import Network as File
from holdfast.core.patch import Patch
from holdfast.core.pipeline import pipeline_of
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
    over: bool = True  # its rows and columns are those of the picture
    words: str = ""


@dataclass(frozen=True, eq=False)
class ImageMaps:
    """An image (h, w, 3), its target and its maps, or why it has none."""

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
        return [shown.map for one in self.pictures for shown in one.maps if shown.kind == kind]

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
    """The maps of a patch on every image as the network sees it; targets are what it says without."""
    began, detector = time.perf_counter(), open_detector(model)
    size = patch.mask.shape[0], patch.mask.shape[1]
    pipeline, card = pipeline_of(model.card), model.card
    decode, resize = lookup("decode", pipeline.decode), lookup("resize", pipeline.resize)
    made = []
    for entry in data.entries:
        try:
            pixels = place(decode(entry.load().data), card.input, resize)[0]
            target = detector.says(detector.tensor(pixels)[None])
            pixels = np.ascontiguousarray(pixels)
            found = map_positions(detector, pixels, patch.pixels, target, bar, jobs, patch.mask)
            shown = MapView("position", found, size)
            made.append(ImageMaps(entry.name, pixels, target, _label(card.classes, target), (shown,)))
        except ImageError as problem:  # one that cannot be read, or at which the network says no number
            made.append(
                ImageMaps(
                    entry.name, np.zeros((1, 1, 3), np.uint8), None, label="", maps=(), trouble=str(problem)
                )
            )
        step(1, 0)
    facts = {"model": model.name, "sha256": model.sha256, "patch": list(size)}
    notes = (f"one by one: {detector.batches.why}",) if detector.batches.why else ()
    return PositionResult(
        subject=model.name,
        source=data.name,
        content=content,
        pictures=tuple(made),
        seconds=time.perf_counter() - began,
        notes=notes,
        facts=facts,
    )


def _label(classes: Sequence[str], target: Target) -> str:
    return classes[target.label] if 0 <= target.label < len(classes) else f"class {target.label}"


def evaluate_bench(
    bench: Benchmark, *, images: int | None = None, jobs: int = 1, step: Progress = silent
) -> PositionResult:
    """The maps of every instance of a benchmark folder, ours or published.

    If the position input of its file places a square on the picture as described, there is one map. If it
    does something else there are two: what the file does, and what the description says.
    """
    began = time.perf_counter()
    networks: dict[Path, Network] = {}
    ours = bench.manifest
    classes = ours["model"]["card"]["classes"] if ours else ()
    dark = not ours or ours["content"] == "black"
    made = []
    for instance in islice(instances(bench), images):
        made.append(_instance(instance, networks, classes, dark, jobs))
        step(1, 0)
    return PositionResult(
        subject=bench.folder.resolve().name,
        source=", ".join(sorted({path.name for path in networks})),
        content="the file's own",
        pictures=tuple(made),
        seconds=time.perf_counter() - began,
        facts={"folder": bench.folder.name, "instances": len(made)},
    )


def _instance(
    listed: Listed, networks: dict[Path, Network], classes: Sequence[str], dark: bool, jobs: int
) -> ImageMaps:
    """The maps of one instance; `dark` says that a black square is what is described."""
    patch = listed.patch.height, listed.patch.width
    name, label = f"{listed.name} ({patch[1]}×{patch[0]})", _label(classes, listed.target)
    mapped = partial(ImageMaps, name, listed.image, listed.target, label)
    if listed.free:
        return mapped((), "the patch's content is free: holdfast verify decides that")
    question = property_of(read_vnnlib(listed.spec), File(listed.network.name, listed.network))
    if listed.network not in networks:
        networks[listed.network] = Network(read_proto(listed.network))
    opened = open_instance(question, networks[listed.network], SafetyRule(listed.threshold, listed.strict))
    done = effect(opened)
    found, square = file_map(opened, done, jobs)
    first = MapView("position" if square else "file", found, patch, square, done.words)
    if square:
        return mapped((first,))
    # The patch that is described: as the file shows it, else black if the benchmark's patch is.
    clean, content = done.clean, done.content
    if content is None or content.shape[1:] != patch:
        content = np.zeros((clean.shape[1], *patch), clean.dtype) if dark and clean is not None else None
    if clean is None or content is None:
        said = "what is described cannot be run: the file shows no picture without a patch, or no patch"
        return mapped((first,), said)
    described = described_map(opened, clean, content, jobs)
    return mapped((first, MapView("described", described, patch, words="a square patch")))


def rows_of(result: PositionResult) -> Iterator[tuple[ImageMaps, MapView]]:
    """Every map with its picture."""
    for one in result.pictures:
        for shown in one.maps:
            yield one, shown


def as_dict(result: PositionResult) -> dict[str, Any]:
    """The whole result as plain values, every output of every map among them."""
    return {
        "subject": result.subject,
        "source": result.source,
        "content": result.content,
        "seconds": round(result.seconds, 3),
        "notes": list(result.notes),
        **result.facts,
        "maps": [_plain(one, shown) for one, shown in rows_of(result)],
        "without": {one.name: one.trouble for one in result.pictures if one.trouble},
    }


def _plain(one: ImageMaps, shown: MapView) -> dict[str, Any]:
    found = shown.map
    names = ("row", "column") if shown.over else ("first", "second")
    return {
        "name": one.name,
        "what": WORDS[shown.kind],
        "position_does": shown.words,
        "patch": list(shown.patch),
        "rule": str(found.bar),
        "target": None if one.target is None else {"class": one.target.label, "box": list(one.target.box)},
        "status": found.status,
        "sat": found.status == "violated",
        "clean": _number(found.clean),
        "minimum": _number(found.minimum),
        "minimum_at": dict(zip(names, found.worst, strict=True)),
        "positions": found.outputs.size,
        "unsafe": int(found.unsafe.sum()),
        "robust_area_percent": 100 * found.robust,
        "unchanged": found.unchanged,
        "replayed": found.replayed,
        "largest_difference": found.difference,
        "how": found.how,
        "axes": {names[0]: found.rows.tolist(), names[1]: found.columns.tolist()},
        "outputs": [[_number(value) for value in line] for line in found.outputs.tolist()],
    }


def _number(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 7)
