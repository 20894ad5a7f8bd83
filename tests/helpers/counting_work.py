"""Work for the executor that does nothing, or never ends."""

import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Counting:
    """Work that answers with its numbers, and never gets past one of them."""

    stuck_at: int = -1
    modules: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()

    def on(self, threads):
        return self

    def work(self, state, shard):
        while self.stuck_at in shard:
            time.sleep(0.01)
        return tuple(shard), state, (len(shard), 0)
