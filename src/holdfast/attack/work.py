"""The work of one process: images attacked one by one, each into its cell, the picture beside it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from holdfast.attack.judge import Judge, found_boxes, open_judge, shortfall, target_in
from holdfast.attack.masks import count_regions
from holdfast.attack.plan import Task
from holdfast.attack.result import Attempt, Pair, attempt_from_plain, attempt_to_plain
from holdfast.attack.types import Found, Target, check_time
from holdfast.core import fingerprint
from holdfast.core.dataset import Entry
from holdfast.core.errors import DataError, ImageError
from holdfast.core.patch import amplitude, apply, changed, changed_pixels, difference
from holdfast.core.pipeline import pipeline_of
from holdfast.core.registry import lookup
from holdfast.core.seeds import generator
from holdfast.core.types import Boxes, Detections, Floats, Image, Sample, Size
from holdfast.data.patchfile import files_of, png_of
from holdfast.engine.cells import ItemWork, Setup
from holdfast.engine.pipelines import content_of
from holdfast.engine.records import Failed
from holdfast.engine.store import write_atomic
from holdfast.metrics.similarity import psnr, ssim

IMAGES, PATCHES = "images", "patches"
SMALLEST = 16  # pixels a side: what SSIM and the feature nets need
WEAK = 0.01  # score from which a black-box search is told of detections


@dataclass(frozen=True)
class Opened:
    """What a process holds open: the judges, and the search with all it needs."""

    judge: Judge
    unseen: dict[str, Judge]
    search: Callable[[Target, np.random.Generator], Found]
    features: Callable[[Sequence[Image]], Floats] | None


@dataclass(frozen=True)
class AttackWork(ItemWork[Entry, Opened]):
    """The attack on images, one by one."""

    task: Task
    names: dict[str, str]  # image -> its file's name in the folder of results

    def setups(self) -> list[Setup]:
        """Models, pipelines, method, limits and seed."""
        return [self.task.setup]

    def contents(self, item: Entry) -> list[list[str]]:
        """Name and content of the image."""
        return [content_of(item)]

    def open(self, threads: int) -> Opened:
        """The judges and the search."""
        return open_work(self.task, threads)

    def compute_item(self, state: Opened, item: Entry) -> dict[str, Any]:
        """The attempt on one image."""
        return attempt_to_plain(attacked(self.task, state, item))

    def use(self, item: Entry, values: Sequence[Any]) -> None:
        """Write the attacked image and its patch to the folder of results."""
        attempt = attempt_from_plain(values[0])
        if isinstance(attempt, Failed):
            return
        name = self.names[item.name]
        image, patch = (self.task.out / folder / f"{name}.png" for folder in (IMAGES, PATCHES))
        if image.is_file() and fingerprint.of_file(image) == attempt.image_sha256:
            return  # it is written last
        if attempt.pixels:
            about = {"image": item.name, "model": self.task.model.name, "sha256": self.task.model.sha256}
            png, toml = files_of(attempt.patch, {**about, "seed": self.task.seed, "pixels": attempt.pixels})
            write_atomic(patch, png, durable=False)
            write_atomic(patch.with_suffix(".toml"), toml, durable=False)
        clean = lookup("decode", self.task.pipeline.decode)(item.load().data)
        write_atomic(image, png_of(apply(clean, attempt.patch)), durable=False)


def open_work(task: Task, threads: int) -> Opened:
    """Everything an attack needs, opened once a process."""
    rule = task.method.rule
    judge = open_judge(task.model, task.pipeline, rule, threads)
    unseen = {m.name: open_judge(m, None, rule, threads) for m in task.unseen}
    features = None
    if task.features:
        from holdfast.stages.features import open_features

        features = open_features(task.features, threads)
    return Opened(judge, unseen, _search(task, judge, threads), features)


def _search(task: Task, judge: Judge, threads: int) -> Callable[[Target, np.random.Generator], Found]:
    if task.patch is not None:
        return lambda target, _rng: _laid(task, judge, target)
    if task.method.black_box:
        return _black(task, judge, threads)
    from holdfast.attack.gradient.search import search

    victims = victims_of(task, threads)
    return lambda target, rng: search(victims, target, task.method, task.limits, rng, task.until)


def _black(task: Task, judge: Judge, threads: int) -> Callable[[Target, np.random.Generator], Found]:
    """The search from predictions alone; it is told of weak detections too, which show where to go."""
    from holdfast.attack.random_search import search_black

    rule = dataclasses.replace(task.method.rule, score=min(WEAK, task.method.rule.score))
    judges = [open_judge(task.model, p, rule, threads) for p in (task.pipeline, *task.deployments)]

    def hints(image: Image) -> Detections:
        check_time(task.until)
        said = [one(image) for one in judges]  # a target is lost when none of them finds it
        columns = ([getattr(d, name) for d in said] for name in ("boxes", "scores", "classes"))
        return Detections(*map(np.concatenate, columns))

    def search(target: Target, rng: np.random.Generator) -> Found:
        found = search_black(hints, target, task.method, task.limits, rng)
        return dataclasses.replace(found, after=judge(found.image))

    return search


def victims_of(task: Task, threads: int = 1) -> list[Any]:
    """The attacked model, then its deployments, then the surrogates, opened for gradients."""
    from holdfast.attack.gradient.victim import open_victim, use_threads

    use_threads(threads)
    rule = task.method.rule
    own = [open_victim(task.model, p, rule, threads) for p in (task.pipeline, *task.deployments)]
    others = [open_victim(m, pipeline_of(m.card), rule, threads) for m in task.surrogates]
    return [*own, *others]


def _laid(task: Task, judge: Judge, target: Target) -> Found:
    """The universal patch on one image."""
    if task.patch is None:
        raise DataError("no universal patch was made")
    image = apply(target.image, task.patch, target.boxes.xyxy)
    after = judge(image)
    done = shortfall(task.method.goal, target, after, task.method.rule) == 0.0
    return Found(image, after, done, 0, 0.0)


def attacked(task: Task, opened: Opened, entry: Entry) -> Attempt | Failed:
    """What became of one image; one that cannot be read is counted, not fatal."""
    try:
        sample = entry.load()
        image = opened.judge.machine.decode(sample.data)
        return _attempt(task, opened, sample, image)
    except ImageError as problem:
        return Failed(entry.name, str(problem))


def _attempt(task: Task, opened: Opened, sample: Sample, image: Image) -> Attempt:
    truth = sample.truth
    if not isinstance(truth, Boxes):
        raise DataError(f"{sample.name}: expected boxes as truth, got {type(truth).__name__}")
    if min(image.shape[:2]) < SMALLEST:
        size = f"{image.shape[1]}×{image.shape[0]}"
        raise ImageError(f"expected a picture of at least {SMALLEST}×{SMALLEST} pixels to attack, got {size}")
    rule = task.method.rule
    target = target_in(opened.judge, image, known_boxes(truth, task), rule, task.method.goal)
    found = (
        Found(image, opened.judge(image), False, 0, 0.0, note="nothing true is found in the clean image")
        if target is None
        else opened.search(target, generator(task.seed, "attack", sample.name))
    )
    before = opened.judge(image) if target is None else target.before
    ours, still = (
        np.zeros(0, bool) if target is None else found_boxes(said, target.boxes, rule)
        for said in (before, found.after)
    )
    ratio = psnr(image, found.image)
    return Attempt(
        sample.name,
        Size(image.shape[1], image.shape[0]),
        truth,
        Pair(before, found.after),
        targets=int(ours.sum()),
        left=int((ours & still).sum()),
        success=found.success,
        pixels=changed_pixels(image, found.image),
        amplitude=amplitude(image, found.image),
        regions=count_regions(changed(image, found.image)),
        psnr=ratio if math.isfinite(ratio) else None,
        ssim=ssim(image, found.image),
        steps=found.steps,
        seconds=round(found.seconds, 3),
        patch=difference(image, found.image),
        image_sha256=fingerprint.of_bytes(png_of(found.image)),
        unseen={name: Pair(judge(image), judge(found.image)) for name, judge in opened.unseen.items()},
        trail=found.trail,
        note=found.note,
        features=None if opened.features is None else opened.features([image, found.image]),
    )


def known_boxes(truth: Boxes, task: Task) -> Boxes:
    """The true boxes of classes the model knows, by its own numbers."""
    classes = task.to_model[truth.classes] if len(task.to_model) else truth.classes
    keep = classes >= 0
    return Boxes(truth.xyxy[keep], classes[keep], truth.crowd[keep], truth.difficult[keep], truth.areas[keep])
