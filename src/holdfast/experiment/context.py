"""The shared state of the trials of an experiment: opened models and datasets, and the plan of a trial."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from holdfast.config.options import Options, carry, fields_of
from holdfast.config.parser import command_line
from holdfast.core.dataset import Dataset
from holdfast.core.errors import HoldfastError, InputError
from holdfast.core.model import Model, Task
from holdfast.evaluate.options import EvaluationOptions
from holdfast.evaluate.result import Evaluation
from holdfast.evaluate.run import DEFAULT_RUNS, EvaluationPlan, evaluation_plan
from holdfast.experiment.cli import ExperimentOptions
from holdfast.experiment.plan import Condition, DatasetEntry, Experiment, ModelEntry
from holdfast.experiment.result import TrialResult
from holdfast.noise.suite import Watch, no_progress
from holdfast.noise.vision.choose import calibration_pool

T = TypeVar("T")
Target = TypeVar("Target", bound=Options)


@dataclass(frozen=True)
class Trial:
    """One trial: a condition for a model on a dataset; a specification needs no dataset."""

    model: ModelEntry
    data: DatasetEntry | None
    condition: Condition
    spec: Path | None = None

    @property
    def label(self) -> str:
        """The condition, with the specification if it has several."""
        return f"{self.condition.name}: {self.spec.name}" if self.spec else self.condition.name

    @property
    def title(self) -> str:
        """The name of the trial."""
        return f"{self.model.name}{f' on {self.data.name}' if self.data else ''}: {self.label}"


@dataclass
class ExperimentContext:
    """The opened models and datasets, and the evaluations that others are compared with.

    A model or dataset that cannot be opened is not opened again: every trial that needs it fails with the
    same error.
    """

    experiment: Experiment
    runs: Path = DEFAULT_RUNS
    jobs: int = 0
    watch: Watch = no_progress
    # Reports guesses about a model and problems with a dataset.
    notify: Callable[[str], None] = lambda line: None
    opened: dict[Any, Any] = field(default_factory=dict)
    first: dict[tuple[str, str], Evaluation] = field(default_factory=dict)  # by model and data

    def once(self, key: Any, make: Callable[[], T]) -> T:
        """The result of `make`, or its error, computed once per key."""
        if key not in self.opened:
            try:
                self.opened[key] = make()
            except HoldfastError as problem:
                self.opened[key] = problem
        result: T | HoldfastError = self.opened[key]
        if isinstance(result, HoldfastError):
            raise result
        return result

    def model(self, entry: ModelEntry) -> Model:
        """The opened model."""
        from holdfast.graph.load import load_model

        def load() -> Model:
            model = load_model(entry.path, entry.card)
            for reason in model.guessed:
                self.notify(f"guessed  {entry.name}: {reason}")
            return model

        return self.once(("model", entry.name), load)

    def data(self, entry: DatasetEntry, task: Task) -> Dataset:
        """The opened dataset for a task."""
        from holdfast.data.open import open_dataset

        def load() -> Dataset:
            settings: dict[str, Any] = {"format": entry.format, "split": entry.split, "images": entry.images}
            dataset = open_dataset(entry.path, task=task, **settings)
            for problem in dataset.problems[:10]:
                self.notify(f"data     {problem}")
            return dataset

        return self.once(("data", entry.name, task), load)

    def options(self, trial: Trial, target: type[Target], **others: Any) -> Target:
        """The options of a command for this trial: the condition with its model and dataset."""
        model, data = trial.model, self.data_of(trial)
        shared = {"runs": self.runs, "jobs": self.jobs, "seed": self.experiment.seed}
        values = {**vars(model), **vars(data), **shared, "model": model.path, "data": data.path}
        names = {spec.name for spec in fields_of(target)} & values.keys()
        return carry(trial.condition.work, target, **{name: values[name] for name in names}, **others)

    def plan(self, trial: Trial) -> EvaluationPlan:
        """The plan of a trial, the same as that of the command."""
        model = self.model(trial.model)
        dataset = self.data(self.data_of(trial), model.card.task)
        return evaluation_plan(self.options(trial, EvaluationOptions), model, dataset, self.command(trial))

    def calibration_data(
        self, trial: Trial, calibration: str | None, count: int, part: bool = False
    ) -> Dataset | None:
        """Calibration images that are not tested, or None. `part`: not all images are tested."""
        entry, task = self.data_of(trial), self.model(trial.model).card.task
        if calibration:
            return self.data(DatasetEntry(path=calibration, name=calibration), task)
        whole = part or entry.images is not None
        return calibration_pool(entry.path, task, entry.format, entry.split, count, whole=whole)

    def command(self, trial: Trial) -> str:
        """The command line that reproduces this condition."""
        return command_line(ExperimentOptions(file=self.experiment.file, only=(trial.condition.name,)))

    def result(self, trial: Trial, *notes: str, **values: Any) -> TrialResult:
        """The result of a trial; empty notes are skipped."""
        data, text = trial.data.name if trial.data else "", "; ".join(filter(None, notes))
        command, do = self.command(trial), trial.condition.do
        return TrialResult(trial.model.name, data, trial.label, do, notes=text, command=command, **values)

    def data_of(self, trial: Trial) -> DatasetEntry:
        """The dataset of a trial. Raise InputError if it has none."""
        if trial.data is None:
            raise InputError(f"{trial.condition.name}: expected a dataset, got none")
        return trial.data
