"""The detector without a pyramid: one residual trunk, dilated instead of halved, and one map at stride 8."""

import math

import torch
from torch import Tensor, nn

from models.signs.blocks import Dilated, conv


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
