"""Layers of the speech models: masks, positions, FFT blocks, the length regulator, an LSTM step."""

import math
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional


def mask_of(lengths: Tensor, size: int) -> Tensor:
    """True (n, size) where a place is within its row's length."""
    return torch.arange(size)[None] < lengths[:, None]


def positions(places: Tensor, width: int) -> Tensor:
    """Sines and cosines (n, places, width) of the places (n, places), made in the graph for any length."""
    rates = torch.exp(torch.arange(0, width, 2, dtype=torch.float32) * (-math.log(10000.0) / width))
    angles = places[:, :, None] * rates
    return torch.cat([torch.sin(angles), torch.cos(angles)], 2)


def regulated(values: Tensor, durations: Tensor) -> tuple[Tensor, Tensor]:
    """The rows of `values` (n, t, d) repeated by `durations` (n, t), as (n, frames, d), and which are real.

    Frame f shows the row before whose end f comes: the number of ends that are ≤ f. In ONNX this is
    CumSum, Range, LessOrEqual, ReduceSum and GatherElements, for any t and any number of frames.
    """
    ends = durations.cumsum(1)
    frames = torch.arange(cast(int, ends[:, -1].max()))
    row = (ends[:, None, :] <= frames[None, :, None]).to(torch.int64).sum(2)
    real = frames[None] < ends[:, -1:]
    row = torch.minimum(row, torch.full_like(row, 1) * (values.shape[1] - 1))
    return torch.gather(values, 1, row[:, :, None].expand(-1, -1, values.shape[2])), real


class Conv(nn.Module):
    """A convolution over time of (n, t, channels), as long as what goes in."""

    def __init__(self, wide: int, out: int, size: int) -> None:
        super().__init__()
        self.inner = nn.Conv1d(wide, out, size, padding=size // 2)

    def forward(self, x: Tensor) -> Tensor:
        """(n, t, out)."""
        return cast(Tensor, self.inner(x.transpose(1, 2)).transpose(1, 2))


class Attention(nn.Module):
    """Self-attention of several heads among the real places."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.queries, self.keys = nn.Linear(width, width), nn.Linear(width, width)
        self.values, self.out = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: Tensor, real: Tensor | None) -> Tensor:
        """(n, t, width)."""

        def split(values: Tensor) -> Tensor:
            return values.reshape(x.shape[0], -1, self.heads, self.size).transpose(1, 2)

        scores = split(self.queries(x)) @ split(self.keys(x)).transpose(2, 3) / math.sqrt(self.size)
        if real is not None:
            scores = scores.masked_fill(~real[:, None, None, :], -1e4)
        mixed = (scores.softmax(3) @ split(self.values(x))).transpose(1, 2)
        return cast(Tensor, self.out(mixed.reshape(x.shape[0], -1, self.heads * self.size)))


class Block(nn.Module):
    """FastSpeech's block: self-attention, then two convolutions, each added to what goes in."""

    def __init__(self, width: int, hidden: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.attention = Attention(width, heads)
        self.first, self.second = Conv(width, hidden, 3), Conv(hidden, width, 1)
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, real: Tensor | None) -> Tensor:
        """(n, t, width); what is not real is zero, as a convolution's padding is."""
        x = x + self.dropout(self.attention(self.before(x), real))
        inner = _zeroed(self.between(x), real)
        return _zeroed(x + self.dropout(self.second(functional.relu(self.first(inner)))), real)


class Predictor(nn.Module):
    """One number a place: two convolutions with normalisation, and a linear layer."""

    def __init__(self, width: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.first, self.second = Conv(width, hidden, 3), Conv(hidden, hidden, 3)
        self.norms = nn.ModuleList([nn.LayerNorm(hidden), nn.LayerNorm(hidden)])
        self.dropout, self.out = nn.Dropout(dropout), nn.Linear(hidden, 1)

    def forward(self, x: Tensor, real: Tensor | None) -> Tensor:
        """(n, t)."""
        x = self.dropout(self.norms[0](functional.relu(self.first(_zeroed(x, real)))))
        x = self.dropout(self.norms[1](functional.relu(self.second(_zeroed(x, real)))))
        return cast(Tensor, self.out(x)[:, :, 0])


class Step(nn.Module):
    """One step of an LSTM, as two matrix products: what a rewrite to 8 or 16 bits knows."""

    def __init__(self, wide: int, width: int) -> None:
        super().__init__()
        self.gates = nn.Linear(wide + width, 4 * width)
        with torch.no_grad():  # what is remembered at first is remembered long
            self.gates.bias[width : 2 * width] = 1.0

    def forward(self, x: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        """The next hidden state and cell (n, width)."""
        let, keep, new, show = self.gates(torch.cat([x, hidden], 1)).chunk(4, 1)
        cell = torch.sigmoid(keep) * cell + torch.sigmoid(let) * torch.tanh(new)
        return torch.sigmoid(show) * torch.tanh(cell), cell


def _zeroed(x: Tensor, real: Tensor | None) -> Tensor:
    return x if real is None else x * real[:, :, None]
