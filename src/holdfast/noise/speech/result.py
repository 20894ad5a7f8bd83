"""What a suite of speech found: one row an option, one model or many. Saved as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from holdfast.engine.manifest import Manifest, folder_of

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


MANIFEST = "speech.json"
_manifest = Manifest(MANIFEST, "noise of speech", SpeechSuite, "a noise run")
as_plain, save, open_suite = _manifest.to_plain, _manifest.save, _manifest.open


def suite_folder(suite: SpeechSuite, runs: Path) -> Path:
    """Where a suite is saved: by its models, its clips and the selected options."""
    name = f"noise-{'-'.join(m.model for m in suite.models)}-on-{suite.data}"
    same = [
        [m.sha256, m.clips, m.vocoder, m.calibration, m.spectrum, [r.label for r in m.rows]]
        for m in suite.models
    ]
    return folder_of(runs, name, same)
