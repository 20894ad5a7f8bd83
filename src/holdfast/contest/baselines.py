"""Simple reference entries that are scored with a new contest; a real entry should beat them."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from holdfast.contest.board import ScoreRecord, enter, read_ledger
from holdfast.contest.contest import CACHE, TRUTH, Contest, Phase
from holdfast.contest.entry import pack
from holdfast.contest.judging import ContestImage, noisy
from holdfast.contest.make import is_written
from holdfast.contest.run import score
from holdfast.core import fingerprint
from holdfast.core.errors import DataError
from holdfast.core.extras import is_installed
from holdfast.core.fingerprint import generator
from holdfast.core.sources import code_of
from holdfast.core.types import Boxes, Image
from holdfast.data.patchfile import png_of
from holdfast.data.readers.coco import coco
from holdfast.engine.cells import ItemWork, Setup, run
from holdfast.engine.store import write_atomic
from holdfast.metrics.rules import rule_named

PREFIX = "baseline-"
GREY = 128
STEPS = 50  # gradient steps; most images need fewer
Baseline: TypeAlias = Callable[[Image, Boxes, int, np.random.Generator], Image]


def grey_square(image: Image, boxes: Boxes, pixels: int, rng: np.random.Generator) -> Image:
    """The image with a grey square in the middle of its largest true box, as large as the limit allows."""
    out = np.array(image)
    side = min(int(pixels**0.5), *out.shape[:2])
    sides = boxes.xyxy[:, 2:] - boxes.xyxy[:, :2]
    if not len(sides) or not side:
        return out
    x1, y1, x2, y2 = boxes.xyxy[int(sides.prod(axis=1).argmax())]
    left = int(np.clip(round((x1 + x2 - side) / 2), 0, out.shape[1] - side))
    top = int(np.clip(round((y1 + y2 - side) / 2), 0, out.shape[0] - side))
    out[top : top + side, left : left + side] = GREY
    return out


def our_attack(contest: Contest, folder: Path, phase: Phase, jobs: int) -> None:
    """Write the images 1.png … N.png, attacked through the single model; an interrupted attack resumes.

    The hidden members are not used: a participant could run the same attack. Patches are not
    shrunk to the fewest pixels, which takes about five times as long (benchmarks/results/attack.md).
    """
    from holdfast.attack.plan import AttackPlan
    from holdfast.attack.run import attack
    from holdfast.attack.types import Limits, Method, Rule
    from holdfast.evaluate.run import EvaluationPlan
    from holdfast.evaluate.score import Settings

    rules = contest.rules
    # By code and contest, so that an attack of another version is not continued.
    out = contest.folder / CACHE / f"attack-{fingerprint.of([code_of('attack'), contest.hashes.whole])[:12]}"
    data = coco(contest.folder / TRUTH, image_folder=contest.folder / "images")
    settings = Settings(rule_named(rules.ap), rules.iou, rules.score)
    plan = EvaluationPlan(contest.models[contest.single], data, settings=settings, jobs=jobs, strict=True)
    method = Method(rule=Rule(rules.score, rules.iou, rules.nms_iou), shrink=False)
    limits = Limits(pixels=rules.pixels, steps=STEPS)
    with phase("baseline-attack images", len(data)) as step:
        result = attack(AttackPlan(plan, out, method, limits, seed=rules.seed, features=""), step)
    if result.failed:
        raise DataError(f"baseline-attack: {result.failed[0]}")
    shutil.rmtree(folder, ignore_errors=True)
    (out / "images").replace(folder)
    for old in (contest.folder / CACHE).glob("attack-*"):
        shutil.rmtree(old)


# name -> its function on one image; the team is called baseline-NAME
BASELINES: dict[str, Baseline] = {
    "identity": lambda image, _boxes, _pixels, _rng: image,  # S_e and distance must be 0
    "grey": grey_square,
    "random": lambda image, boxes, pixels, rng: noisy(image, boxes.xyxy, pixels, rng),
}


@dataclass(frozen=True)
class BaselineWork(ItemWork[ContestImage, None]):
    """The images of a baseline, written to a folder."""

    name: str
    pixels: int
    seed: int
    folder: Path

    def setups(self) -> list[Setup]:
        """The baseline, its budget and its seed."""
        return [Setup("contest", ["baseline", self.name, self.pixels, self.seed])]

    def contents(self, item: ContestImage) -> list[Any]:
        """Number, original and truth of the image."""
        return [[item.number, item.sha256, item.truth.fingerprint()]]

    def open(self, threads: int) -> None:
        """Open nothing."""

    def is_valid(self, setup: int, data: bytes) -> bool:
        """Whether the image exists and is the one that was written."""
        return is_written(self.folder, data)

    def compute_item(self, state: None, item: ContestImage) -> dict[str, str]:
        """Write the image; return its name and hash."""
        rng = generator(self.seed, "baseline", self.name, item.number)
        image = BASELINES[self.name](item.before(), item.truth.read(item.name, b""), self.pixels, rng)
        png = png_of(image)
        write_atomic(self.folder / item.name, png, durable=False)
        return {"file": item.name, "sha256": fingerprint.of_bytes(png)}


def enter_baselines(contest: Contest, phase: Phase, jobs: int = 0) -> tuple[ScoreRecord, ...]:
    """Pack and score all baselines like any entry and return their records; existing records are reused.

    Our attack is one of them if torch is installed.
    """
    records = {r.team: r for r in read_ledger(contest.folder) if r.hashes == contest.hashes}
    names = (*BASELINES, *(["attack"] if is_installed("torch") else []))
    for name in names:
        team = f"{PREFIX}{name}"
        if team in records:
            continue
        folder = contest.folder / CACHE / team
        if name == "attack":
            our_attack(contest, folder, phase, jobs)
        else:
            work = BaselineWork(name, contest.rules.pixels, contest.rules.seed, folder)
            with phase(f"{team} images", len(contest.shots)) as step:
                run(work, contest.shots, contest.store, jobs=jobs, progress=step)
        archive = pack(folder, team, contest.folder / CACHE)
        with phase(team, len(contest.shots)) as step:
            result = score(contest, archive, step, jobs)
        records[team] = enter(contest.folder, archive, result)
        archive.unlink()
        shutil.rmtree(folder)
    return tuple(records[f"{PREFIX}{name}"] for name in names)
