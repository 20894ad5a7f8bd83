"""The result of an experiment: one result per model, dataset and condition; saved as JSON."""

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
class TrialResult:
    """The result of a trial. `points_lost` = reference − value in percentage points, with its interval."""

    model: str
    data: str
    condition: str
    do: str
    state: State = "done"
    metric: str = ""
    value: float | None = None
    points_lost: float | None = None
    low: float | None = None
    high: float | None = None
    images: int = 0
    failed: int = 0  # images that could not be read
    notes: str = ""  # notes, or the reason of the failure
    folder: str = ""  # of its run
    page: str = ""  # its page
    seconds: float = 0.0
    command: str = ""
    gates: tuple[GateVerdict, ...] = ()
    numbers: dict[str, Any] = field(default_factory=dict)  # all results

    @property
    def title(self) -> str:
        """The name of the trial."""
        return f"{self.model}{f' on {self.data}' if self.data else ''}: {self.condition}"


@dataclass(frozen=True)
class ExperimentResult:
    """The result of an experiment, as far as it was run."""

    experiment: Experiment
    results: tuple[TrialResult, ...]
    trials: int  # total number of trials
    created: str = ""
    seconds: float = 0.0
    command: str = ""
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def failed(self) -> tuple[TrialResult, ...]:
        """The trials that failed or have failed images."""
        return tuple(line for line in self.results if line.state == "failed" or line.failed)

    @property
    def broken_gates(self) -> tuple[tuple[TrialResult, GateVerdict], ...]:
        """The failed gates, each with its audit."""
        return tuple((line, gate) for line in self.results for gate in line.gates if gate.failed)

    @property
    def exit_code(self) -> int:
        """1 if a gate failed, 4 if a trial or an image failed, else 0."""
        return 1 if self.broken_gates else 4 if self.failed else 0


class _ExperimentManifest(Manifest[ExperimentResult]):
    """The manifest of an experiment, with its state and exit code."""

    def to_plain(self, result: ExperimentResult) -> dict[str, Any]:
        state = "done" if len(result.results) == result.trials else "running"
        return {**super().to_plain(result), "state": state, "exit_code": result.exit_code}


_manifest = _ExperimentManifest("experiment.json", "experiment", ExperimentResult, "an experiment")
as_plain, save = _manifest.to_plain, _manifest.save


def experiment_folder(experiment: Experiment, runs: Path) -> Path:
    """The folder of an experiment: its file name and a hash of its content."""
    content = dataclasses.replace(experiment, file=Path(), title="")
    return folder_of(runs, f"experiment-{experiment.file.stem}", content)
