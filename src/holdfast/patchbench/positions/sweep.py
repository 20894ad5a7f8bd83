"""Every position of a patch on one picture, by the fastest way there is, in threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from holdfast.core.types import Bools, Ints, Tensor
from holdfast.patchbench.positions.local import Crops, Followed, follow
from holdfast.patchbench.positions.trunk import Trunk, changing, pasted, shares, square_of


@dataclass(frozen=True, eq=False)
class Swept:
    """The outputs at those positions (n, 2) that change the picture, and where (rows, columns) these are."""

    values: list[Tensor]
    spots: Ints
    changed: Bools
    how: str


def sweep(
    trunk: Trunk,
    crops: Crops | None,
    clean: Tensor,
    content: Tensor,
    told: Mapping[str, Tensor],
    jobs: int = 1,
) -> Swept:
    """The outputs for every position of a patch on a picture (1, …).

    The patch (c, k, k) or (k, k, c) is laid over the tensor as it is: normalise both alike.
    """
    changed = changing(trunk, clean, content)
    spots = np.argwhere(changed)
    fits = crops is not None and crops.patch == square_of(content, trunk.last)
    near: Followed | None = follow(crops, clean, content, told) if fits and crops is not None else None
    run: Callable[[Ints], list[Tensor]]
    if near is not None:
        run, how = near.run, "crops"
    else:
        run, how = (
            lambda these: trunk.run(pasted(trunk, clean, content, these), told),
            "batches" if trunk.many is not None else "one by one",
        )
    rows = list(_mapped(run, shares(spots), jobs))
    values = [np.concatenate(parts) for parts in zip(*rows, strict=True)] if rows else []
    return Swept(values, spots, changed, how)


def _mapped(run: Callable[[Ints], list[Tensor]], parts: Iterable[Ints], jobs: int) -> Iterable[list[Tensor]]:
    if jobs <= 1:
        yield from map(run, parts)
        return
    with ThreadPoolExecutor(jobs) as pool:  # the runtime lets go of the interpreter while it computes
        yield from pool.map(run, parts)
