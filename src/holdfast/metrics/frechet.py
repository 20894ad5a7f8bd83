"""The Fréchet distance of two sets of features, exact also if there are fewer rows than dimensions.

Between Gaussians, the squared distance is |μ1−μ2|² + tr(Σ1 + Σ2 − 2·(Σ1 Σ2)^½). With Σ1 = AᵀA and Σ2 = BᵀB
(rows centred, divided by √(n−1)) the last trace is the sum of the singular values of A Bᵀ, its nuclear norm:
no root of a d × d matrix is taken. Written out, |A|² + |B|² − 2·Σσ loses all digits when the sets are alike;
it equals min |A − QB|² over all Q with orthonormal rows or columns, which is used here: the best Q is the
product of the singular vectors, and a sum of squares keeps its digits and is never negative. An error of Q
counts only squared, because |A − QB|² is flat at its minimum.
"""

import numpy as np

from holdfast.core.errors import InputError
from holdfast.core.types import Floats, Tensor


def frechet(first: Tensor, second: Tensor) -> float:
    """The Fréchet distance (squared, as FID is) of two sets of features (n, d) and (m, d), one row per image.

    0 for equal sets, in any order, up to the square of the rounding of a float64; never negative.
    """
    a, b = _checked("the first", first), _checked("the second", second)
    if a.shape[1] != b.shape[1]:
        got = f"got {a.shape[1]} and {b.shape[1]}; take both from the same network"
        raise InputError(f"Fréchet distance: expected features of one length, {got}")
    means = a.mean(axis=0) - b.mean(axis=0)
    with np.errstate(over="ignore", invalid="ignore"):  # overflow is reported below
        total = float(means @ means + _procrustes_distance(_root(a), _root(b)))
    if not np.isfinite(total):
        raise InputError("Fréchet distance: expected features below 1e150, got larger ones: they overflow")
    return total


def _checked(which: str, features: Tensor) -> Floats:
    array = np.asarray(features)
    if array.ndim != 2 or array.dtype.kind not in "fiu" or not array.shape[1]:
        got = f"{array.shape} {array.dtype}"
        raise InputError(f"Fréchet distance: expected {which} features as numbers (n, d), got {got}")
    if len(array) < 2:
        raise InputError(f"Fréchet distance: expected 2 rows or more in {which} set, got {len(array)}")
    values = array.astype(np.float64)
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        row, column = bad[0]
        got = f"{values[row, column]} in {which} set, row {row}"
        raise InputError(f"Fréchet distance: expected finite numbers, got {got}")
    return values


def _root(rows: Floats) -> Floats:
    """A matrix R with RᵀR = the covariance of the rows, of at most d rows."""
    centred: Floats = (rows - rows.mean(axis=0)) / np.sqrt(len(rows) - 1)
    return centred if len(rows) <= rows.shape[1] else np.asarray(np.linalg.qr(centred).R)


def _procrustes_distance(a: Floats, b: Floats) -> float:
    """The minimum of |A − QB|² (Frobenius) over orthogonal Q; the shorter matrix is padded with zeros."""
    product = a @ b.T
    if not np.isfinite(product).all():
        return float("inf")
    left, _, right = np.linalg.svd(product, full_matrices=False)
    # Q = left·right has orthonormal columns if A is the longer: rotate the shorter matrix completely
    rest = a - left @ (right @ b) if len(a) >= len(b) else b - right.T @ (left.T @ a)
    return float(np.square(rest).sum())
