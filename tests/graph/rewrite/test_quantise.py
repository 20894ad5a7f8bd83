"""Equations (9) and (10): numbers by hand, the bound s/2, and ONNX Runtime's own operators."""

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from onnx import TensorProto, helper
from onnxruntime.quantization.calibrate import HistogramCollector

from holdfast.graph.rewrite.calibration import (
    BINS,
    LEVELS,
    METHODS,
    PERCENTILE,
    STEP,
    TensorStatistics,
    dequantise,
    grid_over,
    quantise,
    symmetric_grid,
    symmetric_scale,
)
from holdfast.graph.session import runtime


def ends(grid):
    """The smallest and the greatest real number on the grid."""
    return grid.scale * (-128 - grid.zero), grid.scale * (127 - grid.zero)


FINITE = {"allow_nan": False, "allow_infinity": False, "width": 32}


def test_numbers_by_hand():
    x = np.array([0.0, 0.24, 0.25, 0.75, -0.25, -0.26, 100.0, -100.0])
    # s = 0.5, z = 3: x/s = 0, .48, .5, 1.5, -.5, -.52, 200, -200; halves go to the even integer
    assert quantise(x, 0.5, 3).tolist() == [3, 3, 3, 5, 3, 2, 127, -128]
    assert dequantise(quantise(x, 0.5, 3), 0.5, 3).tolist() == [0, 0, 0, 1.0, 0, -0.5, 62.0, -65.5]


def test_unsigned_and_narrow_ranges():
    assert quantise(np.array([-1.0, 0.4, 300.0]), 1.0, 0, 0, 255).tolist() == [0, 0, 255]
    assert quantise(np.array([-200.0]), 1.0, low=-127).tolist() == [-127]


def test_one_scale_a_channel():
    x = np.array([[1.0, 2.0], [10.0, 20.0]])
    assert quantise(x, np.array([[1.0], [10.0]])).tolist() == [[1, 2], [1, 2]]


@given(
    hnp.arrays(np.float64, st.integers(1, 30), elements=st.floats(-1e4, 1e4, **FINITE)),
    st.floats(-1e4, 0, **FINITE),
    st.floats(0, 1e4, **FINITE),
)
def test_inside_the_range_the_error_is_at_most_half_a_step(x, low, high):
    grid = grid_over(low, high)
    inside = np.clip(x, *ends(grid))
    back = dequantise(quantise(inside, grid.scale, grid.zero), grid.scale, grid.zero)
    assert np.abs(back - inside).max() <= grid.scale / 2 * (1 + 1e-9)
    again = dequantise(quantise(back, grid.scale, grid.zero), grid.scale, grid.zero)
    assert np.array_equal(again, back)  # what is on the grid stays


@given(st.floats(-1e6, 1e6, **FINITE), st.floats(-1e6, 1e6, **FINITE))
def test_a_grid_holds_zero_and_covers_its_range(a, b):
    low, high = min(a, b), max(a, b)
    grid = grid_over(low, high)
    assert dequantise(quantise(np.zeros(1), grid.scale, grid.zero), grid.scale, grid.zero)[0] == 0.0
    assert ends(grid)[0] <= min(low, 0) + grid.scale / 2 * 1.001
    assert ends(grid)[1] >= max(high, 0) - grid.scale / 2 * 1.001


def test_scales_of_weights_are_symmetric_and_never_zero():
    scale = symmetric_scale(np.array([127.0, 0.0]))
    assert scale[0] == 1.0
    assert scale[1] > 0


@pytest.mark.parametrize("zero", [-128, -3, 0, 127])
def test_the_same_as_the_operators_of_onnx_runtime(zero):
    scale = np.float32(0.25)  # a power of two: x / s has exact halves
    x = np.concatenate([np.arange(-400, 400) / 8, np.random.default_rng(0).normal(0, 20, 500)])
    x = x.astype(np.float32)
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [len(x)])],
        [
            helper.make_tensor_value_info("q", TensorProto.INT8, [len(x)]),
            helper.make_tensor_value_info("y", TensorProto.FLOAT, [len(x)]),
        ],
        [
            onnx.numpy_helper.from_array(np.asarray(scale), "s"),
            onnx.numpy_helper.from_array(np.int8(zero), "z"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    session = runtime().InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    integers, back = session.run(None, {"x": x})
    assert np.array_equal(quantise(x, scale, zero), integers)
    assert np.array_equal(dequantise(quantise(x, scale, zero), scale, zero), back)


def seen_of(values):
    limit = np.abs(values).max()
    counts, _ = np.histogram(values, 2 * BINS, range=(-limit, limit))
    return TensorStatistics(float(values.min()), float(values.max()), counts)


def ends_of(method, values):
    return ends(METHODS[method](seen_of(values)))


def test_ranges_of_a_bell_with_one_outlier():
    values = np.append(np.random.default_rng(0).normal(0, 1, 200_000), 50.0)
    assert METHODS["min-max"](seen_of(values)) == grid_over(values.min(), 50.0)
    for method in ("percentile", "entropy", "two-sided percentile"):
        low, high = ends_of(method, values)
        assert 2.0 < high < 8.0, method
        assert -8.0 < low < -2.0, method


@pytest.mark.parametrize(("method", "share"), [("percentile", 1e-5), ("two-sided percentile", 1e-4)])
def test_a_percentile_leaves_out_no_more_than_it_says(method, share):
    values = np.random.default_rng(1).exponential(1, 400_000)
    low, high = ends_of(method, values)
    assert (values > high).mean() <= share
    assert (values < low).mean() <= share
    assert high < values.max()


def test_the_percentile_is_that_of_onnx_runtime():
    values = np.random.default_rng(2).normal(0.5, 1, 450_000).astype(np.float32)
    values[:3] = [30.0, -20.0, 0.0]
    collector = HistogramCollector("percentile", True, BINS, 0, PERCENTILE, "same")
    collector.collect({"x": values})
    low, high = (float(v) for v in collector.compute_collection_result()["x"][:2])
    wanted, got = grid_over(low, high), METHODS["percentile"](seen_of(values))
    # ONNX Runtime takes the lower edge of the last bin, here it is the upper one.
    assert got.scale == pytest.approx(wanted.scale, abs=2 * (30.0 / BINS) / 255)
    assert abs(got.zero - wanted.zero) <= 1
    assert high < 8.0


def test_entropy_keeps_a_range_that_is_used_evenly():
    low, high = ends_of("entropy", np.linspace(0.0, 4.0, 100_000))
    assert high > 3.9
    assert low == pytest.approx(-high * 128 / 127)  # TensorRT's grids are symmetric


def reference_entropy(counts, limit):
    """The search of NVIDIA's pytorch-quantization (calib/histogram.py), with its plain loops."""
    bins = counts.astype(np.float64)
    bins[0] = bins[1]
    divergences = []
    for size in range(LEVELS, len(bins) + 1, STEP):
        place = np.digitize(range(size), np.linspace(0, size, LEVELS + 1)) - 1
        place[bins[:size] == 0] = -1
        density, new = np.zeros(LEVELS), np.zeros(size)
        for index, level in enumerate(place):
            density[level] += bins[index] if level != -1 else 0.0
        for index, level in enumerate(place):
            new[index] = density[level] / (place == level).sum() if level != -1 else 0.0
        old = bins[:size].copy()
        old[-1] += bins[size:].sum()
        old, new = old / old.sum(), new / new.sum()
        divergences.append(sum(p * np.log(p / max(q, 1e-12)) for p, q in zip(old, new, strict=True) if p))
    best = len(divergences) - 1 - int(np.argmin(divergences[::-1]))
    return limit * (best * STEP + LEVELS) / len(bins)


def test_the_entropy_search_is_that_of_nvidia():
    rng = np.random.default_rng(3)
    for values in (rng.normal(0, 1, 20_000), rng.laplace(0, 1, 20_000)):
        values[0] = limit = 30.0
        counts, _ = np.histogram(values, 1024, range=(-limit, limit))
        seen = TensorStatistics(float(values.min()), float(values.max()), counts)
        wanted = reference_entropy(seen.magnitudes, limit)
        assert wanted < limit
        assert METHODS["entropy"](seen) == symmetric_grid(wanted)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("value", [0.0, 3.0, -2.0])
def test_a_constant_tensor_has_a_grid(method, value):
    counts = np.zeros(2 * BINS, np.int64)
    counts[BINS + int(np.sign(value)) * (BINS - 1)] = 100
    grid = METHODS[method](TensorStatistics(value, value, counts))
    back = dequantise(quantise(np.array([value]), grid.scale, grid.zero), grid.scale, grid.zero)[0]
    assert abs(back - value) <= abs(value) / 250
