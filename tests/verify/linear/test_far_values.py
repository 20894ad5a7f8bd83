"""Curves at values far from one: where squares overflow, and where a sine's places are no longer known."""

import numpy as np
import pytest
import torch

from helpers.bounds import problem
from holdfast.core.property import Budget
from holdfast.graph.ir import Activation, FreeInputs, Net, ScaleShift
from holdfast.verify.bab.decide import decide
from holdfast.verify.linear.shapes import span
from holdfast.verify.problem import Case, Deadline
from holdfast.verify.split.search import search

ENGINES = [decide, search]


def scaled(curve, before, after):
    """after * curve(before * x) of one input."""
    steps = (
        FreeInputs((1,)),
        ScaleShift(0, np.array([before]), np.zeros(1), (1,)),
        Activation(1, curve, (1,)),
        ScaleShift(2, np.array([after]), np.zeros(1), (1,)),
    )
    return Net(steps, np.arange(1), np.zeros(1))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("factor", [1e20, -1e20, 1e25, 1e160])
def test_one_over_large_values_is_not_flat(engine, factor):
    net = scaled("reciprocal", factor, factor)  # 1 / x: 0.5 at the end of the range
    unsafe = Case(np.array([1.0]), np.array([2.0]), np.array([[1.0]]), np.array([0.55]))
    assert engine(problem(net, unsafe), Deadline(Budget(2))).status != "holds"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_range_of_a_sine_far_out_is_all_of_it(dtype):
    starts = 10.0 ** torch.arange(0, 30, 0.25, dtype=torch.float64)
    for sign in (1, -1):
        ends = torch.stack([sign * starts, sign * (starts * 1.5 + 7)]).to(dtype).sort(0).values
        low, high = span(Activation(0, "sin", (1,)), ends[:1], ends[1:])
        assert (low <= -1).all()
        assert (high >= 1).all()


def test_the_range_of_one_over_values_about_zero_is_not_bounded():
    ends = torch.tensor([[-1.0, 0.0, -2.0, 1.0]]), torch.tensor([[1.0, 3.0, 0.0, 2.0]])
    low, high = span(Activation(0, "reciprocal", (4,)), *ends)
    assert low[0, :3].tolist() == [-torch.inf] * 3
    assert high[0, :3].tolist() == [torch.inf] * 3
    assert 0.49 < low[0, 3] <= 0.5
    assert 1 <= high[0, 3] < 1.01
