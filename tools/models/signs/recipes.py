"""The recipes that made the shipped weights: network, pool, loss and stages of each model."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from holdfast.core.model import Head
from holdfast.data.signs import canvas as signs
from holdfast.train.certified.run import OUTPUTS, Examples, card_of, job_of, stages
from holdfast.train.loop import Batch, Job, Stage
from models.signs import INPUTS, nets, pool
from models.signs.free import FreeNet, cells_of, free_loss
from models.signs.plain import PlainNet, plain_loss
from models.signs.yolo import SCALE_XY, Grid, find_anchors, yolo_loss

POOL_SEED: Final = 1  # scenes of seed 0 are held out


@dataclass(frozen=True)
class Recipe:
    """A job and how its outputs are named and read."""

    job: Job
    outputs: tuple[str, ...]
    head: Head
    classes: tuple[str, ...]


def signs_yolo(folder: Path, seed: int) -> Recipe:
    """The detector: windows of the scenes first (three times cheaper), whole scenes to finish."""
    scenes = pool.open_pool(folder, pool.scene_row, POOL_SEED, SCENES)
    boxes = scenes["boxes"].reshape(-1, 5)
    boxes = boxes[boxes[:, 0] >= 0]
    anchors = find_anchors(boxes[:, 3:] - boxes[:, 1:3], 6).reshape(3, 2, 2)
    torch.manual_seed(seed)
    net = nets.YoloNet(len(signs.CLASSES))
    grids = tuple(
        Grid(stride, torch.tensor(pair, dtype=torch.float32))
        for stride, pair in zip(net.strides, anchors, strict=True)
    )

    def loss(net: nn.Module, batch: Batch) -> Tensor:
        return yolo_loss(net(batch[0]), grids, batch[1])

    job = Job("signs-yolo", net, _of(scenes, pool.draw_scenes), loss, YOLO_STAGES, seed, data=scenes.name)
    outputs = tuple(f"stride{stride}" for stride in net.strides)
    options = {
        "outputs": outputs,
        "anchors": tuple(tuple(map(tuple, pair)) for pair in anchors.tolist()),
        "strides": net.strides,
        "scale_xy": (SCALE_XY,) * len(outputs),
        "multi_label": False,
    }
    return Recipe(job, outputs, Head("yolov3", options), signs.CLASSES)


def signs_free(folder: Path, seed: int) -> Recipe:
    """The anchor-free detector: windows of the scenes, then whole ones, its cells chosen by what they say."""
    scenes = pool.open_pool(folder, pool.scene_row, POOL_SEED, SCENES)
    torch.manual_seed(seed)
    net = FreeNet(len(signs.CLASSES))

    def loss(module: nn.Module, batch: Batch) -> Tensor:
        height, width = batch[0].shape[2:]
        return free_loss(module(batch[0]), cells_of((height, width), net.strides), batch[1])

    job = Job("signs-free", net, _of(scenes, pool.draw_scenes), loss, FREE_STAGES, seed, data=scenes.name)
    head = Head("yolox", {"outputs": ("cells",), "strides": net.strides})
    return Recipe(job, ("cells",), head, signs.CLASSES)


def signs_plain(folder: Path, seed: int) -> Recipe:
    """The detector without a pyramid: windows of the scenes, then whole ones, four cells a sign."""
    scenes = pool.open_pool(folder, pool.scene_row, POOL_SEED, SCENES)
    torch.manual_seed(seed)
    net = PlainNet(len(signs.CLASSES))
    whole = INPUTS["signs-plain"].size

    def loss(module: nn.Module, batch: Batch) -> Tensor:
        return plain_loss(module(batch[0]), net.stride, whole, batch[1])

    job = Job("signs-plain", net, _of(scenes, pool.draw_scenes), loss, PLAIN_STAGES, seed, data=scenes.name)
    head = Head("fastestdet", {"outputs": ("map",), "stride": net.stride})
    return Recipe(job, ("map",), head, signs.CLASSES)


def signs_single(folder: Path, seed: int) -> Recipe:
    """The one-sign detector on embedded signs."""
    return single_recipe(pool.open_pool(folder, pool.single_row, POOL_SEED, CROPS), signs.GROUPS, seed)


def single_recipe(crops: pool.Pool, classes: tuple[str, ...], seed: int) -> Recipe:
    """The one-sign detector: 1 − IoU and a small absolute error of the corners, and class entropy."""
    torch.manual_seed(seed)
    net = nets.SingleNet(len(classes))

    def loss(net: nn.Module, batch: Batch) -> Tensor:
        box, scores = net(batch[0])
        corners = functional.smooth_l1_loss(box, batch[1], beta=0.02)
        return 4 * corners + (1 - iou(box, batch[1])).mean() + functional.cross_entropy(scores, batch[2])

    job = Job("signs-single", net, _of(crops, pool.draw_singles), loss, SINGLE_STAGES, seed, data=crops.name)
    head = Head("landmark", {"outputs": ("box", "scores")})
    return Recipe(job, ("box", "scores"), head, classes)


def signs_certified(folder: Path, seed: int) -> Recipe:
    """The one-sign detector whose answer provably withstands a patch of 3×3 pixels at most positions."""
    crops = pool.open_pool(folder, pool.single_row, POOL_SEED, FEW_CROPS)
    examples = Examples(crops["images"], crops["boxes"], crops["labels"])
    job = job_of("signs-certified", examples, len(signs.GROUPS), CERTIFIED_STAGES, seed, crops.name)
    return Recipe(job, OUTPUTS, card_of(signs.GROUPS).head, signs.GROUPS)


def signs_class(folder: Path, seed: int) -> Recipe:
    """The classifier: cross-entropy with a little label smoothing."""
    crops = pool.open_pool(folder, pool.class_row, POOL_SEED, CROPS)
    torch.manual_seed(seed)
    net = nets.ClassNet(len(signs.CLASSES))

    def loss(net: nn.Module, batch: Batch) -> Tensor:
        return functional.cross_entropy(net(batch[0]), batch[1], label_smoothing=0.05)

    job = Job("signs-class", net, _of(crops, pool.draw_crops), loss, CLASS_STAGES, seed, data=crops.name)
    return Recipe(job, ("logits",), Head("classifier", {"activation": "softmax"}), signs.CLASSES)


def signs_seg(folder: Path, seed: int) -> Recipe:
    """The segmenter: cross-entropy in which the rare signs weigh more, and a soft IoU of each segment."""
    scenes = pool.open_pool(folder, pool.scene_row, POOL_SEED, SCENES)
    torch.manual_seed(seed)
    net = nets.SegNet(len(signs.SEGMENTS))
    weight = torch.tensor([3.0 if name in signs.GROUPS else 1.0 for name in signs.SEGMENTS])

    def loss(net: nn.Module, batch: Batch) -> Tensor:
        logits = net(batch[0])
        return functional.cross_entropy(logits, batch[1], weight=weight) + soft_iou_loss(logits, batch[1])

    job = Job("signs-seg", net, _of(scenes, pool.draw_masks), loss, SEG_STAGES, seed, data=scenes.name)
    return Recipe(job, ("logits",), Head("segmentation"), signs.SEGMENTS)


SCENES: Final = 7000
CROPS: Final = 20000
FEW_CROPS: Final = 2500
YOLO_STAGES: Final = (
    Stage("windows", 2800, 32, 224, 2e-3, 2e-4, warmup=200),
    Stage("whole", 600, 8, 416, 2.5e-4, 1e-5),
)
FREE_STAGES: Final = (
    Stage("windows", 1800, 32, 224, 3e-3, 3e-4, warmup=150),
    Stage("whole", 300, 8, 416, 3e-4, 1e-5),
)
PLAIN_STAGES: Final = (
    Stage("windows", 1000, 32, 224, 3e-3, 3e-4, warmup=150),
    Stage("whole", 200, 8, 416, 3e-4, 1e-5),
)
SINGLE_STAGES: Final = (Stage("crops", 2500, 128, 64, 3e-3, 1e-5, warmup=150),)
CERTIFIED_STAGES: Final = stages(1600, side=3, batch=32, rate=2e-3)
CLASS_STAGES: Final = (Stage("crops", 1200, 128, 64, 2e-3, 1e-5, warmup=150),)
SEG_STAGES: Final = (Stage("scenes", 700, 12, 256, 3e-3, 1e-5, warmup=100),)

RECIPES: Final[dict[str, Callable[[Path, int], Recipe]]] = {
    "signs-yolo": signs_yolo,
    "signs-free": signs_free,
    "signs-plain": signs_plain,
    "signs-single": signs_single,
    "signs-certified": signs_certified,
    "signs-class": signs_class,
    "signs-seg": signs_seg,
}


def shortened(job: Job, fraction: float) -> Job:
    """The job with that fraction of its steps, at least one a stage."""
    stages = tuple(
        replace(s, steps=max(1, round(s.steps * fraction)), warmup=round(s.warmup * fraction))
        for s in job.stages
    )
    return replace(job, stages=stages)


def iou(first: Tensor, second: Tensor) -> Tensor:
    """Intersection over union (n,) of boxes xyxy; a box turned inside out has no area."""
    sides = (torch.minimum(first[:, 2:], second[:, 2:]) - torch.maximum(first[:, :2], second[:, :2])).clamp(
        min=0
    )
    areas = [(box[:, 2:] - box[:, :2]).clamp(min=0).prod(1) for box in (first, second)]
    common = sides.prod(1)
    return common / (areas[0] + areas[1] - common + 1e-7)


def soft_iou_loss(logits: Tensor, masks: Tensor) -> Tensor:
    """1 − the mean over segments of their IoU over the batch, probabilities (n, k, h, w) for answer."""
    chance = logits.softmax(1)
    truth = functional.one_hot(masks, logits.shape[1]).permute(0, 3, 1, 2).to(chance.dtype)
    common = (chance * truth).sum((0, 2, 3))
    union = (chance + truth).sum((0, 2, 3)) - common
    return 1 - ((common + 1) / (union + 1)).mean()


def _of(
    source: pool.Pool, draw: Callable[[pool.Pool, Stage, np.random.Generator], Batch]
) -> Callable[[Stage, np.random.Generator], Batch]:
    """The draw function bound to its pool."""
    return lambda stage, rng: draw(source, stage, rng)
