"""Lines stay on their side of the curve: over narrow, wide, one-sided and degenerate intervals."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.soundness import check_lines, check_planes
from holdfast.core.errors import ModelError
from holdfast.graph.ir import Activation, curve_of
from holdfast.verify.linear.curves import bend
from holdfast.verify.linear.shapes import span

EVERYWHERE = ("relu", "leaky", "sigmoid", "tanh", "sign", "erf", "elu", "softplus", "square", "sin")
PARTIAL = ("exp", "sqrt", "log", "reciprocal")  # defined, or finite, on a part of the numbers only
CURVES = EVERYWHERE + PARTIAL
ENDS = (
    *((-30, 100), (-10, 1e3), (-10, 1e6), (-1e6, 10), (-1e4, 1e4), (-3, 3), (-88, 90), (-0.5, 100)),
    *((-1e-7, 1e-7), (-1e-30, 1e-30), (2, 2), (-2, -2), (0, 0), (0, 3), (-3, 0), (5, 1e5), (-1e-3, 1e4)),
    *((-1e30, 1e30), (1, 1.0000001), (-1.0000001, -1), (-1e-3, 1.2), (-1.2, 1e-3), (17, 18), (-18, -17)),
)
POSITIVE = (
    *((0.5, 2), (1e-3, 1e3), (1, 1), (1, 1.0000001), (3, 1e5), (1e-6, 1e-5), (1e-8, 1), (100, 101)),
    *((1e-12, 1e12), (0.1, 0.10001), (1, 256), (1e5, 1e5 + 1)),
)


def ends_of(curve):
    """Intervals on which a curve is defined and finite in float32."""
    if curve == "exp":
        return [(low, high) for low, high in ENDS if high < 80]
    if curve == "square":
        return [(low, high) for low, high in ENDS if max(-low, high) < 1e18]
    if curve == "sin":
        return [(low, high) for low, high in ENDS if max(-low, high) < 1e7] + [
            (1, 2),
            (3, 4),
            (0.5, 20),
            (-9, 1),
        ]
    if curve == "sqrt":
        return [(0, 0), (0, 1e-20), (0, 5), *POSITIVE]
    if curve == "reciprocal":
        return [*POSITIVE, *((-high, -low) for low, high in POSITIVE)]
    return POSITIVE if curve == "log" else ENDS


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("curve", CURVES)
def test_lines_over_extreme_intervals(curve, dtype):
    for seed in range(3):
        check_lines(curve, dtype, ends_of(curve), seed)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(EVERYWHERE),
    st.booleans(),
    st.lists(st.tuples(st.floats(-60, 60, width=32), st.floats(0, 80, width=32)), min_size=1, max_size=8),
)
def test_lines_over_any_interval(curve, double, ends):
    whole = [(low, float(np.float32(low + width))) for low, width in ends]
    check_lines(curve, torch.float64 if double else torch.float32, whole, len(ends))


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(PARTIAL),
    st.booleans(),
    st.lists(st.tuples(st.floats(-9, 4), st.floats(0, 4)), min_size=1, max_size=8),
)
def test_lines_over_any_positive_interval(curve, double, powers):
    ends = [
        (float(np.float32(10**low)), float(np.float32(min(10 ** (low + more), 50)))) for low, more in powers
    ]
    ends = [(min(pair), max(pair)) for pair in ends]
    if curve == "exp":
        ends = [(np.log(low), np.log(high)) for low, high in ends]
    check_lines(curve, torch.float64 if double else torch.float32, ends, len(ends))


@pytest.mark.parametrize(("curve", "ends"), [("sqrt", (-1, 2)), ("log", (0, 2)), ("reciprocal", (-1, 2))])
def test_a_curve_is_refused_where_it_is_not_defined(curve, ends):
    lower, upper = (torch.tensor([[1.0, float(end)]]) for end in ends)
    lower[0, 0] = 0.5
    upper[0, 0] = 2.0
    with pytest.raises(ModelError, match=f"{curve} of values where it is defined, got values between"):
        bend(Activation(0, curve, (2,)), lower, upper)


@pytest.mark.parametrize("curve", CURVES)
def test_a_range_contains_the_curve(curve):
    ends = ends_of(curve)
    step = Activation(0, curve, (len(ends),), 0.1)
    lower, upper = torch.tensor(ends, dtype=torch.float32).T.reshape(2, 1, -1)
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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_planes_of_products(dtype):
    for seed in range(8):
        check_planes(seed, dtype)
