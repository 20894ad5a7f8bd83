"""The work of one process: attack images one by one and write each attacked image."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.attack.judge import Judge, found_boxes, known_boxes, open_judge, shortfall, target_in
from holdfast.attack.masks import count_regions
from holdfast.attack.plan import AttackTask
from holdfast.attack.prints import print_name, print_png, prints_of
from holdfast.attack.result import Attempt, Pair, attempt_from_plain, attempt_to_plain
from holdfast.attack.survival import survival
from holdfast.attack.types import SearchResult, Target, check_time
from holdfast.core import fingerprint
from holdfast.core.dataset import Entry
from holdfast.core.errors import DataError, ImageError
from holdfast.core.fingerprint import generator
from holdfast.core.patch import Patch, Survival, amplitude, apply, changed, changed_pixels, difference
from holdfast.core.pipeline import pipeline_of
from holdfast.core.registry import lookup
from holdfast.core.types import Boxes, Detections, Floats, Image, Sample, Size
from holdfast.data.patchfile import files_of, png_of
from holdfast.engine.cells import ItemWork, Setup
from holdfast.engine.pipelines import content_of
from holdfast.engine.records import FailedImage
from holdfast.engine.store import write_atomic
from holdfast.metrics.similarity import psnr, ssim

IMAGES, PATCHES = "images", "patches"
SMALLEST = 16  # pixels a side: what SSIM and the feature nets need
WEAK = 0.01  # lowest score of detections that a black-box search uses


@dataclass(frozen=True)
class AttackWorker:
    """The open resources of a process: the judges, the search, the feature network."""

    judge: Judge
    unseen: dict[str, Judge]
    search: Callable[[Target, np.random.Generator], SearchResult]
    features: Callable[[Sequence[Image]], Floats] | None


@dataclass(frozen=True)
class AttackWork(ItemWork[Entry, AttackWorker]):
    """The attack on images, one by one."""

    task: AttackTask
    names: dict[str, str]  # image -> its file's name in the folder of results

    def setups(self) -> list[Setup]:
        """Models, pipelines, method, limits and seed."""
        return [self.task.setup]

    def contents(self, item: Entry) -> list[list[str]]:
        """Name and content of the image."""
        return [content_of(item)]

    def open(self, threads: int) -> AttackWorker:
        """The judges and the search."""
        from holdfast.stages.features import open_features

        task, plan = self.task, self.task.attack
        judge = open_judge(task.model, task.pipeline, plan.method.rule, threads)
        unseen = {m.name: open_judge(m, None, plan.method.rule, threads) for m in plan.unseen}
        features = open_features(plan.features, threads) if plan.features else None
        return AttackWorker(judge, unseen, _search(task, judge, threads), features)

    def compute_item(self, state: AttackWorker, item: Entry) -> dict[str, Any]:
        """Attack one image; an unreadable image is counted and does not stop the run."""
        try:
            sample = item.load()
            image = state.judge.machine.decode(sample.data)
            return attempt_to_plain(_attempt(self.task, state, sample, image))
        except ImageError as problem:
            return attempt_to_plain(FailedImage(item.name, str(problem)))

    def use(self, item: Entry, values: Sequence[Any]) -> None:
        """Write the attacked image and its patch to the folder of results."""
        attempt = attempt_from_plain(values[0])
        if isinstance(attempt, FailedImage):
            return
        out, name = self.task.attack.out, f"{self.names[item.name]}.png"
        image, patch = out / IMAGES / name, out / PATCHES / name
        if image.is_file() and fingerprint.of_file(image) == attempt.image_sha256:
            return  # it is written last
        if attempt.pixels:
            about = {"image": item.name, **self.task.origin, "pixels": attempt.pixels}
            write_patch(patch, attempt.patch, about)
        for number, (rgba, size) in enumerate(prints_of(attempt, self.task.attack.method.shape)):
            path = out / print_name(self.names[item.name], number)
            write_atomic(path, print_png(rgba, size), durable=False)
        clean = lookup("decode", self.task.pipeline.decode)(item.load().data)
        write_atomic(image, png_of(apply(clean, attempt.patch)), durable=False)


def write_patch(path: Path, patch: Patch, about: Mapping[str, str | int | float]) -> None:
    """Write the PNG of a patch, and its TOML file next to it."""
    png, toml = files_of(patch, about)
    write_atomic(path, png, durable=False)
    write_atomic(path.with_suffix(".toml"), toml, durable=False)


def _search(
    task: AttackTask, judge: Judge, threads: int
) -> Callable[[Target, np.random.Generator], SearchResult]:
    plan, patch, method = task.attack, task.patch, task.attack.method
    if patch is not None:

        def apply_universal(target: Target, _rng: np.random.Generator) -> SearchResult:
            image = apply(target.image, patch, target.boxes.xyxy)
            after = judge(image)
            return SearchResult(image, after, shortfall(method.goal, target, after, method.rule) == 0.0)

        return apply_universal
    if not method.black_box:
        from holdfast.attack.gradient.search import search

        victims, until = victims_of(task, threads), plan.plan.until
        return lambda target, rng: search(victims, target, method, plan.limits, rng, until)
    from holdfast.attack.random_search import search_black

    # Weak detections guide the search.
    weak = dataclasses.replace(method.rule, score=min(WEAK, method.rule.score))
    judges = [open_judge(task.model, p, weak, threads) for p in (task.pipeline, *task.deployments)]

    def hints(image: Image) -> Detections:
        check_time(plan.plan.until)
        detections = [
            weak_judge(image) for weak_judge in judges
        ]  # a target is hidden when none of them detects it
        columns = ([getattr(d, name) for d in detections] for name in ("boxes", "scores", "classes"))
        return Detections(*map(np.concatenate, columns))

    def search_from_predictions(target: Target, rng: np.random.Generator) -> SearchResult:
        result = search_black(hints, target, method, plan.limits, rng)
        return dataclasses.replace(result, after=judge(result.image))

    return search_from_predictions


def victims_of(task: AttackTask, threads: int = 1) -> list[Any]:
    """The attacked model, then its deployments, then the surrogates, opened for gradients."""
    import torch

    from holdfast.attack.gradient.victim import open_victim

    torch.set_num_threads(max(1, threads))
    own = [(task.model, pipeline) for pipeline in (task.pipeline, *task.deployments)]
    others = [(m, pipeline_of(m.card)) for m in task.attack.surrogates]
    return [open_victim(m, pipeline, task.attack.method.rule, threads) for m, pipeline in own + others]


def _attempt(task: AttackTask, worker: AttackWorker, sample: Sample, image: Image) -> Attempt:
    truth, method = sample.truth, task.attack.method
    if not isinstance(truth, Boxes):
        raise DataError(f"{sample.name}: expected boxes as truth, got {type(truth).__name__}")
    if min(image.shape[:2]) < SMALLEST:
        size = f"{image.shape[1]}×{image.shape[0]}"
        raise ImageError(f"expected an image of at least {SMALLEST}×{SMALLEST} pixels, got {size}")
    boxes = known_boxes(truth, task.to_model)
    target = target_in(worker.judge, image, boxes, method.rule, method.goal)
    if target is None:
        before = worker.judge(image)
        result = SearchResult(image, before, False, note="no true object is detected in the clean image")
    else:
        before = target.before
        result = worker.search(target, generator(task.attack.seed, "attack", sample.name))
    # (n,): the true boxes that are detected. Without a target none is, since boxes of crowds do not count.
    detected, remaining = (found_boxes(d, boxes, method.rule) & ~boxes.crowd for d in (before, result.after))
    survived: tuple[Survival, ...] = ()
    if result.stickers and detected.any() and not (detected & remaining).any():
        targets = Boxes(boxes.xyxy[detected], boxes.classes[detected])
        views = generator(task.attack.seed, "survival", sample.name)
        survived = survival(
            worker.judge, image, result.image, targets, result.stickers, shape=method.shape, rng=views
        )
    ratio = psnr(image, result.image)
    return Attempt(
        sample.name,
        Size(image.shape[1], image.shape[0]),
        truth,
        Pair(before, result.after),
        targets=int(detected.sum()),
        left=int((detected & remaining).sum()),
        success=result.success,
        pixels=changed_pixels(image, result.image),
        amplitude=amplitude(image, result.image),
        regions=count_regions(changed(image, result.image)),
        psnr=ratio if math.isfinite(ratio) else None,
        ssim=ssim(image, result.image),
        steps=result.steps,
        seconds=round(result.seconds, 3),
        patch=difference(image, result.image),
        image_sha256=fingerprint.of_bytes(png_of(result.image)),
        unseen={name: Pair(judge(image), judge(result.image)) for name, judge in worker.unseen.items()},
        trail=result.trail,
        note=result.note,
        stickers=result.stickers,
        survival=survived,
        features=None if worker.features is None else worker.features([image, result.image]),
    )
