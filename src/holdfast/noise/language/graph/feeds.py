"""The inputs of a causal language model's graph for rows of token numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from holdfast.noise.language.graph.causal import Causal

Feeds: TypeAlias = dict[str, NDArray[Any]]
Rows: TypeAlias = Sequence[Sequence[int]]


@dataclass(frozen=True, eq=False)
class Read:
    """What a model has read: its keys and values for one row of tokens, and how many tokens they are."""

    length: int
    values: Mapping[str, NDArray[Any]]  # by the name of the input they go to


def feeds_of(causal: Causal, rows: Rows, after: Read | None = None) -> Feeds:
    """The inputs for rows of tokens, behind what was read if it is given.

    Rows are padded at their end, where a causal model cannot see it, and masked there; a batch that the file
    fixes is filled with copies of the first row.
    """
    count, longest = max(len(rows), causal.batch or 1), causal.length or max(map(len, rows))
    before = after.length if after is not None else 0
    ids = np.zeros((count, longest), np.dtype(causal.ids.dtype))
    mask = np.zeros((count, before + longest), np.int64)
    positions = np.zeros((count, longest), np.int64)
    for place, row in enumerate([*rows, *([rows[0]] * (count - len(rows)))]):
        ids[place, : len(row)] = row
        mask[place, : before + len(row)] = 1
        positions[place] = before + np.minimum(np.arange(longest), len(row) - 1)
    feeds: Feeds = {causal.ids.name: ids}
    if causal.mask is not None:
        feeds[causal.mask.name] = mask.astype(causal.mask.dtype)
    if causal.positions is not None:
        feeds[causal.positions.name] = positions.astype(causal.positions.dtype)
    if causal.branch is not None:
        feeds[causal.branch.name] = np.array([after is not None])
    # A merged graph does not look at the past when it is told so, but may want one that is not empty.
    empty = 0 if causal.branch is None else 1
    for past in causal.past:
        if after is not None:
            feeds[past.name] = np.repeat(after.values[past.name], count, axis=0)
        else:
            feeds[past.name] = np.zeros((count, past.heads, empty, past.size), np.dtype(past.dtype))
    return feeds
