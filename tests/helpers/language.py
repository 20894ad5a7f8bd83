"""Small random causal language models in the layouts of exporters, a tokenizer and questions for them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

LOWEST = float(np.finfo(np.float32).min)
_TEXT = (
    "<s> <unk> the a road is wet dry car truck brakes turns left right stops goes fast slow man dog red "
    "light green he she it because and then sign says no entry in rain snow sun drives walks , . ? Question: "
    "Answer: to of"
)
WORDS = tuple(_TEXT.split())


class Writer:
    """Nodes and constants of one graph as they are written."""

    def __init__(self, constants):
        self.nodes, self.constants, self.count = [], constants, 0

    def __call__(self, kind, *inputs, out=None, **options):
        self.count += 1
        name = out or f"t{self.count}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=f"{kind}{self.count}", **options))
        return name

    def whole(self, values, name=None):
        """A constant of 64-bit integers."""
        return self.keep(np.asarray(values, np.int64), name)

    def keep(self, values, name=None):
        name = name or f"c{len(self.constants)}"
        self.constants[name] = np.asarray(values)
        return name


@dataclass(frozen=True)
class Shape:
    """How large the model is and how its masks and inputs are written."""

    width: int = 32
    heads: int = 2
    layers: int = 2
    words: int = len(WORDS)
    positions: int = 64
    past: bool = False
    mask: str = "trilu"
    merged: bool = False
    seed: int = 0


def weights_of(shape):
    rng = np.random.default_rng(shape.seed)

    def draw(*size, scale=None):
        return rng.normal(0, scale or 1 / np.sqrt(size[0]), size).astype(np.float32)

    d = shape.width
    made = {"embed": draw(shape.words, d, scale=1.0), "places": draw(shape.positions + 2, d, scale=0.3)}
    for i in range(shape.layers):
        for part, size in (("q", (d, d)), ("k", (d, d)), ("v", (d, d)), ("o", (d, d)), ("up", (d, 4 * d)),
                           ("down", (4 * d, d))):  # fmt: skip
            made[f"{i}.{part}"] = draw(*size, scale=1.5 / np.sqrt(size[0]))
            made[f"{i}.{part}.bias"] = draw(size[1], scale=0.1)
    for norm in [f"{i}.{n}" for i in range(shape.layers) for n in ("first", "second")] + ["last"]:
        made[f"{norm}.scale"], made[f"{norm}.shift"] = 1 + draw(d, scale=0.1), draw(d, scale=0.1)
    return made


def norm(w, x, name):
    """Layer normalisation in the eight nodes older exporters write."""
    centred = w("Sub", x, w("ReduceMean", x, axes=[-1]))
    square = w("Pow", centred, w.keep(np.float32(2)))
    root = w("Sqrt", w("Add", w("ReduceMean", square, axes=[-1]), w.keep(np.float32(1e-5))))
    return w("Add", w("Mul", w("Div", centred, root), f"{name}.scale"), f"{name}.shift")


def dense(w, x, name):
    return w("Add", w("MatMul", x, name), f"{name}.bias")


def mask_of(w, shape):
    """The additive mask (b, 1, s, t): causal, and what is padding."""
    one = w.whole([1])
    s = w("Gather", w("Shape", "input_ids"), w.whole(1), axis=0)
    t = w("Gather", w("Shape", "attention_mask"), w.whole(1), axis=0)
    sizes = w("Concat", w("Unsqueeze", s, w.whole([0])), w("Unsqueeze", t, w.whole([0])), axis=0)
    lowest = numpy_helper.from_array(np.array([LOWEST], np.float32))
    full = w("ConstantOfShape", sizes, value=lowest)
    before = w("Sub", t, s)
    if shape.mask == "trilu":
        causal = w("Trilu", full, w("Add", before, w.whole(1)), upper=1)
    else:  # times 0 or 1, as newer exporters: an infinite mask would be NaN
        zero, step = w.whole(0), w.whole(1)
        columns = w("Range", zero, t, step)
        rows = w("Unsqueeze", w("Add", w("Range", zero, s, step), before), one)
        causal = w("Mul", full, w("Cast", w("Greater", columns, rows), to=1))
    padded = w("Unsqueeze", w("Equal", "attention_mask", w.whole(0)), w.whole([1, 2]))
    return w("Where", padded, w.keep(np.float32(LOWEST)), causal)


def body(shape, weights, past, prefix=""):
    """Nodes of the whole model, with the past read or not; all constants go into `weights`."""
    w = Writer(weights)
    w.count = 10_000 if prefix else 0
    mask = mask_of(w, shape)
    places = w("Mul", w("CumSum", "attention_mask", w.whole(1)), "attention_mask")
    start = w("Sub", w("Shape", "attention_mask"), w("Shape", "input_ids"))
    recent = w("Slice", places, w("Gather", start, w.whole([1])), w.whole([1 << 40]), w.whole([1]))
    x = w("Add", w("Gather", "embed", "input_ids"), w("Gather", "places", w("Add", recent, w.whole(1))))
    size = shape.width // shape.heads
    split = w.whole([0, -1, shape.heads, size])
    outputs = []
    for i in range(shape.layers):
        h = norm(w, x, f"{i}.first")
        q, k, v = (
            w("Transpose", w("Reshape", dense(w, h, f"{i}.{n}"), split), perm=[0, 2, 1, 3]) for n in "qkv"
        )
        if past:
            k = w("Concat", f"past_key_values.{i}.key", k, axis=2)
            v = w("Concat", f"past_key_values.{i}.value", v, axis=2)
        outputs += [(k, f"present.{i}.key"), (v, f"present.{i}.value")]
        scores = w(
            "MatMul", w("Mul", q, w.keep(np.float32(size**-0.5))), w("Transpose", k, perm=[0, 1, 3, 2])
        )
        seen = w("MatMul", w("Softmax", w("Add", scores, mask), axis=-1), v)
        flat = w("Reshape", w("Transpose", seen, perm=[0, 2, 1, 3]), w.whole([0, -1, shape.width]))
        x = w("Add", x, dense(w, flat, f"{i}.o"))
        h = norm(w, x, f"{i}.second")
        x = w("Add", x, dense(w, w("Relu", dense(w, h, f"{i}.up")), f"{i}.down"))
    logits = w("MatMul", norm(w, x, "last"), w("Transpose", "embed", perm=[1, 0]))
    for made, name in [(logits, f"{prefix}logits"), *((m, prefix + n) for m, n in outputs)]:
        w("Identity", made, out=name)
    return w.nodes


def causal(shape=None):
    """The model as a proto."""
    shape = shape or Shape()
    weights = weights_of(shape)
    value = helper.make_tensor_value_info
    ids = [
        value("input_ids", TensorProto.INT64, ["b", "s"]),
        value("attention_mask", TensorProto.INT64, ["b", "t"]),
    ]
    size = shape.width // shape.heads
    kept = [f"{i}.{n}" for i in range(shape.layers) for n in ("key", "value")]
    pasts = [value(f"past_key_values.{n}", TensorProto.FLOAT, ["b", shape.heads, "p", size]) for n in kept]
    presents = [value(f"present.{n}", TensorProto.FLOAT, ["b", shape.heads, "t", size]) for n in kept]
    logits = value("logits", TensorProto.FLOAT, ["b", "s", shape.words])
    past = shape.past or shape.merged
    if shape.merged:
        branches = {}
        for branch, reads in (("then_branch", True), ("else_branch", False)):
            nodes = body(shape, weights, reads, prefix=f"{branch}.")
            ends = [helper.make_empty_tensor_value_info(f"{branch}.{o.name}") for o in (logits, *presents)]
            for end, like in zip(ends, (logits, *presents), strict=True):
                end.type.CopyFrom(like.type)
            branches[branch] = helper.make_graph(nodes, branch, [], ends)
        names = [o.name for o in (logits, *presents)]
        nodes = [helper.make_node("If", ["use_cache_branch"], names, name="If", **branches)]
        ids.append(value("use_cache_branch", TensorProto.BOOL, [1]))
    else:
        nodes = body(shape, weights, past)
    stored = [numpy_helper.from_array(v, k) for k, v in weights.items()]
    inputs = [*ids, *(pasts if past else [])]
    outputs = [logits, *(presents if past else [])]
    graph = helper.make_graph(nodes, "causal", inputs, outputs, stored)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
    onnx.checker.check_model(made)
    return made


def feeds(shape, ids, mask=None):
    """What enters the model for these ids (b, s), with an empty past where it has one."""
    ids = np.asarray(ids, np.int64)
    made = {
        "input_ids": ids,
        "attention_mask": np.ones_like(ids) if mask is None else np.asarray(mask, np.int64),
    }
    if shape.past or shape.merged:
        empty = np.zeros((len(ids), shape.heads, 0, shape.width // shape.heads), np.float32)
        made |= {f"past_key_values.{i}.{n}": empty for i in range(shape.layers) for n in ("key", "value")}
    if shape.merged:
        made["use_cache_branch"] = np.array([False])
    return made


def tokenizer(path: Path, words=WORDS):
    """The path of a written tokenizer.json: a word a token, the text begun with <s>."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    made = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>"))  # noqa: S106
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 0)])
    made.save(str(path))
    return path


def language_model(folder: Path, name="lm", **options):
    """The path of a small model with its tokenizer beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(causal(Shape(**options)), folder / f"{name}.onnx")
    tokenizer(folder / f"{name}.tokenizer.json")
    return folder / f"{name}.onnx"


def piqa(path: Path, count=40, seed=0):
    """The path of a written set of questions with two endings each, with its labels in the file."""
    rng = np.random.default_rng(seed)

    def text(n):
        return " ".join(rng.choice(WORDS[2:], n))

    lines = [
        {"goal": text(6), "sol1": text(rng.integers(2, 6)), "sol2": text(rng.integers(2, 6)),
         "label": int(rng.integers(2))}
        for _ in range(count)
    ]  # fmt: skip
    path.write_text("\n".join(map(json.dumps, lines)) + "\n")
    return path


def lambada(path: Path, count=30, seed=1):
    """The path of a written set that asks for the last word."""
    rng = np.random.default_rng(seed)
    lines = [{"text": " ".join(rng.choice(WORDS[2:], 8))} for _ in range(count)]
    path.write_text("\n".join(map(json.dumps, lines)) + "\n")
    return path
