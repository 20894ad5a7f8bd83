"""One patch for a whole dataset: stochastic PGD over all targets, at one spot or on every box."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from holdfast.attack.judge import found_boxes, known_boxes, open_judge, target_in
from holdfast.attack.plan import AttackPlan, AttackTask, task_of
from holdfast.attack.result import patch_from_plain, patch_to_plain
from holdfast.attack.types import Limits, Method, Target
from holdfast.attack.work import victims_of
from holdfast.core.dataset import Entry
from holdfast.core.errors import DataError, ImageError, InputError
from holdfast.core.fingerprint import generator
from holdfast.core.patch import OnBoxes, Patch, Position, apply
from holdfast.core.types import Boxes, Floats, Ints
from holdfast.engine.cells import ItemWork, Setup, run
from holdfast.engine.executor import Progress, silent
from holdfast.engine.pipelines import content_of
from holdfast.evaluate.run import alignment_of

if TYPE_CHECKING:
    from holdfast.attack.gradient.victim import Oracle, Victim

SIDE = 16  # pixels of a patch that is scaled to every box
BATCH = 4  # targets a step
WAY = 1500.0  # divided by the number of steps: the first step's size, of 255, within FIRST
FIRST, LAST = (16.0, 128.0), 2.0
MOMENTUM = 0.9
FLOOR = 0.4  # of the rule's score: candidates shall be dead with something to spare
CHECKS = 6  # times a restart's patch is judged; the best of them is kept
JUDGED = 40  # targets that are judged each time, at most


@dataclass(frozen=True)
class UniversalWork(ItemWork[tuple[Entry, ...], None]):
    """The search for one patch; its item is the whole dataset."""

    task: AttackTask
    progress: Progress

    def setups(self) -> list[Setup]:
        """The attack and where the patch lies."""
        return [Setup("attack", [self.task.facts, "universal", self.task.attack.universal])]

    def contents(self, item: tuple[Entry, ...]) -> list[Any]:
        """Name and content of every image."""
        return [[content_of(entry) for entry in item]]

    def open(self, threads: int) -> None:
        """Open nothing: the search opens what it needs."""

    def compute_item(self, state: None, item: tuple[Entry, ...]) -> list[str]:
        """The patch as PNG and TOML."""
        task, plan = self.task, self.task.attack
        judge = open_judge(task.model, task.pipeline, plan.method.rule)
        targets = []
        for entry in item:
            try:
                sample = entry.load()
                image = judge.machine.decode(sample.data)
            except ImageError:  # reported when it is its turn to be attacked
                continue
            if isinstance(sample.truth, Boxes):
                boxes = known_boxes(sample.truth, task.to_model)
                targets.append(target_in(judge, image, boxes, plan.method.rule, plan.method.goal))
        found = [target for target in targets if target]
        if not found:
            name = plan.plan.dataset.name
            raise DataError(f"{task.model.name} detects no true object in {name}: nothing to attack")
        rng, where = generator(plan.seed, "universal"), OnBoxes() if plan.universal == "boxes" else Position()
        victims, method, limits = victims_of(task), plan.method, plan.limits
        return patch_to_plain(universal(victims, found, method, limits, where, rng, self.progress))


def make_universal(plan: AttackPlan, progress: Progress = silent) -> Patch:
    """One patch for the whole dataset, searched on the images in which something true is found.

    It is stored as a cell: a resumed run continues with the same patch.
    """
    task = task_of(plan, alignment_of(plan.plan))
    (found,) = run(UniversalWork(task, progress), [plan.plan.dataset.entries], task.store).read()
    return patch_from_plain(found)


def universal(
    victims: Sequence[Victim],
    targets: Sequence[Target],
    method: Method,
    limits: Limits,
    where: Position | OnBoxes,
    rng: np.random.Generator,
    progress: Progress = silent,
) -> Patch:
    """The patch, of those seen on the way, that leaves the fewest targets.

    `limits.steps` steps, each on a few of the targets. It covers at most `limits.pixels` of every target's
    image: on boxes by its side, at a spot by its own size.
    """
    from holdfast.attack.gradient.victim import open_oracle  # here, because it needs torch

    blank = blank_patch(targets, limits, where)
    aimed = [open_oracle(victims, t, method) for t in targets]
    end = time.perf_counter() + (limits.seconds * len(targets) if limits.seconds else np.inf)
    best, least = blank, np.inf
    first = float(np.clip(WAY / limits.steps, *FIRST))
    judged = [aimed[i] for i in rng.permutation(len(aimed))[:JUDGED]]
    for _ in range(limits.restarts):
        pixels = rng.uniform(0.0, 255.0, (blank.mask.size, 3))
        momentum = np.zeros_like(pixels)
        for step in range(limits.steps):
            momentum = MOMENTUM * momentum + _mean_slope(aimed, blank, pixels, rng)
            size = first * (LAST / first) ** (step / max(1, limits.steps - 1))
            pixels = np.clip(pixels - size * np.sign(momentum), 0.0, 255.0)
            progress(1, 0)
            late = time.perf_counter() >= end
            if late or (step + 1) % max(1, limits.steps // CHECKS) == 0 or step + 1 == limits.steps:
                values = np.rint(pixels).astype(np.uint8).reshape(blank.pixels.shape)
                patch = Patch(values, blank.mask, blank.where)
                left = remaining(judged, patch, method)
                best, least = (patch, left) if left <= least else (best, least)
            if late:
                return best
    return best


def blank_patch(targets: Sequence[Target], limits: Limits, where: Position | OnBoxes) -> Patch:
    """A grey patch as large as the limits allow, or InputError where they ask for what no patch can keep."""
    if not targets:
        raise InputError("a universal patch needs targets, got none")
    if limits.amplitude < 255:
        raise InputError(
            f"a universal patch replaces pixels: expected amplitude 255, got {limits.amplitude}; omit it, or "
            "attack every image separately"
        )
    side = int(np.sqrt(limits.pixels))
    if isinstance(where, Position):
        sizes = zip(*(t.image.shape[:2] for t in targets), strict=True)
        height, width = (min(side, *sides) for sides in sizes)
        return _grey(height, width, where)
    most = max(len(t.boxes) for t in targets)
    if limits.regions and most > limits.regions:
        raise InputError(
            f"a patch on every box: an image has {most} boxes, more than --regions {limits.regions}; "
            "raise it, or use --universal spot"
        )
    # Whole pixels may round up: a pixel to spare on every box.
    reach = min(where.side, *(_reach(t, limits.pixels) for t in targets))
    return _grey(SIDE, SIDE, dataclasses.replace(where, side=reach))


def _grey(height: int, width: int, where: Position | OnBoxes) -> Patch:
    return Patch(np.full((height, width, 3), 127, np.uint8), np.ones((height, width), bool), where)


def _reach(target: Target, pixels: int) -> float:
    """The largest part of the shorter sides at which patches on all boxes stay within so many pixels."""
    sides = np.maximum((target.boxes.xyxy[:, 2:] - target.boxes.xyxy[:, :2]).min(axis=1), 1e-9)
    low, high = 0.0, 1.0
    for _ in range(20):
        middle = (low + high) / 2
        area = float((np.ceil(middle * sides + 0.5) ** 2).sum())
        low, high = (middle, high) if area <= pixels else (low, middle)
    return max(low, 1e-3)


def places_of(target: Target, patch: Patch) -> Ints:
    """Which pixel of the patch (h, w) `core.patch.apply` shows where; -1: none."""
    height, width = patch.mask.shape
    number = np.arange(1, height * width + 1).reshape(height, width)
    # The number of a pixel, as its colour: so the places are exactly those of `apply`.
    colours = np.stack([number & 255, number >> 8 & 255, number >> 16], axis=2).astype(np.uint8)
    numbered = Patch(colours, patch.mask, patch.where)
    seen = apply(np.zeros_like(target.image), numbered, target.boxes.xyxy).astype(np.int64)
    return np.asarray(seen[..., 0] + (seen[..., 1] << 8) + (seen[..., 2] << 16) - 1, np.int64)


def remaining(aimed: Sequence[Oracle], patch: Patch, method: Method) -> float:
    """The part of targets that the first victim still finds under the patch; of images where goals differ."""
    left, total = 0, 0
    for oracle in aimed:
        first = oracle.parties[0]
        image = apply(first.target.image, patch, first.target.boxes.xyxy)
        if method.goal == "vanish":
            left += int(found_boxes(first.victim.judge(image), first.target.boxes, method.rule).sum())
            total += len(first.target.boxes)
        else:
            left += not oracle.judged(image)[0]
            total += 1
    return left / max(1, total)


def slope_of(oracle: Oracle, blank: Patch, pixels: Floats, rng: np.random.Generator) -> Floats:
    """The slope (k, 3) of the loss for the patch's pixels (k, 3) where they lie in one image."""
    target = oracle.parties[0].target
    places = places_of(target, blank)
    here = places >= 0
    _, slope = oracle.slope(np.where(here[..., None], pixels[places], target.image), rng, FLOOR)
    at, found = places[here], slope[here]
    return np.stack([np.bincount(at, found[:, c], len(pixels)) for c in range(3)], axis=1)


def _mean_slope(aimed: Sequence[Oracle], blank: Patch, pixels: Floats, rng: np.random.Generator) -> Floats:
    """The slope (k, 3) over a few targets drawn at random, of mean size 1."""
    chosen = rng.choice(len(aimed), size=min(BATCH, len(aimed)), replace=False)
    total = np.zeros_like(pixels)
    for i in chosen:
        total += slope_of(aimed[i], blank, pixels, rng)
    size = float(np.abs(total).mean())
    return total / size if size else total
