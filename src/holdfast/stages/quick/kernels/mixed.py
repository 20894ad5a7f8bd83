"""The sums of stages/quick/mixed.py."""

from __future__ import annotations

from typing import Any

from numba import uint32, uint64

from holdfast.core.native_build import kernel


@kernel
def _sum(block: Any, key: Any, half: int) -> Any:
    total = uint64(0)
    for j in range(half):
        one, other = uint32(block[j] + key[j]), uint32(block[half + j] + key[half + j])
        total += uint64(one) * uint64(other)
    return total


def sums(blocks: Any, keys: Any, out: Any) -> None:
    """Nothing; in `out` (n, k) a number of each of the blocks (n, 2m) for each of the keys (k, 2m)."""
    for i in range(len(blocks)):
        for k in range(len(keys)):
            out[i, k] = _sum(blocks[i], keys[k], keys.shape[1] // 2)
