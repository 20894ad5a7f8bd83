"""Limits on the files that are read, each changeable: HOLDFAST_LIMITS="image-megapixels=200,depth=500"."""

import errno
import io
import os
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from holdfast.core.errors import HoldfastError, InputError

VARIABLE = "HOLDFAST_LIMITS"


@dataclass(frozen=True)
class Limit:
    """The default of a limit, and what it bounds."""

    default: int
    about: str


LIMITS: Mapping[str, Limit] = {
    "image-mb": Limit(512, "size of an encoded image"),
    "image-megapixels": Limit(89, "pixels of an image, decoded or resized"),
    "shown-megapixels": Limit(24, "pixels of the image of `noise show`, which holds it many times"),
    "label-mb": Limit(4096, "size of an annotation, label or question file"),
    "text-mb": Limit(64, "size of a card, a plan or another small file"),
    "spec-mb": Limit(512, "size of a VNN-LIB file, unpacked"),
    "tokenizer-mb": Limit(256, "size of a tokenizer.json"),
    "model-mb": Limit(4096, "size that a packed model unpacks to"),
    "unpacked-ratio": Limit(200, "size of a packed file after unpacking over that before, above 64 MB"),
    "depth": Limit(100, "nesting of a YAML file"),
    "aliases": Limit(1000, "aliases in a YAML file"),
    "scenes": Limit(10_000_000, "scenes of an embedded dataset"),
    "constant-mb": Limit(1024, "size of a tensor that `verify` computes from constants"),
}


def limit(name: str) -> int:
    """The limit of that name: its default, or the value in HOLDFAST_LIMITS."""
    return _changed(os.environ.get(VARIABLE, "")).get(name, LIMITS[name].default)


@cache
def _changed(text: str) -> Mapping[str, int]:
    changed = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = part.partition("=")
        if name not in LIMITS or not value.isdecimal() or int(value) < 1:
            expected = f"NAME=NUMBER with a NAME of {', '.join(LIMITS)}"
            raise InputError(f"{VARIABLE}: expected {expected}, got {part!r}")
        changed[name] = int(value)
    return changed


def too_large(name: str, got: str) -> str:
    """The end of a message about a value above the limit of that name."""
    return f"{got}; the limit {name} is {limit(name):,} ({VARIABLE} changes it)"


def open_regular(path: str | Path) -> io.FileIO:
    """The opened file. Raise OSError if it is missing, a folder, a pipe or a device; never wait."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode):
        return io.FileIO(handle)
    os.close(handle)
    kinds = {stat.S_IFDIR: "folder", stat.S_IFIFO: "named pipe", stat.S_IFSOCK: "socket"}
    got = kinds.get(stat.S_IFMT(mode), "device")
    raise OSError(errno.EINVAL, f"expected a regular file, got a {got}", str(path))


def read_file(
    path: str | Path, name: str = "text-mb", error: type[HoldfastError] = InputError, kind: str = "file"
) -> bytes:
    """The bytes of a regular file. Raise `error` if it cannot be read or is above the limit of that name."""
    try:
        with open_regular(path) as stream:
            size = os.fstat(stream.fileno()).st_size
            if size > limit(name) << 20:
                raise error(f"{path}: {too_large(name, f'{size >> 20} MB')}")
            return stream.readall()
    except OSError as problem:
        missing = kind == "image" and isinstance(problem, FileNotFoundError)
        reason = "no such image file" if missing else f"cannot be read: {problem.strerror or problem}"
        raise error(f"{path}: {reason}") from problem


def parse_toml(text: str) -> dict[str, Any]:
    """The document in a TOML text. Raise TOMLDecodeError also if it is nested too deeply."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise tomllib.TOMLDecodeError("nested too deeply") from None
