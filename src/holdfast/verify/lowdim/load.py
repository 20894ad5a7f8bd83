"""The kernels' compiled code: made once by numba, kept on disk, loaded without importing numba."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

from holdfast.core.native import Library
from holdfast.verify.lowdim.tables import KINDS

_POINTER = {"d": "float64*", "q": "int64*", "b": "int8*"}
_LIBRARY = Library(
    "lowdim",
    "holdfast.verify.lowdim.kernels",
    {"run": f"entry.compiled({', '.join(_POINTER[kind] for kind in ('q', *KINDS))}) -> int64"},
    purpose="a proof",
    extra="verify",
    sources=[Path(__file__).with_name("tables.py")],
)


@cache
def kernel() -> Callable[..., int]:
    """The function `kernels.entry.run` as C sees it: pointers in, why it paused out."""
    return _LIBRARY.entry("run").loaded()


def ready() -> bool:
    """Whether the kernels are compiled for this processor already: the first time takes half a minute."""
    return _LIBRARY.ready()
