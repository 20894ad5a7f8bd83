"""Make a benchmark folder: draw instances, write networks, specifications, images, labels and manifest."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from holdfast.core.dataset import Dataset, Entry
from holdfast.core.errors import DataError, ImageError, ModelError
from holdfast.core.fingerprint import generator
from holdfast.core.model import Model
from holdfast.core.patch import Patch, nearest
from holdfast.core.pipeline import LoadedPipeline, PreparedImage, load_pipeline, pipeline_of, place
from holdfast.core.sources import versions
from holdfast.core.types import Boxes, Detections, Floats, Image, Size
from holdfast.data.files import atomic_folder, check_new
from holdfast.data.patchfile import files_of, png_of
from holdfast.engine.executor import Progress, silent
from holdfast.engine.store import to_json
from holdfast.evaluate.classes import Alignment
from holdfast.graph.inspect import load_proto
from holdfast.metrics.boxes import single_values
from holdfast.patchbench.folder import FORMAT, KIND, LISTING, MANIFEST
from holdfast.patchbench.graph import BOX, INPUT, LABEL, PICTURE, bench_graph, detector_of
from holdfast.patchbench.layout import SECONDS, THRESHOLD, Layout, Target, rule_text, spec_text, unit
from holdfast.patchbench.options import MakeOptions
from holdfast.patchbench.positions.batches import open_part
from holdfast.stages.resize.libraries import pillow_box

BLACK, FREE = "black", "free"
SHARE = 10  # one in this many instances is in the test part
_TRAINED = 1  # the seed of the scenes on which the shipped models were trained
AGREE = 1e-3  # tolerance between the boxes of graph and pipeline, which round differently
Networks: TypeAlias = Mapping[str, tuple[Layout, bytes]]  # by the name of the file


@dataclass(frozen=True)
class BenchmarkPlan:
    """The plan of a benchmark; a patch without content has free values, at some positions per image."""

    model: Model
    data: Dataset
    alignment: Alignment
    patches: tuple[tuple[Size, Patch | None], ...]
    options: MakeOptions
    places: int | None = 4  # positions per image with free content; None: all


def black(size: Size) -> Patch:
    """The black square of the published benchmark."""
    return Patch(np.zeros((size.height, size.width, 3), np.uint8), np.ones((size.height, size.width), bool))


def scaled(patch: Patch, size: Size) -> Patch:
    """The patch resized: pixels by area, the mask by nearest neighbour."""
    rows, columns = nearest(len(patch.mask), size.height), nearest(patch.mask.shape[1], size.width)
    return Patch(pillow_box(patch.pixels, size), patch.mask[rows[:, None], columns])


def make(plan: BenchmarkPlan, step: Progress = silent) -> Mapping[str, Any]:
    """Write the benchmark to a new or empty folder, atomically, and return its manifest."""
    check_new(plan.options.folder)
    networks = {}
    for size, content in plan.patches:
        layout = Layout(plan.model.card.input.size, size)
        side = f"{size.width}" if size.width == size.height else f"{size.width}x{size.height}"
        networks[f"onnx/patch-{side}.onnx"] = layout, bench_graph(plan.model, layout, content)
    pictures, selection = draw(plan, step)
    with atomic_folder(plan.options.folder) as root:
        return _write(plan, pictures, selection, networks, root)


def _write(
    plan: BenchmarkPlan,
    pictures: Sequence[BenchmarkImage],
    selection: Mapping[str, Any],
    networks: Networks,
    root: Path,
) -> dict[str, Any]:
    hashes: dict[str, str] = {}

    def put(name: str, data: bytes) -> None:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
        hashes[name] = hashlib.sha256(data).hexdigest()

    targets = _targets(pictures, next(iter(networks.values()))[1])
    rows, specs = [], {}
    for name, (_, content) in zip(networks, plan.patches, strict=True):
        if content is not None:
            put(f"patches/{Path(name).stem}.png", files_of(content)[0])
    for picture in pictures:
        put(f"images/{picture.name}.png", png_of(picture.image))
        put(f"labels/gt/{picture.name}.txt", _line(picture.truth))
        put(f"labels/pred/{picture.name}.txt", _line(targets[picture.name]))
    for network, (layout, data) in networks.items():
        put(network, data)
        stem = Path(network).stem
        for picture in pictures:
            for name, at in _places(plan, layout, picture):
                file = f"vnnlib/spec_onnx_{stem}_idx_{name}.vnnlib"
                target = targets[picture.name]
                text = spec_text(name, layout, picture.image, target, strict=plan.options.strict, at=at)
                put(file, text.encode())
                rows.append(f"{network},{file},{SECONDS}\n")
                specs[file] = picture.name
    put(LISTING, "".join(rows).encode())
    manifest = _manifest(plan, selection, networks) | {"specs": specs, "files": dict(sorted(hashes.items()))}
    (root / MANIFEST).write_bytes(to_json(manifest, indent=True))
    return manifest


def _line(target: Target) -> bytes:
    """The label file of the published benchmark: class x1 y1 x2 y2."""
    return f"{target.label} {' '.join(repr(corner) for corner in target.box)}\n".encode()


def _places(
    plan: BenchmarkPlan, layout: Layout, picture: BenchmarkImage
) -> list[tuple[str, tuple[int, int] | None]]:
    """The instances of one image: one, or with free content one per position."""
    if plan.options.content != FREE:
        return [(picture.name, None)]
    columns, rows = (last + 1 for last in layout.last)
    indices = np.arange(columns * rows)
    if plan.places is not None and plan.places < len(indices):
        rng = generator(plan.options.seed, "patchbench", picture.name, *layout.patch)
        indices = np.sort(rng.permutation(indices)[: plan.places])
    positions = [(int(index % columns), int(index // columns)) for index in indices]
    return [(f"{picture.name}_x{x}_y{y}", (x, y)) for x, y in positions]


def _targets(pictures: Sequence[BenchmarkImage], network: bytes) -> dict[str, Target]:
    """The prediction of the network's own detector per picture without a patch, checked with the pipeline."""
    import onnx

    height, width = pictures[0].image.shape[:2]
    example = np.zeros((1, 3, height, width), np.float32)
    detector = open_part(onnx.load_from_string(network), {PICTURE: example}, [BOX, LABEL])
    targets: dict[str, Target] = {}
    for picture in pictures:
        box, label = detector({PICTURE: unit(picture.image)[np.newaxis]})
        target = Target.of(label[0], np.ravel(box))
        # The pipeline clips boxes to the original image.
        clipped = np.clip(target.box, np.tile(picture.extent[:2], 2), np.tile(picture.extent[2:], 2))
        gap = np.abs(clipped - np.array(picture.predicted.box)).max()
        if gap > AGREE or target.label != picture.predicted.label:
            raise ModelError(
                f"{picture.source}: the detector inside the benchmark says {target}, the model "
                f"by its card {picture.predicted}: are scale, mean, std and colour of the card right?"
            )
        targets[picture.name] = target
    return targets


def _manifest(plan: BenchmarkPlan, selection: Mapping[str, Any], networks: Networks) -> dict[str, Any]:
    detector, options = detector_of(plan.model, load_proto(plan.model.path)), plan.options
    places = "all" if plan.places is None else plan.places
    ranges = {
        name: {"patch": list(layout.patch), "columns": [0, layout.last[0]], "rows": [0, layout.last[1]]}
        for name, (layout, _) in networks.items()
    }
    return {
        "kind": KIND,
        "format": FORMAT,
        "model": {
            "name": plan.model.name,
            "sha256": plan.model.sha256,
            "card": dataclasses.asdict(plan.model.card),
            "input": detector.input,
            "outputs": [detector.box, detector.scores],
        },
        "data": {"name": plan.data.name, "format": plan.data.format, "instances": len(plan.data)},
        "selection": selection,
        "size": list(plan.model.card.input.size),
        "input": {"name": INPUT, "length": next(iter(networks.values()))[0].length},
        "content": Path(options.content).name,
        "free_places": places if options.content == FREE else None,
        "networks": ranges,
        "rule": {"threshold": 0.5, "strict": options.strict, "text": rule_text(options.strict)},
        "seconds": SECONDS,
        "versions": versions(),
    }


@dataclass(frozen=True, eq=False)
class BenchmarkImage:
    """An image after preprocessing (h, w, 3), with its truth, the prediction, and their IoU."""

    name: str
    source: str
    image: Image
    truth: Target
    predicted: Target
    iou: float
    extent: Floats  # (4,): the original image inside the picture, xyxy relative to it


def test_part(entries: Sequence[Entry], seed: int, whole: bool) -> list[Entry]:
    """The instances of the test part in random order.

    The order depends only on the seed and the names: instances are sorted by a hash of both, and the first
    tenth (rounded up) is the test part of a 9:1 split. `whole`: use all instances.
    """

    def rank(entry: Entry) -> tuple[bytes, str]:
        text = f"patchbench/{seed}/{entry.name}".encode(errors="surrogateescape")
        return hashlib.sha256(text).digest(), entry.name

    order = sorted(entries, key=rank)
    return order if whole else order[: -(-len(order) // SHARE)]


def draw(plan: BenchmarkPlan, step: Progress = silent) -> tuple[list[BenchmarkImage], dict[str, Any]]:
    """The first instances of the test part with IoU > 0.5 and the right class, and how they were selected.

    Raise DataError if there are too few.
    """
    data, count, seed = plan.data, plan.options.images, plan.options.seed
    embedded = data.format == "signs"
    use_all = plan.options.held_out or embedded
    part = test_part(data.entries, seed, use_all)
    machine = load_pipeline(pipeline_of(plan.model.card), plan.model, threads=1)
    selected: list[BenchmarkImage] = []
    examined = unreadable = 0
    for entry in part:
        examined += 1
        try:
            picture = _picture(plan, machine, entry)
        except ImageError:
            unreadable += 1
            continue
        if picture is not None and picture.iou > THRESHOLD and picture.truth.label == picture.predicted.label:
            selected.append(picture)
            step(1, 0)
            if len(selected) == count:
                break
    if len(selected) < count:
        fewer = f"ask for fewer (--images {len(selected)}) or " if selected else ""
        more = "" if use_all else "; --held-out takes all of them as test"
        raise DataError(
            f"{data.name}: expected {count} instances with IoU > {THRESHOLD} and the right class, got "
            f"{len(selected)} of the {len(part):,} in the test part (of {len(data):,} in all); "
            f"{fewer}give more data{more}"
        )
    how = f"the first tenth of {len(data):,} instances by a hash of seed and name (9:1)"
    if use_all:
        # The shipped models were trained on scenes of one seed only: no split is needed.
        trained = {getattr(entry, "seed", None) for entry in part} == {_TRAINED}
        scenes = "of the seed the shipped models were" if trained else "no shipped model was"
        reason = f"drawn scenes {scenes} trained on" if embedded else "said to be held out"
        how = f"all {len(data):,} instances of {data.name} ({reason})"
    names = _unique([picture.name for picture in selected])
    pictures = [dataclasses.replace(p, name=name) for name, p in zip(names, selected, strict=True)]
    pictures.sort(key=lambda picture: picture.name)
    selection = {
        "seed": seed,
        "images": len(pictures),
        "test_part": how,
        "looked_at": examined,
        "fitting": len(selected),
        "unreadable": unreadable,
        "sources": {p.name: p.source for p in pictures},
        "iou": {p.name: p.iou for p in pictures},
    }
    return pictures, selection


def _picture(plan: BenchmarkPlan, machine: LoadedPipeline, entry: Entry) -> BenchmarkImage | None:
    """The preprocessed image; None unless it has exactly one target of a known class and one detection."""
    card, alignment, sample = plan.model.card, plan.alignment, entry.load()
    image, frame = place(machine.colour(machine.decode(sample.data)), card.input, machine.resize)
    detections = machine.predict(PreparedImage(machine.normalise(image, card.input)[np.newaxis], frame))
    truth = sample.truth
    if not isinstance(truth, Boxes) or not isinstance(detections, Detections):
        return None
    if not len(truth) == len(detections) == 1:
        return None
    class_index = alignment.of_data[truth.classes[0]]
    labels = np.flatnonzero(alignment.of_model == class_index)
    if class_index < 0 or not len(labels):
        return None
    label = int(labels[-1])
    stem = entry.name.rpartition(".")[0] or entry.name
    sides, original = np.array([*card.input.size] * 2, np.float64), np.array([0.0, 0.0, *frame.original])
    corners = np.stack([truth.xyxy[0], detections.boxes[0], original])
    true, predicted, extent = frame.to_network(corners) / sides
    return BenchmarkImage(
        name=re.sub(r"[^A-Za-z0-9.\-]+", "_", stem).strip("._") or "image",  # safe as part of a file name
        source=entry.name,
        image=np.ascontiguousarray(image),
        truth=Target.of(label, true),
        predicted=Target.of(detections.classes[0], predicted),
        iou=float(single_values(detections.boxes, detections.classes, truth.xyxy, [label])[0]),
        extent=extent,
    )


def _unique(names: list[str]) -> list[str]:
    """The names, with a number appended to duplicates."""
    unique: list[str] = []
    for name in names:
        numbered = (f"{name}-{number}" for number in itertools.count(2))
        unique.append(next(new for new in itertools.chain([name], numbered) if new not in unique))
    return unique
