"""Where an ending begins in what the model reads."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.tiny_language import tokenizer
from holdfast.core.errors import DataError
from holdfast.core.language import Ending
from holdfast.noise.language.model.tokens import open_tokens


@pytest.fixture(scope="module")
def tokens(tmp_path_factory):
    return open_tokens(tokenizer(tmp_path_factory.mktemp("t") / "tokenizer.json"))


def test_the_whole_is_one_text_and_the_ending_its_end(tokens):
    line = tokens.line(Ending("the road", " is long"), "q")
    assert line.ids == (1, *tokens.encode("the road is long"))
    assert line.ids[line.start :] == tokens.encode(" is long")


def test_a_space_at_the_prompts_end_is_the_endings(tokens):
    joined = tokens.line(Ending("the road ", "is long"), "q")
    assert joined == tokens.line(Ending("the road", " is long"), "q")


def test_a_token_across_the_border_is_scored(tokens):
    line = tokens.line(Ending("a red t", "he"), "q")
    assert len(tokens.encode(" the")) == 1
    assert tokens.encoder.decode(list(line.ids[line.start :])) == " the"


def test_an_ending_of_nothing(tokens):
    with pytest.raises(DataError, match=r"q: the ending '' has no token of its own"):
        tokens.line(Ending("the road", ""), "q")


def test_an_empty_prompt_needs_a_beginning(tmp_path, tokens):
    assert tokens.line(Ending("", " road"), "q").start == 1
    bare = open_tokens(tokenizer(tmp_path / "tokenizer.json", first=None))
    with pytest.raises(DataError, match="no token for the beginning"):
        bare.line(Ending("", " road"), "q")


@settings(deadline=None, max_examples=60)
@given(st.text(max_size=20), st.text(min_size=1, max_size=20))
def test_prompt_and_ending_together_are_the_whole(tokens, prompt, text):
    if not (prompt + text).strip():
        return
    try:
        line = tokens.line(Ending(prompt, text), "q")
    except DataError:
        assert not text.strip()
        return
    assert line.ids == (1, *tokens.encode(prompt + text))
    assert 1 <= line.start < len(line.ids)
    before = tokens.encoder.decode(list(line.ids[1 : line.start]))
    assert len(before) <= len(prompt) + 1, "no token of the ending alone is taken for the prompt's"
