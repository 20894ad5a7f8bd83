"""An OPT decoder as an ONNX graph: its sizes, weights, and inputs, outputs and axes as Optimum names them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

OFFSET = 2  # OPT keeps the first two rows of its positions for padding
OPSET = 17
PREFIX = "model.decoder."  # of the weights' names in a file of OPT's
_BATCH, _SEQUENCE, _PAST = "batch_size", "sequence_length", "past_sequence_length"
_ALL = "past_sequence_length + sequence_length"


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


class _Writer:
    """Nodes and constants of a graph in the making."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: dict[str, NDArray[Any]] = {}

    def node(self, kind: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        """The name of the new node's output."""
        from onnx import helper

        self.nodes.append(helper.make_node(kind, list(inputs), [output], f"/{output}", **attributes))
        return output

    def constant(self, name: str, value: Any, kind: type = np.int64) -> str:
        """The name of a constant."""
        self.constants[name] = np.asarray(value, kind)
        return name


def decoder_graph(
    weights: Mapping[str, NDArray[np.float32]],
    shape: Shape,
    past: bool = False,
    position_ids: bool = False,
    tied: bool = True,
) -> Any:
    """The checked graph with outputs logits and present.N.key and .value.

    With `past` it takes the keys and values of what was said before; with `position_ids` the places are given
    and not counted from the mask; not `tied`, the head's matrix is a constant of its own, as some exporters
    leave it.
    """
    import onnx
    from onnx import helper, numpy_helper

    writer = _Writer()
    for name, value in weights.items():
        writer.constant(PREFIX + name, value, np.float32)
    allowed = _mask(writer, past)
    x = _embedded(writer, past, position_ids)
    for index in range(shape.layers):
        x = _layer(writer, shape, index, x, allowed, past)
    x = _normal(writer, "final_layer_norm", x)
    _head(writer, x, tied)
    inputs, outputs = _ports(shape, past, position_ids)
    constants = [numpy_helper.from_array(value, name) for name, value in writer.constants.items()]
    graph = helper.make_graph(writer.nodes, "decoder", inputs, outputs, constants)
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8, producer_name="holdfast"
    )
    if sum(value.nbytes for value in writer.constants.values()) < 2**31:
        onnx.checker.check_model(model, full_check=True)
    return model


def _ports(shape: Shape, past: bool, position_ids: bool) -> tuple[list[Any], list[Any]]:
    """Inputs and outputs with the names of their axes."""
    from onnx import TensorProto, helper

    def whole(name: str, *axes: str) -> Any:
        return helper.make_tensor_value_info(name, TensorProto.INT64, list(axes))

    def real(name: str, *axes: str | int) -> Any:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, list(axes))

    everything, size = _ALL if past else _SEQUENCE, shape.hidden // shape.heads
    inputs = [whole("input_ids", _BATCH, _SEQUENCE), whole("attention_mask", _BATCH, everything)]
    if position_ids:
        inputs.append(whole("position_ids", _BATCH, _SEQUENCE))
    outputs = [real("logits", _BATCH, _SEQUENCE, shape.vocabulary)]
    for index in range(shape.layers):
        for part in ("key", "value"):
            if past:
                name = f"past_key_values.{index}.{part}"
                inputs.append(real(name, _BATCH, shape.heads, _PAST, size))
            outputs.append(real(f"present.{index}.{part}", _BATCH, shape.heads, everything, size))
    return inputs, outputs


def _mask(writer: _Writer, past: bool) -> str:
    """What is added to the scores, (batch, 1, sequence, all): 0, or the lowest float for what is not seen."""
    one, scalar = writer.constant("axis_1", [1]), writer.constant("index_1", 1)
    counted = writer.node("Shape", ["attention_mask"], "mask_shape")
    everything = writer.node("Gather", [counted, scalar], "all_length", axis=0)
    start = writer.constant("zero", 0)
    step = writer.constant("one", 1)
    keys = writer.node("Range", [start, everything, step], "key_places")
    first = start
    if past:
        said = writer.node("Shape", ["input_ids"], "ids_shape")
        now = writer.node("Gather", [said, scalar], "now_length", axis=0)
        first = writer.node("Sub", [everything, now], "past_length")
    queries = writer.node("Range", [first, everything, step], "query_places")
    column = writer.node("Unsqueeze", [queries, one], "query_column")
    before = writer.node("LessOrEqual", [keys, column], "before")
    real = writer.node("Cast", ["attention_mask"], "mask_bool", to=9)
    spread = writer.node("Unsqueeze", [real, writer.constant("axes_1_2", [1, 2])], "mask_spread")
    seen = writer.node("And", [before, spread], "seen")
    lowest = writer.constant("lowest", np.finfo(np.float32).min, np.float32)
    return writer.node("Where", [seen, writer.constant("nothing", 0, np.float32), lowest], "hidden_from")


def _embedded(writer: _Writer, past: bool, position_ids: bool) -> str:
    """Tokens and places as vectors; what the mask leaves out counts for no place."""
    places = "position_ids"
    if not position_ids:
        counted = writer.node("CumSum", ["attention_mask", "index_1"], "mask_counted")
        kept = writer.node("Mul", [counted, "attention_mask"], "mask_kept")
        places = writer.node("Sub", [kept, "one"], "places")
        if past:
            start = writer.node("Unsqueeze", ["past_length", writer.constant("axis_0", [0])], "past_start")
            end = writer.constant("far", [np.iinfo(np.int64).max])
            places = writer.node("Slice", [places, start, end, "axis_1"], "places_now")
    rows = writer.node("Add", [places, writer.constant("offset", OFFSET)], "place_rows")
    where = writer.node("Gather", [PREFIX + "embed_positions.weight", rows], "place_vectors", axis=0)
    what = writer.node("Gather", [PREFIX + "embed_tokens.weight", "input_ids"], "token_vectors", axis=0)
    return writer.node("Add", [what, where], "embedded")


def _layer(writer: _Writer, shape: Shape, index: int, x: str, hidden_from: str, past: bool) -> str:
    """Attention and perceptron, each behind a normalisation and added to what came in."""
    name = f"layers.{index}"
    normal = _normal(writer, f"{name}.self_attn_layer_norm", x)
    x = writer.node(
        "Add", [x, _attention(writer, shape, index, normal, hidden_from, past)], f"{name}.attended"
    )
    normal = _normal(writer, f"{name}.final_layer_norm", x)
    # OPT lays all places of all texts behind one another here: Gemm, not MatMul.
    flat = writer.node("Reshape", [normal, writer.constant("rows", [-1, shape.hidden])], f"{name}.flat")
    wide = _gemm(writer, f"{name}.fc1", flat)
    narrow = _gemm(writer, f"{name}.fc2", writer.node("Relu", [wide], f"{name}.relu"))
    sizes = writer.node("Shape", [x], f"{name}.sizes")
    back = writer.node("Reshape", [narrow, sizes], f"{name}.back")
    return writer.node("Add", [x, back], f"{name}.output")


def _attention(writer: _Writer, shape: Shape, index: int, x: str, hidden_from: str, past: bool) -> str:
    name, size = f"layers.{index}.self_attn", shape.hidden // shape.heads
    split = writer.constant("split", [0, 0, shape.heads, size])
    heads = {}
    for part in ("q", "k", "v"):
        flat = _matmul(writer, f"{name}.{part}_proj", x)
        if part == "q":
            flat = writer.node("Mul", [flat, writer.constant("scaling", size**-0.5, np.float32)], f"{name}.q")
        apart = writer.node("Reshape", [flat, split], f"{name}.{part}_apart")
        output = f"{name}.{part}_heads"
        if part != "q":
            port = f"{index}.{'key' if part == 'k' else 'value'}"
            output = output if past else f"present.{port}"
        heads[part] = writer.node("Transpose", [apart], output, perm=[0, 2, 1, 3])
        if past and part != "q":
            joined = [f"past_key_values.{port}", heads[part]]
            heads[part] = writer.node("Concat", joined, f"present.{port}", axis=2)
    turned = writer.node("Transpose", [heads["k"]], f"{name}.k_turned", perm=[0, 1, 3, 2])
    scores = writer.node("MatMul", [heads["q"], turned], f"{name}.scores")
    masked = writer.node("Add", [scores, hidden_from], f"{name}.masked")
    shares = writer.node("Softmax", [masked], f"{name}.shares", axis=-1)
    mixed = writer.node("MatMul", [shares, heads["v"]], f"{name}.mixed")
    together = writer.node("Transpose", [mixed], f"{name}.together", perm=[0, 2, 1, 3])
    joint = writer.constant("joint", [0, 0, shape.hidden])
    return _matmul(writer, f"{name}.out_proj", writer.node("Reshape", [together, joint], f"{name}.joined"))


def _normal(writer: _Writer, name: str, x: str) -> str:
    weights = [PREFIX + f"{name}.weight", PREFIX + f"{name}.bias"]
    return writer.node("LayerNormalization", [x, *weights], f"{name}.normal", axis=-1, epsilon=1e-5)


def _matmul(writer: _Writer, name: str, x: str) -> str:
    """A linear layer on a row of texts: the matrix turned, as exporters leave it, and the bias added."""
    matrix = writer.constants.pop(PREFIX + f"{name}.weight").T
    turned = writer.constant(PREFIX + f"{name}.weight_turned", np.ascontiguousarray(matrix), np.float32)
    product = writer.node("MatMul", [x, turned], f"{name}.product")
    return writer.node("Add", [PREFIX + f"{name}.bias", product], f"{name}.sum")


def _gemm(writer: _Writer, name: str, x: str) -> str:
    inputs = [x, PREFIX + f"{name}.weight", PREFIX + f"{name}.bias"]
    return writer.node("Gemm", inputs, f"{name}.sum", transB=1)


def _head(writer: _Writer, x: str, tied: bool) -> None:
    tokens = PREFIX + "embed_tokens.weight"
    if tied:
        turned = writer.node("Transpose", [tokens], "lm_head.turned", perm=[1, 0])
    else:
        matrix = np.ascontiguousarray(writer.constants[tokens].T)
        turned = writer.constant("lm_head.weight_turned", matrix, np.float32)
    writer.node("MatMul", [x, turned], "logits")
