"""How many frames each letter lasts: espeak-ng tells where words begin, the spectrum where sounds change."""

import numpy as np
from numpy.typing import NDArray

EVENNESS = 0.02  # what a frame more or less than an even share costs, squared, beside the spectrum's variance


def letter_frames(mel: NDArray[np.float32], text: str, starts: NDArray[np.int64]) -> NDArray[np.int64]:
    """The frames (letters + 1,) of every letter of `text` and of the end mark; they sum to the spectrum's.

    `starts` (words + 1,) are the frames at which the words begin and the last one ends. A space lasts no
    frame: espeak-ng runs the words together. What is behind the last word belongs to the end mark.
    """
    frames: list[int] = []
    for word, first, last in zip(text.split(" "), starts[:-1], starts[1:], strict=True):
        frames += [*segments(mel[first:last], len(word)), 0]
    frames[-1] = len(mel) - int(starts[-1])
    frames[0] += int(starts[0])
    return np.array(frames, np.int64)


def segments(mel: NDArray[np.float32], count: int) -> list[int]:
    """The lengths of the `count` runs of frames within which the spectrum changes least, summed over runs.

    Each is at least 1 frame long while there are frames enough. Of the ways to cut, dynamic programming
    finds the one of least sum of squared distances to the runs' means.
    """
    total = len(mel)
    cost = _costs(mel) + EVENNESS * (np.arange(total + 1) - total / count)[_gaps(total)] ** 2 * mel.shape[1]
    least = 1 if total >= count else 0
    best = np.full((count + 1, total + 1), np.inf)
    came = np.zeros((count + 1, total + 1), np.int64)
    best[0, 0] = 0.0
    for run in range(1, count + 1):
        for end in range(least * run, total + 1):
            ways = best[run - 1, : end + 1 - least] + cost[: end + 1 - least, end]
            came[run, end] = int(np.argmin(ways))
            best[run, end] = ways[came[run, end]]
    lengths, end = [], total
    for run in range(count, 0, -1):
        start = int(came[run, end])
        lengths.append(end - start)
        end = start
    return lengths[::-1]


def _gaps(total: int) -> NDArray[np.int64]:
    """The length (total + 1, total + 1) of the run from row to column; 0 where it would be negative."""
    ends = np.arange(total + 1)
    return np.asarray(np.maximum(ends[None] - ends[:, None], 0), np.int64)


def _costs(mel: NDArray[np.float32]) -> NDArray[np.float64]:
    """The sum of squared distances to their mean of the frames from row to column, (total + 1, total + 1)."""
    values = mel.astype(np.float64)
    sums = np.concatenate([np.zeros((1, mel.shape[1])), np.cumsum(values, 0)])
    squares = np.concatenate([[0.0], np.cumsum((values**2).sum(1))])
    lengths = np.maximum(_gaps(len(mel)), 1)
    between = sums[None] - sums[:, None]
    return np.asarray(squares[None] - squares[:, None] - (between**2).sum(2) / lengths)
