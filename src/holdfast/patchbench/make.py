"""A benchmark folder made: networks, specifications, images, labels, list, manifest; whole or not at all."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.core.dataset import Dataset
from holdfast.core.errors import ModelError
from holdfast.core.model import Model
from holdfast.core.patch import Patch, nearest
from holdfast.core.seeds import generator
from holdfast.core.types import Floats, Size
from holdfast.data.patchfile import files_of, png_of
from holdfast.data.whole import check_new, whole_folder
from holdfast.engine.store import to_json
from holdfast.engine.versions import versions
from holdfast.evaluate.classes import Alignment
from holdfast.graph.inspect import load_proto
from holdfast.patchbench.network.detector import detector_of
from holdfast.patchbench.network.folder import FORMAT, KIND, LISTING, MANIFEST
from holdfast.patchbench.network.graph import BOX, INPUT, LABEL, PICTURE, bench_graph
from holdfast.patchbench.network.layout import SECONDS, TAIL, Layout, Target, whole
from holdfast.patchbench.network.spec import rule_text, spec_text
from holdfast.patchbench.select import Drawn, Picture, draw
from holdfast.stages.resize.libraries import pillow_box

BLACK, FREE = "black", "free"
AGREE = 1e-3  # how far the graph's box may be from the pipeline's: they round differently


@dataclass(frozen=True)
class Plan:
    """What a benchmark is to be made of: a network for each size of patch, with its content.

    Content None leaves the patch's values free, at some places of each image.
    """

    model: Model
    data: Dataset
    alignment: Alignment
    patches: tuple[tuple[Size, Patch | None], ...]
    told: str  # the content in a word: black, free, or the file's name
    images: int = 16
    seed: int = 0
    strict: bool = False
    held_out: bool = False
    places: int | None = 4  # free content: how many an image; None: all


Step = Callable[[int, int], None]


def black(size: Size) -> Patch:
    """The black square of the published benchmark."""
    return Patch(np.zeros((size.height, size.width, 3), np.uint8), np.ones((size.height, size.width), bool))


def scaled(patch: Patch, size: Size) -> Patch:
    """The patch enlarged or reduced: pixels by area, the mask by its nearest pixels."""
    rows, columns = nearest(len(patch.mask), size.height), nearest(patch.mask.shape[1], size.width)
    return Patch(pillow_box(patch.pixels, size), patch.mask[rows[:, None], columns])


def make(plan: Plan, folder: Path, step: Step = lambda done, reused: None) -> Mapping[str, Any]:
    """The manifest of the benchmark written to a new or empty folder, which is there whole or not at all."""
    check_new(folder)
    networks = dict(_networks(plan))
    drawn = draw(
        plan.model, plan.data, plan.alignment, plan.images, plan.seed, whole=plan.held_out, step=step
    )
    with whole_folder(folder) as place:
        return _written(plan, drawn, networks, place)


def _networks(plan: Plan) -> Iterator[tuple[str, tuple[Layout, bytes]]]:
    for patch, content in plan.patches:
        layout = Layout(plan.model.card.input.size, patch)
        side = f"{patch.width}" if patch.width == patch.height else f"{patch.width}x{patch.height}"
        yield f"onnx/patch-{side}.onnx", (layout, bench_graph(plan.model, layout, content))


def _written(
    plan: Plan, drawn: Drawn, networks: Mapping[str, tuple[Layout, bytes]], place: Path
) -> dict[str, Any]:
    """The manifest, after all files were written."""
    hashes: dict[str, str] = {}

    def put(name: str, data: bytes) -> None:
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        hashes[name] = hashlib.sha256(data).hexdigest()

    targets = _targets(drawn, next(iter(networks.values()))[1])
    rows, specs = [], {}
    for name, (_, content) in zip(networks, plan.patches, strict=True):
        if content is not None:
            put(f"patches/{Path(name).stem}.png", files_of(content)[0])
    for picture in drawn.pictures:
        put(f"images/{picture.name}.png", png_of(picture.image))
        put(f"labels/gt/{picture.name}.txt", _line(picture.truth))
        put(f"labels/pred/{picture.name}.txt", _line(targets[picture.name]))
    for network, (layout, data) in networks.items():
        put(network, data)
        stem = Path(network).stem
        for picture in drawn.pictures:
            for name, at in _places(plan, layout, picture):
                file = f"vnnlib/spec_onnx_{stem}_idx_{name}.vnnlib"
                target = targets[picture.name]
                text = spec_text(name, layout, picture.image, target, strict=plan.strict, free_at=at)
                put(file, text.encode())
                rows.append(f"{network},{file},{SECONDS}\n")
                specs[file] = picture.name
    put(LISTING, "".join(rows).encode())
    manifest = _manifest(plan, drawn, networks) | {"specs": specs, "files": dict(sorted(hashes.items()))}
    (place / MANIFEST).write_bytes(to_json(manifest, indent=True))
    return manifest


def _line(target: Target) -> bytes:
    """The label file of the published benchmark: class x1 y1 x2 y2."""
    return f"{target.label} {' '.join(repr(corner) for corner in target.box)}\n".encode()


def _places(plan: Plan, layout: Layout, picture: Picture) -> list[tuple[str, tuple[int, int] | None]]:
    """The instances of one image: one, or with free content one a position."""
    if plan.told != FREE:
        return [(picture.name, None)]
    columns, rows = (last + 1 for last in layout.last)
    every = np.arange(columns * rows)
    if plan.places is not None and plan.places < len(every):
        rng = generator(plan.seed, "patchbench", picture.name, *layout.patch)
        every = np.sort(rng.permutation(every)[: plan.places])
    found = [(int(at % columns), int(at // columns)) for at in every]
    return [(f"{picture.name}_x{x}_y{y}", (x, y)) for x, y in found]


def _targets(drawn: Drawn, network: bytes) -> dict[str, Target]:
    """What the network's own detector predicts of each picture without a patch, checked with the pipeline."""
    import onnx

    from holdfast.graph.nodes import part_of
    from holdfast.verify.replay import session_of

    model = onnx.load_from_string(network)
    detector = part_of(model, {PICTURE: np.zeros(_shape(drawn), np.float32)}, [BOX, LABEL])
    session = session_of(detector.SerializeToString())
    made: dict[str, Target] = {}
    for picture in drawn.pictures:
        tensor = whole(picture.image, (0, 0), picture.found)[:-TAIL].reshape(_shape(drawn))
        box, label = session.run([BOX, LABEL], {PICTURE: tensor})
        x1, y1, x2, y2 = map(float, np.asarray(box).ravel())
        made[picture.name] = Target(int(label[0]), (x1, y1, x2, y2))
        apart = float(
            np.abs(np.clip([x1, y1, x2, y2], *_limits(picture)) - np.array(picture.found.box)).max()
        )
        if apart > AGREE or int(label[0]) != picture.found.label:
            raise ModelError(
                f"{picture.source}: the detector inside the benchmark says {made[picture.name]}, the model "
                f"by its card {picture.found}: are scale, mean, std and colour of the card right?"
            )
    return made


def _limits(picture: Picture) -> tuple[Floats, Floats]:
    """Where the pipeline cuts boxes off: at the border of the original image."""
    low, high = np.array(picture.extent[:2]), np.array(picture.extent[2:])
    return np.tile(low, 2), np.tile(high, 2)


def _shape(drawn: Drawn) -> tuple[int, int, int, int]:
    height, width = drawn.pictures[0].image.shape[:2]
    return 1, 3, height, width


def _manifest(plan: Plan, drawn: Drawn, networks: Mapping[str, tuple[Layout, bytes]]) -> dict[str, Any]:
    card = dataclasses.asdict(plan.model.card)
    detector = detector_of(plan.model, load_proto(plan.model.path))
    ranges = {
        name: {
            "patch": list(layout.patch),
            "columns": [0, layout.last[0]],
            "rows": [0, layout.last[1]],
        }
        for name, (layout, _) in networks.items()
    }
    return {
        "kind": KIND,
        "format": FORMAT,
        "model": {
            "name": plan.model.name,
            "sha256": plan.model.sha256,
            "card": card,
            "input": detector.input,
            "outputs": [detector.box, detector.scores],
        },
        "data": {"name": plan.data.name, "format": plan.data.format, "instances": drawn.instances},
        "selection": {
            "seed": plan.seed,
            "images": len(drawn.pictures),
            "test_part": drawn.how,
            "looked_at": drawn.looked_at,
            "fitting": drawn.fitting,
            "unreadable": len(drawn.failed),
            "sources": {p.name: p.source for p in drawn.pictures},
            "iou": {p.name: p.iou for p in drawn.pictures},
        },
        "size": list(plan.model.card.input.size),
        "input": {"name": INPUT, "length": next(iter(networks.values()))[0].length},
        "content": plan.told,
        "free_places": (plan.places if plan.places is not None else "all") if plan.told == FREE else None,
        "networks": ranges,
        "rule": {"threshold": 0.5, "strict": plan.strict, "text": rule_text(plan.strict)},
        "seconds": SECONDS,
        "versions": versions(),
    }
