"""Tasks for executors that do nothing, or never end."""

import time
from dataclasses import dataclass


@dataclass(frozen=True)
class Counting:
    """A task that answers with its numbers, and never gets past one of them."""

    stuck_at: int = -1

    def process(self, state, shard, threads):
        while self.stuck_at in shard:
            time.sleep(0.01)
        return tuple(shard), state, (len(shard), 0)


def in_shards(numbers, size=1):
    return [tuple(numbers[i : i + size]) for i in range(0, len(numbers), size)]
