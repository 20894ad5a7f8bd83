"""The inverse discrete cosine transform of the paper's eq. (1) and (2), to the letter.

    f[m, n] = Σₖ Σₗ α(k) α(l) F(k, l) cos((2m+1)πk / 2N) cos((2n+1)πl / 2N)
    α(0) = √(1/N),   α(k) = √(2/N) for k ≠ 0

Every decoder computes this; they differ in how exactly, and in what they do between it and the pixel.
"""

from __future__ import annotations

import numpy as np

from holdfast.core.types import Floats


def basis(n: int) -> Floats:
    """The orthonormal matrix C (n, n) with C[k, m] = α(k) cos((2m+1)πk / 2n)."""
    k, m = np.mgrid[0:n, 0:n]
    weight = np.where(k == 0, np.sqrt(1 / n), np.sqrt(2 / n))
    return np.asarray(weight * np.cos((2 * m + 1) * np.pi * k / (2 * n)), np.float64)


def idct(block: Floats) -> Floats:
    """The samples f (n, n) of coefficients F (n, n) by eq. (1) in double precision: Cᵀ F C."""
    c = basis(len(block))
    return np.asarray(c.T @ np.asarray(block, np.float64) @ c, np.float64)


def dct(block: Floats) -> Floats:
    """The coefficients F (n, n) of samples f (n, n), the inverse of `idct`: C f Cᵀ."""
    c = basis(len(block))
    return np.asarray(c @ np.asarray(block, np.float64) @ c.T, np.float64)
