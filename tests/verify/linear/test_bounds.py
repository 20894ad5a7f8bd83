"""Bounds contain what they bound: every step, every effort, under assumed signs, in both precisions."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from onnx import helper

from helpers.bounds import KINDS, Row, dense_net, points_of, sample, values_of
from helpers.lower import by_runtime, model
from helpers.soundness import (
    ALPHA,
    CROWN,
    TREES,
    check_queries,
    check_rounding,
    check_specification,
    check_steps,
)
from holdfast.graph.lower import lower_onnx
from holdfast.verify.linear import root
from holdfast.verify.linear.pieces import LinearSteps
from holdfast.verify.linear.root import Effort, bounds
from holdfast.verify.linear.tune import Queries, bound, tune


@pytest.fixture(autouse=True)
def one_thread():
    """The other core is for others."""
    torch.set_num_threads(1)


COSTLY = ("conv", "product", "share", "mixed")  # kinds of nets whose trees take seconds
OTHERS = ((1, 0.2), (2, 30.0), (3, 1e-6))  # seeds and radii


@pytest.mark.parametrize("effort", [CROWN, ALPHA, TREES], ids=["crown", "alpha", "trees"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_step_is_contained(kind, effort):
    few = effort is TREES and kind in COSTLY
    for seed, radius in ((0, 1.0),) if few else ((0, 1.0), *OTHERS):
        check_steps(sample(kind, seed, radius), effort)


@pytest.mark.slow
@pytest.mark.parametrize("kind", COSTLY)
def test_trees_contain_every_step_at_other_radii(kind):
    for seed, radius in OTHERS:
        check_steps(sample(kind, seed, radius), TREES)


def test_more_effort_is_never_worse():
    given = sample("relu", 5)
    pieces = LinearSteps(given.net, torch.float32)
    first = root.bounds(pieces, given.lower, given.upper, CROWN)
    second = root.bounds(pieces, given.lower, given.upper, TREES, first)
    third = root.bounds(pieces, given.lower, given.upper, replace(TREES, abort=lambda: True), second)
    for at in first.lower:
        assert (second.lower[at] >= first.lower[at]).all()
        assert (third.lower[at] >= second.lower[at]).all()
        assert (third.upper[at] <= second.upper[at]).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", KINDS)
def test_tuned_bounds_under_assumed_signs(kind, dtype):
    for seed, radius in ((0, 1.0), (1, 0.3), (2, 5.0)):
        check_queries(sample(kind, seed, radius), seed, dtype)


@pytest.mark.parametrize("kind", KINDS)
def test_rounding_never_lifts_a_bound(kind):
    for seed in range(3):
        check_rounding(kind, seed)


def test_a_bound_is_of_the_specification_not_of_its_rounding():
    """Rows and offsets that float32 cannot represent: the careful bound is one of the float64 ones."""
    for seed in range(3):
        check_specification(seed)


def test_nothing_is_proven_of_what_is_not_a_number():
    """Infinite boxes, overflowing weights and undefined rows never give a positive bound."""
    row = Row(np.random.default_rng(0), (2,))
    row.dense(row.curve(row.dense(row.curve(row.dense(0, 3), "relu"), 3), "sign"), 1)
    net = row.net()
    cases = [(np.array([-np.inf, 0.0]), np.ones(2), 1.0, 1.0), (np.zeros(2), np.full(2, 1e38), 1.0, 1.0)]
    cases += [(np.zeros(2), np.ones(2), 1e39, 1.0), (np.zeros(2), np.ones(2), 1.0, np.nan)]
    for lower, upper, factor, asked in cases:
        made = Row(np.random.default_rng(0), (2,))
        made.steps += [replace(net.steps[1], weight=net.steps[1].weight * factor), *net.steps[2:]]
        pieces = LinearSteps(made.net(), torch.float32)
        with np.errstate(over="ignore", invalid="ignore"):
            region = root.bounds(pieces, lower, upper, ALPHA)
        theta = {at: bend.start(1) for at, bend in region.bends.items()}
        query = Queries(len(pieces.sizes) - 1, torch.full((1, 1), asked), theta)
        query = tune(region, query, 3)[1]
        proven = bound(region, query, careful=True).lower
        exact = values_of(made.net(), np.clip(np.zeros((1, 2)), lower, upper))[-1].min() * asked
        assert not bool(proven > 0) or float(proven) <= exact


def onnx_net(rng):
    """Conv, BatchNormalization, Relu, MaxPool, a skip, LeakyRelu, Gemm: as files have them."""
    weights = {
        "w": rng.normal(0, 0.4, (3, 2, 3, 3)),
        "scale": rng.uniform(0.5, 2, 3),
        "shift": rng.normal(0, 0.3, 3),
        "mean": rng.normal(0, 0.3, 3),
        "var": rng.uniform(0.3, 2, 3),
        "v": rng.normal(0, 0.4, (3, 3, 3, 3)),
        "g": rng.normal(0, 0.4, (2, 12)),
        "b": rng.normal(0, 0.3, 2),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1], strides=[1, 1]),
        helper.make_node("BatchNormalization", ["c", "scale", "shift", "mean", "var"], ["n"]),
        helper.make_node("Relu", ["n"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["p", "v"], ["d"], pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["d", "p"], ["s"]),
        helper.make_node("LeakyRelu", ["s"], ["l"], alpha=0.1),
        helper.make_node("Flatten", ["l"], ["f"]),
        helper.make_node("Gemm", ["f", "g", "b"], ["y"], transB=1),
    ]
    narrow = {k: v.astype(np.float32) for k, v in weights.items()}
    return model(nodes, {"x": [1, 2, 4, 4]}, weights=narrow)


def test_bounds_of_a_file_contain_what_the_runtime_says():
    rng = np.random.default_rng(7)
    proto = onnx_net(rng)
    net = lower_onnx(proto)
    centre = rng.normal(0, 1, net.inputs).astype(np.float32).astype(np.float64)
    lower, upper = centre - 0.25, centre + 0.25
    points = points_of(rng, lower, upper, 100)
    outputs = by_runtime(proto, points)
    for effort in (CROWN, ALPHA):
        sweep = root.bounds(LinearSteps(net, torch.float32), lower, upper, effort)
        last = len(net.steps) - 1
        low, high = (v[last].double().numpy() for v in (sweep.lower, sweep.upper))
        doubt = 1e-5 * (1 + np.abs(outputs).max())  # the runtime rounds too
        assert (low - doubt <= outputs).all()
        assert (outputs <= high + doubt).all()


def test_an_abort_is_looked_at_between_chunks_of_one_layer():
    net = dense_net(np.random.default_rng(0), "tanh")
    pieces = LinearSteps(net, torch.float32)
    lower, upper = -np.ones(3), np.ones(3)
    asked = []

    def finish(region, queries, goal):
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
