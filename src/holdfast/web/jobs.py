"""The audits started from the page: one at a time, each a child process in its own group."""

import contextlib
import os
import secrets
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, TypeAlias

import orjson

from holdfast.audit.options import AuditOptions
from holdfast.core.errors import HoldfastError, OutputError
from holdfast.core.processes import END_WITH_STDIN
from holdfast.core.text import printable
from holdfast.engine.store import to_json, write_atomic
from holdfast.web.form import Places, command_of, known_values, options_of
from holdfast.web.render import Refusal
from holdfast.web.runs import LARGEST_PROGRESS, mark_cancelled, read_regular

_STEP = 0.05  # polling interval in seconds
QUEUE = 5  # maximum number of queued audits
HISTORY = 20  # finished audits that are remembered
MANIFEST, LOG = "job.json", "log.txt"
WORDS = {  # exit codes of a completed audit
    0: "",
    1: "a gate failed",
    4: "some images failed",
    5: "a gate is not decided",
}


@dataclass(frozen=True)
class Patience:
    """Grace periods in seconds after SIGINT and after SIGTERM, before SIGKILL."""

    interrupt: float = 5.0
    terminate: float = 3.0


PATIENCE = Patience()


def follow_process(process: subprocess.Popen[bytes], stop: threading.Event, patience: Patience) -> int:
    """Wait until the process and its children have ended and return the exit code; `stop` ends them."""
    while not _has_ended(process):
        if stop.wait(_STEP):
            _end_process(process, patience)
            break
    # Until the leader is reaped, its process ID is not reused: the group contains only its own children.
    _send_signal(process, getattr(signal, "SIGKILL", signal.SIGTERM))
    return process.wait()


def _end_process(process: subprocess.Popen[bytes], patience: Patience) -> None:
    for number, seconds in ((signal.SIGINT, patience.interrupt), (signal.SIGTERM, patience.terminate)):
        _send_signal(process, number)
        limit = time.monotonic() + seconds
        while time.monotonic() < limit:
            if _has_ended(process):
                return
            time.sleep(_STEP)


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether the leader has ended; it is not reaped if the system supports that."""
    if not hasattr(os, "waitid"):
        return process.poll() is not None
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _send_signal(process: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, number)
        else:
            process.terminate()


def tail(log: Path, most: int) -> str:
    """The last `most` bytes of a text file; empty if there is none."""
    try:
        return printable(read_regular(log, most, end=True).decode("utf-8", "replace"))
    except OSError:
        return ""


State: TypeAlias = Literal["queued", "running", "cancelling", "done", "failed", "cancelled", "interrupted"]
Command: TypeAlias = Callable[[AuditOptions], list[str]]


@dataclass(frozen=True)
class Job:
    """One audit of the queue."""

    key: str
    values: Mapping[str, str]  # of the form, unparsed
    folder: Path
    created: str
    state: State = "queued"
    pid: int = 0
    note: str = ""

    @property
    def live(self) -> bool:
        """Whether it is running or queued."""
        return self.state in ("queued", "running", "cancelling")


@dataclass
class AuditQueue:
    """The queue of audits and their processes."""

    places: Places
    command: Command = command_of
    patience: Patience = PATIENCE
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _jobs: dict[str, Job] = field(default_factory=dict)
    _options: dict[str, AuditOptions] = field(default_factory=dict)
    _watcher: threading.Thread | None = None  # of the running audit
    _stop: threading.Event = field(default_factory=threading.Event)  # ends it
    _closed: bool = False

    def __post_init__(self) -> None:
        """Load the jobs of earlier servers; unfinished ones become `interrupted`."""
        try:
            folders = [p for p in self.places.started.iterdir() if p.is_dir() and not p.is_symlink()]
        except OSError:
            return
        for folder in sorted(folders, reverse=True)[:HISTORY]:
            try:
                plain = orjson.loads(read_regular(folder / MANIFEST, LARGEST_PROGRESS))
                values = {str(key): str(value) for key, value in plain["values"].items()}
                created, note = str(plain["created"]), str(plain["note"])
                job = Job(folder.name, values, folder, created, plain["state"], note=note)
            except (OSError, ValueError, KeyError, TypeError, AttributeError, HoldfastError):
                continue
            if job.state not in ("done", "failed", "cancelled"):
                job = replace(job, state="interrupted", note="the server stopped before the audit finished")
            self._jobs[job.key] = job

    def jobs(self) -> list[Job]:
        """Every known job, newest first."""
        with self._lock:
            return sorted(self._jobs.values(), key=lambda j: (j.created, j.key), reverse=True)

    def job(self, key: str) -> Job:
        """The job of that key. Raise Refusal if there is none."""
        with self._lock:
            if key not in self._jobs:
                raise Refusal("no such audit; reload the page", 404)
            return self._jobs[key]

    def start(self, values: Mapping[str, str]) -> Job:
        """Start an audit or add it to the queue. Raise an error if it is not accepted."""
        now = datetime.now(UTC)
        key = f"{now:%Y%m%d-%H%M%S-%f}-{secrets.token_hex(4)}"
        folder = (self.places.started / key).resolve()
        options = options_of(values, self.places, folder / "report.html")
        with self._lock:
            if self._closed:
                raise Refusal("the server is stopping", 503)
            if sum(j.live for j in self._jobs.values()) > QUEUE:
                raise Refusal(f"{QUEUE} audits are already queued; cancel one or wait", 429)
            job = Job(key, known_values(values), folder, now.isoformat(timespec="microseconds"))
            self._put(job)
            self._options[key] = options
            self._next()
            return self._jobs[key]

    def cancel(self, key: str) -> Job:
        """Cancel a running or queued job and return it; a finished job is unchanged."""
        with self._lock:
            job = self.job(key)
            if job.state == "queued":
                self._put(replace(job, state="cancelled", note="removed from the queue"))
            elif job.state == "running":
                self._put(replace(job, state="cancelling"))
                self._stop.set()
            return self._jobs[key]

    def close(self) -> None:
        """End every process; completed work stays on disk."""
        with self._lock:
            self._closed = True
            for job in self.jobs():
                self.cancel(job.key)
        if self._watcher is not None:
            self._watcher.join()

    def _next(self) -> None:
        """Start the oldest queued job, unless one is running."""
        if self._closed or any(j.state in ("running", "cancelling") for j in self._jobs.values()):
            return
        job = next((j for j in reversed(self.jobs()) if j.state == "queued"), None)
        if job is None:
            return
        try:
            with (job.folder / LOG).open("ab") as out:
                process = subprocess.Popen(
                    self.command(self._options[job.key]),
                    cwd=job.folder,
                    stdin=subprocess.PIPE,  # never written to: its end tells that this server is gone
                    env=os.environ | {END_WITH_STDIN: "1"},
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # leads its own process group
                )
        except OSError as problem:
            self._put(replace(job, state="failed", note=f"could not start: {problem.strerror}"))
            self._next()
            return
        self._put(replace(job, state="running", pid=process.pid))
        self._stop = threading.Event()
        arguments = (job.key, process, self._stop)
        self._watcher = threading.Thread(target=self._watch, args=arguments, name=f"audit {job.key}")
        self._watcher.start()

    def _watch(self, key: str, process: subprocess.Popen[bytes], stop: threading.Event) -> None:
        """Wait for the end of the process, or end it, then start the next one."""
        code = follow_process(process, stop, self.patience)
        if process.stdin is not None:
            process.stdin.close()
        if stop.is_set():
            mark_cancelled(self.places.runs, process.pid)
        with self._lock:
            job = self._jobs[key]
            if stop.is_set():
                finished = replace(job, state="cancelled", note="completed work is saved")
            elif code in WORDS:
                finished = replace(job, state="done", note=WORDS[code])
            else:  # its last line of output, or its exit code
                lines = [line.strip() for line in tail(job.folder / LOG, 4096).splitlines() if line.strip()]
                note = lines[-1][:300] if lines else f"exit code {code}"
                finished = replace(job, state="failed", note=note)
            self._put(finished)
            del self._options[key]
            self._next()

    def _put(self, job: Job) -> None:
        """Store the job, also on disk for the next server."""
        self._jobs[job.key] = job
        for old in [j for j in self.jobs() if not j.live][HISTORY:]:
            del self._jobs[old.key]
        try:
            plain = {key: getattr(job, key) for key in ("values", "state", "created", "pid", "note")}
            write_atomic(job.folder / MANIFEST, to_json(plain, indent=True), durable=False)
        except OutputError:
            if job.state == "queued":  # nothing has started: report it now
                del self._jobs[job.key]
                raise
