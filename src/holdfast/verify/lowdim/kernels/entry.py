"""The function that Python calls: a walk over the boxes of a stack, compiled once and cached by numba."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit

from holdfast.verify.lowdim.kernels.compiled import kernel
from holdfast.verify.lowdim.kernels.walk import walk
from holdfast.verify.lowdim.tables import Blocks, views

_views = kernel(views)


def cached_walk(sources: str) -> Callable[[Blocks], int]:
    """The compiled walk. `sources` is a hash of the sources of all kernels.

    numba's cache notices changes of this file alone. Variables of a closure are part of the cache's key,
    and so a change of any kernel is noticed too.
    """

    def run(blocks: Any) -> int:
        _ = sources
        net, space, lp, stack = _views(blocks)
        return walk(net, space, lp, stack, blocks.real, blocks.whole)

    compiled: Callable[[Blocks], int] = njit(cache=True, nogil=True, _nrt=False)(run)
    return compiled
