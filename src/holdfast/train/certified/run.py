"""Train a shallow detector whose answer withstands a patch of any content, and write it with its card."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from holdfast.core.dataset import Dataset
from holdfast.core.errors import DataError, HoldfastError
from holdfast.core.fingerprint import of_bytes
from holdfast.core.model import Card, Head, Input
from holdfast.core.pipeline import pipeline_of, place
from holdfast.core.registry import lookup
from holdfast.core.types import Boxes, Size
from holdfast.engine.executor import Progress, silent
from holdfast.graph.card import write_card
from holdfast.train.certified.net import ShallowNet, bounded_share, iou, loss
from holdfast.train.export import export
from holdfast.train.loop import Batch, Job, Say, Stage, fit

if TYPE_CHECKING:
    from holdfast.train.options import CertifiedOptions

INPUT: Final = Input(Size(64, 64), scale=1 / 255)
OUTPUTS: Final = ("box", "scores")
SHIFT: Final = 8  # pixels by which a training image is moved at most
_IMAGES: Final = 20  # images whose positions are bounded after training
_POSITIONS: Final = 100  # of each


@dataclass(frozen=True, eq=False)
class Examples:
    """Images (n, h, w, 3) uint8 as the network sees them, boxes (n, 4) as parts of the image, labels (n,)."""

    images: NDArray[np.uint8]
    boxes: NDArray[np.float32]
    labels: NDArray[np.int64]
    name: str = ""
    left_out: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.labels)

    def part(self, index: Sequence[int] | NDArray[np.int64]) -> Examples:
        """The examples with these indices."""
        at = np.asarray(index)
        return dataclasses.replace(self, images=self.images[at], boxes=self.boxes[at], labels=self.labels[at])


@dataclass(frozen=True)
class PatchStage(Stage):
    """A stage with a free patch of this side (0: none), and the weight of the bounds in the loss."""

    patch: int = 0
    weight: float = 0.0


def stages(steps: int, side: int, batch: int, rate: float) -> tuple[PatchStage, ...]:
    """Training without a patch first, then with growing patches and weights; the rate falls all along."""
    sizes = [math.ceil(side * part / 3) for part in (1, 2, 3)]
    plan = [(0, 0.0, 0.16), *zip(sizes, (0.1, 0.2, 0.3), (0.1, 0.1, 0.14), strict=True)]
    plan += [(side, 0.4, 0.2), (side, 0.5, 0.3)]
    result, done = [], 0.0
    for number, (patch, weight, share) in enumerate(plan):
        high, low = (rate * (0.01 + 0.99 * (1 + math.cos(math.pi * at)) / 2) for at in (done, done + share))
        name, count = f"patch {patch}" if patch else "clean", max(1, round(steps * share))
        warmup = min(100, count // 2) if number == 0 else 0
        result.append(
            PatchStage(
                name, count, batch, size=0, high=high, low=low, warmup=warmup, patch=patch, weight=weight
            )
        )
        done += share
    return tuple(result)


def job_of(
    name: str, examples: Examples, classes: int, plan: tuple[PatchStage, ...], seed: int, data: str
) -> Job:
    """The training job of a shallow net on these examples."""
    torch.manual_seed(seed)
    net = ShallowNet(classes, examples.images.shape[1:3])

    def draw(stage: Stage, rng: np.random.Generator) -> Batch:
        return draw_batch(examples, stage, rng)

    return Job(name, net, draw, loss, plan, seed=seed, weight_decay=1e-3, averaging=0.99, data=data)


def draw_batch(examples: Examples, stage: Stage, rng: np.random.Generator) -> Batch:
    """Images (n, 3, h, w) moved and lit at random, boxes, labels, where each patch is, and the weight."""
    index = rng.integers(len(examples), size=stage.batch)
    some = examples.part(index)
    height, width = some.images.shape[1:3]
    padded = np.pad(some.images, ((0, 0), (SHIFT, SHIFT), (SHIFT, SHIFT), (0, 0)), "edge")
    # No side of the box may leave the image.
    room = np.concatenate([some.boxes[:, :2], 1 - some.boxes[:, 2:]], 1) * [width, height, width, height]
    return _assembled(some, padded, np.clip(np.floor(room), 0, SHIFT).astype(np.int64), stage, rng)


def _assembled(
    some: Examples, padded: NDArray[np.uint8], room: NDArray[np.int64], stage: Stage, rng: np.random.Generator
) -> Batch:
    count, (height, width) = len(some), some.images.shape[1:3]
    moves = rng.integers(-room[:, :2], room[:, 2:] + 1)  # (n, 2) to the right and down
    images = np.stack(
        [
            image[SHIFT - down : SHIFT - down + height, SHIFT - right : SHIFT - right + width]
            for image, (right, down) in zip(padded, moves.tolist(), strict=True)
        ]
    )
    boxes = some.boxes + np.tile(moves / [width, height], 2).astype(np.float32)
    gain = np.exp(rng.normal(0, 0.12, (count, 1, 1, 1)) + rng.normal(0, 0.04, (count, 1, 1, 3)))
    lit = images * (gain / 255).astype(np.float32) + rng.normal(0, 0.03, (count, 1, 1, 1)).astype(np.float32)
    side = getattr(stage, "patch", 0)
    patch = np.zeros((count, 1, height, width), bool)
    corners = rng.integers(0, [height - side + 1, width - side + 1], (count, 2))
    for one, (row, column) in zip(patch, corners.tolist(), strict=True):
        one[:, row : row + side, column : column + side] = True
    tensor = torch.from_numpy(np.clip(lit, 0, 1).astype(np.float32)).permute(0, 3, 1, 2)
    weight = torch.tensor(float(getattr(stage, "weight", 0.0)))
    return tensor, torch.from_numpy(boxes), torch.from_numpy(some.labels), torch.from_numpy(patch), weight


def card_of(classes: tuple[str, ...], network_input: Input = INPUT) -> Card:
    """The card of a shallow detector."""
    return Card("single", network_input, Head("landmark", {"outputs": OUTPUTS}), classes, score=0.01)


def read_examples(dataset: Dataset, card: Card, step: Progress = silent) -> Examples:
    """The images of a dataset as the network sees them; images that cannot be used are skipped."""
    pipeline = pipeline_of(card)
    decode, resize = lookup("decode", pipeline.decode), lookup("resize", pipeline.resize)
    size = np.array([*card.input.size] * 2, np.float64)
    images, boxes, labels, failed = [], [], [], []
    for entry in dataset.entries:
        try:
            sample = entry.load()
            image, frame = place(decode(sample.data), card.input, resize)
            if not isinstance(sample.truth, Boxes) or len(sample.truth) != 1:
                raise DataError(f"{entry.name}: expected exactly one object")
        except HoldfastError as problem:
            failed.append(str(problem))
            continue
        finally:
            step(1, 0)
        images.append(image)
        boxes.append(frame.to_network(sample.truth.xyxy[0]) / size)
        labels.append(int(sample.truth.classes[0]))
    if not images:
        reason = f"; first {failed[0]}" if failed else ""
        raise DataError(f"{dataset.name}: none of the {len(dataset)} images can be used{reason}")
    return Examples(
        np.stack(images), np.array(boxes, np.float32), np.array(labels, np.int64), dataset.name, tuple(failed)
    )


@dataclass(frozen=True)
class CertifiedResult:
    """A trained detector: IoU × class on images it was not trained on, and the share of bounded positions."""

    new: str
    data: str
    tested: str
    trained_on: int
    tested_on: int
    steps: int
    patch: int
    iou_equal: float
    above_half: float
    bounded: float
    bounded_images: int
    left_out: tuple[str, ...] = ()


def train_certified(
    options: CertifiedOptions, train: Examples, test: Examples, card: Card, say: Say
) -> CertifiedResult:
    """Train on the examples, write the network and its card, and return its figures on the test examples."""
    plan = stages(options.steps, options.patch, options.batch, options.rate)
    identity = of_bytes(train.images.tobytes() + train.boxes.tobytes() + train.labels.tobytes())
    job = job_of(options.out.stem, train, len(card.classes), plan, options.seed, identity)
    checkpoint = options.work / f"certified-{job.key()}.pt"
    net = fit(job, checkpoint, say)
    if not isinstance(net, ShallowNet):
        raise TypeError(f"expected a ShallowNet, got {type(net).__name__}")
    export(net, (card.input.size.height, card.input.size.width), OUTPUTS, options.out)
    write_card(card, options.out.with_suffix(".toml"))
    values = clean_values(net, test)
    good = np.flatnonzero(values > 0.5)[:_IMAGES]
    return CertifiedResult(
        new=str(options.out), data=train.name, tested=test.name, trained_on=len(train), tested_on=len(test),
        steps=sum(stage.steps for stage in plan), patch=options.patch, iou_equal=float(values.mean()),
        above_half=float((values > 0.5).mean()), bounded=_bounded(net, test.part(good), options.patch),
        bounded_images=len(good), left_out=(*train.left_out, *test.left_out),
    )  # fmt: skip


def tensor_of(images: NDArray[np.uint8]) -> torch.Tensor:
    """Images (n, h, w, 3) uint8 as a tensor (n, 3, h, w) in 0..1."""
    return torch.from_numpy(images.astype(np.float32) / np.float32(255)).permute(0, 3, 1, 2).contiguous()


def clean_values(net: ShallowNet, test: Examples) -> NDArray[np.float64]:
    """IoU × [class equal] (n,) of each example."""
    with torch.no_grad():
        box, scores = net(tensor_of(test.images))
    equal = scores.argmax(1) == torch.from_numpy(test.labels)
    values = iou(box, torch.from_numpy(test.boxes)) * equal
    return np.asarray(values.double().numpy())


def _bounded(net: ShallowNet, test: Examples, side: int) -> float:
    """The share of positions of the first images whose bounds are safe; NaN without images."""
    if not len(test):
        return float("nan")
    height, width = test.images.shape[1:3]
    rng = np.random.default_rng(0)
    rows, columns = (
        rng.integers(0, extent - side + 1, (len(test), _POSITIONS)) for extent in (height, width)
    )
    return bounded_share(net, tensor_of(test.images), side, np.stack([rows, columns], axis=2))


def as_plain(result: CertifiedResult) -> dict[str, Any]:
    """The result as JSON values."""
    return {"holdfast": 1, "kind": "certified training", **dataclasses.asdict(result)}
