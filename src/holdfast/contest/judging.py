"""The work of one process on a contest: images through every member and the feature net, into the cache."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson

from holdfast.contest.shots import Held, held
from holdfast.core import fingerprint
from holdfast.core.errors import InputError
from holdfast.core.patch import changed_pixels
from holdfast.core.types import Floats, Image
from holdfast.engine.answer import Opened
from holdfast.engine.job import Job
from holdfast.engine.store import Store, to_json
from holdfast.engine.work import work
from holdfast.metrics.similarity import psnr


class Seen(NamedTuple):
    """What is in the cache about a row of images: a cell for each member, and one of features."""

    members: tuple[str, ...]
    features: str


class Answer(NamedTuple):
    """What came of one row: the originals, what they became (None if not asked), and how they differ."""

    before: Seen
    after: Seen | None
    changed: tuple[int, ...]  # pixels
    psnr: tuple[float, ...]  # dB; infinite for equal images


@dataclass
class Open:
    """What a process keeps between rows: the members' networks and the feature net."""

    members: list[Opened]
    features: Callable[[Sequence[Image]], Floats] | None = field(default=None)


@dataclass(frozen=True)
class Judging:
    """The members' answers and the features of originals and of what they became."""

    jobs: tuple[Job, ...]
    features: str  # how the feature net is opened
    features_sha256: str
    store: Store
    ask: tuple[bool, bool] = (True, True)  # members are asked before, after
    threads: int = 1

    @property
    def modules(self) -> tuple[str, ...]:
        """Modules other processes must import first."""
        return tuple(sorted({name for job in self.jobs for name in job.modules}))

    @property
    def files(self) -> tuple[Path, ...]:
        """Files of parts other processes must load first."""
        return tuple(dict.fromkeys(path for job in self.jobs for path in job.files))

    def on(self, threads: int) -> Judging:
        """The same work with so many threads a process."""
        jobs = tuple(dataclasses.replace(job, threads=threads) for job in self.jobs)
        return dataclasses.replace(self, jobs=jobs, threads=threads)

    def work(self, state: Open | None, shard: Sequence[Any]) -> tuple[Answer, Open, tuple[int, int]]:
        """The cells of a row of shots, what is open now, and how far that brings the run."""
        state = state or Open([Opened() for _ in self.jobs])
        before = [held(shot, shot.before()) for shot in shard]
        first, fresh = self._seen(state, before, self.ask[0])
        if all(shot.change is None for shot in shard):
            none = (0,) * len(shard), (float("inf"),) * len(shard)
            return Answer(first, None, *none), state, (len(shard), 0 if fresh else len(shard))
        after = [held(shot, shot.after()) for shot in shard]
        second, more = self._seen(state, after, self.ask[1])
        pairs = [(b.image, a.image) for b, a in zip(before, after, strict=True)]
        measured = tuple(changed_pixels(*p) for p in pairs), tuple(psnr(*p) for p in pairs)
        return Answer(first, second, *measured), state, (len(shard), 0 if fresh or more else len(shard))

    def _seen(self, state: Open, row: list[Held], ask: bool) -> tuple[Seen, bool]:
        """The keys of the row's cells, which are all there now, and whether one of them had to be made."""
        fresh, keys = False, []
        for job, opened in zip(self.jobs, state.members, strict=True) if ask else ():
            made, tally = work((job,), opened, row)
            if opened.problems:
                raise opened.problems[0]
            fresh |= tally.found < tally.done
            keys.append(made[0])
        name = fingerprint.of(["features", self.features_sha256, [entry.key() for entry in row]])
        if self.store.get(name) is None:
            if state.features is None:
                state.features = opened_features(self.features, self.features_sha256, self.threads)
            made_features = state.features([entry.image for entry in row])
            self.store.put(name, to_json({"features": _packed(made_features)}))
            fresh = True
        return Seen(tuple(keys), name), fresh


def opened_features(
    text: str, sha256: str, threads: int, name: str = ""
) -> Callable[[Sequence[Image]], Floats]:
    """The feature net; InputError if it is another than the rules name, or called otherwise."""
    from holdfast.stages.features import open_features

    net = open_features(text, threads)
    if net.sha256 != sha256:
        raise InputError(
            f"distance.sha256: the feature net {text!r} has the hash {net.sha256}, the rules say {sha256}"
        )
    if name and name != net.name:
        raise InputError(f"distance.name: expected {net.name!r} for the features {text!r}, got {name!r}")
    return net


def read_features(store: Store, keys: Sequence[str]) -> Floats:
    """All features (n, d) of these cells, in order."""
    rows = []
    for key in keys:
        data = store.get(key)
        if data is None:
            raise InputError(f"{store.path(key)}: the cell is missing or damaged; run the same command again")
        rows.append(_unpacked(orjson.loads(data)["features"]))
    return np.concatenate(rows)


def _packed(values: Floats) -> dict[str, Any]:
    little = np.ascontiguousarray(values, "<f8")
    return {"shape": list(values.shape), "float64": base64.b64encode(little.tobytes()).decode("ascii")}


def _unpacked(plain: dict[str, Any]) -> Floats:
    flat = np.frombuffer(base64.b64decode(plain["float64"]), "<f8")
    return flat.reshape(plain["shape"]).astype(np.float64)
