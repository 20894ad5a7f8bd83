"""Load the compiled kernels. numba compiles them once per processor and caches the result on disk."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.core.errors import MissingExtra
from holdfast.verify.lowdim.tables import KINDS, Blocks, Sizes, shapes

_SMALLEST = Sizes(1, 1, 1, 1, 1, 1, 1, 1, 1)


@cache
def kernel() -> Any:
    """The compiled walk: `Blocks` in, the reason why it paused out. Compiling takes half a minute."""
    walk = _walk()
    walk.compile(_signature())
    return walk


def ready() -> bool:
    """Whether compiled kernels are in memory or in the cache."""
    walk = _walk()
    return bool(walk.overloads) or walk._cache.load_overload(_signature(), walk.targetctx) is not None


@cache
def _walk() -> Any:
    try:
        from holdfast.verify.lowdim.kernels.entry import cached_walk
    except ImportError as missing:
        raise MissingExtra("a proof", "numba", "verify") from missing
    here = Path(__file__).parent
    digest = hashlib.sha256()
    for path in (here / "tables.py", *sorted((here / "kernels").glob("*.py"))):
        digest.update(path.read_bytes())
    return cached_walk(digest.hexdigest())


@cache
def _signature() -> tuple[Any]:
    """The argument types of the walk."""
    from numba import typeof

    blocks = (np.zeros(shape, kind) for shape, kind in zip(shapes(_SMALLEST), KINDS, strict=True))
    return (typeof(Blocks(*blocks)),)
