"""The VNN-LIB 1.0 text of an instance, as the published ones are written."""

from __future__ import annotations

import numpy as np

from holdfast.core.types import Image
from holdfast.patchbench.network.layout import THRESHOLD, Layout, Target, whole
from holdfast.verify.vnnlib.spec import Disjunct, Spec, print_vnnlib


def rule_text(strict: bool) -> str:
    """Which outputs are unsafe, in words."""
    if strict:
        return "unsafe is an output below 0.5 (strict, as the benchmark's text says); exactly 0.5 is safe"
    return "unsafe is an output of at most 0.5 (not strict, as in the published files); exactly 0.5 is unsafe"


def spec_text(
    name: str,
    layout: Layout,
    image: Image,
    target: Target,
    *,
    strict: bool,
    free_at: tuple[int, int] | None = None,
) -> str:
    """The specification of one image: the patch anywhere, or at `free_at` with any content.

    The values of fixed inputs are written so that they read back as exactly the same float32.
    """
    lower = whole(image, free_at or (0, 0), target).astype(np.float64)
    upper = lower.copy()
    p = layout.pixels
    if free_at is None:
        upper[p : p + 2] = layout.last
    else:
        places = np.arange(p).reshape(3, layout.size.height, layout.size.width)
        x, y = free_at
        under = places[:, y : y + layout.patch.height, x : x + layout.patch.width].ravel()
        lower[under], upper[under] = 0.0, 1.0
    row = Disjunct(lower, upper, np.ones((1, 1)), np.array([THRESHOLD]), np.array([strict]))
    return _head(name, layout, strict, free_at) + print_vnnlib(Spec(layout.length, 1, (row,)))


def _head(name: str, layout: Layout, strict: bool, free_at: tuple[int, int] | None) -> str:
    p, (w, h) = layout.pixels, layout.size
    patch = f"patch {layout.patch.width}x{layout.patch.height} pixels"
    where = f"its left upper corner at column 0 to {layout.last[0]} and row 0 to {layout.last[1]}"
    if free_at is not None:
        where = f"at column {free_at[0]}, row {free_at[1]}, each of its values anything in 0..1"
    lines = [
        f"Spec for sample id {name}",
        f"{patch}, {where}",
        f"X_0 to X_{p - 1}: picture (1, 3, {h}, {w}), RGB in 0..1",
        f"X_{p}: column, X_{p + 1}: row of the patch (cut to whole numbers)",
        f"X_{p + 2} to X_{p + 7}: target as predicted without a patch: 0, class, x1, y1, x2, y2 in 0..1",
        "Y_0: IoU(predicted box, target box) * equal(predicted class, target class)",
        rule_text(strict),
    ]
    return "".join(f"; {line}\n" for line in lines)
