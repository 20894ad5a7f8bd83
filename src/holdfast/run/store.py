"""Content-addressed results on disk: written once by atomic rename, checked when read."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from holdfast.core.errors import OutputError


def write_atomic(path: Path, data: bytes) -> None:
    """Nothing; the file is there whole or not at all. OutputError if the disk does not take it."""
    temporary = path.parent / f".writing-{os.getpid()}-{secrets.token_hex(6)}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        stream = temporary.open("xb")
    except OSError as problem:
        raise OutputError(
            f"{path}: cannot write there: {problem.strerror}; choose another folder"
        ) from problem
    try:
        with stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    except OSError as problem:
        raise OutputError(
            f"{path}: could not be written: {problem.strerror}; free some space, then run the same command "
            "again: what was finished is kept"
        ) from problem
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


@dataclass(frozen=True)
class Store:
    """A folder of cells by key; a cell is its sha256, a newline, and its bytes."""

    folder: Path

    def path(self, key: str) -> Path:
        """Where the cell of that key lies."""
        return self.folder / key[:2] / f"{key}.json"

    def get(self, key: str) -> bytes | None:
        """The bytes of a finished cell, or None if there is none or it is damaged."""
        try:
            content = self.path(key).read_bytes()
        except OSError:
            return None
        digest, _, data = content.partition(b"\n")
        return data if hashlib.sha256(data).hexdigest().encode() == digest else None

    def put(self, key: str, data: bytes) -> None:
        """Nothing; the cell is on disk."""
        write_atomic(self.path(key), hashlib.sha256(data).hexdigest().encode() + b"\n" + data)
