"""A Tacotron-2-type network: frame after frame, from the letters it looks at and the frame before."""

from dataclasses import dataclass
from typing import Final, TypeAlias, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from models.speech.blocks import Conv, Step, mask_of

GROUP: Final = 3  # frames a step
State: TypeAlias = tuple[Tensor, ...]  # hidden, cell, context, attention, attention so far


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
