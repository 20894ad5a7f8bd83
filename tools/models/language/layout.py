"""The sizes of an OPT decoder and the names of its weights."""

from dataclasses import dataclass

OFFSET = 2  # OPT keeps the first two rows of its positions for padding


@dataclass(frozen=True)
class Shape:
    """The sizes of a decoder."""

    layers: int
    vocabulary: int
    hidden: int
    heads: int
    ffn: int
    positions: int


ROAD = Shape(layers=3, vocabulary=1280, hidden=96, heads=4, ffn=256, positions=64)


def weights_of(shape: Shape) -> dict[str, tuple[int, ...]]:
    """The names of all weights, as in OPT's decoder, with their sizes; matrices are (out, in)."""
    wide = (shape.hidden,)
    square = (shape.hidden, shape.hidden)
    sizes: dict[str, tuple[int, ...]] = {
        "embed_tokens.weight": (shape.vocabulary, shape.hidden),
        "embed_positions.weight": (shape.positions + OFFSET, shape.hidden),
    }
    for index in range(shape.layers):
        layer = f"layers.{index}"
        for part in ("k_proj", "v_proj", "q_proj", "out_proj"):
            sizes[f"{layer}.self_attn.{part}.weight"] = square
            sizes[f"{layer}.self_attn.{part}.bias"] = wide
        sizes[f"{layer}.self_attn_layer_norm.weight"] = sizes[f"{layer}.self_attn_layer_norm.bias"] = wide
        sizes[f"{layer}.fc1.weight"], sizes[f"{layer}.fc1.bias"] = (shape.ffn, shape.hidden), (shape.ffn,)
        sizes[f"{layer}.fc2.weight"], sizes[f"{layer}.fc2.bias"] = (shape.hidden, shape.ffn), wide
        sizes[f"{layer}.final_layer_norm.weight"] = sizes[f"{layer}.final_layer_norm.bias"] = wide
    sizes["final_layer_norm.weight"] = sizes["final_layer_norm.bias"] = wide
    return sizes
