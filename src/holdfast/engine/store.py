"""Cells in a folder or an object store: JSON, content-addressed, written once, checked when read."""

import contextlib
import os
import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import orjson

from holdfast.core.errors import DataError, DiskError, OutputError
from holdfast.core.fingerprint import sealed, unsealed
from holdfast.core.limits import open_regular
from holdfast.core.text import printable

CELL_NAME = re.compile(r"[0-9a-f]{2}/(([a-z]+)\.[0-9a-f]{64})\.json")


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
        raise DiskError(
            f"{path}: could not be written: {problem.strerror}; free some space and run the same command "
            "again; completed work is saved"
        ) from problem
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


class StoreEntry(NamedTuple):
    """An object of a store: its name, the key of its cell (empty: a leftover), bytes and time of writing."""

    name: str
    key: str
    size: int
    written: float  # seconds since 1970

    @property
    def kind(self) -> str:
        """The kind of work that computed the cell."""
        return self.key.partition(".")[0]


class Store(ABC):
    """Cells by key. The bytes of a cell are a checksum of its key and value, a newline, and the value."""

    @property
    @abstractmethod
    def url(self) -> str:
        """The folder or the address, without credentials, by which `open_store` opens it again."""

    @abstractmethod
    def load(self, key: str) -> bytes | None:
        """The bytes stored under a key; None if there are none."""

    @abstractmethod
    def save(self, key: str, content: bytes) -> None:
        """Store bytes under a key. Of two writers of one key one wins; both computed the same value."""

    @abstractmethod
    def where(self, key: str) -> str:
        """The place of a cell, for messages."""

    @abstractmethod
    def entries(self) -> Iterator[StoreEntry]:
        """Everything in the store, finished cells and leftovers of killed writers."""

    @abstractmethod
    def delete(self, names: Sequence[str]) -> None:
        """Remove entries by name."""

    def load_all(self, keys: Sequence[str]) -> Iterator[bytes | None]:
        """The bytes of many keys, in their order."""
        return map(self.load, keys)

    def flush(self) -> None:  # noqa: B027 - most stores have nothing to wait for
        """Wait until everything that was saved is stored."""

    @property
    def is_new(self) -> bool:
        """Whether the store is known to be empty."""
        return False

    def get(self, key: str) -> bytes | None:
        """The value of a finished cell; None if there is none, or it is damaged or belongs to another key."""
        return next(self.get_all([key]))

    def get_all(self, keys: Sequence[str]) -> Iterator[bytes | None]:
        """The values of many cells, in the order of the keys."""
        for key, content in zip(keys, self.load_all(keys), strict=True):
            yield None if content is None else unsealed(key, content)

    def put(self, key: str, data: bytes) -> None:
        """Store the value of a cell."""
        self.save(key, sealed(key, data))

    def read(self, key: str) -> Any:
        """The value of a finished cell; DataError if it is missing or damaged."""
        return next(self.read_all([key]))

    def read_all(self, keys: Sequence[str]) -> Iterator[Any]:
        """The values of many finished cells, in the order of the keys."""
        for key, data in zip(keys, self.get_all(keys), strict=True):
            if data is None:
                raise DataError(
                    f"{self.where(key)}: the cell is missing or damaged; run the same command again to "
                    "compute it"
                )
            yield orjson.loads(data)


@dataclass(frozen=True)
class FolderStore(Store):
    """Cells as files in 256 folders."""

    folder: Path

    @property
    def url(self) -> str:
        """The folder as an absolute path."""
        return str(self.folder.resolve())

    @property
    def is_new(self) -> bool:
        """Whether the folder does not exist yet."""
        return not self.folder.is_dir()

    def path(self, key: str) -> Path:
        """The file of a cell."""
        return self.folder / name_of(key)

    def where(self, key: str) -> str:
        """The file of a cell."""
        return str(self.path(key))

    def load(self, key: str) -> bytes | None:
        """The content of the file; None if it cannot be read."""
        try:
            with open_regular(self.path(key)) as stream:
                return stream.readall()
        except OSError:
            return None

    def save(self, key: str, content: bytes) -> None:
        """Write the file by atomic rename."""
        # Not durable: what a power failure damages is noticed by its checksum and computed again. Cells are
        # many and small, so they are written without pathlib, in half the time; what fails is tried again by
        # `write_atomic`, whose errors say what to do.
        name = f"{self.folder}/{name_of(key)}"
        temporary = f"{name[: name.rindex('/')]}/.writing-{os.getpid()}-{key}-{threading.get_ident()}"
        try:
            with open(temporary, "xb", buffering=0) as stream:  # noqa: PTH123
                stream.write(content)
            os.replace(temporary, name)  # noqa: PTH105
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(temporary)  # noqa: PTH108
            write_atomic(self.path(key), content, durable=False)

    def entries(self) -> Iterator[StoreEntry]:
        """The files of the 256 folders; other files of the folder are not the store's."""
        for number in range(256):
            with contextlib.suppress(FileNotFoundError), os.scandir(self.folder / f"{number:02x}") as files:
                for file in files:
                    if file.is_file(follow_symlinks=False):
                        facts, name = file.stat(follow_symlinks=False), f"{number:02x}/{file.name}"
                        yield StoreEntry(name, key_of(name), facts.st_size, facts.st_mtime)

    def delete(self, names: Sequence[str]) -> None:
        """Remove files by name; what is gone already does not matter."""
        for name in names:
            (self.folder / name).unlink(missing_ok=True)


def name_of(key: str) -> str:
    """The name of a cell's file or object, in one of 256 folders by the hash."""
    digest = key.rfind(".") + 1
    return f"{key[digest : digest + 2]}/{key}.json"


def key_of(name: str) -> str:
    """The key of the cell with this name; empty if it is not the name of a cell."""
    match = CELL_NAME.fullmatch(name)
    return match[1] if match else ""


def open_store(place: str | Path) -> Store:
    """The store in a folder, or at a URL such as s3://bucket/prefix, gs://…, az://… or file:///…."""
    scheme, separator, rest = str(place).partition("://")
    if not separator:
        return FolderStore(Path(place))
    if scheme == "file":
        return FolderStore(Path(unquote(rest.removeprefix("localhost"))))
    from holdfast.engine.object_store import ObjectStore

    return ObjectStore.at(str(place))
