"""The detector without a pyramid (one dilated residual trunk, one map at stride 8) and its loss."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from holdfast.core.types import Size
from models.signs.nets import Dilated, conv
from models.signs.yolo import ciou


class PlainNet(nn.Module):
    """A FastestDet-type detector of (n, 3, h, w) float32 RGB divided by 255: one map at stride 8."""

    stride = 8

    def __init__(self, classes: int, width: int = 96, dilations: tuple[int, ...] = (1, 2, 4, 8, 1)) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv(3, 16, 3, 2), nn.MaxPool2d(3, 2, 1), conv(16, 32))
        self.enter = conv(32, width, 3, 2)
        self.trunk = nn.Sequential(*(Dilated(width, dilation) for dilation in dilations))
        self.box_tower = conv(width, 32, 1)
        self.class_tower = conv(width, width, 1)
        self.box = nn.Conv2d(32, 5, 3, padding=1)
        self.scores = nn.Conv2d(width, classes, 1)
        for layer in (self.box, self.scores):
            nn.init.normal_(layer.weight, std=0.01)
            nn.init.constant_(layer.bias, 0.0)
        # An untrained head gives every cell an objectness of about one percent and boxes of 32 pixels in 416.
        with torch.no_grad():
            self.box.bias[0] = math.log(0.01 / 0.99)
            self.box.bias[3:] = -2.5

    def forward(self, x: Tensor) -> Tensor:
        """The map (n, 5+k, h/8, w/8): object, raw x y w h, classes.

        While training, objectness and classes are logits; otherwise probabilities.
        """
        seen = self.trunk(self.enter(self.stem(x)))
        box, scores = self.box(self.box_tower(seen)), self.scores(self.class_tower(seen))
        if self.training:
            return torch.cat((box, scores), 1)
        return torch.cat((box[:, :1].sigmoid(), box[:, 1:], scores.softmax(1)), 1)


@dataclass(frozen=True)
class Answers:
    """Cells that answer for a sign: image, row and column indices (m,), box cxcywh (m, 4), class (m,)."""

    image: Tensor
    row: Tensor
    column: Tensor
    box: Tensor
    label: Tensor


def decode(raw: Tensor, column: Tensor, row: Tensor, stride: int, whole: Size) -> Tensor:
    """Boxes cxcywh (..., 4) in pixels from raw x y w h (..., 4) by the FastestDet rule.

    bx = (tanh(tx) + column)·stride and bw = σ(tw)·width of the `whole` network input, also in a window of it.
    """
    cell = torch.stack((column, row), -1)
    side = raw.new_tensor([whole.width, whole.height])
    return torch.cat(((raw[..., :2].tanh() + cell) * stride, raw[..., 2:4].sigmoid() * side), -1)


def match(targets: Tensor, stride: int, shape: tuple[int, int]) -> Answers:
    """The cells of a map (height, width) that answer for targets (m, 6) image, class, cx, cy, w, h in pixels.

    tanh reaches one cell to each side of a cell's corner: the four corners around the centre reach it.
    """
    first = (targets[:, 2:4] / stride).floor().long()
    cells = torch.cat([first + first.new_tensor(shift) for shift in ((0, 0), (1, 0), (0, 1), (1, 1))])
    keep = (cells >= 0).all(1) & (cells[:, 0] < shape[1]) & (cells[:, 1] < shape[0])
    chosen, cells = targets.repeat(4, 1)[keep], cells[keep]
    return Answers(chosen[:, 0].long(), cells[:, 1], cells[:, 0], chosen[:, 2:6], chosen[:, 1].long())


def plain_loss(found: Tensor, stride: int, whole: Size, targets: Tensor) -> Tensor:
    """The scalar loss: 4·(1 − CIoU) + class entropy over the answering cells + objectness of all cells."""
    wanted = torch.zeros_like(found[:, 0])
    total = found.new_zeros(())
    asked = match(targets, stride, (found.shape[2], found.shape[3]))
    if len(asked.image):
        said = found[asked.image, :, asked.row, asked.column]
        iou, complete = ciou(decode(said[:, 1:5], asked.column, asked.row, stride, whole), asked.box)
        wanted[asked.image, asked.row, asked.column] = iou.detach().clamp(0, 1)
        classes = functional.cross_entropy(said[:, 5:], asked.label, reduction="sum")
        total = 4.0 * (1 - complete).sum() + classes
    objectness = functional.binary_cross_entropy_with_logits(found[:, 0], wanted, reduction="sum")
    return (total + objectness) / max(len(asked.image), 1)
