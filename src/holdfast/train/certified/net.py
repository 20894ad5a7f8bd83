"""A shallow single-object detector, its interval bounds under a free patch, and the loss on both.

Interval bound propagation (Gowal et al. 2018; for patches Chiang et al. 2020): every layer maps the centre
and the radius of a box of values to those of a box that contains its outputs. A linear layer gives W c + b
and |W| r. The loss is that of the worst values in the last box.
"""

import itertools
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from holdfast.train.loop import Batch

WIDTHS = (16, 32, 48)  # channels at strides 2, 4 and 8
HIDDEN = 96
_VERTICES = torch.tensor(list(itertools.product((0.0, 1.0), repeat=4)))


class ShallowNet(nn.Module):
    """Three strided convolutions and two matrix products; no pooling and no normalisation."""

    def __init__(self, classes: int, size: tuple[int, int] = (64, 64)) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = 3
        for at, width in enumerate(WIDTHS):
            kernel = 5 if at == 0 else 3
            layers += [nn.Conv2d(channels, width, kernel, 2, kernel // 2), nn.ReLU()]
            channels = width
        height, width = (-(-side // 2 ** len(WIDTHS)) for side in size)
        layers += [nn.Flatten(), nn.Linear(channels * height * width, HIDDEN), nn.ReLU()]
        self.body = nn.Sequential(*layers)
        self.box = nn.Linear(HIDDEN, 4)
        self.scores = nn.Linear(HIDDEN, classes)
        with torch.no_grad():
            self.box.bias.copy_(torch.tensor([0.25, 0.25, 0.75, 0.75]))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """`box` (n, 4) xyxy as parts of the image and `scores` (n, classes) logits, from (n, 3, h, w)."""
        hidden = self.body(x)
        return self.box(hidden), self.scores(hidden)

    def bounds(self, centre: Tensor, radius: Tensor, labels: Tensor) -> "OutputBounds":
        """Bounds of box and scores over the boxes of inputs with this centre and radius (n, 3, h, w)."""
        for layer in self.body:
            if isinstance(layer, nn.Conv2d):
                options = layer.stride, layer.padding
                centre = functional.conv2d(centre, layer.weight, layer.bias, *options)
                radius = functional.conv2d(radius, layer.weight.abs(), None, *options)
            elif isinstance(layer, nn.Linear):
                centre, radius = layer(centre), functional.linear(radius, layer.weight.abs())
            elif isinstance(layer, nn.ReLU):
                low, high = (centre - radius).clamp(min=0), (centre + radius).clamp(min=0)
                centre, radius = (low + high) / 2, (high - low) / 2
            else:
                centre, radius = layer(centre), layer(radius)
        middle, reach = self.box(centre), functional.linear(radius, self.box.weight.abs())
        # Scores are compared with the true one: the difference of two rows is bounded as one row.
        rows = self.scores.weight[None] - self.scores.weight[labels][:, None]
        offset = self.scores.bias[None] - self.scores.bias[labels][:, None]
        lead = (rows @ centre[..., None] + rows.abs() @ radius[..., None])[..., 0] + offset
        return OutputBounds(middle - reach, middle + reach, lead)


@dataclass(frozen=True, eq=False)
class OutputBounds:
    """Corners (n, 4) of the boxes and the most (n, classes) by which each score may exceed the true one."""

    lower: Tensor
    upper: Tensor
    lead: Tensor

    def least_iou(self, boxes: Tensor) -> Tensor:
        """The least IoU (n,) with these boxes: at a vertex, as no side moved away from theirs raises it."""
        vertices = self.lower[:, None] + (self.upper - self.lower)[:, None] * _VERTICES.to(self.lower)
        return iou(vertices, boxes[:, None]).amin(1)

    def safe(self, boxes: Tensor, labels: Tensor, threshold: float = 0.5) -> Tensor:
        """Where (n,) the class stays and the IoU stays above the threshold."""
        others = self.lead.scatter(1, labels[:, None], -torch.inf)
        return (others < 0).all(1) & (self.least_iou(boxes) > threshold)


def iou(first: Tensor, second: Tensor) -> Tensor:
    """Intersection over union of boxes (…, 4) xyxy; one with swapped corners has no area."""
    inner = torch.minimum(first[..., 2:], second[..., 2:]) - torch.maximum(first[..., :2], second[..., :2])
    common = inner.clamp(min=0).prod(-1)
    areas = [(box[..., 2:] - box[..., :2]).clamp(min=0).prod(-1) for box in (first, second)]
    return common / (areas[0] + areas[1] - common + 1e-7)


def loss(net: nn.Module, batch: Batch) -> Tensor:
    """The loss on the images, and with the batch's weight on the worst content of a patch on each.

    The batch: images, boxes (n, 4), labels (n,), where the patch is (n, 1, h, w), weight of the bounds ().
    """
    images, boxes, labels, patch, weight = batch
    box, scores = net(images)
    clean = _loss(box - boxes, iou(box, boxes), scores, labels)
    if not weight:
        return clean
    if not isinstance(net, ShallowNet):
        raise TypeError(f"expected a ShallowNet, got {type(net).__name__}")
    # A patch of any content in 0..1 is the box with centre and radius 0.5.
    bounds = net.bounds(torch.where(patch, 0.5, images), 0.5 * patch.expand_as(images), labels)
    farthest = torch.maximum(boxes - bounds.lower, bounds.upper - boxes)
    worst = _loss(farthest, bounds.least_iou(boxes), bounds.lead, labels)
    return (1 - weight) * clean + weight * worst


def _loss(corners: Tensor, overlap: Tensor, scores: Tensor, labels: Tensor) -> Tensor:
    near = functional.smooth_l1_loss(corners, torch.zeros_like(corners), beta=0.02)
    return 4 * near + (1 - overlap).mean() + functional.cross_entropy(scores, labels)


def bounded_share(net: ShallowNet, images: Tensor, side: int, positions: NDArray[np.int64]) -> float:
    """The share of patch positions (n, p, 2) as (row, column) at which the prediction's bounds are safe.

    In float32 and without its rounding errors: an estimate while training, not a certificate.
    """
    with torch.no_grad():
        box, scores = net(images)
        safe = []
        for at, spots in enumerate(positions.tolist()):
            patch = torch.zeros(len(spots), 1, *images.shape[2:], dtype=torch.bool)
            for one, (row, column) in zip(patch, spots, strict=True):
                one[:, row : row + side, column : column + side] = True
            image = images[at : at + 1].expand(len(spots), -1, -1, -1)
            label = scores[at].argmax().repeat(len(spots))
            bounds = net.bounds(torch.where(patch, 0.5, image), 0.5 * patch.expand_as(image), label)
            safe.append(bounds.safe(box[at : at + 1].expand(len(spots), -1), label))
    return float(torch.cat(safe).float().mean())
