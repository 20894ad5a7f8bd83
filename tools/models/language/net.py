"""A decoder of the OPT type: pre-norm, learned positions with offset 2, ReLU, the head tied to the tokens."""

from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

from models.language.layout import OFFSET, Shape

Cache: TypeAlias = tuple[tuple[Tensor, Tensor], ...]  # keys and values, a pair a layer


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
