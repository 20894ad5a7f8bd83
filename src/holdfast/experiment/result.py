"""What an experiment found: a line for each model, data and condition; saved as JSON."""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from holdfast.audit.gates import GateVerdict
from holdfast.engine.manifest import Manifest, folder_of
from holdfast.experiment.plan import Experiment

PAGE = "report.html"
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
    gates: tuple[GateVerdict, ...] = ()
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
    def broken_gates(self) -> tuple[tuple[Line, GateVerdict], ...]:
        """The gates that failed, each with its audit."""
        return tuple((line, one) for line in self.lines for one in line.gates if one.failed)

    @property
    def exit_code(self) -> int:
        """1 if a gate failed, 4 if a piece or an image did, else 0."""
        return 1 if self.broken_gates else 4 if self.failed else 0


class _ExperimentManifest(Manifest[Findings]):
    """The manifest of an experiment, with its state and exit code."""

    def to_plain(self, result: Findings) -> dict[str, Any]:
        """The findings as JSON values."""
        state = "done" if len(result.lines) == result.pieces else "running"
        return {**super().to_plain(result), "state": state, "exit_code": result.exit_code}


_manifest = _ExperimentManifest("experiment.json", "experiment", Findings, "an experiment")
as_plain, save = _manifest.to_plain, _manifest.save


def experiment_folder(experiment: Experiment, runs: Path) -> Path:
    """Where an experiment is saved: by its file's name and a hash of all that it declares."""
    asked = dataclasses.replace(experiment, file=Path(), title="")
    return folder_of(runs, f"experiment-{experiment.file.stem}", asked)
