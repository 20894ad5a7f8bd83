"""Domains still cover the box after a move to tighter bounds; parts of a curve cover the whole."""

import pytest
import torch

from helpers.bounds import sample
from helpers.soundness import CROWN, check_moves
from holdfast.verify.bab import tree
from holdfast.verify.linear import root
from holdfast.verify.linear.pieces import Pieces
from holdfast.verify.linear.tune import Queries


@pytest.mark.parametrize("kind", ["relu", "sigmoid", "tanh", "mixed"])
def test_moved_domains_cover_the_box(kind):
    torch.set_num_threads(1)
    for seed in range(2):
        check_moves(sample(kind, seed, 1.0))


def test_a_curve_is_cut_inside_what_is_left_of_it():
    """A point outside the interval, as one chosen before a move can be, becomes the middle."""
    given = sample("sigmoid", 0)
    region = root.bounds(Pieces(given.net, torch.float32), given.lower, given.upper, CROWN).region()
    theta = {at: bend.start(1) for at, bend in region.bends.items()}
    made = tree.plant(region, Queries(len(given.net.steps) - 1, torch.ones(1, 2), theta))
    blank, tuned = torch.zeros(sum(made.sizes)), torch.zeros(sum(made.widths))
    whole = tree.Domain(0, 0.0, blank.to(torch.int8), tuned, tuned, None, torch.arange(1), blank[:1])
    low, high = (float(end[2]) for end in made.ends())
    for point in (high + 1, low, (2 * low + high) / 3):
        upper, lower = tree.children(made, [whole], [(2, point)])
        assert upper.cuts[2][0] == lower.cuts[2][1] == (point if low < point < high else (low + high) / 2)
        assert (lower.cuts[2][0], upper.cuts[2][1]) == (low, high)
