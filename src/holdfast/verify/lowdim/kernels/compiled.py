"""How the kernels are compiled: fused and reordered sums are allowed.

A fused or reordered sum rounds no worse than the plain one in the bounds used here, n·u·Σ|terms| with
u = 2**-53, which hold for every order of summation. NaN and infinity keep their meaning: a comparison
with NaN is false, so a domain with one is never pruned.

Kernels raise nothing, allocate nothing and call nothing but each other, so that what is compiled can be
loaded without numba: arrays are indexed and sliced, never assigned to as a whole or reshaped.
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


def kernel(function: Function) -> Function:
    """The function compiled as a part of the kernels that call it; Python cannot call it."""
    made: Function = njit(
        _nrt=False,
        no_cpython_wrapper=True,
        no_cfunc_wrapper=True,
        error_model="numpy",
        fastmath={"contract", "reassoc"},
    )(function)
    return made


def part(function: Function) -> Function:
    """The function copied into the one kernel that calls it, before anything is compiled."""
    made: Function = njit(
        inline="always",
        _nrt=False,
        no_cpython_wrapper=True,
        no_cfunc_wrapper=True,
        error_model="numpy",
        fastmath={"contract", "reassoc"},
    )(function)
    return made
