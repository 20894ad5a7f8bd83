"""Results on disk: JSON, content-addressed, written once by atomic rename, checked when read."""

import contextlib
import os
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from holdfast.core.errors import DataError, OutputError
from holdfast.core.fingerprint import sealed, unsealed


def printable(text: str) -> str:
    r"""The text with bytes of file names that are no UTF-8 as `\xbd`, so that it can be stored and shown."""
    return re.sub("[\udc80-\udcff]", lambda found: f"\\x{ord(found[0]) - 0xDC00:02x}", text)


def to_json(value: Any, *, indent: bool = False) -> bytes:
    """A plain value, arrays and tuples included, as JSON."""
    options = orjson.OPT_SERIALIZE_NUMPY | (orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE if indent else 0)
    try:
        return orjson.dumps(value, default=list, option=options)  # list: a Size
    except orjson.JSONEncodeError:  # mostly a file name that is no UTF-8
        return orjson.dumps(_printable(value), default=list, option=options)


def _printable(value: Any) -> Any:
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, Mapping):
        return {_printable(k): _printable(v) for k, v in value.items()}
    return [_printable(v) for v in value] if isinstance(value, list | tuple) else value


def write_atomic(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Write the file whole or not at all; raise OutputError if the disk does not take it.

    A link keeps pointing where it points, and a device or pipe is written to, not replaced. `durable` waits
    until the disk has it: for results that took long, not for what can be printed again at once.
    """
    if path.is_dir():
        raise OutputError(f"{path}: is a folder; give the name of a file in it")
    if path.exists() and not path.is_file():
        try:
            path.write_bytes(data)
        except OSError as problem:
            raise OutputError(f"{path}: could not be written: {problem.strerror}") from problem
        return
    path = path.resolve() if path.is_symlink() else path
    temporary = path.parent / f".writing-{os.getpid()}-{os.urandom(6).hex()}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        stream = temporary.open("xb")
    except OSError as problem:
        raise OutputError(f"{path}: cannot write: {problem.strerror}; choose another folder") from problem
    try:
        with stream:
            stream.write(data)
            stream.flush()
            if durable:
                os.fsync(stream.fileno())
        temporary.replace(path)
    except OSError as problem:
        raise OutputError(
            f"{path}: could not be written: {problem.strerror}; free some space and run the same command "
            "again; completed work is saved"
        ) from problem
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


@dataclass(frozen=True)
class Store:
    """A folder of cells by key; a cell is a checksum of its key and bytes, a newline, and its bytes."""

    folder: Path

    def path(self, key: str) -> Path:
        """Where the cell of that key lies."""
        return self.folder / key[:2] / f"{key}.json"

    def get(self, key: str) -> bytes | None:
        """The bytes of a finished cell; None if there is none, or it is damaged or another key's."""
        try:
            content = self.path(key).read_bytes()
        except OSError:
            return None
        return unsealed(key, content)

    def read(self, key: str) -> Any:
        """The value of a finished cell; DataError if it is missing or damaged."""
        data = self.get(key)
        if data is None:
            raise DataError(f"{self.path(key)}: the cell is missing or damaged; run the same command again")
        return orjson.loads(data)

    def put(self, key: str, data: bytes) -> None:
        """Write the cell to disk."""
        # Not durable: what a power failure damages is noticed by its checksum and computed again. Cells are
        # many and small, so they are written without pathlib, in half the time; what fails is tried again by
        # `write_atomic`, whose errors say what to do.
        folder, content = f"{self.folder}/{key[:2]}", sealed(key, data)
        temporary = f"{folder}/.writing-{os.getpid()}-{key}-{threading.get_ident()}"
        try:
            with open(temporary, "xb", buffering=0) as stream:  # noqa: PTH123
                stream.write(content)
            os.replace(temporary, f"{folder}/{key}.json")  # noqa: PTH105
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(temporary)  # noqa: PTH108
            write_atomic(self.path(key), content, durable=False)
