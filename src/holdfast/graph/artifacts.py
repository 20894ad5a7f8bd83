"""Generated models cached on disk by key and verified against that key on every read."""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.core.fingerprint import of_file, sealed, unsealed


class Artifact(NamedTuple):
    """Files by the end of their names, and plain facts about them."""

    files: Mapping[str, bytes | Path]  # a file is moved to its place
    facts: Mapping[str, Any]


def cached_artifact(
    stem: Path, key: str, make: Callable[[], Artifact]
) -> tuple[dict[str, Path], dict[str, Any]]:
    """The files `stem` + ending and their facts; built now unless they exist, complete and with this key.

    `stem`.json holds the facts and the hash of each file, sealed with the key; it is written last.
    """
    about = _file(stem, ".json")
    record = _read(about, stem, key)
    if record is None:
        artifact = make()
        stem.parent.mkdir(parents=True, exist_ok=True)
        for ending, data in artifact.files.items():
            if isinstance(data, Path):
                data.replace(_file(stem, ending))
            else:
                _write(_file(stem, ending), data)
        hashes = {ending: of_file(_file(stem, ending)) for ending in artifact.files}
        record = {"files": hashes, "facts": dict(artifact.facts)}
        _write(about, sealed(key, json.dumps(record).encode()))
    return {ending: _file(stem, ending) for ending in record["files"]}, record["facts"]


def _file(stem: Path, ending: str) -> Path:
    return stem.with_name(stem.name + ending)


def _read(about: Path, stem: Path, key: str) -> dict[str, Any] | None:
    """Recorded hashes and facts of the files; None if they must be built."""
    try:
        data = unsealed(key, about.read_bytes())
        if data is None:
            return None
        record: dict[str, Any] = json.loads(data)
        intact = all(of_file(_file(stem, ending)) == hashed for ending, hashed in record["files"].items())
    except OSError:
        return None
    return record if intact else None


def _write(path: Path, data: bytes) -> None:
    temporary = path.with_name(f".writing-{os.getpid()}-{os.urandom(6).hex()}")
    temporary.write_bytes(data)
    temporary.replace(path)
