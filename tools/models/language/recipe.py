"""How the tiny language model is trained: the text as one row of tokens, batches of it, the stages."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from holdfast.train.loop import Batch, Job, Say, Stage
from models.language.layout import ROAD
from models.language.net import decoder
from models.language.text import paragraphs
from models.language.vocabulary import SPECIAL, START

PARAGRAPHS = 100_000
SEED_OF_TEXT = 1
STAGES = (
    Stage("text", steps=2400, batch=16, size=ROAD.positions, high=2.5e-3, low=2.5e-3, warmup=100),
    Stage("settle", steps=300, batch=16, size=ROAD.positions, high=2.5e-3, low=1e-4),
)


@dataclass(frozen=True)
class Row:
    """All paragraphs as tokens behind one another, each begun by `</s>`, and where they begin."""

    tokens: NDArray[np.uint16]
    starts: NDArray[np.int64]
    name: str  # a hash of the tokens

    def draw(self, stage: Stage, rng: np.random.Generator) -> Batch:
        """Pieces that begin with a paragraph, of `stage.size` tokens and the one behind them."""
        usable = self.starts[: np.searchsorted(self.starts, len(self.tokens) - stage.size - 1)]
        chosen = rng.choice(usable, stage.batch)
        pieces = self.tokens[chosen[:, None] + np.arange(stage.size + 1)]
        return (torch.from_numpy(pieces.astype(np.int64)),)


def row_of(tokenizer: Any, count: int, folder: Path, say: Say) -> Row:
    """The text of so many paragraphs as tokens; made once for a tokenizer and kept in the folder."""
    key = hashlib.sha256(tokenizer.to_str().encode())
    key.update("\n".join(paragraphs(2000, SEED_OF_TEXT)).encode())
    path = folder / f"road-text-{count}-{key.hexdigest()[:8]}.npy"
    if not path.exists():
        say(f"writing {count} paragraphs")
        parts = [np.array(ids, np.uint16) for ids in _encoded(tokenizer, count)]
        folder.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part.npy")
        np.save(part, np.concatenate(parts))
        part.replace(path)
    tokens = np.load(path)
    name = hashlib.sha256(tokens.tobytes()).hexdigest()[:8]
    return Row(tokens, np.flatnonzero(tokens == SPECIAL.index(START)), name)


def _encoded(tokenizer: Any, count: int) -> Iterator[list[int]]:
    """The tokens of each paragraph."""
    batch: list[str] = []
    for text in paragraphs(count, SEED_OF_TEXT):
        batch.append(text)
        if len(batch) == 1000:
            yield from (e.ids for e in tokenizer.encode_batch(batch))
            batch = []
    yield from (e.ids for e in tokenizer.encode_batch(batch))


def loss(net: nn.Module, batch: Batch) -> Tensor:
    """The mean negative log-likelihood of the next token."""
    ids = batch[0]
    return functional.cross_entropy(net(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())


def job_of(row: Row, seed: int, stages: tuple[Stage, ...] = STAGES) -> Job:
    """The training of the shipped model on this text."""
    net = decoder(ROAD, seed)
    return Job("road-lm", net, row.draw, loss, stages, seed, weight_decay=0.05, data=row.name)
