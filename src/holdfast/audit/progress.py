"""How far an audit is, on disk: who looks at the folder sees the part, and what of it is done."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.engine.executor import Progress
from holdfast.engine.manifest import now
from holdfast.engine.store import to_json, write_atomic
from holdfast.noise.suite import Watch

PROGRESS = "progress.json"
EVERY = 0.5  # seconds between two writes


@dataclass
class Board:
    """The progress of one audit: written at most twice a second, and passed on to another watch."""

    folder: Path
    parts: tuple[str, ...]
    watch: Watch
    started: str = field(default_factory=now)
    part: str = ""
    last: float = 0.0

    def enter(self, part: str) -> None:
        """Nothing; the audit is in that part now."""
        self.part = part
        self.write("running", 0, 0)

    @contextmanager
    def watched(self, what: str, total: int) -> Iterator[Progress]:
        """Progress of one piece of work, as `Watch` wants it."""
        done = 0
        with self.watch(what, total) as step:

            def both(more: int, found: int) -> None:
                nonlocal done
                done += more
                step(more, found)
                if done >= total or time.monotonic() - self.last >= EVERY:
                    self.write("running", done, total)

            yield both

    def write(self, state: str, done: int = 0, total: int = 0, why: str = "") -> None:
        """Nothing; the state is on disk."""
        self.last = time.monotonic()
        plain: dict[str, Any] = {
            "state": state, "part": self.part, "done": done, "total": total, "started": self.started,
            "pid": os.getpid(), "parts": list(self.parts), "why": why,
        }  # fmt: skip
        write_atomic(self.folder / PROGRESS, to_json(plain), durable=False)
