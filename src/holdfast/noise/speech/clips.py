"""Recordings with their texts in the layout of LJ Speech: metadata.csv and a folder of wav files.

A line of metadata.csv is `id|text|normalised text`; the recording is wavs/<id>.wav.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from holdfast.core import fingerprint
from holdfast.core.errors import DataError
from holdfast.noise.speech.system import Clip

METADATA, WAVS = "metadata.csv", "wavs"
SHIPPED = "clips"  # the name of the recordings that come with the package


@dataclass(frozen=True)
class ClipSet:
    """The clips of a folder, and what is wrong with lines that were left out."""

    name: str
    clips: tuple[Clip, ...]
    problems: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.clips)


def open_clips(name_or_path: str | Path, limit: int | None = None) -> ClipSet:
    """The clips of a folder, or the shipped ones by their name; DataError if none can be used."""
    path = Path(name_or_path)
    if str(name_or_path) == SHIPPED and not path.exists():
        path = Path(str(resources.files("holdfast"))) / "models" / "speech" / SHIPPED
    file = path / METADATA
    if path.is_file() and path.name == METADATA:
        path, file = path.parent, path
    if not file.is_file():
        what = f"no {METADATA} in it" if path.is_dir() else "no such folder"
        raise DataError(
            f"{path}: {what}; expected the layout of LJ Speech ({METADATA} and {WAVS}/), or {SHIPPED!r}"
        )
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as problem:
        raise DataError(f"{file}: expected text in UTF-8, got: {problem}") from None
    return _checked(path, file, lines, limit)


def _checked(path: Path, file: Path, lines: list[str], limit: int | None) -> ClipSet:
    found: list[Clip] = []
    problems: list[str] = []
    seen: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        if limit is not None and len(found) >= limit:
            break
        fields = [field.strip() for field in line.split("|")]
        problem = _problem(fields)
        if not problem and fields[0] in seen:
            problem = f"id {fields[0]!r} is that of line {seen[fields[0]]} too"
        if problem:
            problems.append(f"{file}:{number}: {problem}")
            continue
        seen[fields[0]] = number
        found.append(Clip(fields[0], fields[2], path / WAVS / f"{fields[0]}.wav", number))
    if not found:
        said = f"; first {problems[0]}" if problems else ""
        raise DataError(f"{file}: no line can be used{said}")
    return ClipSet(path.resolve().name, tuple(found), tuple(problems))


def _problem(fields: list[str]) -> str:
    """What is wrong with the fields of a line; empty if nothing is."""
    names = ("id", "text", "normalised text")
    if len(fields) != len(names):
        missing = "" if len(fields) > len(names) else f": {names[len(fields)]!r} is missing"
        return f"expected id|text|normalised text, got {len(fields)} of 3 fields{missing}"
    for name, value in zip(names, fields, strict=True):
        if not value and name != "text":
            return f"expected id|text|normalised text, got an empty {name!r}"
    if Path(fields[0]).name != fields[0]:
        return f"id: expected a plain file name, got {fields[0]!r}"
    return ""


def clip_key(clip: Clip) -> str:
    """A text that changes when the recording or its text does."""
    try:
        return fingerprint.of([clip.text, fingerprint.of_file(clip.path)])
    except OSError as problem:
        return f"unreadable: {clip.name}: {problem}"
