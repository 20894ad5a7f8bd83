"""Frames of letters: the cuts are where the spectrum changes, and nothing is lost."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from models.speech.corpus import letter_frames, segments


def test_steps_are_found():
    levels = np.repeat([0.0, 5.0, -3.0, 4.0], [4, 2, 7, 3])
    mel = np.tile(levels[:, None], (1, 6)).astype(np.float32)
    assert segments(mel, 4) == [4, 2, 7, 3]


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 20), st.integers(1, 8), st.integers(0, 1000))
def test_lengths_sum_and_are_positive_while_frames_suffice(frames, letters, seed):
    mel = np.random.default_rng(seed).normal(size=(frames, 5)).astype(np.float32)
    lengths = segments(mel, letters)
    assert sum(lengths) == frames
    assert len(lengths) == letters
    assert min(lengths) >= (1 if frames >= letters else 0)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1000))
def test_no_other_cut_is_better(seed):
    rng = np.random.default_rng(seed)
    mel = rng.normal(size=(7, 3)).astype(np.float32)

    def cost(lengths):
        parts = np.split(mel.astype(float), np.cumsum(lengths)[:-1])
        spread = sum(((part - part.mean(0)) ** 2).sum() for part in parts)
        return spread + 0.02 * 3 * sum((length - 7 / 3) ** 2 for length in lengths)

    every = [(a, b, 7 - a - b) for a in range(1, 6) for b in range(1, 7 - a)]
    assert np.isclose(cost(segments(mel, 3)), min(cost(lengths) for lengths in every))


def test_words_spaces_and_the_end():
    mel = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
    frames = letter_frames(mel, "go on", np.array([1, 8, 17]))
    assert frames.sum() == 20
    assert frames[:2].sum() == 8  # what is before the first word belongs to its first letter
    assert frames[2] == 0  # the space
    assert frames[3:5].sum() == 9
    assert frames[5] == 3  # the end mark takes the silence
