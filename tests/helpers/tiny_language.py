"""A tiny causal language model of one attention layer, and a tokenizer, for tests."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

HEADS, SIZE = 2, 4
WIDTH = HEADS * SIZE
POSITIONS = 64  # the table has two rows more, as OPT's
TEXT = (
    "the road is long and the sky is wide . a red car waits at the crossing , the driver looks left . "
    "Question : how do I mend a tyre ? Answer : take the wheel off and patch the hole with glue ."
)


def tokenizer(path: Path, *, size: int = 320, first: str | None = "</s>") -> Path:
    """A byte-level BPE tokenizer trained on a few words; `first` is put before every text."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=["<pad>", "</s>"], initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator([TEXT] * 3, trainer)
    if first is not None:
        number = made.token_to_id(first)
        made.post_processor = processors.TemplateProcessing(
            single=f"{first} $A", special_tokens=[(first, number)]
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    made.save(str(path))
    return path


def language_model(
    path: Path, *, past: bool = False, branch: bool = False, positions: bool = False, sees_all: bool = False,
    words: int = 320, spoilt: bool = False, quantised: bool = False, seed: int = 0,
) -> Path:  # fmt: skip
    """An ONNX file in Optimum's layout; `sees_all` has no causal mask, `spoilt` none behind a past."""
    rng = np.random.default_rng(seed)
    weights = {
        "words": rng.normal(size=(words, WIDTH)), "places": rng.normal(size=(POSITIONS + 2, WIDTH)),
        **{name: rng.normal(size=(WIDTH, WIDTH)) / np.sqrt(WIDTH) for name in ("wq", "wk", "wv", "wo")},
    }  # fmt: skip
    numbers = {
        "one": [1], "zero": [0], "two": [2], "start": [0], "axis1": [1], "axis2": [2], "end": [2**31],
        "s0": 0, "s1": 1, "split": [0, 0, HEADS, SIZE], "join": [0, 0, WIDTH], "b": [1, 2],
    }  # fmt: skip
    stored = {k: np.asarray(v, np.float32) for k, v in weights.items()}
    stored |= {k: np.asarray(v, np.int64) for k, v in numbers.items()}
    stored |= {"scale": np.float32(1 / np.sqrt(SIZE)), "low": np.float32(-1e9)}
    nodes = [*_places(positions), *_embedded(quantised), *_attended(past, branch, sees_all, spoilt)]
    graph = helper.make_graph(
        nodes, "tiny", *_doors(past, branch, positions, words),
        [numpy_helper.from_array(np.asarray(v), k) for k, v in stored.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, str(path))
    return path


def _doors(past: bool, branch: bool, positions: bool, words: int) -> tuple[list, list]:
    def value(name, kind, *shape):
        return helper.make_tensor_value_info(name, kind, shape)

    cache = ("batch", HEADS, "past", SIZE)
    inputs = [value("input_ids", TensorProto.INT64, "batch", "length")]
    inputs.append(value("attention_mask", TensorProto.INT64, "batch", "all"))
    outputs = [value("logits", TensorProto.FLOAT, "batch", "length", words)]
    if positions:
        inputs.append(value("position_ids", TensorProto.INT64, "batch", "length"))
    if past:
        inputs += [value(f"past_key_values.0.{n}", TensorProto.FLOAT, *cache) for n in ("key", "value")]
        outputs += [value(f"present.0.{n}", TensorProto.FLOAT, *cache) for n in ("key", "value")]
    if branch:
        inputs.append(value("use_cache_branch", TensorProto.BOOL, 1))
    return inputs, outputs


def _node(op: str, inputs: str, output: str, **attributes) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), [output], **attributes)


def _places(positions: bool) -> list[onnx.NodeProto]:
    """`counted` (batch, length): the number of each token, from the mask as OPT does, or from the input."""
    sizes = [
        _node("Shape", "input_ids", "ids_shape"),
        _node("Gather", "ids_shape s1", "t", axis=0),
        _node("Shape", "attention_mask", "mask_shape"),
        _node("Gather", "mask_shape s1", "s", axis=0),
        _node("Sub", "s t", "before"),
        _node("Unsqueeze", "before zero", "before1"),
    ]
    if positions:
        return [*sizes, _node("Add", "position_ids two", "counted")]
    return [
        *sizes,
        _node("CumSum", "attention_mask s1", "sum"),
        _node("Mul", "sum attention_mask", "summed"),
        _node("Sub", "summed one", "from0"),
        _node("Slice", "from0 before1 end axis1", "own"),
        _node("Add", "own two", "counted"),
    ]


def _embedded(quantised: bool) -> list[onnx.NodeProto]:
    nodes = [
        _node("Gather", "words input_ids", "said"),
        _node("Gather", "places counted", "placed"),
        _node("Add", "said placed", "x0" if quantised else "x"),
    ]
    if quantised:  # eight bits with a range of the whole tensor
        nodes.append(helper.make_node("DynamicQuantizeLinear", ["x0"], ["x8", "x_scale", "x_zero"]))
        nodes.append(_node("DequantizeLinear", "x8 x_scale x_zero", "x"))
    return nodes


def _attended(past: bool, branch: bool, sees_all: bool, spoilt: bool) -> list[onnx.NodeProto]:
    nodes = []
    for name, kind in (("k", "key"), ("v", "value"), ("q", "")):
        nodes += [
            _node("MatMul", f"x w{name}", f"{name}0"),
            _node("Reshape", f"{name}0 split", f"{name}1"),
            _node("Transpose", f"{name}1", name, perm=[0, 2, 1, 3]),
        ]
        if past and kind:
            given = f"past_key_values.0.{kind}"
            if branch:  # the past counts for nothing unless it is to be used
                nodes += [
                    _node("Cast", "use_cache_branch", f"{name}_used", to=TensorProto.INT64),
                    _node("Mul", f"{name}_used end", f"{name}_stop"),
                    _node("Slice", f"{given} start {name}_stop axis2", f"{name}_past"),
                ]
            source = f"{name}_past" if branch else given
            nodes.append(_node("Concat", f"{source} {name}", f"present.0.{kind}", axis=2))
    key, value = ("present.0.key", "present.0.value") if past else ("k", "v")
    return [*nodes, *_masked(sees_all, spoilt), *_answered(key, value)]


def _masked(sees_all: bool, spoilt: bool) -> list[onnx.NodeProto]:
    """`seen` (batch, 1, length, all): the tokens up to its own, of those that are not padding."""
    nodes = [
        _node("Cast", "attention_mask", "mask_bool", to=TensorProto.BOOL),
        _node("Unsqueeze", "mask_bool b", "real"),
        _node("Range", "s0 s s1", "columns"),
        _node("Range", "before s s1", "rows"),
        _node("Unsqueeze", "rows one", "rows1"),
    ]
    if sees_all:
        return [*nodes, _node("Identity", "real", "seen")]
    nodes.append(_node("LessOrEqual", "columns rows1", "earlier"))
    if spoilt:
        nodes += [_node("Greater", "before s0", "is_behind"), _node("Or", "earlier is_behind", "allowed")]
    return [*nodes, _node("And", f"real {'allowed' if spoilt else 'earlier'}", "seen")]


def _answered(key: str, value: str) -> list[onnx.NodeProto]:
    return [
        _node("Transpose", key, "kt", perm=[0, 1, 3, 2]),
        _node("MatMul", "q kt", "raw"),
        _node("Mul", "raw scale", "scaled"),
        _node("Where", "seen scaled low", "kept"),
        _node("Softmax", "kept", "shares", axis=-1),
        _node("MatMul", f"shares {value}", "heads"),
        _node("Transpose", "heads", "heads1", perm=[0, 2, 1, 3]),
        _node("Reshape", "heads1 join", "joined"),
        _node("MatMul", "joined wo", "out"),
        _node("Add", "x out", "y"),
        _node("Transpose", "words", "head", perm=[1, 0]),
        _node("MatMul", "y head", "logits"),
    ]


def write_lines(path: Path, records: list) -> Path:
    """A file of one JSON object a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path
