"""Opening a language model: what does not fit is one clear line."""

import json
import sys

import numpy as np
import onnx
import pytest
from onnx import helper

from helpers.tiny_language import language_model, tokenizer
from holdfast.core.errors import InputError, MissingExtra, ModelError, UnknownName
from holdfast.core.language import Ending, Question
from holdfast.noise.language.open import find_language, open_language


def one_line(raised):
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_the_tokenizer_is_found_in_three_places(tmp_path):
    path = language_model(tmp_path / "onnx" / "m.onnx")
    with pytest.raises(
        ModelError, match=r"no tokenizer: looked for m.tokenizer.json and tokenizer.json"
    ) as raised:
        open_language(path)
    one_line(raised)
    for place in ("tokenizer.json", "onnx/tokenizer.json", "onnx/m.tokenizer.json"):
        tokenizer(tmp_path / place)
        assert open_language(path).tokens.path == tmp_path / place
    other = tokenizer(tmp_path / "other.json", first=None)
    assert open_language(path, other).tokens.first == ()


def test_a_tokenizer_of_another_model(tmp_path):
    tokenizer(tmp_path / "tokenizer.json", size=400)
    said = r"has token numbers up to \d+, but the model has 320: the tokenizer belongs to another model"
    with pytest.raises(ModelError, match=said) as raised:
        open_language(language_model(tmp_path / "m.onnx"))
    one_line(raised)


def written(proto, path):
    path.write_bytes(proto.SerializeToString())
    return path


def test_a_vocabulary_that_the_file_does_not_state(tmp_path):
    tokenizer(tmp_path / "tokenizer.json", size=400)
    proto = onnx.load(str(language_model(tmp_path / "m.onnx")))
    proto.graph.output[0].type.tensor_type.shape.dim[2].dim_param = "words"
    with pytest.raises(ModelError, match="but the model has 320"):
        open_language(tmp_path / "m.onnx", graph=written(proto, tmp_path / "other.onnx"))


def test_a_far_larger_vocabulary_is_a_note(tmp_path):
    tokenizer(tmp_path / "tokenizer.json", size=300)
    model = open_language(language_model(tmp_path / "m.onnx", words=600))
    assert any("600 words, its tokenizer" in note for note in model.notes)


@pytest.mark.parametrize("content", ["", "{", '{"model": 3}', "\ufeffhello"])
def test_a_tokenizer_that_is_none(tmp_path, content):
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(InputError, match=r"not a tokenizer.json of Hugging Face tokenizers") as raised:
        open_language(language_model(tmp_path / "m.onnx"))
    one_line(raised)


def test_a_tokenizer_that_is_missing(tmp_path):
    with pytest.raises(InputError, match="cannot be read: No such file"):
        open_language(language_model(tmp_path / "m.onnx"), tmp_path / "none.json")


def test_the_extra_is_named_when_it_is_missing(tmp_path, monkeypatch):
    tokenizer(tmp_path / "tokenizer.json")
    path = language_model(tmp_path / "m.onnx")
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(MissingExtra, match=r"holdfast\[language\]"):
        open_language(path)


def test_the_beginning_by_template_or_by_config(tmp_path):
    path = language_model(tmp_path / "m.onnx")
    tokenizer(tmp_path / "tokenizer.json")
    assert open_language(path).tokens.first == (1,)
    tokenizer(tmp_path / "tokenizer.json", first=None)
    assert open_language(path).tokens.first == ()
    config = tmp_path / "tokenizer_config.json"
    config.write_text(json.dumps({"add_bos_token": True, "bos_token": {"content": "</s>"}}))
    assert open_language(path).tokens.first == (1,)
    config.write_text(json.dumps({"add_bos_token": True, "bos_token": "<nobody>"}))
    with pytest.raises(InputError, match=r"bos_token '<nobody>' is no token of tokenizer.json"):
        open_language(path)
    config.write_text("{")
    with pytest.raises(InputError, match="expected a JSON object"):
        open_language(path)


def test_positions_of_the_config_bound_those_of_the_graph(tmp_path):
    tokenizer(tmp_path / "tokenizer.json")
    path = language_model(tmp_path / "m.onnx")
    (tmp_path / "config.json").write_text(json.dumps({"max_position_embeddings": 20}))
    assert open_language(path).positions == 20


def test_a_graph_that_sees_what_comes_later_is_refused(tmp_path):
    tokenizer(tmp_path / "tokenizer.json")
    with pytest.raises(ModelError, match="a token changes the logits before it") as raised:
        open_language(language_model(tmp_path / "m.onnx", sees_all=True))
    one_line(raised)


def test_a_graph_for_one_row_at_a_time(tmp_path):
    tokenizer(tmp_path / "tokenizer.json")
    proto = onnx.load(str(language_model(tmp_path / "m.onnx")))
    for weight in proto.graph.initializer:  # the batch frozen inside, as careless exports have it
        if weight.name == "split":
            weight.CopyFrom(onnx.numpy_helper.from_array(np.array([1, -1, 2, 4]), "split"))
    model = open_language(tmp_path / "m.onnx", graph=written(proto, tmp_path / "other.onnx"))
    assert model.rows == 1
    assert any("one row at a time" in note for note in model.notes)
    question = Question("q", (Ending("the road", " is long"), Ending("the road", " is")), 0)
    np.testing.assert_allclose(
        model.score(question).sums, open_language(tmp_path / "m.onnx").score(question).sums, atol=1e-4
    )


@pytest.mark.parametrize("shape", [(1, "t"), (2, "t"), (2, 24), (1, 24)])
def test_sizes_that_the_file_fixes(tmp_path, shape):
    tokenizer(tmp_path / "tokenizer.json")
    path = language_model(tmp_path / "m.onnx")
    question = Question("q", tuple(Ending("the road", f" is {w}") for w in ("long", "red", "a car")), 0)
    expected = open_language(path).score(question).sums
    proto = onnx.load(str(path))
    for value in proto.graph.input:
        value.CopyFrom(helper.make_tensor_value_info(value.name, onnx.TensorProto.INT64, shape))
    model = open_language(path, graph=written(proto, tmp_path / "other.onnx"))
    np.testing.assert_allclose(model.score(question).sums, expected, atol=1e-4)
    assert model.positions == min(64, shape[1] if isinstance(shape[1], int) else 64)


def test_bytes_that_are_no_graph(tmp_path):
    tokenizer(tmp_path / "tokenizer.json")
    path = language_model(tmp_path / "m.onnx")
    (tmp_path / "bad.onnx").write_bytes(b"no")
    with pytest.raises(ModelError, match="not an ONNX model"):
        open_language(path, graph=tmp_path / "bad.onnx")
    tokenizer(tmp_path / "bad.tokenizer.json")
    with pytest.raises(ModelError, match="not an ONNX model"):
        open_language(tmp_path / "bad.onnx")


def test_models_by_name(tmp_path):
    with pytest.raises(UnknownName, match="unknown language model 'rode-lm'"):
        find_language(type(tmp_path)("rode-lm"))
    with pytest.raises(ModelError, match="is a folder"):
        find_language(tmp_path)
    with pytest.raises(ModelError, match="no such file"):
        find_language(tmp_path / "none.onnx")
