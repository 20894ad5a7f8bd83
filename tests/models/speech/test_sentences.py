"""The grammar: seeded, within the alphabet, 2 to 6 words."""

import numpy as np

from models.speech.corpus import SYMBOLS, ids_of, sentences
from models.speech.heard import rivals


def test_same_seed_same_sentences_and_more_are_the_same_first():
    assert sentences(30, 3) == sentences(60, 3)[:30]
    assert sentences(30, 3) != sentences(30, 4)


def test_sentences_differ_and_are_short_and_plain():
    said = sentences(400, 0)
    assert len(set(said)) == 400
    assert all(2 <= len(text.split(" ")) <= 6 for text in said)
    assert set("".join(said)) <= set(SYMBOLS[:-1])


def test_ids_are_places_with_the_end_mark():
    assert ids_of("a b") == (1, 0, 2, 27)


def test_rivals_differ_in_one_word():
    text = "our red truck stops here"
    others = rivals(text, 6, np.random.default_rng(0))
    assert len(set(others)) == 6
    for other in others:
        pairs = list(zip(text.split(), other.split(), strict=True))
        assert sum(one != two for one, two in pairs) == 1
