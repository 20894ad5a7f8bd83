"""Full precision for the time of a proof: what a process chose for speed would break it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def full_precision() -> Iterator[None]:
    """Float32 products keep their digits inside: no autocast, bfloat16 or TF32; restored afterwards."""
    parts = [part for name in ("matmul", "conv") if (part := getattr(torch.backends.mkldnn, name, None))]
    before = [part.fp32_precision for part in parts]
    legacy = None if parts else torch.get_float32_matmul_precision()  # torch before 2.9
    try:
        for part in parts:
            part.fp32_precision = "ieee"
        if legacy is not None:
            torch.set_float32_matmul_precision("highest")
        with torch.autocast("cpu", enabled=False):
            yield
    finally:
        for part, value in zip(parts, before, strict=True):
            part.fp32_precision = value
        if legacy is not None:
            torch.set_float32_matmul_precision(legacy)
