"""Create a contest: check the setup, select and scale images, write truth, models, rules, public folder."""

from __future__ import annotations

import dataclasses
import math
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from holdfast.contest.contest import (
    CACHE,
    MANIFEST,
    TRUTH,
    Contest,
    Phase,
    aligned,
    assemble,
    with_thresholds,
)
from holdfast.contest.entry import write_zip
from holdfast.contest.judging import NoiseOnTargets, Picture
from holdfast.contest.messages import entry_text
from holdfast.contest.rules import AP_RULES, RULES_FILE, Member, Rules, Vote, read_rules, rules_text
from holdfast.contest.run import MIMIC, hits, mean_ap, scenarios
from holdfast.core import fingerprint
from holdfast.core.dataset import Dataset, Entry
from holdfast.core.errors import DataError, ImageError, InputError, ModelError, OutputError, UnknownName
from holdfast.core.fingerprint import generator
from holdfast.core.model import Model
from holdfast.core.pipeline import LoadedPipeline, load_pipeline, pipeline_of
from holdfast.core.registry import lookup
from holdfast.core.types import Boxes, Detections, Size
from holdfast.data.embedded import is_embedded
from holdfast.data.entries import BoxRow, PixelBoxes, pack
from holdfast.data.open import open_dataset
from holdfast.data.patchfile import png_of
from holdfast.engine.cells import ItemWork, Setup, run
from holdfast.engine.execution import cell_store
from holdfast.engine.pipelines import SHARD, ImagePipeline, PipelineWork, content_of
from holdfast.engine.store import to_json, write_atomic
from holdfast.evaluate.classes import Alignment
from holdfast.graph.card import card_text
from holdfast.graph.load import load_model, shipped
from holdfast.metrics.frechet import frechet

if TYPE_CHECKING:
    from holdfast.contest.options import InitOptions

POOL = "pool"  # folder of candidates in the cache
MAKING = "making.json"  # exists until the contest is complete
PUBLIC = "public"  # files for participants: all but the hidden members
ENTRY_FILE = "ENTRY.md"  # in it: what to hand in
ORDER = "a permutation of the dataset by the seed; images without a detected target are skipped"
HIDDEN = ("signs-free", "signs-plain")  # the shipped models that are hidden members by default
SIZE = Size(416, 416)


@dataclass(frozen=True)
class ContestSetup:
    """The options with opened data and models, and rules whose distance.max may still be unknown."""

    options: InitOptions
    size: Size
    rules: Rules
    data: Dataset = field(repr=False)
    entries: tuple[Entry, ...] = field(repr=False)  # in random order
    classes: tuple[str, ...]
    models: tuple[Model, ...] = field(repr=False)  # the single one first

    def identity(self) -> dict[str, Any]:
        """The values that identify a contest; without the key "images", which marks COCO files."""
        renamed = {"images": "count", "rule": "ap", "vote": "least", "format": "data_format"}
        skipped = ("folder", "members", "model", "baselines", "jobs")
        values = dataclasses.asdict(self.options)
        plain = {renamed.get(key, key): value for key, value in values.items() if key not in skipped}
        if not is_embedded(plain["data"]):
            plain["data"] = str(Path(plain["data"]).resolve())
        models = [[m.name, m.sha256, fingerprint.of(m.card)] for m in self.models]
        plain |= {"name": self.rules.name, "models": models, "size": self.size, "iou": self.rules.iou}
        return dict(orjson.loads(to_json(plain)))


def others_of(options: InitOptions) -> tuple[str, ...]:
    """The mimic model's members besides the single one; by default the shipped ones."""
    if options.members is None and options.model == "signs-yolo":
        return HIDDEN
    return tuple(m.strip() for m in (options.members or "").split(",") if m.strip())


def open_setup(options: InitOptions, size: Size = SIZE) -> ContestSetup:
    """Open and check everything; raise InputError for a mismatch."""
    if options.rule not in AP_RULES:
        raise UnknownName("AP rule", options.rule, AP_RULES)
    data = _data(options)  # first: too few images are reported before any model is opened or run
    names = dict.fromkeys([options.model, *others_of(options)])
    models = tuple(map(_load, names))
    duplicates = [m.name for m in models if sum(o.name == m.name for o in models) > 1]
    if duplicates:
        raise InputError(f"--members: two models are called {duplicates[0]!r}; rename one of the files")
    classes = data.classes or models[0].card.classes
    for model in models:
        aligned(model, classes)
    order = generator(options.seed, "contest", "order").permutation(len(data.entries))
    entries = tuple(data.entries[i] for i in order.tolist())
    rules = _rules(options, size, models, data.name)
    return ContestSetup(options, size, rules, data, entries, classes=classes, models=models)


def _load(name: str) -> Model:
    try:
        return load_model(name)
    except UnknownName:
        if name in HIDDEN:
            hint = f"choose others with --members (shipped: {', '.join(shipped())})"
            text = f"{name}: this default hidden member is not shipped in this version; {hint}"
            raise ModelError(text) from None
        raise


def _data(options: InitOptions) -> Dataset:
    """The dataset, with at least as many images as the contest; for the embedded one twice as many scenes."""
    count, name = options.images, options.data
    more = 2 * count if is_embedded(name) and name.count(":") < 2 else None
    data = open_dataset(name, images=more, task="detect", format=options.format, split=options.split)
    if (most := len(data.entries)) < count:
        hint = f"use at most {most}, or a larger dataset"
        raise DataError(f"--images {count}: {data.name} has only {most} images; {hint}")
    return data


def _rules(options: InitOptions, size: Size, models: tuple[Model, ...], data: str) -> Rules:
    from holdfast.stages.features import open_features

    net = open_features(options.features)
    members = tuple(Member(m.name, f"models/{m.name}.onnx", fingerprint.of_bytes(m.read())) for m in models)
    least = len(members) // 2 + 1 if options.vote is None else options.vote
    if not 1 <= least <= len(members):
        raise InputError(f"--vote: expected 1 to {len(members)}, the number of members, got {least}")
    if options.pixels > size.width * size.height:
        raise InputError(f"--pixels: an image has only {size.width * size.height} of them")
    top = math.inf if options.distance_max is None else options.distance_max
    if top <= options.distance_min:
        raise InputError(f"--distance-max: expected more than --distance-min, got {top}")
    kind, _, file = options.features.partition(":")
    same = ("images", "pixels", "score", "nms_iou", "seed", "distance_min")
    return Rules(
        name=options.name or data,
        single=members[0],
        mimic=Vote(members, least, options.vote_iou),
        features=f"{kind}:{Path(file).resolve()}" if file else kind,  # found from any folder
        features_sha256=net.sha256,
        distance=net.name,
        distance_max=top,
        ap=options.rule,
        **size._asdict(),
        **{key: getattr(options, key) for key in same},
    )


def claim(setup: ContestSetup) -> bool:
    """Whether the folder contains this contest, incomplete; raise InputError for any other content."""
    folder, marker = setup.options.folder, setup.options.folder / MAKING
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder}: is a file; expected a new or empty folder")
    identity = setup.identity()
    names = sorted(p.name for p in folder.iterdir()) if folder.is_dir() else []
    if not names:
        write_atomic(marker, to_json(identity, indent=True))
        return False
    if MAKING not in names:
        content = "a finished contest" if RULES_FILE in names else f"{names[0]!r} in it"
        raise InputError(f"{folder}: expected a new or empty folder, got one with {content}; give another")
    try:
        existing = orjson.loads(marker.read_bytes())
    except ValueError:
        existing = {}
    if existing != identity:
        differ = ", ".join(k for k in identity if existing.get(k) != identity[k])
        hint = "use the same options, or another folder"
        raise InputError(f"{folder}: holds an incomplete contest with other options ({differ}); {hint}")
    return True


def make(setup: ContestSetup, phase: Phase, jobs: int = 0) -> Contest:
    """Create the contest in its folder, marked as incomplete; an incomplete one is resumed.

    Raise DataError if too few images have a detected target or the mimic model detects nothing; the folder is
    then empty.
    """
    folder, resumed = setup.options.folder, claim(setup)
    if resumed and (folder / RULES_FILE).is_file():  # written last
        return assemble(folder, read_rules(folder))
    try:
        _write_images(folder, _candidates(setup, phase, jobs), setup)
        for model in setup.models:
            path = folder / "models" / f"{model.name}.onnx"
            write_atomic(path, model.read())
            write_atomic(path.with_suffix(".toml"), card_text(model.card, model.guessed).encode())
        contest = assemble(folder, setup.rules)
        rules = dataclasses.replace(setup.rules, distance_max=_distance_max(contest, phase, jobs))
        images = [folder / "images" / f"{n}.png" for n in range(1, rules.images + 1)]
        write_zip(folder / "images.zip", "images/", images)
        shutil.rmtree(folder / PUBLIC, ignore_errors=True)
        single = folder / rules.single.file
        for file in [folder / TRUTH, folder / "images.zip", single, single.with_suffix(".toml"), *images]:
            target = folder / PUBLIC / file.relative_to(folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(file, target)  # no second copy if the disk supports links
            except OSError:
                shutil.copyfile(file, target)
        publish_rules(folder, rules)
        size = f"{rules.width}×{rules.height}"
        text = entry_text(rules.name, rules.images, size, rules.pixels)
        write_atomic(folder / PUBLIC / ENTRY_FILE, text.encode())
        write_atomic(folder / RULES_FILE, rules_text(rules).encode())
    except InputError:  # invalid input; after a full disk or a killed process the run can be resumed
        if not resumed:  # the folder was empty before
            for path in folder.iterdir():
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink(missing_ok=True)
        raise
    except OSError as problem:
        raise OutputError(f"{folder}: cannot be written to: {problem.strerror}") from problem
    return assemble(folder, rules)


def finish(folder: Path) -> None:
    """Remove the candidates and the marker of an incomplete contest."""
    shutil.rmtree(folder / CACHE / POOL, ignore_errors=True)
    (folder / MAKING).unlink(missing_ok=True)


def is_written(folder: Path, cell: bytes) -> bool:
    """Whether the picture named in a cell exists in the folder and is the one that was written."""
    if (plain := orjson.loads(cell)) is None:
        return True
    file = folder / plain["file"]
    return file.is_file() and fingerprint.of_file(file) == str(plain["sha256"])


@dataclass(frozen=True)
class PoolWork(ItemWork[Entry, LoadedPipeline]):
    """The search for candidates; images with a detected target are written to `folder`."""

    model: Model  # with the thresholds of the rules
    alignment: Alignment
    size: Size
    iou: float
    folder: Path
    batch: int = SHARD

    def setups(self) -> list[Setup]:
        """The model and its pipeline, the classes, the size and the IoU."""
        (model,) = PipelineWork(self.model, (ImagePipeline(pipeline_of(self.model.card)),), 0).setups()
        facts = [model.facts, self.alignment.of_model, self.size, self.iou]
        return [Setup("contest", ["candidates", facts])]

    def contents(self, item: Entry) -> list[list[str]]:
        """Name and content of the image."""
        return [content_of(item)]

    def open(self, threads: int) -> LoadedPipeline:
        """The model under its pipeline."""
        return load_pipeline(pipeline_of(self.model.card), self.model, threads)

    def is_valid(self, setup: int, data: bytes) -> bool:
        """Whether the candidate's picture exists and is the one that was written."""
        return is_written(self.folder, data)

    def compute_item(self, state: LoadedPipeline, item: Entry) -> dict[str, Any] | None:
        """The candidate as JSON values; None if the model detects no target or the file is not an image.

        The picture is resized to the contest's size with Pillow's bilinear filter, and its boxes with it. A
        difficult box becomes an ignored one (COCO has no other flag).
        """
        try:
            sample = item.load()
            pixels = state.decode(sample.data)
        except ImageError:
            return None
        truth = sample.truth
        if not isinstance(truth, Boxes):
            raise DataError(f"{sample.name}: expected boxes as truth, got {type(truth).__name__}")
        image = np.ascontiguousarray(lookup("resize", "pillow-bilinear")(pixels, self.size))
        x, y = self.size.width / pixels.shape[1], self.size.height / pixels.shape[0]
        xyxy, ignored = truth.xyxy * np.array([x, y, x, y]), truth.crowd | truth.difficult
        columns = (values.tolist() for values in (xyxy, truth.classes, ignored, truth.areas))
        rows = [
            BoxRow._make([*corners, category, crowd, False, area * x * y])
            for corners, category, crowd, area in zip(*columns, strict=True)
        ]
        resized = Picture.of(sample.name, image, PixelBoxes(pack(rows))).load()
        detections = state.predict(state.prepare(resized.data))
        if not isinstance(detections, Detections) or not isinstance(resized.truth, Boxes):
            raise DataError(f"{self.model.name}: expected a detector")
        classes = self.alignment.of_model[detections.classes]
        known = dataclasses.replace(detections.take(classes >= 0), classes=classes[classes >= 0])
        if not hits(resized.truth, known, self.iou).any():
            return None
        data = png_of(image)
        digest = fingerprint.of_bytes(data)
        write_atomic(self.folder / f"{digest}.png", data, durable=False)
        return {"source": sample.name, "file": f"{digest}.png", "sha256": digest, "rows": rows}


def _candidates(setup: ContestSetup, phase: Phase, jobs: int) -> list[dict[str, Any]]:
    """The first images, in the order of the entries, in which the single model detects a target."""
    rules, count, entries = setup.rules, setup.options.images, setup.entries
    model = with_thresholds(setup.models[0], rules)
    cache = setup.options.folder / CACHE
    work = PoolWork(model, aligned(model, setup.classes), setup.size, rules.iou, cache / POOL)
    candidates: list[dict[str, Any]] = []
    while entries and len(candidates) < count:
        missing = count - len(candidates)
        length = SHARD * -(-(missing + missing // 8) // SHARD)  # slightly more than the missing number
        part, entries = entries[:length], entries[length:]
        with phase("choose", len(part)) as step:
            rows = run(work, part, cell_store(cache), jobs=jobs, progress=step).read()
        candidates += [row for row in rows if row is not None]
    if len(candidates) < count:
        raise DataError(
            f"--images {count}: only {len(candidates)} of the {len(setup.entries)} images of "
            f"{setup.data.name} have a target that {model.name} recognises (score ≥ {rules.score:g}, IoU ≥ "
            f"{rules.iou:g}, right class); ask for {len(candidates) or 'other data'} or bring more"
        )
    return candidates[:count]


def _write_images(folder: Path, candidates: list[dict[str, Any]], setup: ContestSetup) -> None:
    images, annotations, order = (list[dict[str, Any]]() for _ in range(3))
    for number, candidate in enumerate(candidates, 1):
        name, picture = f"{number}.png", (folder / CACHE / POOL / candidate["file"]).read_bytes()
        write_atomic(folder / "images" / name, picture, durable=False)
        images.append({"id": number, "file_name": name, **setup.size._asdict()})
        order.append({"name": name, "source": candidate["source"], "sha256": candidate["sha256"]})
        for row in (BoxRow(*values) for values in candidate["rows"]):
            ids = {"id": len(annotations) + 1, "image_id": number, "category_id": row.category + 1}
            box = [row.x1, row.y1, row.x2 - row.x1, row.y2 - row.y1]
            annotations.append({**ids, "bbox": box, "area": row.area, "iscrowd": int(row.crowd)})
    categories = [{"id": i, "name": name} for i, name in enumerate(setup.classes, 1)]
    truth = {"images": images, "annotations": annotations, "categories": categories}
    write_atomic(folder / TRUTH, to_json(truth))
    data, seed = setup.data.name, setup.options.seed
    manifest = {"contest": setup.rules.name, "data": data, "seed": seed, "how": ORDER, "order": order}
    write_atomic(folder / MANIFEST, to_json(manifest, indent=True))


def _distance_max(contest: Contest, phase: Phase, jobs: int) -> float:
    """The distance between the originals and noisy copies; also caches the predictions on the originals.

    It is the distance of a team that uses its whole budget on the targets without hiding the changes.
    """
    rules = contest.rules
    known = math.isfinite(rules.distance_max)
    noise = None if known else NoiseOnTargets(rules.pixels, rules.seed)
    with phase("clean", len(contest.shots)) as step:
        cells = contest.judge([noise] * len(contest.shots), step, jobs, run_after=False)
    for name, records in scenarios(contest, cells.records(after=False)).items():
        value = mean_ap(records, rules, len(contest.classes))
        if not value > 0:
            least = f" (at least {rules.mimic.least} of {len(contest.models)} agree)" if name == MIMIC else ""
            got = f"mAP {value:g} on the original images"
            raise DataError(f"the {name} model{least} has {got}; S_e needs more")
    if known:
        return rules.distance_max
    distance = frechet(cells.features(after=False), cells.features(after=True))
    if not distance > rules.distance_min:
        noisy = f"with noise in {rules.pixels} pixels per image {rules.distance} is {distance:g}"
        least = f"not more than distance.min {rules.distance_min:g}"
        raise DataError(f"distance.max: {noisy}, {least}; give --distance-max")
    return distance


def publish_rules(folder: Path, rules: Rules) -> bool:
    """Write the rules for participants, without the hidden members; return whether they changed."""
    hidden = len(rules.mimic.members) - 1
    mimic = dataclasses.replace(rules.mimic, members=(rules.single,), hidden=hidden)
    path, text = folder / PUBLIC / RULES_FILE, rules_text(dataclasses.replace(rules, mimic=mimic)).encode()
    if path.is_file() and path.read_bytes() == text:
        return False
    write_atomic(path, text)
    return True
