"""Lines stay on their side of the curve: over narrow, wide, one-sided and degenerate intervals."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.errors import ModelError
from holdfast.graph.evaluate import curve_of
from holdfast.graph.ir import Activation
from holdfast.verify.linear.curves import bend, span
from sounding import check_lines

CURVES = ("relu", "leaky", "sigmoid", "tanh", "sign")
ENDS = (
    *((-30, 100), (-10, 1e3), (-10, 1e6), (-1e6, 10), (-1e4, 1e4), (-3, 3), (-88, 90), (-0.5, 100)),
    *((-1e-7, 1e-7), (-1e-30, 1e-30), (2, 2), (-2, -2), (0, 0), (0, 3), (-3, 0), (5, 1e5), (-1e-3, 1e4)),
    *((-1e30, 1e30), (1, 1.0000001), (-1.0000001, -1), (-1e-3, 1.2), (-1.2, 1e-3), (17, 18), (-18, -17)),
)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("curve", CURVES)
def test_lines_over_extreme_intervals(curve, dtype):
    for seed in range(3):
        check_lines(curve, dtype, ENDS, seed)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(CURVES),
    st.booleans(),
    st.lists(st.tuples(st.floats(-60, 60, width=32), st.floats(0, 80, width=32)), min_size=1, max_size=8),
)
def test_lines_over_any_interval(curve, double, ends):
    whole = [(low, float(np.float32(low + width))) for low, width in ends]
    check_lines(curve, torch.float64 if double else torch.float32, whole, len(ends))


@pytest.mark.parametrize("curve", CURVES)
def test_a_range_contains_the_curve(curve):
    step = Activation(0, curve, (len(ENDS),), 0.1)
    lower, upper = torch.tensor(ENDS, dtype=torch.float32).T.reshape(2, 1, -1)
    low, high = (v.double().numpy() for v in span(step, lower, upper))
    for share in np.linspace(0, 1, 50):
        z = lower.double().numpy() * (1 - share) + upper.double().numpy() * share
        z = np.clip(z, lower.double().numpy(), upper.double().numpy())
        assert (low <= curve_of(step, z)).all()
        assert (curve_of(step, z) <= high).all()


def test_a_leaky_relu_that_is_concave_is_refused():
    one = torch.ones(1, 1)
    with pytest.raises(ModelError, match="slope of at most 1"):
        bend(Activation(0, "leaky", (1,), 2.0), -one, one)


def test_a_known_sign_keeps_the_slope_of_the_precision():
    one = torch.ones(1, 1, dtype=torch.float64)
    drawn = bend(Activation(0, "leaky", (1,), 0.1), -one, one)
    lines = drawn.lines(drawn.start(1), torch.tensor([[-1]], dtype=torch.int8))
    assert float(lines.ls) == float(lines.us) == 0.1
