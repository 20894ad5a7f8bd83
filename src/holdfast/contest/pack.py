"""An entry's zip from a folder of images: the same bytes for the same images, on any machine."""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path

from holdfast.contest.messages import SHOWN, listed
from holdfast.contest.png import SIGNATURE
from holdfast.contest.validate import FOLDER, is_junk, zip_name
from holdfast.core.errors import DataError, OutputError

_NUMBERED = re.compile(r"[1-9][0-9]{0,8}\.png")


def pack(folder: Path, team: str, out: Path) -> Path:
    """Write advimages_TEAM.zip into `out` from N.png in the folder or its folder advimages; return its path.

    Names are checked before: numbers from 1 without a gap, nothing else. Files that macOS and Windows add are
    skipped. An older zip of this name is replaced once the new one is complete.
    """
    target = out / zip_name(team)
    images = _images(folder, target)
    try:
        out.mkdir(parents=True, exist_ok=True)
        write_zip(target, FOLDER, images, zip64=False)
    except (OSError, zipfile.LargeZipFile) as problem:
        raise OutputError(f"{target}: cannot be written: {problem}") from None
    return target


def write_zip(path: Path, inside: str, files: Sequence[Path], *, zip64: bool = True) -> None:
    """Write a zip of these files in the folder `inside`: the same bytes for the same files."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        # PNG is compressed already; stored, the bytes depend on no version of zlib. No date, no user.
        with zipfile.ZipFile(part, "w", zipfile.ZIP_STORED, allowZip64=zip64) as archive:
            for file in files:
                about = zipfile.ZipInfo(f"{inside}{file.name}", (1980, 1, 1, 0, 0, 0))
                about.create_system, about.external_attr = 3, 0o100644 << 16
                archive.writestr(about, file.read_bytes())
        part.replace(path)
    finally:
        with suppress(OSError):  # the first error is the reason
            part.unlink(missing_ok=True)


def _images(folder: Path, target: Path) -> list[Path]:
    """The images in the order of their numbers."""
    if not folder.is_dir():
        got = "a file" if folder.exists() else "nothing"
        raise DataError(f"{folder}: expected a folder of 1.png, 2.png, …, got {got}")
    inner = folder / FOLDER.rstrip("/")
    home = inner if inner.is_dir() else folder
    found, strange = dict[int, Path](), list[str]()
    for path in sorted(home.iterdir()):
        name = path.name
        if is_junk(name) or path.resolve() == target.resolve():
            continue
        if _NUMBERED.fullmatch(name) and path.is_file():
            found[int(name[:-4])] = path
        else:
            strange.append(name + "/" * path.is_dir())
    _check(home, found, strange)
    return [found[number] for number in sorted(found)]


def _check(home: Path, found: dict[int, Path], strange: list[str]) -> None:
    if strange:
        raise DataError(
            f"{home}: expected nothing but images named 1.png, 2.png, … (no leading zeros, lower case), "
            f"got {listed(strange)} ({len(strange)} {'name' if len(strange) == 1 else 'names'})"
        )
    if not found:
        raise DataError(f"{home}: expected images named 1.png, 2.png, …, got none")
    count = max(found) - len(found)
    if count:  # it may be millions: a file called 20260101.png
        gone = islice((f"{n}.png" for n in range(1, max(found)) if n not in found), SHOWN + 1)
        raise DataError(f"{home}: missing: {listed(gone)} ({count} {'file' if count == 1 else 'files'})")
    for path in found.values():
        with path.open("rb") as file:
            if file.read(8) != SIGNATURE:
                raise DataError(f"{path}: not a PNG by its content; expected a PNG image")
