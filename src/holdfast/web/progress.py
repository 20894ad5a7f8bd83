"""How far an audit is, read from the file it writes into its folder."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson

from holdfast.audit.result import PROGRESS
from holdfast.engine.store import printable, to_json, write_atomic

_LARGEST = 1 << 20  # bytes of a progress file


@dataclass(frozen=True)
class Progress:
    """The state of one audit: the part it is in, and how much of that part is done."""

    folder: Path
    state: str  # running, done, failed, cancelled; interrupted: says running, but its process is gone
    part: str
    done: int
    total: int
    started: str
    pid: int
    parts: tuple[str, ...]

    @property
    def name(self) -> str:
        """The folder's name, as it can be shown."""
        return printable(self.folder.name)

    def elapsed(self, now: datetime) -> str:
        """How long it has run, in minutes and seconds; empty if it does not say when it began."""
        try:
            seconds = int((now - datetime.fromisoformat(self.started)).total_seconds())
        except (ValueError, TypeError):  # no time, or one without a zone
            return ""
        return f"{seconds // 60}:{seconds % 60:02d} min" if seconds >= 0 else ""

    @property
    def place(self) -> int:
        """The number of the part it is in, from 1; 0 before the first."""
        return self.parts.index(self.part) + 1 if self.part in self.parts else 0


def progress_of(folder: Path) -> Progress | None:
    """What the folder's file says; None if there is none that can be read."""
    plain = _read(folder)
    if plain is None:
        return None
    pid = _whole(plain.get("pid"))
    state = str(plain.get("state", ""))[:20]
    if state == "running" and not alive(pid):
        state = "interrupted"
    parts = plain.get("parts")
    return Progress(
        folder=folder,
        state=state,
        part=str(plain.get("part", ""))[:100],
        done=_whole(plain.get("done")),
        total=_whole(plain.get("total")),
        started=str(plain.get("started", ""))[:40],
        pid=pid,
        parts=tuple(str(p)[:100] for p in parts[:50]) if isinstance(parts, list) else (),
    )


def progresses(runs: Path) -> Iterator[Progress]:
    """The progress of every audit in a folder of runs."""
    try:
        folders = [p for p in runs.iterdir() if p.is_dir() and not p.is_symlink()]
    except OSError:
        return
    for folder in folders:
        if (found := progress_of(folder)) is not None:
            yield found


def mark_cancelled(runs: Path, pid: int) -> None:
    """Mark the audit of that process as cancelled, if it had no time to do so itself."""
    for folder in [p.folder for p in progresses(runs) if p.pid == pid]:
        plain = _read(folder)
        if plain is not None and plain.get("state") == "running":
            with contextlib.suppress(OSError):
                write_atomic(folder / PROGRESS, to_json({**plain, "state": "cancelled"}), durable=False)


def alive(pid: int) -> bool:
    """Whether a process of that number is there."""
    if pid <= 0 or os.name == "nt":  # on Windows os.kill would end it
        return pid > 0
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _read(folder: Path) -> dict[str, Any] | None:
    try:
        with (folder / PROGRESS).open("rb") as stream:
            plain = orjson.loads(stream.read(_LARGEST))
    except (OSError, ValueError):
        return None
    return plain if isinstance(plain, dict) else None


def _whole(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31 else 0
