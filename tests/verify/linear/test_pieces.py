"""Linear steps: backward is the transpose of forward, and sums round no more than is counted for them."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.bounds import KINDS, Row, Sample, sample
from helpers.soundness import check_adjoint
from holdfast.graph.ir import evaluate
from holdfast.verify.linear.passes import evaluate as by_torch
from holdfast.verify.linear.pieces import LinearSteps, full_precision


@pytest.fixture(autouse=True)
def one_thread():
    """The other core is for others."""
    torch.set_num_threads(1)


@pytest.mark.parametrize("kind", KINDS)
def test_backward_is_the_transpose(kind):
    for seed in range(3):
        check_adjoint(sample(kind, seed), seed)


SMALL = st.integers(0, 2)


@settings(max_examples=60, deadline=None)
@given(
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.tuples(SMALL, SMALL, SMALL, SMALL),
    st.tuples(st.integers(1, 2), st.integers(1, 2)),
    st.sampled_from([1, 2]),
    st.tuples(st.integers(5, 7), st.integers(5, 7)),
)
def test_convolutions_of_any_shape(kernel, stride, pads, dilation, groups, plane):
    rng = np.random.default_rng(0)
    row = Row(rng, (2, *plane))
    row.conv(0, 4, kernel, stride, pads, dilation, groups)
    net = row.net()
    points = rng.normal(0, 1, (3, net.inputs))
    check_adjoint(Sample(net, points[0], points[0], points))
    found = by_torch(LinearSteps(net, torch.float64), torch.as_tensor(points)).numpy()
    np.testing.assert_allclose(found, evaluate(net, points), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("batch", [1, 2, 40])
@pytest.mark.parametrize("kernel", [(1, 1), (3, 3), (5, 5)])
def test_convolutions_round_term_by_term(kernel, batch):
    """A fast algorithm (Winograd, FFT) would let a large value leak into windows that do not contain it."""
    rng = np.random.default_rng(batch)
    row = Row(rng, (8, 12, 12))
    row.conv(0, 8, kernel, (1, 1), (kernel[0] // 2, kernel[1] // 2) * 2)
    net = row.net()
    narrow, wide = LinearSteps(net, torch.float32), LinearSteps(net, torch.float64)
    values = rng.normal(0, 1, (batch, net.inputs)) * 10.0 ** rng.integers(-4, 5, (batch, net.inputs))
    given = torch.as_tensor(values, dtype=torch.float32)
    gamma = (narrow.terms(1) + 4) * narrow.unit
    for rough, fine, mass in (
        (narrow.forward(1, [given]), wide.forward(1, [given.double()]), wide.mass(1, [given.double().abs()])),
        (narrow.backward(1, given)[0], wide.backward(1, given.double())[0], _back(net, given.double().abs())),
    ):
        assert ((rough.double() - fine).abs() <= gamma * mass + 1e-30).all()


def _back(net, rows):
    """The same backward pass with all weights made positive."""
    step = replace(net.steps[1], weight=np.abs(net.steps[1].weight))
    return LinearSteps(replace(net, steps=(net.steps[0], step)), torch.float64).backward(1, rows)[0]


def test_rows_that_many_steps_read_are_counted():
    row = Row(np.random.default_rng(0), (2,))
    row.total(*[row.dense(0, 2) for _ in range(5)])
    assert LinearSteps(row.net(), torch.float32).joins == [0, 4, 4, 4, 4, 4, 0]


def exact() -> bool:
    """Whether 1 + 2^-20, which bfloat16 does not have, survives a product and a convolution."""
    fine = torch.full((32, 32), 1 + 2.0**-20)
    product = fine @ torch.eye(32)
    image = torch.nn.functional.conv2d(fine.reshape(1, 1, 32, 32), torch.ones(1, 1, 1, 1))
    return bool((product == fine).all()) and bool((image.reshape(32, 32) == fine).all())


def test_autocast_is_off_inside():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with full_precision():  # not tried outside: some machines claim bfloat16 and die of it
            assert exact()
        assert torch.is_autocast_enabled("cpu")


def test_reduced_products_are_off_inside():
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        with full_precision():
            assert exact()
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)
