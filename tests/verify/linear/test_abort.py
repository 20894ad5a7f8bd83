"""Bounds that are told to stop do so between chunks of neurons, and what they leave is still valid."""

import numpy as np
import torch

from helpers.bounds import dense_net, values_of
from holdfast.verify.linear.pieces import Pieces
from holdfast.verify.linear.root import Effort, bounds


def test_an_abort_is_looked_at_between_chunks_of_one_layer():
    net = dense_net(np.random.default_rng(0), "tanh")
    pieces = Pieces(net, torch.float32)
    lower, upper = -np.ones(3), np.ones(3)
    asked = []

    def finish(pieces, region, queries, goal):
        asked.append(len(queries))
        return torch.full((len(queries),), -torch.inf, dtype=torch.float64)

    def late():
        return len(asked) >= 1

    # 5 neurons in the second layer, 8 a chunk at least: both ends of them are two chunks
    found = bounds(pieces, lower, upper, Effort(iterations=0, chunk_bytes=1, abort=late, finish=finish))
    assert len(asked) == 1
    points = np.random.default_rng(1).uniform(-1, 1, (200, 3))
    for at, value in enumerate(values_of(net, points)):
        assert (found.lower[at].numpy() <= value).all()
        assert (value <= found.upper[at].numpy()).all()
