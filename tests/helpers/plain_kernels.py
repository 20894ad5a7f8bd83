"""The kernels of the engine for few inputs as plain Python, with deliberate mistakes when asked for."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from holdfast.verify import lowdim
from holdfast.verify.lowdim import search as engine

SOURCES = Path(lowdim.__file__).parent
MODULES = ("zonotope", "program", "points", "walk")
_AMONG_THEM = re.compile(rf"from holdfast\.verify\.lowdim\.({'|'.join(MODULES)}) import (\([^)]*\)|[^\n]*)")
_PLAIN = "njit = lambda **options: lambda function: function"


@cache
def plain(*mistakes: tuple[str, str]) -> SimpleNamespace:
    """All kernels by name, not compiled; of each mistake, the one place that reads so reads otherwise."""
    sources = {name: (SOURCES / f"{name}.py").read_text() for name in MODULES}
    for right, wrong in mistakes:
        found = [name for name, text in sources.items() if right in text]
        if len(found) != 1 or sources[found[0]].count(right) != 1:
            raise ValueError(f"expected one place that reads {right!r}, got {found}: mend the mutant")
        sources[found[0]] = sources[found[0]].replace(right, wrong)
    names: dict[str, object] = {"__name__": "plain_kernels"}
    for name, text in sources.items():
        text = _AMONG_THEM.sub("", text).replace("from numba import njit", _PLAIN)
        exec(compile(text, f"plain:{name}", "exec", dont_inherit=True), names)  # noqa: S102 - our own sources
    return SimpleNamespace(**names)


def install(patch, kernels: SimpleNamespace) -> None:
    """Make walkers run these kernels."""

    def run(*arrays) -> int:
        with np.errstate(all="ignore"):
            return int(kernels.walk(*arrays))

    patch.setattr(engine, "ready", lambda: True)
    patch.setattr(engine, "kernel", lambda: run)
