"""The anchor-free detector: ShuffleNetV2 trunk, additive pyramid, a decoupled YOLOX head at each stride."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from models.signs.blocks import ShuffleDown, ShuffleUnit, conv


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
