"""Random models of the layout of OPT-125M, and tokenizers that fit them, made at test time."""

from pathlib import Path

import numpy as np

from models.language.graph import Shape, decoder_graph, weights_of
from models.language.text import learned, paragraphs


def opt_graph(
    layers=2,
    vocabulary=2000,
    past=False,
    hidden=768,
    heads=12,
    ffn=3072,
    positions=2048,
    seed=0,
    position_ids=False,
    tied=True,
    spread=0.02,
):
    """An onnx.ModelProto as Optimum lays out OPT; `spread` is the deviation of the weights (OPT: 0.02).

    Of 125M real parameters 38.6M are the tokens' vectors and 7.1M are in each of the 12 layers.
    """
    shape = Shape(layers, vocabulary, hidden, heads, ffn, positions)
    rng = np.random.default_rng(seed)
    weights = {}
    for name, size in weights_of(shape).items():
        drawn = rng.standard_normal(size, np.float32) * np.float32(spread)
        weights[name] = drawn + 1 if "layer_norm.weight" in name else drawn
    return decoder_graph(weights, shape, past, position_ids, tied)


def opt_tokenizer(vocabulary=2000, texts=300, seed=0):
    """A tokenizers.Tokenizer of at most so many entries, with OPT's special tokens, `</s>` in front."""
    return learned(paragraphs(texts, seed), min(vocabulary, 1000))


def written_opt(folder, name="opt", vocabulary=2000, **options):
    """The path of a random model written into the folder, with its tokenizer.json beside it."""
    import onnx

    path = Path(folder) / f"{name}.onnx"
    onnx.save(opt_graph(vocabulary=vocabulary, **options), str(path))
    opt_tokenizer(vocabulary).save(str(path.with_name("tokenizer.json")))
    return path
