"""Cells as objects in S3, Google Cloud Storage, Azure or memory, through obstore.

Credentials are found by obstore alone (environment, profiles, instance roles); a URL must not contain any.
Requests that fail are repeated here and not by obstore, so that one rule covers errors of the server,
timeouts, and bodies that end early. A create-only write can be repeated safely: if the first attempt was
stored after all, the second finds the same cell.
"""

import os
import random
import re
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import Any, TypeVar
from urllib.parse import urlsplit

from holdfast.core.errors import DataError, InputError, MachineError, MissingExtra, OutputError
from holdfast.core.fingerprint import unsealed
from holdfast.engine.store import Store, StoreEntry, key_of, name_of

A = TypeVar("A")
SCHEMES = ("s3", "gs", "az", "memory")
ATTEMPTS = 7
FIRST_DELAY = 0.2  # seconds; each later delay is twice as long, up to a random factor
TIMEOUT = float(os.environ.get("HOLDFAST_STORE_TIMEOUT", "30"))  # seconds for one request
THREADS = 64  # requests at a time; a cell is small, so latency counts and not bandwidth
PENDING = 256  # writes that may wait for a thread


class StoreError(OutputError, DataError, MachineError):
    """A store that does not answer, or that refuses a request."""


@dataclass(frozen=True)
class ObjectStore(Store):
    """Cells by key at a URL such as s3://bucket/prefix. Writes are queued; `flush` waits for them."""

    address: str

    @classmethod
    def at(cls, url: str) -> "ObjectStore":
        """The store at a URL; InputError if the URL cannot be one."""
        parts = urlsplit(url)
        if parts.scheme not in SCHEMES:
            known = ", ".join(f"{scheme}://" for scheme in SCHEMES[:-1])  # memory:// is for tests
            raise InputError(f"--store: expected a folder or a URL with file://, {known}, got {url!r}")
        if parts.username or parts.password or parts.query:
            raise InputError(
                "--store: expected a URL without credentials; set them as the store's own tools expect, for "
                "instance AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            )
        store = cls(url.rstrip("/"))
        _open(store.address)
        return store

    @property
    def url(self) -> str:
        """The URL."""
        return self.address

    def where(self, key: str) -> str:
        """The URL of a cell."""
        return f"{self.address}/{name_of(key)}"

    def load(self, key: str) -> bytes | None:
        """The content of an object; None if there is none."""
        import obstore

        def get() -> bytes | None:
            try:
                return bytes(obstore.get(_open(self.address), name_of(key)).bytes())
            except FileNotFoundError:
                return None

        return self._repeat(get, "read")

    def load_all(self, keys: Sequence[str]) -> Iterator[bytes | None]:
        """The contents of many objects, several requests at a time."""
        return iter([self.load(keys[0])]) if len(keys) == 1 else _threads().map(self.load, keys)

    def save(self, key: str, content: bytes) -> None:
        """Queue a create-only write; the errors of earlier writes are raised here or by `flush`."""
        pending = _pending(self.address)
        pending.append(_threads().submit(self._create, key, content))
        while len(pending) > PENDING or (pending and pending[0].done()):
            pending.pop(0).result()

    def flush(self) -> None:
        """Wait for the queued writes; raise the error of the first one that failed."""
        pending = _pending(self.address)
        while pending:
            pending.pop(0).result()

    def entries(self) -> Iterator[StoreEntry]:
        """All objects below the URL."""
        import obstore

        pages = obstore.list(_open(self.address))
        while page := self._repeat(lambda: next(iter(pages), None), "listed"):
            for item in page:
                name, written = item["path"], item["last_modified"].timestamp()
                yield StoreEntry(name, key_of(name), item["size"], written)

    def delete(self, names: Sequence[str]) -> None:
        """Remove objects by name."""
        import obstore

        self._repeat(lambda: obstore.delete(_open(self.address), names), "changed")

    def _create(self, key: str, content: bytes) -> None:
        """Write a cell unless a valid one is there; replace a damaged one."""
        import obstore

        def put(mode: Any) -> bool:
            try:
                obstore.put(_open(self.address), name_of(key), content, mode=mode, use_multipart=False)
            except obstore.exceptions.AlreadyExistsError:
                return False
            return True

        if self._repeat(lambda: put("create"), "written to"):
            return
        there = self.load(key)
        if there is None or unsealed(key, there) is None:
            self._repeat(lambda: put("overwrite"), "written to")

    def _repeat(self, request: Callable[[], A], done: str) -> A:
        """The result of a request, repeated with growing delays as long as a repetition can help."""
        import obstore.exceptions as errors

        for attempt in range(ATTEMPTS):
            try:
                return request()
            except (errors.PermissionDeniedError, errors.UnauthenticatedError, PermissionError) as problem:
                raise StoreError(
                    f"{self.address}: the store refuses access ({_reason(problem)}); check its credentials"
                ) from None
            except (errors.BaseError, OSError, ValueError) as problem:
                reason = _reason(problem)
            time.sleep(FIRST_DELAY * 2**attempt * random.uniform(0.5, 1.5))
        raise StoreError(
            f"{self.address}: could not be {done} in {ATTEMPTS} attempts ({reason}); completed cells are "
            "kept: run the same command again to resume"
        )


def _reason(problem: Exception) -> str:
    """What went wrong in a few words. Messages of the library are not quoted: they may hold signed URLs."""
    text = str(problem)
    status = re.search(r"\b([45]\d\d) [A-Z]", text)
    if status:
        return f"HTTP status {status[1]}"
    for word in ("timed out", "timeout", "connect", "dns", "body", "credential", "bucket"):
        if word in text.lower():
            return {"timeout": "timed out", "connect": "no connection", "dns": "unknown host"}.get(word, word)
    return type(problem).__name__


@lru_cache(maxsize=8)
def _open(url: str) -> Any:
    try:
        from obstore.store import MemoryStore, from_url
    except ImportError:
        raise MissingExtra(f"--store {url}", "obstore", "store") from None
    if url.startswith("memory:"):
        return MemoryStore()
    timeout = timedelta(seconds=TIMEOUT)
    limits: Any = {"timeout": timeout, "connect_timeout": min(timeout, timedelta(seconds=10))}
    if os.environ.get("AWS_ALLOW_HTTP", "").lower() in ("1", "true"):
        limits["allow_http"] = True
    try:
        return from_url(url, client_options=limits, retry_config={"max_retries": 0})
    except Exception as problem:  # noqa: BLE001 - of many libraries below it
        raise InputError(f"--store: {url} cannot be opened ({_reason(problem)})") from None


@lru_cache(maxsize=1)
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(THREADS, thread_name_prefix="store")


@lru_cache(maxsize=8)
def _pending(url: str) -> "list[Future[None]]":
    return []
