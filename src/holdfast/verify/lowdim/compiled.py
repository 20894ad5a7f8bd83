"""How the kernels are compiled: fused and reordered sums are allowed.

A fused or reordered sum rounds no worse than the plain one in the bounds used here, n·u·Σ|terms| with
u = 2**-53, which hold for every order of summation. NaN and infinity keep their meaning: a comparison
with NaN is false, so a domain with one is never pruned.

Kernels raise nothing and allocate nothing: arrays are indexed and sliced, never assigned to as a whole or
reshaped. So they are compiled without reference counting, which halves their time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from numba import njit

Function = TypeVar("Function", bound=Callable[..., Any])

U = 2.0**-53
UP = 1.0 + 2.0**-36  # over every product of factors (1 + n·u) met here, n < 2**16
TINY = 1e-300  # over what underflow may lose
HUGE = 1e100  # a range beyond it is not worked with: sums of such could be infinite, or no number


_OPTIONS: dict[str, Any] = {
    "_nrt": False,
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
    "error_model": "numpy",
    "fastmath": {"contract", "reassoc"},
}


def kernel(function: Function) -> Function:
    """Compile a function that other kernels call. Python cannot call it."""
    compiled: Function = njit(**_OPTIONS)(function)
    return compiled


def part(function: Function) -> Function:
    """Compile a function into its only caller."""
    compiled: Function = njit(inline="always", **_OPTIONS)(function)
    return compiled
