"""What an experiment found: a line for each model, data and condition; saved as JSON."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from holdfast.audit.gates import Judged
from holdfast.core import fingerprint
from holdfast.engine.store import to_json, write_atomic
from holdfast.experiment.plan import Experiment

MANIFEST, PAGE = "experiment.json", "report.html"
CONTENT = 1  # what a manifest holds; a higher number for another content
State: TypeAlias = Literal["done", "failed"]


@dataclass(frozen=True)
class Line:
    """One piece of work. `delta` = value − what it is compared with, 0 to 1, with a paired 95 % interval."""

    model: str
    data: str
    condition: str
    do: str
    state: State = "done"
    metric: str = ""
    value: float | None = None
    delta: float | None = None
    low: float | None = None
    high: float | None = None
    images: int = 0
    failed: int = 0  # images that could not be read
    words: str = ""  # what else is to be said, or why it failed
    folder: str = ""  # its own run
    page: str = ""  # its own page
    seconds: float = 0.0
    command: str = ""
    gates: tuple[Judged, ...] = ()
    numbers: dict[str, Any] = field(default_factory=dict)  # everything it found

    @property
    def title(self) -> str:
        """The piece in words."""
        return f"{self.model}{f' on {self.data}' if self.data else ''}: {self.condition}"


@dataclass(frozen=True)
class Findings:
    """An experiment as far as it was run."""

    experiment: Experiment
    lines: tuple[Line, ...]
    pieces: int  # how many there are
    created: str = ""
    seconds: float = 0.0
    command: str = ""
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def failed(self) -> tuple[Line, ...]:
        """The pieces that failed, and those with images that did."""
        return tuple(line for line in self.lines if line.state == "failed" or line.failed)

    @property
    def broken_gates(self) -> tuple[tuple[Line, Judged], ...]:
        """The gates that failed, each with its audit."""
        return tuple((line, one) for line in self.lines for one in line.gates if one.failed)

    @property
    def exit_code(self) -> int:
        """1 if a gate failed, 4 if a piece or an image did, else 0."""
        return 1 if self.broken_gates else 4 if self.failed else 0


def folder_of(experiment: Experiment, runs: Path) -> Path:
    """Where an experiment is kept: by its file's name and a hash of all that it asks for."""
    stem = "".join(c if c.isalnum() or c in "-_." else "-" for c in experiment.file.stem)[:100]
    asked = dataclasses.replace(experiment, file=Path(), title="")
    return runs / f"experiment-{stem}-{fingerprint.of(asked)[:6]}"


def as_plain(found: Findings) -> dict[str, Any]:
    """The findings as JSON values."""
    done = len(found.lines) == found.pieces
    plain = dataclasses.asdict(found)
    plain["experiment"] = _printable(plain["experiment"])
    state = "done" if done else "running"
    return {"holdfast": CONTENT, "kind": "experiment", "state": state, "exit_code": found.exit_code, **plain}


def _printable(value: Any) -> Any:
    """The value with paths as texts."""
    if isinstance(value, dict):
        return {key: _printable(inside) for key, inside in value.items()}
    if isinstance(value, list | tuple):
        return [_printable(inside) for inside in value]
    return str(value) if isinstance(value, Path) else value


def save(found: Findings, folder: Path) -> Path:
    """The path of the written manifest."""
    path = folder / MANIFEST
    write_atomic(path, to_json(as_plain(found), indent=True))
    return path
