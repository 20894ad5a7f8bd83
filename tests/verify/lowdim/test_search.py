"""The engine for few inputs against exact minima of one input and dense sampling of several."""

import numpy as np
import pytest

from helpers.bounds import dense_net, least_on_line, points_of, problem, values_of
from holdfast.core.property import Budget
from holdfast.verify.lowdim.search import kernel, search
from holdfast.verify.problem import Case, Deadline


@pytest.fixture(scope="module", autouse=True)
def compiled():
    """The kernels, compiled before a clock runs: the first time takes half a minute."""
    kernel()


def answered(net, *cases, seconds=20.0, jobs=2):
    asked = problem(net, *cases)
    found = search(asked, Deadline(Budget(seconds=seconds, jobs=jobs)))
    if found.status == "violated":
        assert asked.violates(found.witness[None])[0]
    return found


@pytest.mark.parametrize("seed", range(12))
def test_a_hair_from_the_exact_minimum_of_one_input(seed):
    net = dense_net(np.random.default_rng(seed), inputs=1)
    row = np.random.default_rng(seed + 100).normal(size=(1, net.outputs))
    exact = least_on_line(net, -1.0, 1.0, row[0])
    for off in (-1e-2, -1e-6, 0.0, 1e-6, 1e-2):
        bound = float(exact) + off * (1 + abs(float(exact)))
        said = answered(net, Case(np.full(1, -1.0), np.ones(1), row, np.array([bound]))).status
        if said == "holds":
            assert bound < exact
        if abs(off) >= 1e-2:
            assert said == ("violated" if off > 0 else "holds")


@pytest.mark.parametrize("curve", ["relu", "leaky"])
@pytest.mark.parametrize("seed", range(10))
def test_several_inputs_against_points(seed, curve):
    rng = np.random.default_rng(seed)
    inputs = int(rng.integers(2, 6))
    net = dense_net(rng, curve, 0.1 if curve == "leaky" else 0.0, inputs=inputs)
    lower, upper = np.full(inputs, -1.0), np.ones(inputs)
    seen = values_of(net, points_of(rng, lower, upper, 20_000))[-1]
    rows = rng.normal(size=(2, net.outputs))
    worst = (seen @ rows.T).max(1).min()
    for off in (-3.0, -0.02, 0.02):
        bound = np.full(2, worst + off * (1 + abs(worst)))
        said = answered(net, Case(lower, upper, rows, bound), seconds=5.0).status
        assert said != "holds" or off < 0
        assert off < 0 or said == "violated"


def test_every_case_and_every_box_counts():
    rng = np.random.default_rng(5)
    net = dense_net(rng, inputs=2)
    near, far = np.array([0.2, 0.2]), np.array([1.0, 1.0])
    row = np.eye(net.outputs)[:1]
    least = [values_of(net, points_of(rng, -r, r, 20_000))[-1][:, 0].min() for r in (near, far)]
    never = Case(-near, near, row, np.array([least[1] - 10.0]))
    met = Case(-far, far, row, np.array([least[1] + 0.1]))
    assert answered(net, never).status == "holds"
    assert answered(net, never, met).status == "violated"
    assert answered(net, met, never).status == "violated"


def test_the_clock_is_heeded_and_no_proof():
    rng = np.random.default_rng(3)
    net = dense_net(rng, inputs=5)
    row = np.eye(net.outputs)[:1]
    found = answered(net, Case(-np.ones(5), np.ones(5), row, np.array([-1e9])), seconds=0.0)
    assert found.status in ("timeout", "unknown")
