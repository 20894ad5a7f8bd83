"""The tiny language model, a decoder of the OPT type, and how it is trained.

Pre-norm, learned positions with offset 2, ReLU, the head tied to the tokens.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from holdfast.train.loop import Batch, Job, Say, Stage
from models.language.graph import OFFSET, ROAD, Shape
from models.language.text import SPECIAL, START, paragraphs

Cache: TypeAlias = tuple[tuple[Tensor, Tensor], ...]  # keys and values, a pair a layer
PARAGRAPHS = 100_000
SEED_OF_TEXT = 1
STAGES = (
    Stage("text", steps=2400, batch=16, size=ROAD.positions, high=2.5e-3, low=2.5e-3, warmup=100),
    Stage("settle", steps=300, batch=16, size=ROAD.positions, high=2.5e-3, low=1e-4),
)


class Attention(nn.Module):
    """Self-attention of each place to itself and what stands before it."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.k_proj = nn.Linear(shape.hidden, shape.hidden)
        self.v_proj = nn.Linear(shape.hidden, shape.hidden)
        self.q_proj = nn.Linear(shape.hidden, shape.hidden)
        self.out_proj = nn.Linear(shape.hidden, shape.hidden)

    def forward(self, x: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """The attended values (batch, sequence, hidden), with keys and values for a cache."""
        q, k, v = (self._split(layer(x)) for layer in (self.q_proj, self.k_proj, self.v_proj))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out_proj(mixed.transpose(1, 2).flatten(2)), (k, v)

    def _split(self, x: Tensor) -> Tensor:
        """Heads apart: (batch, heads, sequence, size)."""
        return x.unflatten(2, (self.heads, -1)).transpose(1, 2)


class Layer(nn.Module):
    """Attention and two-layer perceptron, each behind a normalisation and added to what came in."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.self_attn = Attention(shape)
        self.self_attn_layer_norm = nn.LayerNorm(shape.hidden)
        self.fc1 = nn.Linear(shape.hidden, shape.ffn)
        self.fc2 = nn.Linear(shape.ffn, shape.hidden)
        self.final_layer_norm = nn.LayerNorm(shape.hidden)

    def forward(self, x: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """What goes on to the next layer, with keys and values for a cache."""
        attended, cache = self.self_attn(self.self_attn_layer_norm(x))
        x = x + attended
        return x + self.fc2(torch.relu(self.fc1(self.final_layer_norm(x)))), cache


class Decoder(nn.Module):
    """Logits of the next token at every place; parameters have the names they have in OPT's decoder."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocabulary, shape.hidden)
        self.embed_positions = nn.Embedding(shape.positions + OFFSET, shape.hidden)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.final_layer_norm = nn.LayerNorm(shape.hidden)

    def forward(self, ids: Tensor) -> Tensor:
        """Logits (batch, sequence, vocabulary)."""
        return self.cached(ids)[0]

    def cached(self, ids: Tensor) -> tuple[Tensor, Cache]:
        """Logits, with the keys and values of every layer."""
        places = torch.arange(OFFSET, ids.shape[1] + OFFSET)
        x = self.embed_tokens(ids) + self.embed_positions(places)
        caches = []
        for layer in self.layers:
            x, cache = layer(x)
            caches.append(cache)
        return functional.linear(self.final_layer_norm(x), self.embed_tokens.weight), tuple(caches)


def decoder(shape: Shape, seed: int) -> Decoder:
    """A decoder with weights drawn by the seed: normal, of a deviation that fits its width, biases zero."""
    net = Decoder(shape)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, value in net.named_parameters():
            if name.endswith(".bias"):
                value.zero_()
            elif value.ndim > 1:
                # OPT's 0.02 is for a width of 768 and more; in a narrow net it would hold attention back.
                deviation = 0.05 if "embed" in name else value.shape[1] ** -0.5
                value.normal_(0.0, deviation, generator=generator)
    return net


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
