"""A contest: rules, members with the rules' thresholds, images with their truth, hashes of all of them."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, TypeAlias

import orjson

from holdfast.contest.judging import Change, ContestImage, JudgeCells, JudgeWork, opened_features
from holdfast.contest.rules import RULES_FILE, Rules, RulesError, read_rules
from holdfast.core import fingerprint
from holdfast.core.errors import DataError, InputError
from holdfast.core.model import MODEL_KINDS, Model
from holdfast.core.pipeline import pipeline_of
from holdfast.core.sources import code_of
from holdfast.core.types import Size
from holdfast.data.entries import FileEntry, PixelBoxes
from holdfast.data.images import sniff
from holdfast.data.readers.coco import coco
from holdfast.engine.cells import run
from holdfast.engine.execution import cell_store
from holdfast.engine.executor import Progress
from holdfast.engine.pipelines import ImagePipeline, PipelineWork
from holdfast.engine.store import Store
from holdfast.evaluate.classes import Alignment, align
from holdfast.graph.card import join_problems
from holdfast.graph.load import load_model

LIBRARIES = ("numpy", "onnxruntime", "pillow")
MANIFEST, TRUTH, CACHE = "manifest.json", "truth.json", "cache"
Phase: TypeAlias = Callable[[str, int], AbstractContextManager[Progress]]  # (what, images) -> its progress


@dataclass(frozen=True)
class Hashes:
    """The sha256 of each thing a score depends on; only scores that agree in all are ranked together."""

    rules: str
    models: str
    data: str
    features: str
    code: str

    @property
    def whole(self) -> str:
        """One hash of all of them."""
        return fingerprint.of(asdict(self))


def hashes_of(folder: Path, rules: Rules) -> Hashes:
    """The current hashes of the contest in a folder; those of the models come from the rules."""
    members = rules.mimic.members
    models = [[m.name, m.sha256, _content((folder / m.file).with_suffix(".toml"))] for m in members]
    return Hashes(
        # Without the path of the feature network: its hash is separate.
        rules=fingerprint.of(dataclasses.replace(rules, features="")),
        models=fingerprint.of([rules.single.name, models]),
        data=fingerprint.of([_content(folder / MANIFEST), _content(folder / TRUTH)]),
        features=fingerprint.of([rules.distance, rules.features_sha256]),
        # The source code behind a score, and the libraries that do the arithmetic.
        code=fingerprint.of([code_of("contest"), {name: metadata.version(name) for name in LIBRARIES}]),
    )


def _content(path: Path) -> str:
    try:
        return fingerprint.of_file(path)
    except FileNotFoundError:
        return "missing"
    except OSError as problem:
        raise InputError(f"{path}: cannot be read: {problem.strerror}") from None


@dataclass(frozen=True)
class Contest:
    """A contest whose files all exist and match the rules."""

    folder: Path
    rules: Rules
    classes: tuple[str, ...]
    models: tuple[Model, ...]  # in the order of the rules' members
    alignments: tuple[Alignment, ...] = field(repr=False)
    shots: tuple[ContestImage, ...] = field(repr=False)
    hashes: Hashes

    @property
    def store(self) -> Store:
        """The store of predictions and features."""
        return cell_store(self.folder / CACHE)

    @property
    def single(self) -> int:
        """The index of the single model among the members."""
        return self.rules.mimic.members.index(self.rules.single)

    def judge(
        self, changes: Sequence[Change], progress: Progress, jobs: int, *, run_after: bool = True
    ) -> JudgeCells:
        """Run every member and the feature net on the images before and after these changes."""
        classes = len(self.classes)
        # Entries were decoded when they were checked; the members get exactly these pixels.
        decoded = [(m, ImagePipeline(pipeline_of(m.card).replace(decode="pillow"))) for m in self.models]
        members = tuple(PipelineWork(m, (p,), classes, strict=True, fatal=True) for m, p in decoded)
        work = JudgeWork(members, self.rules.features, self.rules.features_sha256, run_after)
        pairs = zip(self.shots, changes, strict=True)
        shots = [dataclasses.replace(shot, change=change) for shot, change in pairs]
        return JudgeCells(run(work, shots, self.store, jobs=jobs, progress=progress), len(members))


def open_contest(folder: Path) -> Contest:
    """The contest in a folder; raise InputError with every problem of its rules, models, images and truth."""
    return assemble(folder, read_rules(folder))


def assemble(folder: Path, rules: Rules) -> Contest:
    """The contest of these rules and of the files in the folder."""
    if rules.mimic.hidden:
        names = f"{rules.mimic.hidden} of the mimic model's members not named (mimic.hidden)"
        hint = "only the organisers' own folder can score"
        raise RulesError(f"{folder / RULES_FILE}: made for participants: {names}; {hint}")
    problems, models, alignments = list[str](), list[Model](), list[Alignment]()
    classes, shots = tuple[str, ...](), tuple[ContestImage, ...]()
    for member in rules.mimic.members:
        with _collect_errors(problems):
            file = folder / member.file
            if not file.is_file():
                raise InputError(f"{member.name}: no file {member.file}")
            if (digest := fingerprint.of_file(file)) != member.sha256:
                hashes = f"its sha256 is {digest}, expected {member.sha256}"
                raise InputError(f"{member.name}: {member.file} is not the model of the rules: {hashes}")
            models.append(with_thresholds(load_model(file), rules))
    with _collect_errors(problems):
        classes, shots = _shots(folder, rules, problems)
    with _collect_errors(problems):
        opened_features(rules.features, rules.features_sha256, 1, rules.distance)
    for model in models if classes else ():
        with _collect_errors(problems):
            alignments.append(aligned(model, classes))
    if problems:
        raise RulesError(f"{folder / RULES_FILE}: {join_problems(problems)}")
    members = tuple(models), tuple(alignments)
    return Contest(folder, rules, classes, *members, shots=shots, hashes=hashes_of(folder, rules))


@contextmanager
def _collect_errors(problems: list[str]) -> Iterator[None]:
    """Add an InputError to the problems instead of raising it."""
    try:
        yield
    except InputError as problem:
        problems.append(str(problem))


def with_thresholds(model: Model, rules: Rules) -> Model:
    """The model with the score and NMS thresholds of the rules instead of its card's."""
    card = dataclasses.replace(model.card, score=rules.score, nms_iou=rules.nms_iou)
    return dataclasses.replace(model, card=card)


def aligned(model: Model, classes: tuple[str, ...]) -> Alignment:
    """The alignment of a detector's classes with the truth. Raise DataError if a class is missing."""
    try:
        if model.card.task != "detect":
            raise DataError(f"expected a detector, got a {MODEL_KINDS[model.card.task]}")
        alignment = align(model.card.classes, classes)
        if alignment.of_data.tolist() != list(range(len(classes))):
            raise DataError("several classes of the data are one class of the model; rename them")
    except DataError as problem:
        raise DataError(f"{model.name}: {problem}") from None
    return alignment


def _shots(
    folder: Path, rules: Rules, problems: list[str]
) -> tuple[tuple[str, ...], tuple[ContestImage, ...]]:
    """Classes and images by number; images that are not the contest's own are added to `problems`."""
    manifest = read_manifest(folder)
    data = coco(folder / TRUTH, image_folder=folder / "images")
    entries = {e.name: e for e in data.entries if isinstance(e, FileEntry)}
    names = [f"{n}.png" for n in range(1, rules.images + 1)]
    missing = [name for name in names if name not in entries or name not in manifest]
    if missing:
        where = f"images/, {TRUTH} or {MANIFEST}"
        raise DataError(f"images: the rules say {rules.images}, but {_first(missing)} are missing in {where}")
    # Participants must not be blamed for problems of the originals.
    size = Size(rules.width, rules.height)
    changed = [n for n in names if fingerprint.of_file(folder / "images" / n) != manifest[n]]
    if changed:
        problems.append(f"images: {_first(changed)}: not the images the contest was made with")
    elif (image_size := sniff((folder / "images" / names[0]).read_bytes(), names[0]).size) != size:
        expected, got = (f"{s.width}×{s.height}" for s in (size, image_size))
        problems.append(f"width, height: the rules say {expected}, the images are {got}")
    shots = (
        ContestImage(number, Path(entries[name].path), manifest[name], truth, size)
        for number, name in enumerate(names, 1)
        if isinstance(truth := entries[name].truth, PixelBoxes)
    )
    return data.classes, tuple(shots)


def _first(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def read_manifest(folder: Path) -> Mapping[str, str]:
    """Image -> sha256 of its file when the contest was created."""
    path = folder / MANIFEST
    try:
        rows: list[dict[str, Any]] = orjson.loads(path.read_bytes())["order"]
        return {row["name"]: row["sha256"] for row in rows}
    except OSError as problem:
        raise InputError(f"{path}: cannot be read: {problem.strerror}") from None
    except (KeyError, TypeError, ValueError):
        raise InputError(f"{path}: expected the list of images `holdfast contest init` wrote") from None
