"""A task with an item that ends the process it is computed in."""

import os
from dataclasses import dataclass
from pathlib import Path

from holdfast.engine.store import FolderStore


@dataclass(frozen=True)
class Killer:
    """A task whose item 3 ends its process."""

    store: FolderStore
    kinds: tuple[str, ...] = ("signs",)

    def process(self, state, shard, threads):
        if 3 in shard:
            os._exit(1)
        return list(shard), "open", (len(shard), 0)

    def skipped(self, item, reason):
        return [f"skipped {item}: {reason}"]

    def join(self, answers):
        return [value for answer in answers for value in answer]


if __name__ == "__main__":
    import sys

    from helpers import killer_task  # under its own name, which the other processes know
    from holdfast.engine.ray_actors import RayActors

    task = killer_task.Killer(FolderStore(Path(sys.argv[1])))
    shards = [(0, 1), (2, 3), (4,), (5, 6)]
    sys.stdout.write(str(RayActors(2).run(task, shards, lambda done, found: None, float("inf"))))
