"""A file scanned by a second process, from the front, while this one still starts up.

Nothing heavy is imported here: the fork must come before what only the parent needs. The child leaves what it
found in anonymous shared memory, piece by piece; the parent, once it gets there, reads from the back until
they meet, so that neither waits for the other. Where a process cannot be forked safely, or the child fails
in any way, there is nothing ahead, and the file is read as always.

Nothing depends on what one process sees of the other's counters at which moment: a piece that both have begun
is read twice, with the same result, and one that both have left is read by the parent in the end.
"""

from __future__ import annotations

import mmap
import os
import sys
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.core.processes import defer_interrupts

if TYPE_CHECKING:
    from holdfast.metrics.scan import Part

WORTH_IT = 4 << 20  # bytes of a file; a smaller one is read before a child has begun
FRONT, BACK, DONE, SIZE, TIME = range(0, 40, 8)  # where the counters and the file's state lie
HEADER = 64  # bytes before the pieces
# A number takes at least two bytes of the file (a digit, a comma) and eight here, so what was found in a
# piece that begins at byte b of the file has room, with its sizes and flags, from 8 b on.
ROOM = 8


@dataclass(frozen=True)
class Ahead:
    """A file and the process that scans it."""

    path: Path
    child: int
    shared: mmap.mmap

    def leaves(self, number: int, count: int) -> bool:
        """Whether the child has not begun the piece, which is then this process's; count: of all pieces."""
        _put(self.shared, BACK, count - number)
        return _get(self.shared, FRONT) <= number

    def found(self, starts: list[int]) -> list[Part]:
        """What the child has finished of the pieces that begin at these bytes, waited for."""
        _, status = os.waitpid(self.child, 0)
        known = _get(self.shared, SIZE), _get(self.shared, TIME)
        if status != 0 or known != _state(self.path):  # or written to meanwhile
            return []
        return [_part(self.shared, HEADER + ROOM * low) for low in starts[: _get(self.shared, DONE)]]


def scan_ahead(path: Path) -> Ahead | None:
    """The scan of a file, begun; None if it is not worth it or not possible."""
    try:
        size = path.stat().st_size
    except OSError:
        return None
    if size < WORTH_IT or not _can_fork():
        return None
    shared = mmap.mmap(-1, HEADER + ROOM * size)  # only what is written takes memory
    with warnings.catch_warnings():
        # Python 3.12 warns of forking beside threads; there are none of ours, and the child ends by _exit.
        warnings.simplefilter("ignore", DeprecationWarning)
        with defer_interrupts():
            child = os.fork()
            if child == 0:
                _be_the_child(path, shared)
    return Ahead(path, child, shared)


def _state(path: Path) -> tuple[int, int]:
    """What changes when a file is written to."""
    known = path.stat()
    return known.st_size, known.st_mtime_ns


def _can_fork() -> bool:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    return sys.platform == "linux" and usable > 1 and threading.active_count() == 1


def _be_the_child(path: Path, shared: mmap.mmap) -> None:
    """Scan the file, leave the numbers in shared memory, and end without the parent's clean-up."""
    code = 1
    try:
        from holdfast.metrics.scan import scan_front

        size, changed = _state(path)
        _put(shared, SIZE, size)
        _put(shared, TIME, changed)
        data = path.read_bytes()
        if len(data) == size:
            scan_front(data, lambda number, count: _mine(shared, number, count), _keeper(shared))
        code = 0
    finally:
        os._exit(code)


def _mine(shared: mmap.mmap, number: int, count: int) -> bool:
    """Whether the parent has not begun the piece, which is then the child's."""
    _put(shared, FRONT, number + 1)
    return _get(shared, BACK) < count - number


def _keeper(shared: mmap.mmap) -> Callable[[int, Part], None]:
    """A function that leaves what was found in a piece for the parent."""
    import numpy as np

    def keep(low: int, part: Part) -> None:
        table, whole = part
        start = HEADER + ROOM * low
        _put(shared, start, table.shape[0])
        _put(shared, start + 8, table.shape[1])
        np.frombuffer(shared, bool, len(whole), start + 16)[:] = whole
        at = start + 16 + -(-len(whole) // 8) * 8
        np.frombuffer(shared, np.float64, table.size, at)[:] = table.ravel()
        _put(shared, DONE, _get(shared, DONE) + 1)

    return keep


def _part(shared: mmap.mmap, start: int) -> Part:
    """What the child left, not copied."""
    import numpy as np

    records, width = _get(shared, start), _get(shared, start + 8)
    whole = np.frombuffer(shared, bool, width, start + 16)
    at = start + 16 + -(-width // 8) * 8
    return np.frombuffer(shared, np.float64, records * width, at).reshape(records, width), whole


def _put(shared: mmap.mmap, at: int, value: int) -> None:
    shared[at : at + 8] = value.to_bytes(8, "little")


def _get(shared: mmap.mmap, at: int) -> int:
    return int.from_bytes(shared[at : at + 8], "little")
