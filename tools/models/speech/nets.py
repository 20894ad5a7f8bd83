"""The two speech networks, of FastSpeech 2's and of Tacotron 2's type, and their layers."""

import math
from dataclasses import dataclass
from typing import Final, TypeAlias, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

GROUP: Final = 3  # frames a step
State: TypeAlias = tuple[Tensor, ...]  # hidden, cell, context, attention, attention so far


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


@dataclass(frozen=True)
class FastOut:
    """What the network says of a batch: frames, log(1 + duration) and loudness of every letter."""

    mel: Tensor  # (n, frames, mels)
    durations: Tensor  # (n, t)
    energy: Tensor  # (n, t)
    real: Tensor  # (n, frames)


class FastNet(nn.Module):
    """Embedding, FFT blocks, duration and energy of each letter, length regulator, FFT blocks, mel."""

    def __init__(
        self, symbols: int, mels: int, width: int = 80, hidden: int = 104, dropout: float = 0.1
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(symbols, width)
        self.encoder = nn.ModuleList([Block(width, hidden, 2, dropout) for _ in range(2)])
        self.durations = Predictor(width, 48, dropout)
        self.energy = Predictor(width, 48, dropout)
        self.loudness = nn.Linear(1, width)
        self.decoder = nn.ModuleList([Block(width, hidden, 2, dropout) for _ in range(2)])
        self.norm, self.mel = nn.LayerNorm(width), nn.Linear(width, mels)

    def encoded(self, ids: Tensor, real: Tensor | None) -> Tensor:
        """What the letters (n, t) mean among one another, (n, t, width)."""
        places = torch.arange(ids.shape[1])[None].to(torch.float32)
        x = self.embedding(ids) + positions(places, self.embedding.embedding_dim)
        x = x if real is None else x * real[:, :, None]
        for block in self.encoder:
            x = block(x, real)
        return cast(Tensor, x)

    def decoded(self, x: Tensor, energy: Tensor, durations: Tensor, batched: bool) -> tuple[Tensor, Tensor]:
        """The frames (n, frames, mels), and which are real, of letters that last `durations`."""
        width = x.shape[2]
        x = x + self.loudness(energy[:, :, None])
        # Where in its letter a frame stands: without it all frames of a letter would begin alike.
        starts = (durations.cumsum(1) - durations).to(torch.float32)
        shown, real = regulated(torch.cat([x, starts[:, :, None]], 2), durations)
        x, starts = shown[:, :, :width], shown[:, :, width]
        frames = torch.arange(x.shape[1])[None].to(torch.float32)
        x = x + positions(frames, width) + positions(frames - starts, width)
        some = real if batched else None
        x = x if some is None else x * some[:, :, None]
        for block in self.decoder:
            x = block(x, some)
        return cast(Tensor, self.mel(self.norm(x))), real

    def taught(self, ids: Tensor, lengths: Tensor, durations: Tensor, energy: Tensor) -> FastOut:
        """The answers on a padded batch whose true durations and loudness are given."""
        real = mask_of(lengths, ids.shape[1])
        x = self.encoded(ids, real)
        mel, within = self.decoded(x, energy, durations, batched=True)
        return FastOut(mel, self.durations(x.detach(), real), self.energy(x, real), within)

    def forward(self, ids: Tensor) -> Tensor:
        """The frames (1, frames, mels) of a text (1, t), with the durations and loudness it foretells."""
        x = self.encoded(ids, None)
        lasting = torch.round(torch.exp(self.durations(x, None)) - 1.0).clamp(min=0.0).to(torch.int64)
        return self.decoded(x, self.energy(x, None), lasting, batched=False)[0]


@dataclass(frozen=True)
class TacoOut:
    """What the network says of a batch."""

    mel: Tensor  # (n, frames, mels), before the postnet
    refined: Tensor  # (n, frames, mels), behind it
    stop: Tensor  # (n, steps), logits
    attention: Tensor  # (n, steps, t)


class Encoder(nn.Module):
    """Letters (n, t) to what the decoder looks at, (n, t, 2 · width)."""

    def __init__(self, symbols: int, width: int, dropout: float) -> None:
        super().__init__()
        self.embedding = nn.Embedding(symbols, width)
        self.convs = nn.ModuleList([Conv(width, width, 5) for _ in range(2)])
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(2)])
        self.dropout = nn.Dropout(dropout)
        self.lstm = nn.LSTM(width, width, batch_first=True, bidirectional=True)

    def forward(self, ids: Tensor, lengths: Tensor | None = None) -> Tensor:
        """The memory; with lengths, letters behind a row's end are not seen."""
        x = self.embedding(ids)
        real = None if lengths is None else mask_of(lengths, ids.shape[1])[:, :, None]
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = x if real is None else x * real
            x = self.dropout(functional.relu(norm(conv(x))))
        if lengths is None:
            return cast(Tensor, self.lstm(x)[0])
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return cast(
            Tensor,
            nn.utils.rnn.pad_packed_sequence(self.lstm(packed)[0], True, total_length=ids.shape[1])[0],
        )


class Decoder(nn.Module):
    """One step: prenet, LSTM, location-sensitive attention, `group` frames and whether they are the last."""

    def __init__(self, memory: int, mels: int, group: int, width: int = 112, looks: int = 48) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(mels, 64), nn.Linear(64, 64)
        self.dropout = nn.Dropout(0.4)  # in training only, so that what is said repeats
        self.cell = Step(64 + memory, width)
        self.query, self.keys = nn.Linear(width, looks), nn.Linear(memory, looks, bias=False)
        self.location, self.score = Conv(2, looks, 15), nn.Linear(looks, 1, bias=False)
        self.mel, self.stop = nn.Linear(width + memory, group * mels), nn.Linear(width + memory, 1)

    def states(self, memory: Tensor) -> State:
        """Where a sentence begins: zeros."""
        rows, width = memory.shape[0], self.cell.gates.out_features // 4
        none = memory.new_zeros(rows, memory.shape[1])
        return (
            memory.new_zeros(rows, width),
            memory.new_zeros(rows, width),
            memory.new_zeros(rows, memory.shape[2]),
            none,
            none,
        )

    def prenet(self, frame: Tensor) -> Tensor:
        """The frame before, made narrow, (..., 64)."""
        x = self.dropout(functional.relu(self.first(frame)))
        return self.dropout(functional.relu(self.second(x)))

    def step(
        self, keys: Tensor, memory: Tensor, seen: Tensor, state: State, real: Tensor | None
    ) -> tuple[Tensor, State]:
        """What a frame is made of (n, width + memory), and the next state; `seen` comes from the prenet."""
        hidden, cell, context, attention, whole = state
        hidden, cell = self.cell(torch.cat([seen, context], 1), hidden, cell)
        # Where it looked before is taken as given: the loss tells at each step where to look.
        location = self.location(torch.stack([attention, whole], 2).detach())
        scores = self.score(torch.tanh(self.query(hidden)[:, None] + location + keys))[:, :, 0]
        if real is not None:
            scores = scores.masked_fill(~real, -1e4)
        attention = scores.softmax(1)
        context = (attention[:, None] @ memory)[:, 0]
        made = torch.cat([hidden, context], 1)
        return made, (hidden, cell, context, attention, whole + attention)

    def forward(self, memory: Tensor, frame: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        """The frames (n, group · mels), the logit (n, 1) that they are the last, and the next state."""
        made, after = self.step(self.keys(memory), memory, self.prenet(frame), state, None)
        return (self.mel(made), self.stop(made), *after)


class Postnet(nn.Module):
    """Frames (n, frames, mels) with what their neighbours tell of them added."""

    def __init__(self, mels: int, width: int, dropout: float) -> None:
        super().__init__()
        self.convs = nn.ModuleList([Conv(mels, width, 5), Conv(width, width, 5), Conv(width, mels, 5)])
        self.dropout = nn.Dropout(dropout)

    def forward(self, mel: Tensor) -> Tensor:
        """(n, frames, mels)."""
        x = self.dropout(torch.tanh(self.convs[0](mel)))
        x = self.dropout(torch.tanh(self.convs[1](x)))
        return cast(Tensor, mel + self.convs[2](x))


class TacoNet(nn.Module):
    """Encoder, decoder step and postnet, which are exported one by one."""

    def __init__(self, symbols: int, mels: int, width: int = 48, dropout: float = 0.1) -> None:
        super().__init__()
        self.mels, self.group = mels, GROUP
        self.encoder = Encoder(symbols, width, dropout)
        self.decoder = Decoder(2 * width, mels, GROUP)
        self.postnet = Postnet(mels, 40, dropout)

    def taught(self, ids: Tensor, lengths: Tensor, mel: Tensor, own: Tensor) -> TacoOut:
        """The answers when the true frame before is shown at each step; where `own` (n, steps), its own.

        The number of frames of `mel` is a multiple of the frames a step.
        """
        memory = self.encoder(ids, lengths)
        real = mask_of(lengths, ids.shape[1])
        keys, state = self.decoder.keys(memory), self.decoder.states(memory)
        ends = mel[:, self.group - 1 :: self.group]
        shown = self.decoder.prenet(torch.cat([torch.zeros_like(ends[:, :1]), ends[:, :-1]], 1))
        made: list[Tensor] = []
        looked: list[Tensor] = []
        for at in range(ends.shape[1]):
            seen = shown[:, at]
            if at and bool(own[:, at].any()):
                last = self.decoder.prenet(self.decoder.mel(made[-1])[:, -self.mels :].detach())
                seen = torch.where(own[:, at, None], last, seen)
            frame, state = self.decoder.step(keys, memory, seen, state, real)
            made.append(frame)
            looked.append(state[3])
        whole = torch.stack(made, 1)
        found = self.decoder.mel(whole).reshape(len(mel), -1, self.mels)
        return TacoOut(found, self.postnet(found), self.decoder.stop(whole)[:, :, 0], torch.stack(looked, 1))

    def forward(self, ids: Tensor, limit: int = 400, threshold: float = 0.5) -> tuple[Tensor, bool]:
        """The frames (1, frames, mels) of a text (1, t), and whether it came to an end by itself."""
        memory = self.encoder(ids)
        frame, state = memory.new_zeros(1, self.mels), self.decoder.states(memory)
        steps: list[Tensor] = []
        stopped = False
        while len(steps) * self.group < limit and not stopped:
            step, stop, *after = self.decoder(memory, frame, *state)
            frame, state = step[:, -self.mels :], tuple(after)
            steps.append(step.reshape(1, self.group, self.mels))
            stopped = float(torch.sigmoid(stop)) > threshold
        return self.postnet(torch.cat(steps, 1)), stopped
