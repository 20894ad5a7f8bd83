"""What a contest is to be made of, opened and checked before anything is written."""

from __future__ import annotations

import dataclasses
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from holdfast.contest.contest import aligned
from holdfast.contest.points import AP_RULES
from holdfast.contest.rules import RULES_FILE, Member, Rules, Vote
from holdfast.core import fingerprint
from holdfast.core.dataset import Dataset, Entry
from holdfast.core.errors import DataError, InputError, ModelError, UnknownName
from holdfast.core.model import Model
from holdfast.core.seeds import generator
from holdfast.core.types import Size
from holdfast.data.open import open_dataset
from holdfast.engine.store import to_json, write_atomic
from holdfast.graph.load import load_model, shipped

MAKING = "making.json"  # there as long as the contest is not finished
HIDDEN = ("signs-free", "signs-plain")  # the shipped models that are hidden members by default


@dataclass(frozen=True)
class Setup:
    """What was asked for."""

    folder: Path
    data: str = "signs"
    model: str = "signs-yolo"
    members: tuple[str, ...] = HIDDEN  # besides the model
    images: int = 1000
    seed: int = 0
    name: str = ""
    size: Size = field(default_factory=lambda: Size(416, 416))
    features: str = "signs"
    distance_min: float = 0.0
    distance_max: float | None = None  # None: measured
    pixels: int = 3000
    ap: str = "voc"
    iou: float = 0.5
    score: float = 0.25
    nms_iou: float = 0.45
    least: int | None = None  # None: more than half of the members
    vote_iou: float = 0.5
    data_format: str | None = None
    split: str | None = None


@dataclass(frozen=True)
class Ready:
    """The setup with everything opened: rules whose distance.max may still be unknown, data, models."""

    setup: Setup
    rules: Rules
    data: Dataset = field(repr=False)
    entries: tuple[Entry, ...] = field(repr=False)  # in the order in which they are looked at
    classes: tuple[str, ...]
    models: tuple[Model, ...] = field(repr=False)  # the single one first

    def identity(self) -> dict[str, Any]:
        """What tells one contest from another; without the key "images", which COCO files are known by."""
        plain = dataclasses.asdict(self.setup)
        plain = {k: v for k, v in plain.items() if k not in ("folder", "members", "model", "name")}
        plain["data"] = (
            self.setup.data if _embedded(self.setup.data) else str(Path(self.setup.data).resolve())
        )
        plain["count"] = plain.pop("images")
        plain["models"] = [[m.name, m.sha256, fingerprint.of(m.card)] for m in self.models]
        plain["name"] = self.rules.name
        found: dict[str, Any] = orjson.loads(to_json(plain))
        return found


def ready(setup: Setup) -> Ready:
    """Everything opened and checked; InputError for what does not fit together."""
    if setup.ap not in AP_RULES:
        raise UnknownName("AP rule", setup.ap, AP_RULES)
    data = _data(setup)  # first: too few images are reported before any model is opened or run
    names = list(dict.fromkeys([setup.model, *setup.members]))
    models = tuple(_load(name) for name in names)
    twice = [m.name for m in models if sum(o.name == m.name for o in models) > 1]
    if twice:
        raise InputError(f"--members: two models are called {twice[0]!r}; rename one of the files")
    classes = data.classes or models[0].card.classes
    for model in models:
        try:
            aligned(model, classes)
        except DataError as problem:
            raise DataError(f"{model.name}: {problem}") from None
    order = generator(setup.seed, "contest", "order").permutation(len(data.entries))
    entries = tuple(data.entries[i] for i in order.tolist())
    return Ready(setup, _rules(setup, models, data.name), data, entries, classes, models)


def _load(name: str) -> Model:
    try:
        return load_model(name)
    except UnknownName:
        if name in HIDDEN:
            raise ModelError(
                f"{name}: this model, a hidden member by default, is not shipped in this version; "
                f"name others by --members (shipped: {', '.join(shipped())})"
            ) from None
        raise


def _embedded(data: str) -> bool:
    return data.split(":")[0] == "signs"


def _data(setup: Setup) -> Dataset:
    """The dataset, with at least as many images as the contest; of the embedded one twice as many scenes."""
    how: dict[str, Any] = {"task": "detect", "format": setup.data_format, "split": setup.split}
    more = 2 * setup.images if _embedded(setup.data) and setup.data.count(":") < 2 else None
    data = open_dataset(setup.data, images=more, **how)
    if len(data.entries) < setup.images:
        raise DataError(
            f"--images {setup.images}: {data.name} has only {len(data.entries)} images; "
            f"ask for at most {len(data.entries)} or give a larger dataset"
        )
    return data


def _rules(setup: Setup, models: tuple[Model, ...], data: str) -> Rules:
    from holdfast.stages.features import open_features

    net = open_features(setup.features)
    members = tuple(Member(m.name, f"models/{m.name}.onnx", fingerprint.of_bytes(m.read())) for m in models)
    least = len(members) // 2 + 1 if setup.least is None else setup.least
    if not 1 <= least <= len(members):
        raise InputError(f"--vote: expected 1 to {len(members)}, the number of members, got {least}")
    if setup.pixels > setup.size.width * setup.size.height:
        raise InputError(f"--pixels: an image has only {setup.size.width * setup.size.height} of them")
    top = float("inf") if setup.distance_max is None else setup.distance_max
    if top <= setup.distance_min:
        raise InputError(f"--distance-max: expected more than --distance-min, got {top}")
    kind, _, file = setup.features.partition(":")
    same = ("images", "pixels", "ap", "iou", "score", "nms_iou", "seed", "distance_min")
    return Rules(
        name=setup.name or data,
        single=members[0],
        mimic=Vote(members, least, setup.vote_iou),
        features=f"{kind}:{Path(file).resolve()}" if file else kind,  # found from any folder
        features_sha256=net.sha256,
        distance=net.name,
        distance_max=top,
        width=setup.size.width,
        height=setup.size.height,
        **{key: getattr(setup, key) for key in same},
    )


def claim(made: Ready) -> bool:
    """Whether a contest that was begun is gone on with; InputError if the folder holds something else."""
    folder, mark = made.setup.folder, made.setup.folder / MAKING
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder}: is a file; expected a new or empty folder")
    there = sorted(p.name for p in folder.iterdir()) if folder.is_dir() else []
    if not there:
        write_atomic(mark, to_json(made.identity(), indent=True))
        return False
    if MAKING not in there:
        what = "a finished contest" if RULES_FILE in there else f"{there[0]!r} in it"
        raise InputError(f"{folder}: expected a new or empty folder, got one with {what}; give another")
    try:
        before = orjson.loads(mark.read_bytes())
    except ValueError:
        before = {}
    mine = made.identity()
    if before != mine:
        differ = [k for k in mine if before.get(k) != mine[k]]
        raise InputError(
            f"{folder}: holds a half-made contest with other options ({', '.join(differ)}); "
            "repeat those, or give another folder"
        )
    return True


def clear(folder: Path) -> None:
    """Nothing; all that was made in a folder that was empty before is gone again."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
