"""Exported networks, turned, against the same networks built with ceil_mode=True in PyTorch."""

import io
import logging
import warnings

import numpy as np
import onnx
import pytest
import torch
from torch import nn

from helpers.graphs import context, run
from holdfast.graph.rewrite.ceil import ceil
from holdfast.graph.rewrite.types import CannotRewrite


def block(inner, outer, stride=1):
    return nn.Sequential(nn.Conv2d(inner, outer, 3, stride, 1), nn.BatchNorm2d(outer), nn.ReLU())


def stem(up):
    """64 cells to 16, or to 17 rounding up."""
    return nn.Sequential(block(3, 8, 2), nn.MaxPool2d(3, 2, 1, ceil_mode=up))


class Detector(nn.Module):
    """Two levels with a pyramid, decoded in the graph with grids: exporters write half of them down."""

    def __init__(self, up):
        super().__init__()
        self.stem, self.first, self.second = stem(up), block(8, 16, 2), block(16, 16, 2)
        self.heads = nn.ModuleList([nn.Conv2d(16, 6, 1), nn.Conv2d(16, 6, 1)])

    def forward(self, x):
        p = self.first(self.stem(x))
        q = self.second(p)
        p = p + nn.functional.interpolate(q, size=p.shape[2:], mode="nearest")
        rows, points, steps = [], [], []
        for level, head, stride in zip((p, q), self.heads, (8.0, 16.0), strict=True):
            y = head(level)
            _, channels, h, w = y.shape
            rows.append(y.view(1, channels, h * w))
            gy, gx = torch.meshgrid(torch.arange(h) + 0.5, torch.arange(w) + 0.5, indexing="ij")
            points.append(torch.stack([gx.reshape(-1), gy.reshape(-1)]))
            steps.append(torch.full((1, h * w), stride))
        y, stride = torch.cat(rows, 2), torch.cat(steps, 1)
        centres = (y[:, :2] + torch.cat(points, 1)[None]) * stride
        return torch.cat([centres, y[:, 2:4].exp() * stride, y[:, 4:].sigmoid()], 1)


class Attention(nn.Module):
    """A map as tokens and back: flattened, cut into heads, unflattened."""

    def __init__(self, up):
        super().__init__()
        self.stem, self.qkv, self.out = stem(up), nn.Linear(8, 24), nn.Conv2d(8, 5, 1)

    def forward(self, x):
        f = self.stem(x)
        n, channels, h, w = f.shape
        q, k, v = (
            self.qkv(f.flatten(2).transpose(1, 2)).view(n, h * w, 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
        )
        z = ((q @ k.transpose(-1, -2)).softmax(-1) @ v).transpose(1, 2).reshape(n, h * w, 8)
        return self.out(z.transpose(1, 2).reshape(n, channels, h, w))


class Windows(nn.Module):
    """Cuts its map into windows of 2×2, which 17 cells do not have; PyTorch fails there, too."""

    def __init__(self, up):
        super().__init__()
        self.stem = stem(up)

    def forward(self, x):
        f = self.stem(x)
        n, channels, h, w = f.shape
        return f.view(n, channels, h // 2, 2, w // 2, 2).permute(0, 2, 4, 3, 5, 1).mean((3, 4))


def exported(kind, seen):
    torch.manual_seed(0)
    stream = io.BytesIO()
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        network = kind(up=False).eval()
        torch.onnx.export(network, (seen,), stream, input_names=["x"], opset_version=17, dynamo=False)
    return onnx.load_from_string(stream.getvalue())


@pytest.mark.parametrize("kind", [Detector, Attention])
def test_an_exported_network_follows_as_pytorch_does(kind):
    seen = torch.randn(1, 3, 64, 64, generator=torch.Generator().manual_seed(1))
    found = ceil(exported(kind, seen), context(64))
    torch.manual_seed(0)
    with torch.no_grad():
        wanted = kind(up=True).eval()(seen).numpy()
    got = run(found.model, seen.numpy())[0]
    assert got.shape == wanted.shape
    assert np.allclose(got, wanted, atol=1e-4)


def test_what_pytorch_cannot_do_is_refused():
    seen = torch.zeros(1, 3, 64, 64)
    with pytest.raises(CannotRewrite, match=r"Reshape .* cuts the 16 cells that are now 17"):
        ceil(exported(Windows, seen), context(64))
    with pytest.raises(RuntimeError, match="invalid for input"):
        Windows(up=True)(seen)
