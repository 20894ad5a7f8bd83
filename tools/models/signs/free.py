"""The anchor-free detector (ShuffleNetV2 trunk, additive pyramid, decoupled YOLOX heads) and its loss."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from models.signs.nets import ShuffleDown, ShuffleUnit, conv
from models.signs.yolo import ciou

MAX_LOG_SIDE = 5.0  # exp(5) = 148 cells wide: keeps an untrained head finite
SPAN = (2.0, 8.0)  # a level may answer for a sign whose longer side is that many cells; the ends are open
MOST = 9  # cells that at most answer for one sign


class FreeNet(nn.Module):
    """A YOLOX-type detector of (n, 3, h, w) float32 RGB divided by 255: a row a cell of strides 8, 16, 32."""

    strides = (8, 16, 32)

    def __init__(self, classes: int, width: int = 64) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv(3, 16, 3, 2), nn.MaxPool2d(3, 2, 1), conv(16, 32))
        self.stage8 = nn.Sequential(ShuffleDown(32), ShuffleUnit(64), ShuffleUnit(64), ShuffleUnit(64))
        self.stage16 = nn.Sequential(ShuffleDown(64), *(ShuffleUnit(128) for _ in range(4)))
        self.stage32 = nn.Sequential(ShuffleDown(128), ShuffleUnit(256), ShuffleUnit(256))
        self.laterals = nn.ModuleList([conv(c, width, 1, act=False) for c in (64, 128, 256)])
        self.smooth = nn.ModuleList([_separable(width) for _ in self.strides])
        self.heads = nn.ModuleList([Decoupled(width, classes) for _ in self.strides])

    def forward(self, x: Tensor) -> Tensor:
        """Rows (n, cells, 5+k) stride by stride: x y from the cell and log w h, in cells; object; classes.

        While training, objectness and classes are logits; otherwise probabilities.
        """
        c8 = self.stage8(self.stem(x))
        c16 = self.stage16(c8)
        c32 = self.stage32(c16)
        p32 = self.laterals[2](c32)
        p16 = self.laterals[1](c16) + functional.interpolate(p32, scale_factor=2.0)
        p8 = self.laterals[0](c8) + functional.interpolate(p16, scale_factor=2.0)
        maps = [
            head(smooth(p)) for p, smooth, head in zip((p8, p16, p32), self.smooth, self.heads, strict=True)
        ]
        # int() makes the number of cells a constant of the exported graph, which then needs no Shape nodes.
        flat = [
            found.reshape(-1, int(found.shape[1]), int(found.shape[2] * found.shape[3])) for found in maps
        ]
        rows = torch.cat(flat, 2).permute(0, 2, 1)
        if self.training:
            return rows
        return torch.cat((rows[..., :4], rows[..., 4:].sigmoid()), 2)


class Decoupled(nn.Module):
    """One level of the head: a tower for the classes, another for box and objectness."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.class_tower = conv(width, width)
        self.box_tower = _separable(width)
        self.box = nn.Conv2d(width, 5, 1)
        self.scores = nn.Conv2d(width, classes, 1)
        for layer in (self.box, self.scores):
            nn.init.normal_(layer.weight, std=0.01)
            nn.init.constant_(layer.bias, 0.0)
        # An untrained head gives every cell an objectness of about one percent and boxes of 2.7 cells.
        nn.init.constant_(self.scores.bias, math.log(1.0 / classes))
        with torch.no_grad():
            self.box.bias[:2] = 0.5
            self.box.bias[2:4] = 1.0
            self.box.bias[4] = math.log(0.01 / 0.99)

    def forward(self, x: Tensor) -> Tensor:
        """The level's map (n, 5+k, h, w): x y w h object classes, raw."""
        return torch.cat((self.box(self.box_tower(x)), self.scores(self.class_tower(x))), 1)


def _separable(width: int) -> nn.Module:
    """A 3x3 depthwise convolution and a 1x1."""
    return nn.Sequential(conv(width, width, 3, groups=width, act=False), conv(width, width, 1))


@dataclass(frozen=True)
class Cells:
    """All cells (c,) stride by stride, as their rows come: column, row and stride, and where levels begin."""

    column: Tensor
    row: Tensor
    stride: Tensor
    levels: tuple[tuple[int, int, int, int], ...]  # first cell, stride, height, width


@dataclass(frozen=True)
class Answers:
    """Cells that answer for a sign: image and cell indices (m,), box cxcywh (m, 4), class (m,)."""

    image: Tensor
    cell: Tensor
    box: Tensor
    label: Tensor


def cells_of(size: tuple[int, int], strides: tuple[int, ...]) -> Cells:
    """The cells of an input of that height and width, which every stride divides."""
    columns, rows, sizes, levels = [], [], [], []
    first = 0
    for stride in strides:
        height, width = size[0] // stride, size[1] // stride
        y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
        columns.append(x.flatten())
        rows.append(y.flatten())
        sizes.append(torch.full((height * width,), stride))
        levels.append((first, stride, height, width))
        first += height * width
    return Cells(torch.cat(columns), torch.cat(rows), torch.cat(sizes), tuple(levels))


def decode(raw: Tensor, cells: Cells, which: Tensor) -> Tensor:
    """Boxes cxcywh (..., 4) in pixels from raw x y w h (..., 4) of the cells `which` by the YOLOX rule."""
    stride = cells.stride[which][..., None]
    place = torch.stack((cells.column[which], cells.row[which]), -1)
    centre = (raw[..., :2] + place) * stride
    return torch.cat((centre, raw[..., 2:4].clamp(max=MAX_LOG_SIDE).exp() * stride), -1)


def candidates(cells: Cells, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Cells (m, 9·levels) around the centre of each target (m, 6), and which of them may answer for it."""
    longer = targets[:, 4:6].amax(1, keepdim=True)
    near = torch.tensor([(x, y) for y in (-1, 0, 1) for x in (-1, 0, 1)])
    found, allowed = [], []
    last = len(cells.levels) - 1
    for level, (first, stride, height, width) in enumerate(cells.levels):
        place = (targets[:, None, 2:4] / stride).floor().long() + near
        x, y = place[..., 0], place[..., 1]
        inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
        fits = torch.ones_like(longer, dtype=torch.bool)
        if level > 0:
            fits &= longer >= SPAN[0] * stride
        if level < last:
            fits &= longer < SPAN[1] * stride
        found.append(first + y.clamp(0, height - 1) * width + x.clamp(0, width - 1))
        allowed.append(inside & fits)
    return torch.cat(found, 1), torch.cat(allowed, 1)


def assign(rows: Tensor, cells: Cells, targets: Tensor) -> Answers:
    """The cells of rows (n, c, 5+k) that answer for targets (m, 6): image, class, cx, cy, w, h in pixels.

    Of the cells near a sign's centre those of least cost (class entropy − 3·log IoU) answer, as many as
    their best overlaps sum up to; a cell that two signs want goes to the one it costs less.
    """
    image, label = targets[:, 0].long(), targets[:, 1].long()
    with torch.no_grad():
        which, allowed = candidates(cells, targets)
        said = rows[image[:, None], which]
        boxes = decode(said, cells, which).flatten(0, 1)
        wanted = targets[:, None, 2:6].expand(-1, which.shape[1], -1).flatten(0, 1)
        overlap = ciou(boxes, wanted)[0].view(which.shape).clamp(0, 1) * allowed
        hot = functional.one_hot(label, rows.shape[2] - 5).to(rows.dtype)[:, None].expand_as(said[..., 5:])
        entropy = functional.binary_cross_entropy_with_logits(said[..., 5:], hot, reduction="none").sum(2)
        cost = torch.where(allowed, entropy - 3 * (overlap + 1e-8).log(), torch.inf)
        count = overlap.topk(min(MOST, overlap.shape[1]), 1)[0].sum(1, keepdim=True).long().clamp(1, MOST)
        chosen = (cost.argsort(1).argsort(1) < count) & allowed
        sign, slot = chosen.nonzero(as_tuple=True)
        flat = image[sign] * rows.shape[1] + which[sign, slot]
        price = cost[sign, slot]
        least = price.new_full((rows.shape[0] * rows.shape[1],), torch.inf)
        least.scatter_reduce_(0, flat, price, "amin")
        sign, slot = sign[price <= least[flat]], slot[price <= least[flat]]
    return Answers(image[sign], which[sign, slot], targets[sign, 2:6], label[sign])


def free_loss(rows: Tensor, cells: Cells, targets: Tensor) -> Tensor:
    """The scalar loss: 4·(1 − CIoU) + class entropy over the answering cells + objectness of all cells."""
    wanted = torch.zeros_like(rows[..., 4])
    total = rows.new_zeros(())
    found = assign(rows, cells, targets)
    if len(found.cell):
        said = rows[found.image, found.cell]
        iou, complete = ciou(decode(said, cells, found.cell), found.box)
        wanted[found.image, found.cell] = iou.detach().clamp(0, 1)
        hot = functional.one_hot(found.label, rows.shape[2] - 5).to(rows.dtype)
        classes = functional.binary_cross_entropy_with_logits(said[:, 5:], hot, reduction="sum")
        total = 4.0 * (1 - complete).sum() + classes
    objectness = functional.binary_cross_entropy_with_logits(rows[..., 4], wanted, reduction="sum")
    return (total + objectness) / max(len(found.cell), 1)
