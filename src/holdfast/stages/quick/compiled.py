"""How the kernels are compiled: when their module is loaded, once for each processor, and kept on disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from numba import njit

F = TypeVar("F", bound=Callable[..., Any])


def kernel(signature: Any) -> Callable[[F], F]:
    """A decorator: the function compiled for these types; sums keep their order, nothing is fused."""
    made: Callable[[F], F] = njit(signature, cache=True, nogil=True, error_model="numpy")
    return made
