"""The building blocks, and four of the shipped networks; free and plain hold two more.

Each takes (n, 3, h, w) float32 RGB divided by 255.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional


def conv(
    inputs: int,
    outputs: int,
    kernel: int = 3,
    stride: int = 1,
    groups: int = 1,
    act: bool = True,
    dilation: int = 1,
) -> nn.Module:
    """A convolution of same padding with batch normalisation and, unless `act` is false, a ReLU."""
    pad = dilation * (kernel // 2)
    layers = [
        nn.Conv2d(inputs, outputs, kernel, stride, pad, dilation=dilation, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
    ]
    return nn.Sequential(*layers, nn.ReLU(inplace=True)) if act else nn.Sequential(*layers)


class Bottleneck(nn.Module):
    """The Darknet unit: 1x1 to half the channels, 3x3 back, added to the input."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(conv(channels, channels // 2, 1), conv(channels // 2, channels, 3))

    def forward(self, x: Tensor) -> Tensor:
        """The input plus what the two convolutions add, of the same shape."""
        return x + self.body(x)


class Basic(nn.Module):
    """The ResNet basic unit: two 3x3 convolutions and a shortcut, projected when the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.body = nn.Sequential(conv(inputs, outputs, 3, stride), conv(outputs, outputs, 3, act=False))
        same = inputs == outputs and stride == 1
        self.shortcut = nn.Identity() if same else conv(inputs, outputs, 1, stride, act=False)
        self.act = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        """ReLU of body plus shortcut."""
        return self.act(self.body(x) + self.shortcut(x))


class Dilated(nn.Module):
    """The ResNet bottleneck whose 3x3 convolution is dilated: a wider view at the same resolution."""

    def __init__(self, channels: int, dilation: int) -> None:
        super().__init__()
        half = channels // 2
        self.body = nn.Sequential(
            conv(channels, half, 1),
            conv(half, half, 3, dilation=dilation),
            conv(half, channels, 1, act=False),
        )
        self.act = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        """ReLU of the input plus the body, of the same shape."""
        return self.act(x + self.body(x))


class ShuffleDown(nn.Module):
    """The ShuffleNetV2 unit that halves the resolution and doubles the channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.left = nn.Sequential(
            conv(channels, channels, 3, 2, groups=channels, act=False), conv(channels, channels, 1)
        )
        self.right = nn.Sequential(
            conv(channels, channels, 1),
            conv(channels, channels, 3, 2, groups=channels, act=False),
            conv(channels, channels, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Both branches side by side: (n, 2c, h/2, w/2)."""
        return torch.cat((self.left(x), self.right(x)), 1)


class ShuffleUnit(nn.Module):
    """The ShuffleNetV2 unit of stride 1: every second channel passes, the others are convolved."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        half = channels // 2
        self.right = nn.Sequential(
            conv(half, half, 1), conv(half, half, 3, groups=half, act=False), conv(half, half, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        """The even channels unchanged, then the convolved odd ones; the shape stays."""
        # A strided slice is the channel shuffle without Reshape nodes, so the graph fits any resolution.
        return torch.cat((x[:, 0::2], self.right(x[:, 1::2])), 1)


class YoloNet(nn.Module):
    """A YOLOv3-type detector with raw heads at strides 8, 16 and 32 and a top-down feature pyramid."""

    strides = (8, 16, 32)

    def __init__(self, classes: int, anchors_per_head: int = 2) -> None:
        super().__init__()
        self.classes = classes
        self.anchors_per_head = anchors_per_head
        outputs = anchors_per_head * (5 + classes)
        self.stem = nn.Sequential(conv(3, 16, 3, 2), nn.MaxPool2d(3, 2, 1), conv(16, 32), Bottleneck(32))
        self.stage8 = nn.Sequential(conv(32, 80, 3, 2), Bottleneck(80), Bottleneck(80))
        self.stage16 = nn.Sequential(conv(80, 160, 3, 2), Bottleneck(160), Bottleneck(160))
        self.stage32 = nn.Sequential(conv(160, 224, 3, 2), Bottleneck(224), conv(224, 112, 1))
        self.merge16 = nn.Sequential(conv(272, 112, 1), conv(112, 112))
        self.lateral8 = conv(112, 64, 1)
        self.merge8 = nn.Sequential(conv(144, 80, 1), conv(80, 80))
        self.heads = nn.ModuleList([nn.Conv2d(c, outputs, 1) for c in (80, 112, 112)])
        self._start_quiet()

    def _start_quiet(self) -> None:
        """Set the biases so that an untrained head gives every cell an objectness of about one percent."""
        for head in self.heads:
            nn.init.normal_(head.weight, std=0.01)
            bias = head.bias.detach().view(self.anchors_per_head, -1)
            bias.zero_()
            bias[:, 4] = math.log(0.01 / 0.99)
            bias[:, 5:] = math.log(1.0 / self.classes)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Raw heads of strides 8, 16, 32: (n, A·(5+k), h/s, w/s), per anchor tx ty tw th object classes."""
        c8 = self.stage8(self.stem(x))
        c16 = self.stage16(c8)
        p32 = self.stage32(c16)
        p16 = self.merge16(torch.cat((c16, functional.interpolate(p32, scale_factor=2.0)), 1))
        up8 = functional.interpolate(self.lateral8(p16), scale_factor=2.0)
        p8 = self.merge8(torch.cat((c8, up8), 1))
        return self.heads[0](p8), self.heads[1](p16), self.heads[2](p32)


class SingleNet(nn.Module):
    """The simplified Yolo-FastestV2: ShuffleNetV2 backbone, light pyramid, landmark head for one sign."""

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv(3, 24, 3, 2), nn.MaxPool2d(3, 2, 1))
        self.stage8 = nn.Sequential(ShuffleDown(24), ShuffleUnit(48))
        self.stage16 = nn.Sequential(ShuffleDown(48), ShuffleUnit(96), ShuffleUnit(96))
        self.stage32 = nn.Sequential(ShuffleDown(96), ShuffleUnit(192))
        self.neck = conv(288, 96, 1)
        self.box_tower = _tower(96)
        self.class_tower = _tower(96)
        self.box = nn.Conv2d(96, 4, 3, 2)
        self.scores = nn.Conv2d(96, groups, 3, 2)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """`box` (n, 4) xyxy as parts of the image and `scores` (n, groups) logits, from (n, 3, 64, 64)."""
        c16 = self.stage16(self.stage8(self.stem(x)))
        up = functional.interpolate(self.stage32(c16), scale_factor=2.0)
        neck = self.neck(torch.cat((up, c16), 1))
        box = self.box(self.box_tower(neck)).flatten(1)
        return box, self.scores(self.class_tower(neck)).flatten(1)


def _tower(channels: int) -> nn.Module:
    """Two 5x5 depthwise-separable convolutions, as in the Yolo-FastestV2 head."""
    layers: list[nn.Module] = []
    for _ in range(2):
        layers += [
            conv(channels, channels, 5, groups=channels),
            conv(channels, channels, 1, act=False),
        ]
    return nn.Sequential(*layers)


class ClassNet(nn.Module):
    """A small ResNet with the classic stem: stride-2 convolution and 3x3 stride-2 max pool."""

    def __init__(self, classes: int, width: int = 40) -> None:
        super().__init__()
        w = width
        self.stem = nn.Sequential(conv(3, w, 5, 2), nn.MaxPool2d(3, 2, 1))
        self.body = nn.Sequential(
            Basic(w, w), Basic(w, 2 * w, 2), Basic(2 * w, 2 * w), Basic(2 * w, 4 * w, 2), Basic(4 * w, 4 * w)
        )
        self.head = nn.Linear(4 * w, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits (n, classes)."""
        return self.head(self.body(self.stem(x)).mean((2, 3)))


class SegNet(nn.Module):
    """A U-Net with three max pools; logits are made at half resolution and enlarged bilinearly."""

    def __init__(self, segments: int) -> None:
        super().__init__()
        self.enter = conv(3, 24, 3, 2)
        self.down2 = conv(24, 24)
        self.down4 = nn.Sequential(conv(24, 48), conv(48, 48))
        self.down8 = nn.Sequential(conv(48, 96), Bottleneck(96))
        self.down16 = nn.Sequential(conv(96, 128), Bottleneck(128), Bottleneck(128))
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.up8 = nn.Sequential(conv(224, 96, 1), conv(96, 64))
        self.up4 = nn.Sequential(conv(112, 48, 1), conv(48, 48))
        self.up2 = nn.Sequential(conv(72, 32, 1), conv(32, 32))
        self.head = nn.Conv2d(32, segments, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Logits (n, segments, h, w) at the resolution of the input."""
        c2 = self.down2(self.enter(x))
        c4 = self.down4(self.pool(c2))
        c8 = self.down8(self.pool(c4))
        c16 = self.down16(self.pool(c8))
        u8 = self.up8(torch.cat((c8, _twice(c16)), 1))
        u4 = self.up4(torch.cat((c4, _twice(u8)), 1))
        u2 = self.up2(torch.cat((c2, _twice(u4)), 1))
        return _twice(self.head(u2))


def _twice(x: Tensor) -> Tensor:
    """The map at twice the resolution, bilinear with half-pixel centres."""
    return functional.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False)
