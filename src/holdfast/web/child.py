"""A child process in a group of its own: begun without a shell, followed to its end, ended as a group."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.engine.store import printable

_STEP = 0.05  # seconds between two looks


@dataclass(frozen=True)
class Patience:
    """Seconds a process is given to end by SIGINT, and then by SIGTERM, before SIGKILL."""

    interrupt: float = 5.0
    terminate: float = 3.0


def begin(command: Sequence[str], folder: Path, log: Path) -> subprocess.Popen[bytes]:
    """The process, its output going to `log`; it leads a group of its own."""
    with log.open("ab") as out:
        return subprocess.Popen(
            list(command), cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip


def follow(process: subprocess.Popen[bytes], stop: threading.Event, patience: Patience) -> int:
    """The exit code, once the process and everything it had started are gone; `stop` makes it end."""
    while not _ended(process):
        if stop.wait(_STEP):
            _end(process, patience)
            break
    # Before the leader is reaped its number belongs to nobody else, so what is left of the group is its own.
    _signal(process, getattr(signal, "SIGKILL", signal.SIGTERM))
    return process.wait()


def _end(process: subprocess.Popen[bytes], patience: Patience) -> None:
    for number, seconds in ((signal.SIGINT, patience.interrupt), (signal.SIGTERM, patience.terminate)):
        _signal(process, number)
        limit = time.monotonic() + seconds
        while time.monotonic() < limit:
            if _ended(process):
                return
            time.sleep(_STEP)


def _ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether the leader has ended; it is not reaped where the system lets us look without that."""
    if not hasattr(os, "waitid"):
        return process.poll() is not None
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, number)
        else:
            process.terminate()


def last_line(log: Path, code: int) -> str:
    """The last line a process said, or its exit code if it said nothing."""
    lines = [line.strip() for line in tail(log, 4096).splitlines() if line.strip()]
    return lines[-1][:300] if lines else f"ended with exit code {code}"


def tail(log: Path, most: int) -> str:
    """The last `most` bytes of a text file; empty if there is none."""
    try:
        with log.open("rb") as stream:
            stream.seek(max(0, log.stat().st_size - most))
            return printable(stream.read(most).decode("utf-8", "replace"))
    except OSError:
        return ""
