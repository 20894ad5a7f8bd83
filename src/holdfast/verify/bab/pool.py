"""Open domains in the order in which they are worked on."""

from __future__ import annotations

import heapq
import itertools

from holdfast.verify.bab.tree import Domain


class Pool:
    """Open domains; the worst come first while there is room, then the best, so that the pool shrinks."""

    def __init__(self, room: int) -> None:
        self.room = room
        self._worst: list[tuple[float, int]] = []
        self._best: list[tuple[float, int]] = []
        self._domains: dict[int, Domain] = {}
        self._number = itertools.count()

    def __len__(self) -> int:
        return len(self._domains)

    def add(self, domain: Domain) -> None:
        """Put a domain in."""
        number = next(self._number)
        self._domains[number] = domain
        heapq.heappush(self._worst, (domain.lower, number))
        heapq.heappush(self._best, (-domain.lower, number))

    def lowest(self) -> float:
        """The lowest bound of all that are open."""
        while self._worst and self._worst[0][1] not in self._domains:
            heapq.heappop(self._worst)
        return self._worst[0][0] if self._worst else float("inf")

    def drain(self) -> list[Domain]:
        """All domains; the pool is empty afterwards."""
        domains = list(self._domains.values())
        self._domains, self._worst, self._best = {}, [], []
        return domains

    def take(self, count: int) -> list[Domain]:
        """The next domains to work on."""
        heap = self._worst if len(self) < self.room else self._best
        taken: list[Domain] = []
        while heap and len(taken) < count:
            domain = self._domains.pop(heapq.heappop(heap)[1], None)
            if domain is not None:
                taken.append(domain)
        return taken
