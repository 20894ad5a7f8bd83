"""The parts of a language suite: precisions, which words are models, what is calibrated on and kept."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import language as texting
from holdfast.core.errors import InputError, ModelError, UnknownName
from holdfast.core.language import Ending, Question, ScoredQuestion, TextSet
from holdfast.noise.language.cells import (
    DEFAULT,
    has_failed,
    pack_scores,
    precisions,
    reserve,
    select_precisions,
    spread,
    unpack_scores,
)
from holdfast.noise.language.open import file_of, language_subject
from holdfast.noise.suite import is_calibrated


def questions(count, start=0):
    made = []
    for i in range(start, start + count):
        endings = tuple(Ending(f"prompt {i}", f"ending {e}") for e in "ab")
        made.append(Question(f"f:{i + 1}", endings, i % 2))
    return tuple(made)


def text_set(count, name="s", start=0):
    return TextSet(name, "piqa", questions(count, start), "0" * 64)


def test_the_three_precisions_of_the_table_run_by_default_and_others_on_demand():
    assert select_precisions() == ("fp16", "int8-dynamic", "int8-mixed") == DEFAULT
    assert "bf16" in select_precisions(every=True)
    assert select_precisions(only=["bf16"]) == ("bf16",)
    assert select_precisions(only=["precision=bf16", "fp16"]) == ("fp16", "bf16")
    assert select_precisions(only=["precision"]) == DEFAULT
    assert select_precisions(skip=["int8-mixed"]) == ("fp16", "int8-dynamic")
    assert select_precisions(only=["int8"]) == select_precisions(only=["precision=int8"]) == ("int8-minmax",)
    assert set(select_precisions(every=True)) == {one.name for one in precisions()}
    assert [p for p in DEFAULT if is_calibrated(p)] == ["int8-mixed"]


def test_words_that_are_no_precision_are_refused_with_the_nearest():
    with pytest.raises(UnknownName, match="int8-dynamic"):
        select_precisions(only=["int8-dinamic"])
    with pytest.raises(UnknownName, match="resize"):
        select_precisions(skip=["resize"])
    with pytest.raises(InputError, match="exclude all"):
        select_precisions(only=["fp16"], skip=["precision"])


def test_which_words_are_models(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "export").mkdir()
    (tmp_path / "export" / "decoder_model.onnx").write_bytes(b"x")
    (tmp_path / "road-lm").write_text("a set that is called like a shipped model")
    (tmp_path / "data").mkdir()
    assert file_of("some/where.onnx").name == "where.onnx"  # told as missing later
    assert file_of("export").name == "decoder_model.onnx"
    assert file_of("data") is None
    assert file_of("set.jsonl") is None
    assert file_of("road-lm") is None
    (tmp_path / "road-lm").unlink()
    (tmp_path / "export" / "model.onnx").write_bytes(b"x")
    assert file_of("export").name == "model.onnx"


def test_a_model_is_known_by_its_weights_its_tokenizer_and_its_settings(tmp_path):
    first = language_subject(texting.language_model(tmp_path / "a", "lm"))
    assert (first.name, first.sha256) == ("lm", language_subject(first.path).sha256)
    assert language_subject(texting.language_model(tmp_path / "b", "lm", seed=1)).sha256 != first.sha256
    (tmp_path / "a" / "config.json").write_text('{"max_position_embeddings": 32}')
    assert language_subject(first.path).sha256 != first.sha256
    texting.tokenizer(tmp_path / "b" / "lm.tokenizer.json", texting.WORDS[::-1])
    with pytest.raises(ModelError, match="no such model file"):
        language_subject(tmp_path / "none.onnx")


def test_the_folder_names_a_model_whose_file_is_called_as_all_are(tmp_path):
    texting.language_model(tmp_path / "opt-125m", "model")
    assert language_subject(file_of(str(tmp_path / "opt-125m"))).name == "opt-125m"


def test_a_model_behind_a_link_is_known_by_what_lies_beside_the_link(tmp_path):
    home, kept = tmp_path / "opt-tiny" / "onnx", tmp_path / "blobs"  # as caches of models keep them
    home.mkdir(parents=True)
    made = texting.language_model(kept, "model")
    made.rename(kept / "5e7ac0")
    (home / "model.onnx").symlink_to(kept / "5e7ac0")
    texting.tokenizer(home.parent / "tokenizer.json")
    plain = language_subject(home / "model.onnx")
    assert plain.name == "onnx"
    (home / "config.json").write_text('{"max_position_embeddings": 4}')
    assert language_subject(home / "model.onnx").sha256 != plain.sha256


def test_weights_beside_the_model_are_part_of_it(tmp_path):
    import onnx

    path = tmp_path / "lm.onnx"
    texting.tokenizer(tmp_path / "tokenizer.json")
    onnx.save(texting.causal(), path, save_as_external_data=True, location="lm.onnx_data", size_threshold=100)
    before = language_subject(path)
    data = bytearray((tmp_path / "lm.onnx_data").read_bytes())
    assert before.bytes > len(data)
    data[5] ^= 1
    (tmp_path / "lm.onnx_data").write_bytes(bytes(data))
    assert language_subject(path).sha256 != before.sha256


def test_calibration_takes_what_is_not_tested_on():
    whole = text_set(50)
    tested = TextSet("s", "piqa", whole.questions[:20], "0" * 64)
    found = reserve(tested, whole, 10)
    assert len(found.items) == 10
    assert not {q.name for q in found.items} & {q.name for q in tested.questions}
    assert found.without == frozenset()
    assert found.words.startswith("10 questions of s that are not tested on")
    assert [q.name for q in found.items] == [q.name for q in spread(whole.questions[20:], 10)]


def test_equal_questions_of_another_file_are_not_calibrated_on():
    tested, other = text_set(8), text_set(12, "other", start=4)
    found = reserve(tested, other, 100, given=True)
    assert [q.endings[0].prompt for q in found.items] == [f"prompt {i}" for i in range(8, 16)]
    with pytest.raises(InputError, match="all its questions are tested on"):
        reserve(tested, text_set(4, "inside"), 100, given=True)


@given(st.integers(2, 300), st.integers(1, 150))
def test_without_others_some_are_left_out_and_most_stay(count, wanted):
    tested = text_set(count)
    found = reserve(tested, None, wanted)
    assert len(found.without) == len(found.items) == min(wanted, max(1, count // 4))
    assert {q.name for q in found.items} == set(found.without)
    assert f"{len(found.without)} of the {count} questions" in found.words


def test_one_question_cannot_be_calibrated_on():
    assert reserve(text_set(1), None, 100).items == ()


@given(
    st.lists(
        st.lists(st.floats(allow_nan=True, allow_infinity=True, width=64), min_size=1, max_size=4), max_size=5
    )
)
def test_scores_are_kept_to_the_last_digit_and_what_is_no_number_stays_none(drawn):
    asked = questions(len(drawn))
    given = [
        ScoredQuestion(q.name, tuple(s), (3,) * len(s), (7,) * len(s), (True,) * len(s))
        for q, s in zip(asked, drawn, strict=True)
    ]
    back = unpack_scores(pack_scores(given), asked)
    assert [s.name for s in back] == [s.name for s in given]
    for one, other in zip(given, back, strict=True):
        assert np.array_equal(one.sums, other.sums, equal_nan=True)
        assert (one.tokens, one.length, one.greedy) == (other.tokens, other.length, other.greedy)
        assert has_failed(other) == any(map(math.isnan, one.sums))
