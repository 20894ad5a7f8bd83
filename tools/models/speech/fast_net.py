"""A FastSpeech-2-type network: all frames at once, durations and loudness predicted from the text."""

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from models.speech.blocks import Block, Predictor, mask_of, positions, regulated


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
