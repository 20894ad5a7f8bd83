"""What the doors of a language model's graph are for, and one line for a graph that is none."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from helpers.tiny_language import HEADS, POSITIONS, SIZE, language_model
from holdfast.core.errors import ModelError
from holdfast.noise.language.graph import PastState, causal_graph, feeds_of
from holdfast.noise.language.open import positions_of


def made(tmp_path, **options):
    return onnx.load(str(language_model(tmp_path / "m.onnx", **options)))


def changed(proto, name, *, to=None, kind=None, shape=None):
    """The model with an input or output of another name, type or shape; the nodes stay."""
    for value in (*proto.graph.input, *proto.graph.output):
        if value.name == name:
            fresh = helper.make_tensor_value_info(
                to or name,
                kind or value.type.tensor_type.elem_type,
                shape
                if shape is not None
                else [d.dim_value or d.dim_param for d in value.type.tensor_type.shape.dim],
            )
            value.CopyFrom(fresh)
    return proto


def test_without_past(tmp_path):
    found = causal_graph(made(tmp_path))
    assert (found.ids.name, found.logits, found.vocabulary) == ("input_ids", "logits", 320)
    assert found.mask is not None
    assert (found.positions, found.branch, found.past) == (None, None, ())
    assert not found.continues
    assert not found.alone


def test_with_past_positions_and_branch(tmp_path):
    found = causal_graph(made(tmp_path, past=True, branch=True, positions=True))
    assert [(p.name, p.present) for p in found.past] == [
        ("past_key_values.0.key", "present.0.key"),
        ("past_key_values.0.value", "present.0.value"),
    ]
    assert {(p.heads, p.size) for p in found.past} == {(HEADS, SIZE)}
    assert found.positions is not None
    assert found.branch is not None
    assert found.continues


def test_ranges_taken_at_run_time_are_seen(tmp_path):
    assert causal_graph(made(tmp_path, quantised=True)).alone


def test_ranges_are_seen_inside_branches_too(tmp_path):
    proto = made(tmp_path)
    inner = helper.make_graph(
        [helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"])], "inner", [],
        [helper.make_tensor_value_info("q", TensorProto.UINT8, None)],
    )  # fmt: skip
    proto.graph.node.append(helper.make_node("If", ["c"], ["d"], then_branch=inner, else_branch=inner))
    assert causal_graph(proto).alone


def test_fixed_sizes(tmp_path):
    found = causal_graph(changed(made(tmp_path), "input_ids", shape=[2, 16]))
    assert (found.batch, found.length) == (2, 16)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"name": "input_ids", "kind": TensorProto.FLOAT},
            "'input_ids': expected int64 or int32, got float32",
        ),
        ({"name": "input_ids", "shape": ["n"]}, r"'input_ids': expected 2 dimensions \(batch, length\)"),
        ({"name": "attention_mask", "shape": ["n", 1, 1, "t"]}, "'attention_mask': expected 2 dimensions"),
        (
            {"name": "attention_mask", "to": "pixel_values", "kind": TensorProto.FLOAT},
            "unknown inputs pixel_values",
        ),
        (
            {"name": "logits", "shape": ["n", 320]},
            r"'logits': expected 3 dimensions \(batch, length, words\)",
        ),
        ({"name": "logits", "kind": TensorProto.INT64}, "'logits': expected numbers, got int64"),
        ({"name": "logits", "to": "scores", "shape": ["n", 2]}, r"expected an output 'logits' .* got scores"),
        ({"name": "past_key_values.0.key", "shape": ["n", "h", "p", 4]}, "with heads and size as numbers"),
        ({"name": "past_key_values.0.key", "shape": ["n", "p", 4]}, r"expected 4 dimensions \(batch, heads"),
    ],
)
def test_a_graph_that_is_none(tmp_path, change, said):
    with pytest.raises(ModelError, match=said) as raised:
        causal_graph(changed(made(tmp_path, past=True), **change), "m.onnx")
    assert str(raised.value).startswith("m.onnx: ")
    assert "\n" not in str(raised.value)


def test_a_picture_model_is_told(tmp_path):
    from helpers.models import classifier

    proto = onnx.load(str(classifier(tmp_path)))
    with pytest.raises(ModelError, match=r"an input 'input_ids' of tokens, got inputs: x float32"):
        causal_graph(proto)


def test_other_names_are_taken_when_only_one_fits(tmp_path):
    proto = changed(changed(made(tmp_path), "input_ids", to="tokens"), "logits", to="scores")
    found = causal_graph(proto)
    assert (found.ids.name, found.logits) == ("tokens", "scores")


def test_feeds_are_padded_at_the_end_and_masked(tmp_path):
    causal = causal_graph(made(tmp_path, past=True, positions=True))
    feeds = feeds_of(causal, [[5, 6, 7], [8]])
    assert feeds["input_ids"].tolist() == [[5, 6, 7], [8, 0, 0]]
    assert feeds["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]
    assert feeds["position_ids"].tolist() == [[0, 1, 2], [0, 0, 0]]
    assert feeds["past_key_values.0.key"].shape == (2, HEADS, 0, SIZE)


def test_feeds_behind_what_was_read(tmp_path):
    causal = causal_graph(made(tmp_path, past=True, branch=True, positions=True))
    kept = np.ones((1, HEADS, 4, SIZE), np.float32)
    after = PastState(4, {p.name: kept for p in causal.past})
    feeds = feeds_of(causal, [[5, 6], [8]], after)
    assert feeds["attention_mask"].tolist() == [[1] * 6, [1] * 5 + [0]]
    assert feeds["position_ids"].tolist() == [[4, 5], [4, 4]]
    assert feeds["use_cache_branch"].tolist() == [True]
    assert feeds["past_key_values.0.value"].shape == (2, HEADS, 4, SIZE)
    assert feeds_of(causal, [[5]])["use_cache_branch"].tolist() == [False]


def test_fixed_sizes_are_filled(tmp_path):
    causal = causal_graph(changed(made(tmp_path), "input_ids", shape=[3, 5]))
    feeds = feeds_of(causal, [[5, 6]])
    assert feeds["input_ids"].tolist() == [[5, 6, 0, 0, 0]] * 3


@pytest.mark.parametrize("options", [{}, {"past": True}, {"positions": True}, {"past": True, "branch": True}])
def test_positions_from_the_table_and_where_it_begins(tmp_path, options):
    proto = made(tmp_path, **options)
    assert positions_of(proto, causal_graph(proto)) == POSITIONS


def test_positions_without_a_table(tmp_path):
    proto = made(tmp_path)
    for node in proto.graph.node:
        if list(node.input) == ["places", "counted"]:
            node.input[1] = "input_ids"  # then it is a table of words
    assert positions_of(proto, causal_graph(proto)) is None
