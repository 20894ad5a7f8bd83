"""The digest by which equal inputs of a network are recognised."""

from dataclasses import replace

import numpy as np

from holdfast.core.model import Input
from holdfast.core.types import Size
from holdfast.engine.pipelines import digest_of

INPUT = Input(Size(4, 5))
RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (5, 4, 3), np.uint8)
TENSOR = RNG.random((1, 3, 5, 4), np.float32)


def test_equal_inputs_have_equal_digests():
    whole = np.zeros((9, 9, 3), np.uint8)
    part = whole[2:7, 3:7]  # not contiguous
    part[:] = PIXELS
    assert digest_of(TENSOR, part, INPUT, "card") == digest_of(TENSOR + 1, PIXELS, INPUT, "card")
    assert digest_of(TENSOR, part, INPUT, "own") == digest_of(TENSOR.copy(), PIXELS + 1, INPUT, "own")


def test_other_inputs_have_other_digests():
    other = PIXELS.copy()
    other[-1, -1, -1] ^= 1
    made = [
        digest_of(TENSOR, PIXELS, INPUT, "card"),
        digest_of(TENSOR, other, INPUT, "card"),
        digest_of(TENSOR, PIXELS.reshape(4, 5, 3), INPUT, "card"),
        digest_of(TENSOR, PIXELS.view(np.int8), INPUT, "card"),
        digest_of(TENSOR, PIXELS, replace(INPUT, colour="bgr"), "card"),
        digest_of(TENSOR, PIXELS, INPUT, "own"),
        digest_of(-TENSOR, PIXELS, INPUT, "own"),
    ]
    assert len(set(made)) == len(made)
    assert all(len(digest) == 16 for digest in made)
