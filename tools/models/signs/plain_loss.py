"""The loss of the detector with one map: the four cells around a sign's centre answer for it."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from holdfast.core.types import Size
from models.signs.yolo_loss import ciou


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
