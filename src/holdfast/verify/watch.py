"""A watch over a command that must end in time, whatever the code it runs is doing."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

GRACE = 1.0  # seconds after the limit in which the command may still end by itself
_EVERY = 0.2


@contextmanager
def watched(
    seconds: float, memory_bytes: int, give_up: Callable[[bool], int]
) -> Iterator[Callable[[], None]]:
    """A function to call before the result is told; until then the watch may end the process.

    When it is too late, or the process has grown too large, `give_up` (told which) speaks instead, and the
    process ends at once with the exit code that it gives. The two never both speak.
    """
    speaking, done = threading.Lock(), threading.Event()
    until = time.monotonic() + seconds + GRACE

    def watch() -> None:
        while not done.wait(min(_EVERY, max(until - time.monotonic(), 0.0))):
            late, large = time.monotonic() >= until, _resident_bytes() > memory_bytes
            if not late and not large:
                continue
            if speaking.acquire(blocking=False):
                os._exit(give_up(late))
            return

    def speak() -> None:
        done.set()
        speaking.acquire()  # if the watch speaks already, it ends the process: wait for that

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield speak
    finally:
        done.set()


def _resident_bytes() -> int:
    """What the process holds in memory now; 0 where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def memory_bytes() -> int:
    """The memory of the machine, or 8 GiB where the system does not say."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError):
        return 8 << 30
