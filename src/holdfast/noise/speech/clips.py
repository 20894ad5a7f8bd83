"""Recordings with their texts in the layout of LJ Speech: metadata.csv and a folder of wav files.

A line of metadata.csv is `id|text|normalised text`; the recording is wavs/<id>.wav.
"""

import io
import wave as riff
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from holdfast.core import fingerprint
from holdfast.core.errors import DataError
from holdfast.noise.speech.card import shipped_folder
from holdfast.noise.speech.spectrum import Wave

METADATA, WAVS = "metadata.csv", "wavs"
SHIPPED = "clips"  # the name of the recordings that come with the package


@dataclass(frozen=True)
class Clip:
    """A recording with its text, not yet read; small and picklable."""

    name: str
    text: str
    path: Path
    line: int  # of metadata.csv


@dataclass(frozen=True)
class ClipSet:
    """The clips of a folder, and the problems of lines that were skipped."""

    name: str
    clips: tuple[Clip, ...]
    problems: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.clips)


def open_clips(name_or_path: str | Path, limit: int | None = None) -> ClipSet:
    """The clips of a folder, or the shipped ones by their name; DataError if none can be used."""
    path = Path(name_or_path)
    if str(name_or_path) == SHIPPED and not path.exists():
        path = shipped_folder() / SHIPPED
    file = path / METADATA
    if path.is_file() and path.name == METADATA:
        path, file = path.parent, path
    if not file.is_file():
        what = f"no {METADATA} in it" if path.is_dir() else "no such folder"
        expected = f"expected the layout of LJ Speech ({METADATA} and {WAVS}/), or {SHIPPED!r}"
        raise DataError(f"{path}: {what}; {expected}")
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as problem:
        raise DataError(f"{file}: expected text in UTF-8, got: {problem}") from None
    clips: dict[str, Clip] = {}
    problems: list[str] = []
    for number, line in enumerate(lines, start=1):
        if limit is not None and len(clips) >= limit:
            break
        if not line.strip():
            continue
        fields = [field.strip() for field in line.split("|")]
        if wrong := _problem(fields, clips):
            problems.append(f"{file}:{number}: {wrong}")
        else:
            clips[fields[0]] = Clip(fields[0], fields[2], path / WAVS / f"{fields[0]}.wav", number)
    if not clips:
        first = f"; first {problems[0]}" if problems else ""
        raise DataError(f"{file}: no line can be used{first}")
    return ClipSet(path.resolve().name, tuple(clips.values()), tuple(problems))


def _problem(fields: list[str], clips: Mapping[str, Clip]) -> str:
    names = ("id", "text", "normalised text")
    if len(fields) != len(names):
        missing = "" if len(fields) > len(names) else f": {names[len(fields)]!r} is missing"
        return f"expected id|text|normalised text, got {len(fields)} of 3 fields{missing}"
    for name, value in zip(names, fields, strict=True):
        if not value and name != "text":
            return f"expected id|text|normalised text, got an empty {name!r}"
    if Path(fields[0]).name != fields[0]:
        return f"id: expected a plain file name, got {fields[0]!r}"
    return f"id {fields[0]!r} is also the id of line {clips[fields[0]].line}" if fields[0] in clips else ""


def clip_key(clip: Clip) -> str:
    """A text that changes when the recording or its text does."""
    try:
        return fingerprint.of([clip.text, fingerprint.of_file(clip.path)])
    except OSError as problem:
        return f"unreadable: {clip.name}: {problem}"


FULL = 32768.0  # of 16 bits


def read_wav(path: Path, rate: int) -> Wave:
    """The samples (samples,) of a recording between −1 and 1; DataError if it is not as the card wants it."""
    try:
        with riff.open(str(path), "rb") as file:
            channels, width, got, frames = file.getparams()[:4]
            data = file.readframes(frames)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file, but metadata.csv names it") from None
    except (OSError, EOFError, riff.Error) as problem:
        said = str(problem) or "the file ends in its header"
        raise DataError(f"{path}: expected a wav file of 16-bit PCM, got: {said}") from None
    there = f"the header states {frames} samples, the file has {len(data) // 2}"
    checks = [
        (channels == 1, f"expected one channel, got {channels}; mix them down first"),
        (width == 2, f"expected 16-bit samples, got {8 * width}-bit; convert it first"),
        (got == rate, f"expected {rate} Hz, as in the card, got {got}; resample it first"),
        (len(data) >= 2 * frames, f"truncated: {there}; copy it again"),
        (frames > 0, "the file has no samples"),
    ]
    for right, text in checks:
        if not right:
            raise DataError(f"{path}: {text}")
    return np.frombuffer(data, "<i2").astype(np.float64) / FULL


def wav_bytes(wave: Wave, rate: int) -> bytes:
    """The wave as a wav file of 16-bit PCM; what is beyond ±1 is clipped."""
    samples = np.clip(np.rint(wave * FULL), -FULL, FULL - 1).astype("<i2")
    out = io.BytesIO()
    with riff.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(samples.tobytes())
    return out.getvalue()
