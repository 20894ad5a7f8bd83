"""What the pieces of an experiment share: models and data opened once, and the plan of a piece."""

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
from holdfast.experiment.plan import Condition, Experiment, GivenData, GivenModel
from holdfast.experiment.result import Line
from holdfast.noise.suite import Watch, no_progress
from holdfast.noise.vision.choose import calibration_pool

T = TypeVar("T")
Target = TypeVar("Target", bound=Options)


@dataclass(frozen=True)
class Piece:
    """One piece of work: a condition for a model on data; a specification needs no data."""

    model: GivenModel
    data: GivenData | None
    condition: Condition
    spec: Path | None = None

    @property
    def label(self) -> str:
        """The condition, with the specification if it has several."""
        return f"{self.condition.name}: {self.spec.name}" if self.spec else self.condition.name

    @property
    def title(self) -> str:
        """The piece in words."""
        return f"{self.model.name}{f' on {self.data.name}' if self.data else ''}: {self.label}"


@dataclass
class Bench:
    """Where pieces are run: opened models and data, and the evaluations others are compared with.

    What could not be opened is not tried again: every piece that wants it fails with the same words.
    """

    experiment: Experiment
    runs: Path = DEFAULT_RUNS
    jobs: int = 0
    watch: Watch = no_progress
    notify: Callable[[str], None] = lambda line: None  # for what is guessed of a model or wrong with data
    opened: dict[Any, Any] = field(default_factory=dict)
    first: dict[tuple[str, str], Evaluation] = field(default_factory=dict)  # by model and data

    def once(self, key: Any, make: Callable[[], T]) -> T:
        """What `make` gives or raises, made once for a key."""
        if key not in self.opened:
            try:
                self.opened[key] = make()
            except HoldfastError as problem:
                self.opened[key] = problem
        found: T | HoldfastError = self.opened[key]
        if isinstance(found, HoldfastError):
            raise found
        return found

    def model(self, given: GivenModel) -> Model:
        """The model, opened."""
        from holdfast.graph.load import load_model

        def load() -> Model:
            found = load_model(given.path, given.card)
            for reason in found.guessed:
                self.notify(f"guessed  {given.name}: {reason}")
            return found

        return self.once(("model", given.name), load)

    def data(self, given: GivenData, task: Task) -> Dataset:
        """The data for a task, opened."""
        from holdfast.data.open import open_dataset

        def load() -> Dataset:
            how: dict[str, Any] = {"format": given.format, "split": given.split, "images": given.images}
            found = open_dataset(given.path, task=task, **how)
            for problem in found.problems[:10]:
                self.notify(f"data     {problem}")
            return found

        return self.once(("data", given.name, task), load)

    def options(self, piece: Piece, target: type[Target], **others: Any) -> Target:
        """The options of a command for this piece: the condition, with its model and its data."""
        model, data = piece.model, self.data_of(piece)
        where = {"runs": self.runs, "jobs": self.jobs, "seed": self.experiment.seed}
        given = {**vars(model), **vars(data), **where, "model": model.path, "data": data.path}
        known = {spec.name for spec in fields_of(target)}
        return carry(piece.condition.work, target, **{n: v for n, v in given.items() if n in known}, **others)

    def plan(self, piece: Piece) -> EvaluationPlan:
        """The plan of a piece, as the command of its own would make it."""
        model = self.model(piece.model)
        dataset = self.data(self.data_of(piece), model.card.task)
        return evaluation_plan(self.options(piece, EvaluationOptions), model, dataset, self.command(piece))

    def spare(self, piece: Piece, calibration: str | None, count: int, part: bool = False) -> Dataset | None:
        """Images to calibrate on that are not tested on; else None. `part`: not all are tested."""
        given, task = self.data_of(piece), self.model(piece.model).card.task
        if calibration:
            return self.data(GivenData(path=calibration, name=calibration), task)
        return calibration_pool(
            given.path, task, given.format, given.split, count, whole=part or given.images is not None
        )

    def command(self, piece: Piece) -> str:
        """The line that runs this condition again."""
        return command_line(ExperimentOptions(file=self.experiment.file, only=(piece.condition.name,)))

    def line(self, piece: Piece, **found: Any) -> Line:
        """The line of a piece with what was found."""
        return Line(
            model=piece.model.name,
            data=piece.data.name if piece.data else "",
            condition=piece.label,
            do=piece.condition.do,
            command=self.command(piece),
            **found,
        )

    def data_of(self, piece: Piece) -> GivenData:
        """The data of a piece; InputError if it has none."""
        if piece.data is None:
            raise InputError(f"{piece.condition.name}: expected data, got none")
        return piece.data
