"""What a suite of speech found: one row an option, one model or many. Saved as JSON."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, Literal, TypeAlias

import orjson

from holdfast.core.errors import InputError
from holdfast.engine.store import to_json, write_atomic
from holdfast.engine.versions import versions

MANIFEST = "speech.json"
Outcome: TypeAlias = Literal["measured", "identical", "no effect", "impossible", "not installed"]
METRICS: tuple[str, ...] = ("mel", "heard", "wave")


@dataclass(frozen=True)
class Number:
    """A mean over clips with its 95 % interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Row:
    """One option: mean square errors against the clean system on the same texts, over the clips."""

    family: str
    option: str
    outcome: Outcome
    note: str = ""
    mel: Number | None = None  # before the vocoder (precision: the model's output; stft: the analysis)
    heard: Number | None = None  # log mel of the wave
    wave: Number | None = None
    own: Number | None = None  # `heard` against the recording, warped in time
    clips: int = 0
    longer: int = 0  # clips with another number of frames than the clean system's
    unstopped: int = 0  # clips that max_frames ended
    failed: int = 0
    alike: str = ""  # an earlier option of the family with the same errors

    @property
    def label(self) -> str:
        """family=option, as the command line takes it."""
        return f"{self.family}={self.option}"


@dataclass(frozen=True)
class SpeechNoise:
    """The noise of one acoustic model: the clean system's errors, every option, the worst two together."""

    model: str
    sha256: str
    kind: str
    clips: int
    own: Number  # log mel of the clean system's wave against the recording's, warped in time
    copy: Number  # what the vocoder alone costs: the recording's log mel made a wave and analysed again
    power: float  # mean square of the clean wave: twice this is the error of two unrelated waves
    rows: tuple[Row, ...]
    combined: Row | None
    spectrum: dict[str, Any] = field(default_factory=dict)
    vocoder: str = ""
    calibration: str = ""
    notes: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()

    @property
    def worst(self) -> Row | None:
        """The option with the largest error of what is heard."""
        return max(measured(self.rows), key=harm, default=None)


@dataclass(frozen=True)
class SpeechSuite:
    """Models on the same clips."""

    data: str
    models: tuple[SpeechNoise, ...]
    command: str = ""
    created: str = ""
    seconds: float = 0.0
    versions: dict[str, str] = field(default_factory=dict)


def measured(rows: Sequence[Row]) -> list[Row]:
    """The rows that have numbers and differ from the clean system and from one another."""
    return [row for row in rows if row.outcome == "measured" and row.heard is not None and not row.alike]


def harm(row: Row) -> float:
    """What makes one option worse than another: the error of what is heard."""
    return row.heard.mean if row.heard else 0.0


def as_plain(suite: SpeechSuite) -> dict[str, Any]:
    """The suite as JSON values."""
    return {"holdfast": 1, "kind": "noise of speech", **dataclasses.asdict(suite)}


def save(suite: SpeechSuite, folder: Path) -> Path:
    """The path of the written manifest."""
    path = folder / MANIFEST
    write_atomic(path, to_json(as_plain(suite), indent=True))
    return path


def open_suite(path: Path) -> SpeechSuite:
    """The suite that `save` wrote; InputError if there is none."""
    file = path / MANIFEST if path.is_dir() else path
    try:
        plain = orjson.loads(file.read_bytes())
        models = tuple(_model(m) for m in plain["models"])
        kept = {f.name: plain[f.name] for f in dataclasses.fields(SpeechSuite) if f.name != "models"}
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise InputError(f"{file}: expected the {MANIFEST} of a noise run, got: {problem}") from problem
    return SpeechSuite(models=models, **kept)


def _model(plain: dict[str, Any]) -> SpeechNoise:
    values = {f.name: plain[f.name] for f in dataclasses.fields(SpeechNoise)}
    values["rows"] = tuple(_row(r) for r in plain["rows"])
    values["combined"] = None if plain["combined"] is None else _row(plain["combined"])
    values |= {name: Number(**plain[name]) for name in ("own", "copy")}
    values |= {name: tuple(plain[name]) for name in ("notes", "failed")}
    return SpeechNoise(**values)


def _row(plain: dict[str, Any]) -> Row:
    numbers = {name: None if plain[name] is None else Number(**plain[name]) for name in (*METRICS, "own")}
    return Row(**{**plain, **numbers})


def libraries() -> dict[str, str]:
    """Name -> version of everything that can change a number, the libraries of the operators too."""
    found = versions()
    for name in ("scipy", "librosa", "torch"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def suite_folder(suite: SpeechSuite, runs: Path) -> Path:
    """Where a suite is kept: by its models, its clips and the options that were asked for."""
    from holdfast.core import fingerprint

    name = f"noise-{'-'.join(m.model for m in suite.models)}-on-{suite.data}"
    plain = "".join(c if c.isalnum() or c in "-_." else "-" for c in name)
    same = [
        [m.sha256, m.clips, m.vocoder, m.calibration, m.spectrum, [r.label for r in m.rows]]
        for m in suite.models
    ]
    return runs / f"{plain[:120]}-{fingerprint.of([name, same])[:6]}"
