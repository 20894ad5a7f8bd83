"""The detection loss on raw YOLOv3 heads, and the heads' anchors by k-means on the training pool."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

SCALE_XY = 2.0  # darknet's scale_x_y: a centre may lie up to half a cell outside its own cell
MAX_LOG_SIDE = 4.0  # exp(4) = 55 anchors wide: keeps an untrained head finite


@dataclass(frozen=True)
class Grid:
    """One head of the detector: its stride and anchors (a, 2), both in pixels of the network input."""

    stride: int
    anchors: Tensor


@dataclass(frozen=True)
class Matches:
    """Cells that answer for a box: image, anchor, row, column indices (m,), box cxcywh (m, 4), class (m,)."""

    image: Tensor
    anchor: Tensor
    row: Tensor
    column: Tensor
    box: Tensor
    label: Tensor


def decode(raw: Tensor, anchors: Tensor, column: Tensor, row: Tensor, stride: int) -> Tensor:
    """Boxes cxcywh (..., 4) in pixels from raw tx ty tw th (..., 4) by the YOLOv3 rule.

    bx = (s·σ(tx) − (s−1)/2 + column)·stride and bw = anchor·exp(tw), with s = scale_x_y as in darknet.
    """
    centre = raw[..., :2].sigmoid() * SCALE_XY - (SCALE_XY - 1) / 2
    cell = torch.stack((column, row), -1).to(raw.dtype)
    side = raw[..., 2:4].clamp(max=MAX_LOG_SIDE).exp() * anchors
    return torch.cat(((centre + cell) * stride, side), -1)


def split(head: Tensor, anchors: int) -> Tensor:
    """The head (n, a*k, h, w) as (n, a, h, w, k)."""
    n, channels, h, w = head.shape
    return head.view(n, anchors, channels // anchors, h, w).permute(0, 1, 3, 4, 2)


def match(grid: Grid, targets: Tensor, shape: tuple[int, int], ratio: float = 4.0) -> Matches:
    """The cells and anchors of one head that answer for targets (m, 6): image, class, cx, cy, w, h in pixels.

    An anchor answers if no side differs by more than `ratio`; besides the cell of the centre, the two
    neighbours nearest to it answer too, which scale_x_y = 2 lets them reach.
    """
    sides = targets[:, None, 4:6] / grid.anchors[None]
    fits = torch.maximum(sides, 1 / sides).amax(2) < ratio
    which, anchor = fits.nonzero(as_tuple=True)
    chosen = targets[which]
    centre = chosen[:, 2:4] / grid.stride
    height, width = shape
    inside = centre - centre.floor()
    left = torch.where(inside < 0.5, -1.0, 1.0)
    zero = torch.zeros_like(left[:, :1])
    shifts = (torch.zeros_like(left), torch.cat((left[:, :1], zero), 1), torch.cat((zero, left[:, 1:]), 1))
    cells = torch.cat([centre.floor() + shift for shift in shifts]).long()
    keep = (cells[:, 0] >= 0) & (cells[:, 0] < width) & (cells[:, 1] >= 0) & (cells[:, 1] < height)
    chosen, anchor, cells = chosen.repeat(3, 1)[keep], anchor.repeat(3)[keep], cells[keep]
    return Matches(chosen[:, 0].long(), anchor, cells[:, 1], cells[:, 0], chosen[:, 2:6], chosen[:, 1].long())


def ciou(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """IoU (m,) of cxcywh boxes, and its complete form, which also pulls centres and shapes together."""
    low = torch.maximum(first[:, :2] - first[:, 2:] / 2, second[:, :2] - second[:, 2:] / 2)
    high = torch.minimum(first[:, :2] + first[:, 2:] / 2, second[:, :2] + second[:, 2:] / 2)
    common = (high - low).clamp(min=0).prod(1)
    iou = common / (first[:, 2:].prod(1) + second[:, 2:].prod(1) - common + 1e-7)
    outer_low = torch.minimum(first[:, :2] - first[:, 2:] / 2, second[:, :2] - second[:, 2:] / 2)
    outer_high = torch.maximum(first[:, :2] + first[:, 2:] / 2, second[:, :2] + second[:, 2:] / 2)
    diagonal = (outer_high - outer_low).square().sum(1) + 1e-7
    apart = (first[:, :2] - second[:, :2]).square().sum(1) / diagonal
    lean = torch.atan(second[:, 2] / second[:, 3]) - torch.atan(first[:, 2] / first[:, 3])
    shape = 4 / torch.pi**2 * lean.square()
    weight = (shape / (1 - iou + shape + 1e-7)).detach()
    return iou, iou - apart - weight * shape


def yolo_loss(heads: tuple[Tensor, ...], grids: tuple[Grid, ...], targets: Tensor) -> Tensor:
    """The scalar loss: 4·(1 − CIoU) + class entropy over the answering cells + objectness of all cells."""
    total = heads[0].new_zeros(())
    positives = 0
    for head, grid in zip(heads, grids, strict=True):
        raw = split(head, len(grid.anchors))
        found = match(grid, targets, (raw.shape[2], raw.shape[3]))
        wanted = torch.zeros_like(raw[..., 4])
        count = len(found.image)
        if count:
            cells = raw[found.image, found.anchor, found.row, found.column]
            boxes = decode(cells, grid.anchors[found.anchor], found.column, found.row, grid.stride)
            iou, complete = ciou(boxes, found.box)
            quality = iou.detach().clamp(0, 1)
            wanted[found.image, found.anchor, found.row, found.column] = quality
            hot = functional.one_hot(found.label, raw.shape[-1] - 5).to(raw.dtype)
            classes = functional.binary_cross_entropy_with_logits(cells[:, 5:], hot, reduction="sum")
            total = total + 4.0 * (1 - complete).sum() + classes
            positives += count
        objectness = functional.binary_cross_entropy_with_logits(raw[..., 4], wanted, reduction="sum")
        total = total + objectness
    return total / max(positives, 1)


def find_anchors(sides: NDArray[Any], count: int, rounds: int = 60) -> NDArray[np.float64]:
    """`count` pairs (w, h) from sides (n, 2), by k-means on logarithms, smallest first, to 0.1 pixel."""
    points = np.log(np.asarray(sides, np.float64))
    order = points.sum(1).argsort()
    # Start from the quantiles of size: no random start, so the same pool gives the same anchors.
    means = points[order[((np.arange(count) + 0.5) * len(points) / count).astype(int)]]
    for _ in range(rounds):
        nearest = np.square(points[:, None] - means[None]).sum(2).argmin(1)
        means = np.stack(
            [points[nearest == k].mean(0) if (nearest == k).any() else means[k] for k in range(count)]
        )
    found: NDArray[np.float64] = np.exp(means)
    ordered: NDArray[np.float64] = found[found.prod(1).argsort()].round(1)
    return ordered
