"""Building blocks of the shipped networks: plain convolution, residual, dilated and ShuffleNetV2 units."""

import torch
from torch import Tensor, nn


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
