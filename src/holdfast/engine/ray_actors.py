"""Shards on a Ray cluster: actors that keep their networks open, as worker processes do.

An actor receives items, not tensors, and writes cells into the store, which every node must reach. Model
files travel through the store by their hash; data is read by its path on every node. An actor that dies is
replaced. The shard it was working on is repeated item by item, and an item that ends three actors is skipped.
"""

import importlib.util
import io
import logging
import os
import pickle
import platform
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from holdfast.core import fingerprint, sources
from holdfast.core.errors import HoldfastError, InputError, MissingExtra
from holdfast.core.model import Network
from holdfast.engine.execution import check_cluster
from holdfast.engine.executor import Progress, Shards, cores, leading_answers
from holdfast.engine.store import Store, write_atomic
from holdfast.engine.workers import OpenTask, PackedTask, WorkerTask

DEATHS = 3  # actors that an item may end before it is skipped
QUEUED = 2  # shards that an actor has: one that runs and one that waits
START = 60.0  # seconds for which ready actors wait until all nodes have reported their software
STARTS = 10  # actors in a row that may fail to start
SHARDS = 4  # shards per actor below which items are sent one by one
SINGLE = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OPENCV_FOR_THREADS_NUM")


class ClusterTask(WorkerTask, Protocol):
    """A task that can be sent to other machines."""

    store: Store

    @property
    def kinds(self) -> Sequence[str]:
        """The kinds of work, whose software must be the same everywhere."""

    def skipped(self, item: Any, reason: str) -> Any:
        """The answer to a shard of one item that cannot be computed."""

    def join(self, answers: Sequence[Any]) -> Any:
        """One answer from the answers to the items of a shard, in order."""


def software(kinds: Sequence[str]) -> dict[str, str]:
    """Versions of the libraries, and hashes of the source code, that work of these kinds depends on."""
    versions: dict[str, str] = {}
    for kind in kinds:
        versions |= {**sources.versions(kind), f"source code of {kind}": sources.code_of(kind)[:12]}
    return versions


class ActorProcess(OpenTask):
    """A process on a node."""

    def describe(self, kinds: Sequence[str]) -> tuple[str, dict[str, str]]:
        """The name of the node and its software."""
        return platform.node(), software(kinds)


@dataclass(eq=False)
class _Actor:
    """The handle of an actor and the shards it has, the running one first."""

    handle: Any
    pending: dict[Any, "_Shard"] = field(default_factory=dict)  # by reference


@dataclass(eq=False)
class _Shard:
    """A shard, or one item of a shard that ended an actor."""

    number: int
    items: tuple[Any, ...]
    position: int = 0  # of the item in its shard
    deaths: int = 0

    def pieces(self) -> "list[_Shard]":
        """The items one by one."""
        return [replace(self, items=(item,), position=self.position + n) for n, item in enumerate(self.items)]


@dataclass(frozen=True)
class RayActors:
    """Process the shards in actors of a Ray cluster. `count` 0 means one per CPU of the cluster."""

    count: int = 0

    def run(self, task: Any, shards: Shards, progress: Progress, until: float) -> list[Any]:
        """The answers to the leading shards that were finished in time."""
        if not shards:
            return []
        ray = connect()
        total = max(1, int(ray.cluster_resources().get("CPU", 1)))
        items = sum(len(shard) for shard in shards)
        run = _Run(ray, task, shards, min(self.count or total, total, items))
        try:
            while len(run.answers) < len(shards) and time.monotonic() < until:
                run.step(progress, min(1.0, max(0.0, until - time.monotonic())))
        finally:
            run.stop()
        return leading_answers(run.answers, shards)


def connect() -> Any:
    """Ray, connected to the cluster of RAY_ADDRESS, else to one on this machine that ends with this one."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent anywhere
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    if importlib.util.find_spec("ray") is None:
        raise MissingExtra("--on ray", "ray", "ray")
    import ray

    if ray.is_initialized():
        return ray
    address = os.environ.get("RAY_ADDRESS", "")
    check_cluster(address if address.startswith("ray://") else "ray")
    options: dict[str, Any] = {} if address else {"num_cpus": cores(), "include_dashboard": False}
    try:
        ray.init(log_to_driver=False, logging_level=logging.ERROR, **options)
    except (ConnectionError, RuntimeError, ValueError) as problem:
        reason = " ".join(str(problem).split())[:200]
        raise InputError(
            f"--on ray: no cluster at {address or 'this machine'}: {reason}; check RAY_ADDRESS, and "
            "RAY_AUTH_MODE if the cluster uses tokens"
        ) from None
    return ray


class _Run:
    """Shards on their way through actors."""

    def __init__(self, ray: Any, task: ClusterTask, shards: Shards, actors: int) -> None:
        self.ray, self.task, self.began = ray, task, time.monotonic()
        self.packed = PackedTask.of(pack(task, task.store), 1)
        options = {"num_cpus": 1, "runtime_env": {"env_vars": dict.fromkeys(SINGLE, "1")}}
        self.type = ray.remote(**options)(ActorProcess)
        pieces = [_Shard(number, items) for number, items in enumerate(shards)]
        few = len(shards) < SHARDS * actors  # the last ones would keep most actors waiting
        self.todo = deque([piece for shard in pieces for piece in shard.pieces()] if few else pieces)
        self.sizes = [len(items) for items in shards]
        self.answers: dict[int, Any] = {}  # to complete shards, by number
        self.single: dict[int, dict[int, Any]] = {}  # number of a shard -> position of an item -> answer
        self.failed_starts = 0  # since the last actor that started
        self.starting: dict[Any, _Actor] = {}
        self.actors: list[_Actor] = []
        for _ in range(actors):
            self._start()

    def _start(self) -> None:
        actor = _Actor(self.type.remote(self.packed))
        self.starting[actor.handle.describe.remote(list(self.task.kinds))] = actor

    def step(self, progress: Progress, seconds: float) -> None:
        """Wait for an answer, note it, and give its actor more work."""
        running = {reference: actor for actor in self.actors for reference in actor.pending}
        ready, _ = self.ray.wait([*self.starting, *running], timeout=seconds)
        for reference in ready:
            if reference in self.starting:
                self._admit(reference)
            elif reference in running[reference].pending:  # else its actor died a moment ago
                self._note(running[reference], reference, progress)
        if not self.starting or time.monotonic() > self.began + START:  # all nodes have the same software
            for actor in self.actors:
                self._feed(actor)

    def _admit(self, reference: Any) -> None:
        """Accept an actor that is ready, if its software is this machine's."""
        actor = self.starting.pop(reference)
        try:
            node, there = self.ray.get(reference)
        except self.ray.exceptions.RayError as problem:  # its node is gone, or has no holdfast
            self.failed_starts += 1
            if self.failed_starts == STARTS:
                reason = " ".join(str(problem).split())[-300:]
                raise InputError(
                    f"--on ray: no worker starts, {STARTS} attempts failed; "
                    f"install holdfast and its extras on every node ({reason})"
                ) from None
            self._start()
            return
        self.failed_starts = 0
        here = software(list(self.task.kinds))
        for name in sorted(here.keys() | there.keys()):
            mine, other = here.get(name, "not installed"), there.get(name, "not installed")
            if mine != other:
                raise InputError(
                    f"--on ray: node {node} has {name} {other}, this machine has {mine}; the results would "
                    "differ. Install the same versions on every node"
                )
        self.actors.append(actor)

    def _feed(self, actor: _Actor) -> None:
        while self.todo and len(actor.pending) < QUEUED:
            shard = self.todo.popleft()
            actor.pending[actor.handle.process.remote(shard.items)] = shard

    def _note(self, actor: _Actor, reference: Any, progress: Progress) -> None:
        try:
            reply = self.ray.get(reference)
        except self.ray.exceptions.RayError:
            self._replace(actor)
            return
        if isinstance(reply, BaseException):
            raise reply
        answer, done = reply
        self._store(actor.pending.pop(reference), answer)
        progress(*done)
        self._feed(actor)

    def _replace(self, actor: _Actor) -> None:
        """Start another actor; what the dead one had is to be done again, its first shard item by item."""
        self.actors.remove(actor)
        first, *others = actor.pending.values()
        actor.pending.clear()
        for shard in reversed(others):
            self.todo.appendleft(shard)
        first.deaths += 1
        for piece in reversed(first.pieces()):
            if piece.deaths < DEATHS:
                self.todo.appendleft(piece)
            else:
                reason = f"it ended {DEATHS} worker processes (not enough memory?)"
                self._store(piece, self.task.skipped(piece.items[0], reason))
        self._start()

    def _store(self, shard: _Shard, answer: Any) -> None:
        """Store the answer to a shard, or to one of its items; it is complete with the last item."""
        size = self.sizes[shard.number]
        if len(shard.items) == size:
            self.answers[shard.number] = answer
            return
        items = self.single.setdefault(shard.number, {})
        items[shard.position] = answer
        if len(items) == size:
            self.answers[shard.number] = self.task.join([items[n] for n in range(size)])

    def stop(self) -> None:
        """End the actors."""
        for actor in (*self.actors, *self.starting.values()):
            self.ray.kill(actor.handle)


class _ModelPickler(pickle.Pickler):
    """Model files go into the store; what is sent names them by their hash."""

    def __init__(self, stream: io.BytesIO, store: Store) -> None:
        super().__init__(stream)
        self.store = store
        self.known: set[str] = set()

    def reducer_override(self, value: Any) -> Any:
        """How a model is sent; everything else as usual."""
        if not isinstance(value, Network) or not value.path.is_file():
            return NotImplemented
        data = value.path.read_bytes()
        digest = fingerprint.of_bytes(data)
        if digest not in self.known:
            self.known.add(digest)
            self.store.put(f"model.{digest}", data)
            self.store.flush()
        return _restore, (type(value), dict(vars(value)), self.store, digest)


def pack(task: Any, store: Store) -> bytes:
    """The task as bytes, with its model files in the store."""
    stream = io.BytesIO()
    try:
        _ModelPickler(stream, store).dump(task)
    except (pickle.PicklingError, AttributeError, TypeError) as problem:
        raise InputError(f"--on ray: a stage is not a function at the top of a module ({problem})") from None
    packed = stream.getvalue()
    if b"__main__" in packed:
        where = "in the script itself; move it to a module on every node"
        raise InputError(f"--on ray: a stage is defined {where}")
    return packed


def _restore(kind: type[Network], fields: dict[str, Any], store: Store, digest: str) -> Network:
    """The model, with the file of this machine if it is the same, else with a copy from the store."""
    model = kind(**fields)
    if model.path.is_file() and fingerprint.of_file(model.path) == digest:
        return model
    folder = Path(tempfile.gettempdir()) / f"holdfast-models-{os.getuid()}" / digest
    copy = folder / model.path.name
    if not (copy.is_file() and fingerprint.of_file(copy) == digest):
        data = store.get(f"model.{digest}")
        if data is None:
            node = platform.node()
            raise HoldfastError(f"{model.path}: is not on node {node}, nor in the store {store.url}")
        write_atomic(copy, data)
    return replace(model, path=copy)
