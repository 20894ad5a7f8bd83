"""The larger part of a file scanned by a second process while this one still starts up.

Nothing heavy is imported here: the fork must come before numpy, so that both processes load it side by side.
The child leaves what it found in anonymous shared memory. Where a process cannot be forked safely, or the
child fails in any way, there is nothing ahead, and the file is read as always.
"""

from __future__ import annotations

import mmap
import os
import sys
import threading
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.metrics.scan import Part

WORTH_IT = 4 << 20  # bytes of a file; a smaller one is read before a child has begun
HEADER = 8  # bytes: how many follow


@dataclass(frozen=True)
class Ahead:
    """A file and the process that scans it."""

    path: Path
    child: int
    shared: mmap.mmap

    def head(self) -> Part | None:
        """What `scan_head` gives of the file, waited for; None if it is not regular or the child failed."""
        import pickle

        _, status = os.waitpid(self.child, 0)
        size = int.from_bytes(self.shared[:HEADER], "little")
        if status != 0 or size == 0:
            return None
        state, found = pickle.loads(memoryview(self.shared)[HEADER : HEADER + size])  # noqa: S301 - our child's
        part: Part | None = found
        return part if state == _state(self.path) else None  # None: written to meanwhile


def scan_ahead(path: Path) -> Ahead | None:
    """The scan of a file, begun; None if it is not worth it or not possible."""
    try:
        size = path.stat().st_size
    except OSError:
        return None
    if size < WORTH_IT or not _can_fork():
        return None
    shared = mmap.mmap(-1, HEADER + 8 * size)  # only what is written takes memory
    with warnings.catch_warnings():
        # Python 3.12 warns of forking beside threads; there are none of ours, and the child ends by _exit.
        warnings.simplefilter("ignore", DeprecationWarning)
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
    """Nothing is returned: the child leaves its numbers and ends without the parent's clean-up."""
    code = 1
    try:
        import pickle
        import signal

        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent answers Ctrl-C
        from holdfast.metrics.scan import scan_head

        state = _state(path)
        found = pickle.dumps((state, scan_head(path.read_bytes())), protocol=5)
        shared[HEADER : HEADER + len(found)] = found
        shared[:HEADER] = len(found).to_bytes(HEADER, "little")
        code = 0
    finally:
        os._exit(code)
