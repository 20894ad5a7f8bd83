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
BATCH = 4  # targets per step
WAY = 1500.0  # divided by the number of steps: the size of the first step, of 255, clipped to FIRST
FIRST, LAST = (16.0, 128.0), 2.0
MOMENTUM = 0.9
FLOOR = 0.4  # factor on the rule's score, so that candidates are suppressed with a margin
CHECKS = 6  # times the patch of a restart is judged; the best one is returned
JUDGED = 40  # maximum number of targets per check


@dataclass(frozen=True)
class UniversalWork(ItemWork[tuple[Entry, ...], None]):
    """The search for one patch; its item is the whole dataset."""

    task: AttackTask
    progress: Progress

    def setups(self) -> list[Setup]:
        """The attack and the position of the patch."""
        return [Setup("attack", [self.task.facts, "universal", self.task.attack.universal])]

    def contents(self, item: tuple[Entry, ...]) -> list[Any]:
        """Name and content of every image."""
        return [[content_of(entry) for entry in item]]

    def open(self, threads: int) -> None:
        """Open nothing: the search opens what it needs."""

    def compute_item(self, state: None, item: tuple[Entry, ...]) -> list[str]:
        """The patch as PNG and TOML."""
        task, plan, method = self.task, self.task.attack, self.task.attack.method
        judge = open_judge(task.model, task.pipeline, method.rule)
        targets = []
        for entry in item:
            try:
                sample = entry.load()
                image = judge.machine.decode(sample.data)
            except ImageError:  # reported when the image is attacked
                continue
            if isinstance(sample.truth, Boxes):
                boxes = known_boxes(sample.truth, task.to_model)
                if target := target_in(judge, image, boxes, method.rule, method.goal):
                    targets.append(target)
        if not targets:
            name = plan.plan.dataset.name
            raise DataError(f"{task.model.name} detects no true object in {name}: nothing to attack")
        rng, where = generator(plan.seed, "universal"), OnBoxes() if plan.universal == "boxes" else Position()
        patch = universal(victims_of(task), targets, method, plan.limits, where, rng, self.progress)
        return patch_to_plain(patch)


def make_universal(plan: AttackPlan, progress: Progress = silent) -> Patch:
    """Search one patch for the whole dataset, on the images in which a true object is detected.

    It is stored as a cell: a resumed run continues with the same patch.
    """
    task = task_of(plan, alignment_of(plan.plan))
    (plain,) = run(UniversalWork(task, progress), [plan.plan.dataset.entries], task.store).read()
    return patch_from_plain(plain)


def universal(
    victims: Sequence[Victim],
    targets: Sequence[Target],
    method: Method,
    limits: Limits,
    where: Position | OnBoxes,
    rng: np.random.Generator,
    progress: Progress = silent,
) -> Patch:
    """Search the patch that leaves the fewest targets detected.

    Each of the `limits.steps` steps uses a few of the targets. The patch covers at most `limits.pixels` of
    every image: on boxes this limits its relative side, at a fixed position its own size.
    """
    from holdfast.attack.gradient.victim import open_oracle  # here, because it needs torch

    blank = blank_patch(targets, limits, where)
    oracles = [open_oracle(victims, t, method) for t in targets]
    end = time.perf_counter() + (limits.seconds * len(targets) if limits.seconds else np.inf)
    best, fewest = blank, np.inf
    first = float(np.clip(WAY / limits.steps, *FIRST))
    sample = [oracles[i] for i in rng.permutation(len(oracles))[:JUDGED]]
    for _ in range(limits.restarts):
        pixels = rng.uniform(0.0, 255.0, (blank.mask.size, 3))
        momentum = np.zeros_like(pixels)
        for step in range(limits.steps):
            momentum = MOMENTUM * momentum + _mean_slope(oracles, blank, pixels, rng)
            size = first * (LAST / first) ** (step / max(1, limits.steps - 1))
            pixels = np.clip(pixels - size * np.sign(momentum), 0.0, 255.0)
            progress(1, 0)
            late = time.perf_counter() >= end
            if late or (step + 1) % max(1, limits.steps // CHECKS) == 0 or step + 1 == limits.steps:
                values = np.rint(pixels).astype(np.uint8).reshape(blank.pixels.shape)
                patch = Patch(values, blank.mask, blank.where)
                surviving = remaining(sample, patch, method)
                best, fewest = (patch, surviving) if surviving <= fewest else (best, fewest)
            if late:
                return best
    return best


def blank_patch(targets: Sequence[Target], limits: Limits, where: Position | OnBoxes) -> Patch:
    """A grey patch as large as the limits allow. Raise InputError if no patch can satisfy them."""
    if not targets:
        raise InputError("a universal patch needs targets, got none")
    if limits.amplitude < 255:
        raise InputError(
            f"a universal patch replaces pixels: expected amplitude 255, got {limits.amplitude}; omit it, or "
            "attack every image separately"
        )
    side = int(np.sqrt(limits.pixels))
    if isinstance(where, Position):
        height, width = np.min([t.image.shape[:2] for t in targets], axis=0).clip(max=side)
        return _grey(height, width, where)
    most = max(len(t.boxes) for t in targets)
    if limits.regions and most > limits.regions:
        raise InputError(
            f"a patch on every box: an image has {most} boxes, more than --regions {limits.regions}; "
            "raise it, or use --universal spot"
        )
    # Sides are rounded up to whole pixels, hence a margin of one pixel per box.
    reach = min(where.side, *(_reach(t, limits.pixels) for t in targets))
    return _grey(SIDE, SIDE, dataclasses.replace(where, side=reach))


def _grey(height: int, width: int, where: Position | OnBoxes) -> Patch:
    return Patch(np.full((height, width, 3), 127, np.uint8), np.ones((height, width), bool), where)


def _reach(target: Target, pixels: int) -> float:
    """The largest share of the shorter sides at which the patches on all boxes cover at most `pixels`."""
    sides = np.maximum((target.boxes.xyxy[:, 2:] - target.boxes.xyxy[:, :2]).min(axis=1), 1e-9)
    low, high = 0.0, 1.0
    for _ in range(20):
        middle = (low + high) / 2
        fits = (np.ceil(middle * sides + 0.5) ** 2).sum() <= pixels
        low, high = (middle, high) if fits else (low, middle)
    return max(low, 1e-3)


def places_of(target: Target, patch: Patch) -> Ints:
    """Per image pixel (h, w) the index of the patch pixel that `core.patch.apply` draws there; -1: none."""
    height, width = patch.mask.shape
    number = np.arange(1, height * width + 1).reshape(height, width)
    # Encode the index as a colour, so that the positions are exactly those of `apply`.
    colours = np.stack([number & 255, number >> 8 & 255, number >> 16], axis=2).astype(np.uint8)
    numbered = Patch(colours, patch.mask, patch.where)
    drawn = apply(np.zeros_like(target.image), numbered, target.boxes.xyxy).astype(np.int64)
    return np.asarray(drawn[..., 0] + (drawn[..., 1] << 8) + (drawn[..., 2] << 16) - 1, np.int64)


def remaining(oracles: Sequence[Oracle], patch: Patch, method: Method) -> float:
    """The share of targets (goal vanish) or of images that survive the patch, for the first victim."""
    surviving, total = 0, 0
    for oracle in oracles:
        first = oracle.parties[0]
        image = apply(first.target.image, patch, first.target.boxes.xyxy)
        if method.goal == "vanish":
            surviving += int(found_boxes(first.victim.judge(image), first.target.boxes, method.rule).sum())
            total += len(first.target.boxes)
        else:
            surviving += not oracle.judged(image)[0]
            total += 1
    return surviving / max(1, total)


def slope_of(oracle: Oracle, blank: Patch, pixels: Floats, rng: np.random.Generator) -> Floats:
    """The gradient (k, 3) of the loss in one image for the patch's pixels (k, 3)."""
    target = oracle.parties[0].target
    indices = places_of(target, blank)
    covered = indices >= 0
    _, slope = oracle.slope(np.where(covered[..., None], pixels[indices], target.image), rng, FLOOR)
    at, gradient = indices[covered], slope[covered]
    return np.stack([np.bincount(at, gradient[:, c], len(pixels)) for c in range(3)], axis=1)


def _mean_slope(oracles: Sequence[Oracle], blank: Patch, pixels: Floats, rng: np.random.Generator) -> Floats:
    """The gradient (k, 3) over a few random targets, with mean magnitude 1."""
    batch = rng.choice(len(oracles), size=min(BATCH, len(oracles)), replace=False)
    total: Floats = np.sum([slope_of(oracles[i], blank, pixels, rng) for i in batch], axis=0)
    size = float(np.abs(total).mean())
    return total / size if size else total
