"""The Fréchet distance against closed forms, a textbook root of a matrix, and torch-fidelity's number."""

import importlib.util
import sys
import types

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.errors import InputError
from holdfast.metrics.frechet import frechet

# What torch-fidelity 0.4.0 gives for `features()`; computed with its own functions.
TORCH_FIDELITY = 85.98106190783153


def features(seed=5, n=120, m=90, d=40):
    """Two seeded sets with correlated columns, of different means and spreads."""
    rng = np.random.default_rng(seed)
    mix = rng.normal(size=(d, d)) / np.sqrt(d)
    return rng.normal(size=(n, d)) @ mix, 1.5 * rng.normal(size=(m, d)) @ mix.T + 1.0


def textbook(one, two):
    """|μ1−μ2|² + tr(Σ1 + Σ2 − 2·(Σ1^½ Σ2 Σ1^½)^½), roots by eigen-decomposition."""

    def root(matrix):
        values, vectors = np.linalg.eigh(matrix)
        return (vectors * np.sqrt(np.clip(values, 0, None))) @ vectors.T

    s1, s2 = np.cov(one, rowvar=False), np.cov(two, rowvar=False)
    half = root(s1)
    apart = one.mean(axis=0) - two.mean(axis=0)
    return apart @ apart + np.trace(s1) + np.trace(s2) - 2 * np.trace(root(half @ s2 @ half))


def test_one_dimension_is_the_closed_form():
    one, two = np.array([[1.0], [3.0], [5.0], [9.0]]), np.array([[0.0], [4.0], [2.0]])
    s1, s2 = one.std(ddof=1), two.std(ddof=1)
    assert frechet(one, two) == pytest.approx((4.5 - 2.0) ** 2 + (s1 - s2) ** 2, rel=1e-13)


def test_independent_columns_add_up():
    """With covariances that are diagonal, the distance is the sum of those of the columns."""
    signs = np.array([[1, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]], float)  # orthogonal columns
    one, two = signs * [1.0, 2.0, 3.0] + [0, 0, 7], signs * [4.0, 1.0, 3.5]
    spread = np.sqrt(4 / 3)  # of ±1 over four rows
    expected = 49 + spread**2 * ((1 - 4) ** 2 + (2 - 1) ** 2 + (3 - 3.5) ** 2)
    assert frechet(one, two) == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize(
    ("n", "m", "d"), [(120, 90, 40), (12, 90, 40), (90, 12, 40), (12, 9, 40), (41, 40, 40)]
)
def test_textbook(n, m, d):
    one, two = features(n=n, m=m, d=d)
    # the textbook's roots lose half of the digits when there are fewer rows than columns
    assert frechet(one, two) == pytest.approx(textbook(one, two), rel=1e-6 if min(n, m) <= d else 1e-11)


def test_nuclear_norm_form():
    one, two = features(n=30, m=20, d=64)
    a = (one - one.mean(axis=0)) / np.sqrt(29)
    b = (two - two.mean(axis=0)) / np.sqrt(19)
    apart = one.mean(axis=0) - two.mean(axis=0)
    norm = np.linalg.svd(a @ b.T, compute_uv=False).sum()
    expected = apart @ apart + np.square(a).sum() + np.square(b).sum() - 2 * norm
    assert frechet(one, two) == pytest.approx(expected, rel=1e-12)


def test_number_of_torch_fidelity():
    assert frechet(*features()) == pytest.approx(TORCH_FIDELITY, rel=1e-9)


def test_torch_fidelity_itself():
    found = importlib.util.find_spec("torch_fidelity") if importlib.util.find_spec("torch") else None
    if found is None:
        pytest.skip("torch-fidelity is not installed: pip install --no-deps torch-fidelity")
    import torch

    # Its package imports torchvision, which its computation of the distance does not need: leave that out.
    package = types.ModuleType("torch_fidelity")
    package.__path__ = list(found.submodule_search_locations)
    unused = types.ModuleType("torch_fidelity.utils")
    unused.__getattr__ = lambda name: None
    names = [name for name in sys.modules if name.split(".")[0] == "torch_fidelity"]
    kept = {name: sys.modules.pop(name) for name in names}
    sys.modules["torch_fidelity"], sys.modules["torch_fidelity.utils"] = package, unused
    try:
        from torch_fidelity.metric_fid import fid_features_to_statistics, fid_statistics_to_metric

        for seed in range(3):
            sets = features(seed)
            one, two = (fid_features_to_statistics(torch.from_numpy(rows)) for rows in sets)
            theirs = fid_statistics_to_metric(one, two, verbose=False)["frechet_inception_distance"]
            assert frechet(*sets) == pytest.approx(theirs, rel=1e-9)
    finally:
        for name in [name for name in sys.modules if name.split(".")[0] == "torch_fidelity"]:
            del sys.modules[name]
        sys.modules.update(kept)


@given(
    seed=st.integers(0, 999),
    n=st.integers(2, 40),
    m=st.integers(2, 40),
    d=st.integers(1, 30),
    scale=st.floats(0.01, 1e3),
)
@settings(max_examples=60, deadline=None)
def test_a_distance(seed, n, m, d, scale):
    rng = np.random.default_rng(seed)
    one, two = scale * rng.normal(size=(n, d)) + 3, scale * rng.normal(size=(m, d))
    there = frechet(one, two)
    assert there >= 0
    assert frechet(two, one) == pytest.approx(there, rel=1e-9, abs=1e-20)
    # relative to the squares that would cancel: far below one rounding of them
    assert frechet(one, one) <= 1e-24 * scale**2 * n * d
    assert frechet(one, one[rng.permutation(n)]) <= 1e-24 * (scale**2 + 9) * n * d


@pytest.mark.slow
def test_equal_sets_of_real_size_are_at_zero():
    rng = np.random.default_rng(1)
    rows = rng.gamma(0.3, 4.0, size=(300, 560)).astype(np.float32)
    assert frechet(rows, rows) < 1e-20
    assert frechet(rows, rows[::-1]) < 1e-20
    rows[:, 7] = 2.5  # a column that never changes
    rows[1] = rows[0]
    assert frechet(rows, rows[rng.permutation(300)]) < 1e-20


def test_a_small_difference_keeps_its_digits():
    """A shift by 1e-9 is 1e-18 of distance a column: written out as a difference it would be lost."""
    rows = np.random.default_rng(2).normal(size=(50, 8))
    assert frechet(rows, rows + 1e-9) == pytest.approx(8e-18, rel=1e-4)
    assert frechet(rows, rows * (1 + 1e-8)) == pytest.approx(
        1e-16 * (rows.var(axis=0, ddof=1).sum() + np.square(rows.mean(axis=0)).sum()), rel=1e-4
    )


@pytest.mark.parametrize(
    ("one", "two", "told"),
    [
        (np.zeros((1, 3)), np.zeros((4, 3)), "2 rows or more in the first set, got 1"),
        (np.zeros((4, 3)), np.zeros((0, 3)), "2 rows or more in the second set, got 0"),
        (np.zeros((4, 3)), np.zeros((4, 2)), "one length, got 3 and 2"),
        (np.zeros((4, 3)), np.full((4, 3), np.nan), "finite numbers, got nan in the second set, row 0"),
        (np.full((4, 3), np.inf), np.zeros((4, 3)), "finite numbers, got inf in the first set"),
        (np.zeros(4), np.zeros((4, 3)), r"numbers \(n, d\), got \(4,\)"),
        (np.zeros((4, 0)), np.zeros((4, 0)), r"numbers \(n, d\), got \(4, 0\)"),
        (np.array([["a"], ["b"]]), np.zeros((4, 1)), "expected the first features as numbers"),
        (np.array([[1e200], [-1e200]]), np.array([[1e200], [3e200]]), "they overflow"),
    ],
)
def test_refused(one, two, told):
    with pytest.raises(InputError, match=told):
        frechet(one, two)
