"""Kernels for stages that run thousands of times: bit for bit the numbers of the plain functions, sooner.

A stage's plain function (a library's own, or ours in numpy) stays the definition. A process that has spent
PATIENCE seconds in those loads kernels, if numba is installed, or COMPILING seconds, if they must be compiled
for this processor first. A kernel that gives another number than the plain function on a sample is not used.
A single picture never pays for loading.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from typing import Any, Generic, TypeVar, TypeVarTuple

import numpy as np

from holdfast.core.frame import Window
from holdfast.core.types import Image, Size
from holdfast.stages.quick.library import KERNELS

Given = TypeVarTuple("Given")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])
PATIENCE = 0.1  # seconds in plain functions; to load kernels that are kept takes about as long
COMPILING = 10.0  # and so long if they must be compiled first


@cache
def patience() -> float:
    """The seconds of plain functions after which kernels are worth loading; infinite without numba."""
    if find_spec("numba") is None:
        return math.inf
    try:
        return PATIENCE if KERNELS.ready() else COMPILING
    except Exception:  # noqa: BLE001 - whatever a compiler raises, the plain functions are there
        return math.inf


class Meter:
    """The seconds this process has spent in plain functions that have a kernel."""

    spent = 0.0

    @classmethod
    def timed(cls, work: Callable[[], R]) -> R:
        """What the work gives; its time is counted."""
        begun = time.perf_counter()
        made = work()
        cls.spent += time.perf_counter() - begun
        return made

    @classmethod
    def full(cls) -> bool:
        """Whether a kernel is worth loading, and could be."""
        return cls.spent > PATIENCE and cls.spent > patience()


class Quick(Generic[*Given, R]):
    """A plain function, and the kernel that takes over from it after a while.

    `samples` are the arguments on which it must agree first.
    """

    def __init__(
        self,
        plain: Callable[[*Given], R],
        compiled: Callable[[*Given], R],
        samples: Callable[[], Sequence[tuple[*Given]]],
    ) -> None:
        self.plain, self.compiled, self.samples = plain, compiled, samples
        self.kernel: Callable[[*Given], R] | None = None
        self.asked = False

    def __call__(self, *given: *Given) -> R:
        """What the plain function gives."""
        if self.kernel is None and not self.asked and Meter.full():
            self.asked = True
            self.kernel = self.agreeing()
        if self.kernel is not None:
            return self.kernel(*given)
        return Meter.timed(lambda: self.plain(*given))

    def agreeing(self) -> Callable[[*Given], R] | None:
        """The kernel; None if it cannot be loaded, or gives another number on a sample."""
        try:
            right = all(equal(self.plain(*sample), self.compiled(*sample)) for sample in self.samples())
        except Exception:  # noqa: BLE001 - whatever a compiler raises, the plain function is there
            return None
        return self.compiled if right else None


def in_part(cut: Callable[[Image, Size, str, Window], Image], name: str) -> Callable[[F], F]:
    """A decorator: the resize, which `cut` does by that name, can be asked for a part of its picture."""

    def given(resize: F) -> F:
        def part(image: Image, size: Size, window: Window) -> Image:
            return cut(image, size, name, window)

        resize.part = part  # type: ignore[attr-defined]
        return resize

    return given


def of_pixels(image: Image) -> bool:
    """Whether an array is 8-bit RGB pixels (h, w, 3): kernels take nothing else and do not ask."""
    return image.dtype == np.uint8 and image.ndim == 3 and image.shape[2] == 3


def equal(one: Any, other: Any) -> bool:
    """Whether two arrays, or tuples of them, are the same in type, shape and every number."""
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(equal, one, other))
    return bool(one.dtype == other.dtype and np.array_equal(one, other))
